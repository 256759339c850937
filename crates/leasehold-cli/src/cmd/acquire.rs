//! `leasehold acquire NAME --ttl DUR`: takes a lock for a script and leaves it to its ttl.

use std::time::Duration;

use leasehold::host::{Host as _, SystemHost};
use leasehold::{Client, Guard, Identity, MultiGuard};
use serde_json::json;

use super::Context;
use super::holding::lengthen;
use super::join::Own;
use crate::args::Acquire;
use crate::duration::human;
use crate::environment::{EXPIRES_AT_MS, FENCE, NAME, TOKEN, TTL_MS};
use crate::exit::{DRAIN, Exit, Failure};
use crate::output::{export, object, rfc3339, why_unread, write_out_aside};
use crate::patience::Patience;
use crate::signals::Signals;
use crate::take::{Asked, Taken, Wait, take};
use crate::talk::Level;
use crate::view::millis;

/// Takes the lock and prints what a script needs to renew and release it.
pub(crate) async fn acquire(context: &Context, args: &Acquire) -> Result<Exit, Failure> {
    let ttl = args.ttl.ttl(Some(&args.name))?;
    context.settings.refuse_private(Some(&args.name))?;
    refuse_unread(&args.name)?;
    let mut signals = Signals::install()?;
    let talk = &context.talk;
    let mut patience = Patience::new(args.take.wait_store);
    let who = detached();
    let client = tokio::select! {
        biased;
        signal = signals.interrupt() => return Ok(Exit::Signal(signal.as_raw())),
        client = context.settings.connect_patiently(&who, Some(&args.name), &mut patience, talk) =>
            client?,
    };
    refuse_bound(&client, &args.name)?;
    context.settings.reach_all(&client, &args.name).await?;
    let wait = args.take.wait();
    let word = context.settings.words(&args.name);
    let advice = format!(
        "under `leasehold run`, do not acquire its lock again, or use another name; in a shell \
         with a lease of its own, extend it by `leasehold renew {word}`, or release it first"
    );
    if let Some(own) = Own::find(context, &client, &args.name).await? {
        let failure = own.refused(&args.name, &advice);
        return Err(match wait {
            Wait::Never => {
                Failure { exit: args.take.taken(), kind: "taken", level: Level::Info, ..failure }
            }
            Wait::AtMost(_) | Wait::ForEver => failure,
        });
    }
    let wanted = args.take.of(&client, &args.name, ttl);
    let names = [String::from(&args.name)];
    let asked = Asked { settings: &context.settings, names: &names, wait, patience };
    let taken = take(&client, asked, &wanted, &mut signals, talk).await;
    let ended = match taken {
        Ok(Taken::Granted(guard)) => leave_to_script(context, args, ttl, guard, &mut signals).await,
        Ok(Taken::Busy(failure)) => Err(Failure { exit: args.take.taken(), ..failure }),
        Ok(Taken::Interrupted(signal)) => Ok(Exit::Signal(signal.as_raw())),
        Err(failure) => Err(failure),
    };
    // A request to leave the line or to release may be on its way: wait until it arrives.
    let _left = client.shutdown(DRAIN).await;
    ended
}

/// Writes the token of a lock for a script, and leaves the lock to it. Otherwise the lock is given
/// back.
async fn leave_to_script(
    context: &Context,
    args: &Acquire,
    ttl: Duration,
    guard: MultiGuard,
    signals: &mut Signals,
) -> Result<Exit, Failure> {
    let talk = &context.talk;
    tokio::select! {
        biased;
        signal = signals.interrupt() => return Ok(Exit::Signal(signal.as_raw())),
        lasts = lengthen(&guard, ttl) => lasts?,
    }
    let guard = guard.into_guards().remove(0);
    let text = grant(context, &args.name, ttl, &guard);
    // The lock is renewed until the token is written, for one ttl at most.
    let written = tokio::select! {
        biased;
        written = write_out_aside(text) => written.map_err(|error| error.to_string()),
        signal = signals.interrupt() => {
            talk.failure(&given_back(&args.name, guard, "interrupted").await);
            return Ok(Exit::Signal(signal.as_raw()));
        }
        () = tokio::time::sleep(ttl) => Err(format!("nobody read it for {}", human(ttl))),
    };
    match written {
        Ok(()) => {
            let _token = guard.detach();
            Ok(Exit::OK)
        }
        // Nobody knows the token, so nobody else could release it.
        Err(why) => Err(given_back(&args.name, guard, &why).await),
    }
}

/// The holder as other clients see it. Its process ends at once, so the pid does not tell whether
/// the lock is still needed.
fn detached() -> Identity {
    Identity::process().command("leasehold acquire (detached)")
}

/// Refuses a store whose leases end with their process.
fn refuse_bound(client: &Client, name: &str) -> Result<(), Failure> {
    if client.capabilities().detached {
        return Ok(());
    }
    let message = "a lock in this store ends with the process that took it, so `acquire` cannot \
                   leave it to a script; nothing was acquired; use `leasehold run`, which keeps it \
                   for a command";
    Err(Failure::config(message).about(name))
}

/// Refuses to take a lock if nobody would read its token.
fn refuse_unread(name: &str) -> Result<(), Failure> {
    let Some(why) = why_unread() else { return Ok(()) };
    let message = format!(
        "cannot print the token to stdout: {why}; nothing was acquired; write >/dev/null if you do \
         not need the token"
    );
    Err(Failure::config(message).about(name))
}

/// Releases a lock whose token could not be printed.
async fn given_back(name: &str, guard: Guard, why: &str) -> Failure {
    let now = match tokio::time::timeout(DRAIN, guard.release()).await {
        Ok(Ok(_)) => "the lock was released",
        _ => "the release is not confirmed; the lock frees itself when its ttl has run out",
    };
    let message = format!("the token could not be written to stdout: {why}; {now}");
    Failure::internal(message).about(name)
}

/// The text with which a script can renew and release the lock.
fn grant(context: &Context, name: &str, ttl: Duration, guard: &Guard) -> String {
    let fence = guard.fencing_token().map(|fence| fence.to_string());
    if context.json {
        let valid = guard.remaining();
        let fields = json!({
            "name": name,
            "token": guard.token().as_str(),
            "fence": fence,
            "ttl_ms": millis(ttl),
            "valid_ms": millis(valid),
            "expires_at": rfc3339(SystemHost.wall() + valid),
        });
        return object("grant", fields);
    }
    // The variables are exported, so that after `eval "$(leasehold acquire …)"`, `leasehold renew`
    // needs nothing else. The `unset` lines remove what an earlier lock has left.
    let lines = [
        export(NAME, Some(name)),
        export(TOKEN, Some(guard.token().as_str())),
        export(FENCE, fence.as_deref()),
        export(TTL_MS, Some(&millis(ttl).to_string())),
        export(EXPIRES_AT_MS, None),
        context.settings.exports(),
    ];
    lines.concat()
}
