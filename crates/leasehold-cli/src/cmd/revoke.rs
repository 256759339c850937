//! `leasehold unlock NAME --ask`: asks the holders to let go, and waits until they have.

use std::time::Duration;

use leasehold::core::Moment;
use leasehold::host::{Host as _, SystemHost};
use leasehold::store::{Holder, Revoked};
use leasehold::{Client, Snapshot};

use super::Context;
use crate::args::Unlock;
use crate::duration::human;
use crate::exit::{Exit, Failure};
use crate::output::escape;
use crate::talk::Level;
use crate::view;

/// How often to look whether the holders have let go.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Asks exactly the holders that were seen, which may not be all. Their leases go on until they let
/// go. Returns the holders that were asked; the others have let go already.
pub(super) async fn ask<'a>(
    context: &Context,
    args: &Unlock,
    client: &Client,
    chosen: &'a [Holder],
) -> Result<Vec<&'a Holder>, Failure> {
    let mut asked = Vec::new();
    for holder in chosen {
        if client.revoke(&args.name, &holder.token, &args.why).await? == Revoked::Asked {
            asked.push(holder);
            let told = if holder.idle {
                "its work has ended; if its process has ended too, only --force frees the lock \
                 early"
            } else if view::may_be_foreign(holder) {
                "if it uses another library, it does not see requests, and only --force frees \
                 the lock early"
            } else {
                "it sees the request at its next renewal, and keeps the lock until it releases it"
            };
            let who = view::who(holder.client.as_ref());
            let text = match &holder.revoked {
                // The store keeps the first request, and the holder learns of no other.
                Some(first) => {
                    format!("{who} had been {}; that request stays; {told}", view::asked(first))
                }
                None => format!("{who} was asked to let go (why: {}); {told}", escape(&args.why)),
            };
            context.talk.notice(Level::Info, "asked", Some(&args.name), &text);
        }
    }
    Ok(asked)
}

/// With `--wait`, waits until all holders that were asked have let go, or until `until`. Returns
/// how many have let go, which is 0 without `--wait`.
///
/// # Errors
///
/// If one of them still has the lock at `until`, or if the store fails.
pub(super) async fn wait(
    context: &Context,
    args: &Unlock,
    client: &Client,
    asked: &[&Holder],
    until: Moment,
) -> Result<usize, Failure> {
    let Some(wait) = args.wait else { return Ok(0) };
    if let Some(holder) = still_left(client, &args.name, asked, until).await? {
        return Err(still_held(context, args, holder, wait));
    }
    let text = "every holder that was asked has let go";
    context.talk.notice(Level::Info, "let-go", Some(&args.name), text);
    Ok(asked.len())
}

/// Waits until no holder that was asked has the lock any more. Returns a holder that still has it
/// when the time is over.
async fn still_left<'a>(
    client: &Client,
    name: &str,
    asked: &[&'a Holder],
    until: Moment,
) -> Result<Option<&'a Holder>, Failure> {
    loop {
        let seen = client.inspect(name).await;
        let left = until.since(SystemHost.now());
        match seen {
            Ok(seen) => {
                let holder = first_left(asked, &seen);
                if holder.is_none() || left.is_zero() {
                    return Ok(holder);
                }
            }
            // The store may answer again in time.
            Err(error) if error.is_retryable() && !left.is_zero() => {}
            Err(error) => return Err(error.into()),
        }
        tokio::time::sleep(LOOK_EVERY.min(left)).await;
    }
}

/// A holder that was asked and may still have the lock.
fn first_left<'a>(asked: &[&'a Holder], seen: &Snapshot) -> Option<&'a Holder> {
    asked.iter().copied().find(|holder| may_hold(&holder.token, seen))
}

/// Whether the holder with this token is shown, or may be one that is not shown.
fn may_hold(token: &[u8], seen: &Snapshot) -> bool {
    // The token may hold a majority of nodes, as long as no majority says otherwise.
    let without = seen.votes.iter().filter(|vote| match &vote.holder {
        Ok(holder) => holder.as_deref() != Some(token),
        Err(_) => false,
    });
    let is_voted_out = seen.votes.is_empty() || without.count() > seen.votes.len() / 2;
    !view::shows_all(seen)
        || !is_voted_out
        || seen.holders.iter().any(|holder| holder.token == token)
}

fn still_held(context: &Context, args: &Unlock, holder: &Holder, wait: Duration) -> Failure {
    let (name, word) = (escape(&args.name), context.settings.words(&args.name));
    if holder.idle {
        let message = format!(
            "`{name}` is still kept after {}, although its work has ended: perhaps no process is \
             left that could let go; `leasehold unlock {word} --force --why TEXT` frees it",
            human(wait)
        );
        return Failure::new(Exit::TAKEN, "wait-elapsed", message).about(&args.name);
    }
    let message = format!(
        "`{name}` is still held by {} after {}; the request stays in place; see `leasehold inspect \
         {word}`, and ask the person who runs the holder",
        view::who(holder.client.as_ref()),
        human(wait)
    );
    Failure::new(Exit::TAKEN, "wait-elapsed", message).about(&args.name)
}

#[cfg(test)]
mod tests {
    use leasehold::store::Vote;

    use super::*;

    #[test]
    fn a_holder_has_let_go_when_all_are_shown_without_it_and_a_majority_agrees() {
        let ours = || Holder::new(b"ours".to_vec());
        let vote = |holder: Result<Option<&str>, &str>| {
            let holder = holder.map(|token| token.map(|token| token.as_bytes().to_vec()));
            Vote::new("a", holder.map_err(str::to_owned))
        };
        let (has, gone, down) = (vote(Ok(Some("ours"))), vote(Ok(None)), vote(Err("down")));
        // how many holders are shown, whether ours is one of them, votes, whether it may hold
        for (shown, is_shown, votes, expected) in [
            (0, false, vec![], false),
            (1, true, vec![], true),
            (99, false, vec![], false),
            (100, false, vec![], true),
            (0, false, vec![gone.clone(), gone.clone(), down.clone()], false),
            (0, false, vec![has.clone(), gone.clone(), down.clone()], true),
            (0, false, vec![has.clone(), gone.clone(), gone.clone()], false),
            (0, false, vec![gone, down.clone(), down], true),
        ] {
            let mut seen = Snapshot::default();
            seen.holders = (0..shown).map(|at| Holder::new(vec![at])).collect();
            if is_shown {
                seen.holders[0] = ours();
            }
            seen.votes = votes;
            assert_eq!(may_hold(b"ours", &seen), expected, "{seen:?}");
        }
    }
}
