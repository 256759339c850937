//! `leasehold renew NAME`: restarts the ttl of a lease that `acquire` took.

use leasehold::{ErrorKind, Identity};
use serde_json::json;

use super::{Context, token};
use crate::args::Renew;
use crate::exit::{Exit, Failure};
use crate::output::print_json;
use crate::view::millis;

/// Renews, or fails with 79 if the lease is not ours any more.
pub(crate) async fn renew(context: &Context, args: &Renew) -> Result<Exit, Failure> {
    let token = token(args.token.as_deref(), &args.name)?;
    let client = context.settings.connect(Identity::anonymous(), &context.talk).await?;
    client.lease(&args.name, token).renew(args.ttl).await.map_err(|error| {
        let lost = error.kind() == ErrorKind::Lost;
        let mut failure = Failure::from(error).about(&args.name);
        if lost {
            failure.message.push_str("; stop the protected work, and acquire anew to go on");
        }
        failure
    })?;
    if context.json {
        print_json(&json!({
            "schema": "leasehold.v1.renewal",
            "name": args.name,
            "ttl_ms": millis(args.ttl),
        }))?;
    }
    Ok(Exit::OK)
}
