//! `leasehold release NAME`: ends a lease that `acquire` took.

use leasehold::{ErrorKind, Identity};
use serde_json::json;

use super::{Context, Given};
use crate::args::Release;
use crate::exit::{Exit, Failure};
use crate::output::{escape, print_object};

/// Releases, or fails with 79 if the lease was not ours any more.
pub(crate) async fn release(context: &Context, args: &Release) -> Result<Exit, Failure> {
    let given = Given::new(args.token.as_deref(), &args.name)?;
    let client = context.settings.connect_to_existing(Identity::anonymous(), &context.talk).await?;
    context.settings.reach_all(&client, &args.name).await?;
    let answer = client.lease(&args.name, given.token.clone()).release().await;
    if answer.map_err(|error| Failure::from(error).about(&args.name))?
        == leasehold::Release::NotHeld
    {
        let mistaken = given.mistaken(&client, &args.name).await;
        return Err(mistaken.unwrap_or_else(|| not_held(&args.name)));
    }
    tracing::info!(name = &*args.name, "released");
    if context.json {
        print_object("release", json!({ "name": &*args.name }))?;
    }
    Ok(Exit::OK)
}

fn not_held(name: &str) -> Failure {
    let message = format!(
        "`{}`: nothing was released: the token does not hold this lock. If the token is right, the \
         lease expired, was released before, was ended by an operator, or was lost by the store. \
         Others may have held the lock during your work",
        escape(name)
    );
    Failure::new(Exit::LOST, ErrorKind::Lost.as_str(), message).about(name)
}
