//! `leasehold run NAME --once-per DUR -- CMD`: the command is done once in that time.

use std::error::Error as _;
use std::time::Duration;

use leasehold::host::{Host as _, SystemHost};
use leasehold::{Client, ErrorKind, MultiGuard, Ttl};

use super::holding::End;
use crate::args::Run;
use crate::exit::{Exit, Failure, only, unnamed};
use crate::log;
use crate::output::escape;
use crate::take::Wanted;
use crate::talk::{Level, Talk};
use crate::view::millis;

/// How long the store may take to confirm that the work is done. Without its answer, another host
/// would do the work again, so this is longer than the time for a release.
const KEEPING_MAX: Duration = Duration::from_secs(10);

/// The period in which the command is done once, if there is one.
pub(super) fn period(args: &Run, ttl: Duration) -> Result<Option<Duration>, Failure> {
    let Some(period) = &args.once_per else { return Ok(None) };
    if args.names.len() > 1 {
        return Err(Failure::config(format!(
            "--once-per is for one name, and {} were given; nothing was run; name one lock, and \
             take the others by `leasehold run` inside the command",
            args.names.len()
        )));
    }
    if (ttl..=Ttl::MAX.get()).contains(&period.span) {
        return Ok(Some(period.span));
    }
    Err(Failure::config(format!(
        "the period ({}) must be between the ttl ({}) and 24h; nothing was run; change --once-per \
         or --ttl",
        escape(&period.text),
        args.guarded.ttl.text
    ))
    .about_any(only(&args.names)))
}

/// The right to run the command in this period.
pub(super) fn wanted(args: &Run, client: &Client, period: Duration, ttl: Duration) -> Wanted {
    let once = client.once(&args.names[0], period);
    Wanted::Once(once.ttl(ttl).why(args.take.why()))
}

/// Keeps the lock taken until the period is over, because the command is done.
pub(super) async fn keep(guard: MultiGuard, period: Duration, exit: Exit, talk: &Talk) -> End {
    let guard = guard.into_guards().pop().expect("`period` has checked that there is one name");
    let name = guard.name().to_owned();
    let asked = SystemHost.now();
    let cause = match tokio::time::timeout(KEEPING_MAX, guard.keep_for(period)).await {
        Ok(Ok(())) => {
            tracing::info!(name, period_ms = millis(period), "kept");
            return End::AsExpected;
        }
        Ok(Err(error)) if error.kind() == ErrorKind::Lost => {
            return End::lost_before(vec![name], exit);
        }
        // The message of the error says the same as the text below.
        Ok(Err(error)) => Some(error.source().map_or_else(|| unnamed(&error), ToString::to_string)),
        Err(_) => log::trouble_since(asked),
    };
    let cause = cause.map(|cause| format!(": {cause}")).unwrap_or_default();
    let text = format!(
        "the command succeeded, but the store did not confirm that the lock stays taken{cause}; \
         another host may run the command again before the period is over"
    );
    talk.notice(Level::Warning, "not-kept", Some(&name), &text);
    End::AsExpected
}
