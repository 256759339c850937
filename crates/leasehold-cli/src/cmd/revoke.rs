//! `leasehold unlock NAME --ask`: asks the holders to let go, and waits until they have.

use std::time::Duration;

use leasehold::core::Moment;
use leasehold::host::{Host as _, SystemHost};
use leasehold::store::{Holder, Revoked};
use leasehold::{Client, Snapshot};
use serde_json::json;

use super::Context;
use super::unlock::{changed, done};
use crate::args::Unlock;
use crate::duration::human;
use crate::exit::{Exit, Failure};
use crate::output::{escape, shell_word};
use crate::talk::Level;
use crate::view;

/// How often to look whether the holders have let go.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Asks exactly the holders that were seen. Their leases go on until they let go.
pub(super) async fn revoke(
    context: &Context,
    args: &Unlock,
    client: &Client,
    chosen: &[&Holder],
) -> Result<Exit, Failure> {
    let until = SystemHost.now() + args.wait.unwrap_or_default();
    let mut asked: Vec<&Holder> = Vec::new();
    for holder in chosen {
        if client.revoke(&args.name, &holder.token, &args.why).await? == Revoked::Asked {
            asked.push(holder);
            let text = format!(
                "{} was asked to let go (why: {}); it learns of it at its next renewal, and keeps \
                 the lock until it lets go",
                view::who(holder.client.as_ref()),
                escape(&args.why)
            );
            context.talk.notice(Level::Info, "asked", Some(&args.name), &text);
        }
    }
    if asked.is_empty() {
        return Err(changed(args, "the holder that was seen has let go already; nobody was asked"));
    }
    let ended = match args.wait {
        None => 0,
        Some(wait) => {
            all_let_go(client, args, &asked, until, wait).await?;
            let text = "every holder that was asked has let go";
            context.talk.notice(Level::Info, "let-go", Some(&args.name), text);
            asked.len()
        }
    };
    done(context, json!({ "name": &*args.name, "ended": ended, "asked": asked.len() }))
}

/// Waits until no holder that was asked has the lock.
async fn all_let_go(
    client: &Client,
    args: &Unlock,
    asked: &[&Holder],
    until: Moment,
    wait: Duration,
) -> Result<(), Failure> {
    loop {
        let seen = client.inspect(&args.name).await;
        let left = until.since(SystemHost.now());
        match seen {
            Ok(seen) => {
                let Some(holder) = first_left(asked, &seen) else { return Ok(()) };
                if left.is_zero() {
                    return Err(still_held(args, holder, wait));
                }
            }
            // The store may answer again in time.
            Err(error) if error.is_retryable() && !left.is_zero() => {}
            Err(error) => return Err(error.into()),
        }
        tokio::time::sleep(LOOK_EVERY.min(left)).await;
    }
}

fn first_left<'a>(asked: &[&'a Holder], seen: &Snapshot) -> Option<&'a Holder> {
    let holds = |token: &[u8]| seen.holders.iter().any(|holder| holder.token == token);
    asked.iter().copied().find(|holder| holds(&holder.token))
}

fn still_held(args: &Unlock, holder: &Holder, wait: Duration) -> Failure {
    let (name, word) = (escape(&args.name), shell_word(&args.name));
    let message = format!(
        "`{name}` is still held by {} after {}; the request stands; see `leasehold inspect {word}` \
         and ask its owner",
        view::who(holder.client.as_ref()),
        human(wait)
    );
    Failure::new(Exit::TAKEN, "wait-elapsed", message).about(&args.name)
}
