//! `leasehold acquire NAME --ttl DUR`: takes a lock for a script and leaves it to its ttl.

use std::time::Duration;

use leasehold::host::{Host as _, SystemHost};
use leasehold::{Guard, Identity};
use serde_json::json;

use super::Context;
use crate::args::Acquire;
use crate::exit::{Exit, Failure};
use crate::output::{print, print_object, rfc3339, shell_word};
use crate::signals::Signals;
use crate::take::{DRAIN, Taken, take};
use crate::view::millis;

/// Takes the lock and prints what is needed to renew and release it.
pub(crate) async fn acquire(context: &Context, args: &Acquire) -> Result<Exit, Failure> {
    let ttl = args.ttl.ttl(&args.name)?;
    context.settings.refuse_private(&args.name)?;
    let mut signals = Signals::install()?;
    let talk = &context.talk;
    let client = tokio::select! {
        biased;
        signal = signals.interrupt() => return Ok(Exit::Signal(signal.as_raw())),
        client = context.settings.connect(detached(), talk) => client?,
    };
    let mut mutex = client.mutex(&args.name).ttl(ttl);
    if let Some(why) = &args.take.why {
        mutex = mutex.why(why);
    }
    let taken = take(&client, &args.name, &mutex, args.take.wait(), &mut signals, talk).await;
    let ended = match taken {
        Ok(Taken::Granted(guard)) => match hand_out(context, &args.name, ttl, &guard) {
            Ok(()) => {
                let _token = guard.detach();
                Ok(Exit::OK)
            }
            // Nobody knows the token, so nobody else could release it: dropping the guard does.
            Err(failure) => Err(failure),
        },
        Ok(Taken::Busy(failure)) => Err(Failure { exit: args.take.taken(), ..failure }),
        Ok(Taken::Interrupted(signal)) => Ok(Exit::Signal(signal.as_raw())),
        Err(failure) => Err(failure),
    };
    // A place in line to leave, or a lock to give back, may be on its way: see it arrive.
    client.shutdown(DRAIN).await;
    ended
}

/// What others see of the holder. Its process ends at once, so that the pid says nothing of whether
/// the lock is still needed.
fn detached() -> Identity {
    Identity::process().command("leasehold acquire (detached)")
}

fn hand_out(context: &Context, name: &str, ttl: Duration, guard: &Guard) -> Result<(), Failure> {
    let fence = guard.fencing_token().map(|fence| fence.to_string());
    if context.json {
        let valid = guard.remaining();
        return print_object(
            "grant",
            json!({
                "name": name,
                "token": guard.token().as_str(),
                "fence": fence,
                "ttl_ms": millis(ttl),
                "valid_ms": millis(valid),
                "expires_at": rfc3339(SystemHost.wall() + valid),
            }),
        );
    }
    // Exported, so that `eval "$(leasehold acquire …)"` is all that `leasehold renew` needs.
    let mut text = format!("export LEASEHOLD_TOKEN={}\n", shell_word(guard.token().as_str()));
    if let Some(fence) = fence {
        text.push_str(&format!("export LEASEHOLD_FENCE={fence}\n"));
    }
    text.push_str(&format!("export LEASEHOLD_TTL_MS={}\n", millis(ttl)));
    print(&text)
}
