//! `leasehold renew NAME`: restarts the ttl of a lease that `acquire` took.

use std::time::Duration;

use leasehold::{ErrorKind, Identity};
use serde_json::json;

use super::{Context, Given};
use crate::args::Renew;
use crate::duration::{Typed, typed};
use crate::environment::TTL_MS;
use crate::exit::{Exit, Failure};
use crate::output::{escape, print_object};
use crate::talk::Level;
use crate::view::{AskedObject, asked, millis};

/// Renews, or fails with 79 if the lease is not ours any more.
pub(crate) async fn renew(context: &Context, args: &Renew) -> Result<Exit, Failure> {
    let given = Given::new(args.token.as_deref(), &args.name)?;
    let ttl = ttl(args)?;
    let client = context.settings.connect_to_existing(Identity::anonymous(), &context.talk).await?;
    context.settings.reach_all(&client, &args.name).await?;
    let lease = client.lease(&args.name, given.token.clone());
    if let Err(error) = lease.renew(ttl).await {
        let is_lost = error.kind() == ErrorKind::Lost;
        let mut failure = Failure::from(error).about(&args.name);
        if is_lost {
            failure.message.push_str(", and acquire the lock again to go on");
            failure = given.mistaken(&client, &args.name).await.unwrap_or(failure);
        }
        return Err(failure);
    }
    tracing::info!(name = &*args.name, ttl_ms = millis(ttl), "renewed");
    if let Some(revoked) = lease.revoked() {
        let text = format!("{}; the lock is still held: finish and release it", asked(revoked));
        context.talk.notice(Level::Warning, "revoked", Some(&args.name), &text);
    }
    if context.json {
        // The new end is unknown. More may be left, since a renewal never shortens a lease.
        let mut renewal = json!({ "name": &*args.name, "ttl_ms": millis(ttl) });
        if let Some(revoked) = lease.revoked() {
            renewal["asked"] = json!(AskedObject::new(revoked));
        }
        print_object("renewal", renewal)?;
    }
    Ok(Exit::OK)
}

fn of_millis(text: &str) -> Option<Typed> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    typed(&format!("{text}ms")).ok().filter(|_| is_number)
}

/// The ttl of the flag, or else the one that `acquire` or `run` put into the environment.
fn ttl(args: &Renew) -> Result<Duration, Failure> {
    let typed = match (&args.ttl, std::env::var(TTL_MS)) {
        (Some(typed), _) => typed.clone(),
        (None, Ok(ms)) => of_millis(&ms).ok_or_else(|| {
            let shown = escape(&ms);
            let message = format!(
                "LEASEHOLD_TTL_MS is not a number of milliseconds: `{shown}`; the store was not \
                 contacted; give --ttl instead"
            );
            Failure::config(message).about(&args.name)
        })?,
        (None, Err(_)) => {
            let message = "no ttl was given; the store was not contacted; give --ttl, or set the \
                           LEASEHOLD_TTL_MS that `leasehold acquire` printed";
            return Err(Failure::new(Exit::USAGE, "usage", message).about(&args.name));
        }
    };
    typed.ttl(Some(&args.name))
}
