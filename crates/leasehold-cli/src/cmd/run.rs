//! `leasehold run NAME... -- CMD`: holds one lock, or several together, while a command runs.

use std::time::Duration;

use leasehold::core::Moment;
use leasehold::host::{Host as _, SystemHost};
use leasehold::{Identity, MultiGuard};
use rustix::process::Signal;

use super::Context;
use super::holding::{Holding, as_shown, end, is_about_the_lease, policy};
use super::join;
use super::once;
use super::variables::Joined;
use crate::args::Run;
use crate::chain::Chain;
use crate::duration::human;
use crate::exit::{DRAIN, Exit, Failure, only};
use crate::output::escape;
use crate::patience::Patience;
use crate::signals::Signals;
use crate::stderr;
use crate::supervise::Policy;
use crate::supervise::verdict::{Lease, Verdict};
use crate::take::{Asked, Taken, Wait, Wanted, take};
use crate::talk::Level;

/// The first and the longest pause after a lease that was too short to begin the command. Each is
/// twice the one before.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(60));

/// How far a run came.
enum Course {
    /// The command ran, with this result. The locks are held since that moment.
    Ran(MultiGuard, Moment, Verdict),
    /// The command never started.
    Stopped(Exit),
}

/// Takes the locks, runs the command, releases the locks, and ends as the command did.
pub(crate) async fn run(context: &Context, args: &Run) -> Result<Exit, Failure> {
    let name = only(&args.names);
    let policy = policy(name, &args.guarded)?;
    args.take.refuse_parts_of(&args.names)?;
    let period = once::period(args, policy.ttl)?;
    check_max_hold(args, policy.ttl)?;
    context.settings.refuse_out_of_reach(name)?;
    // A message must not delay our work for the lease.
    stderr::never_wait();
    let chain = Chain::inherited().and_token();
    // From here on we handle signals, except below another run. A run that may join becomes its
    // command, and would lose a signal that a handler took. It holds nothing until then.
    let mut signals = if chain.is_empty() { Some(Signals::install()?) } else { None };
    let who = Identity::process().command(as_shown("run", &args.guarded.command)).ttl(policy.ttl);
    let mut patience = Patience::new(args.take.wait_store);
    let talk = &context.talk;
    let client = tokio::select! {
        biased;
        signal = interrupt(signals.as_mut()) => return Ok(Exit::Signal(signal.as_raw())),
        client = context.settings.connect_patiently(&who, name, &mut patience, talk) => client?,
    };
    let joined = join::join(context, &client, &chain, args).await?;
    join::say(context, &joined);
    let names: Vec<_> = args.names.iter().filter(|name| !has(&joined, name)).cloned().collect();
    if names.is_empty() {
        let failure = join::become_command(context, &client, args, &joined);
        return Err(failure);
    }
    let mut signals = match signals.take() {
        Some(signals) => signals,
        None => Signals::install()?,
    };
    let wait = if period.is_some() { Wait::Never } else { args.take.wait() };
    let asked = Asked { settings: &context.settings, names: &names, wait, patience };
    let wanted = match period {
        Some(period) => once::wanted(args, &client, period, policy.ttl),
        None => args.take.of_all(&client, &names, policy.ttl),
    };
    let holding = Holding {
        context,
        client: &client,
        guarded: &args.guarded,
        policy,
        names: &args.names,
        joined: &joined,
    };
    let course = match take_and_hold(args, asked, &wanted, &holding, &mut signals).await {
        Ok(Course::Ran(guard, since, verdict)) => {
            // Only a success counts as done. Work that was told to stop may look like a success.
            let is_success = verdict.exit == Exit::OK && verdict.lease == Lease::Release;
            let is_done = is_success && verdict.by_itself && !verdict.hung_up;
            if period.is_some() && is_success && !is_done {
                let why = if verdict.by_itself { "got a HUP" } else { "was told to stop" };
                let text =
                    format!("the command {why}, and ended with 0: the work does not count as done");
                talk.notice(Level::Warning, "not-done", only(&args.names), &text);
            }
            let ended = match period.filter(|_| is_done) {
                Some(period) => once::keep(guard, period, verdict.exit, talk).await,
                None => end(guard, since, verdict, talk).await,
            };
            return ended.exit(verdict.exit);
        }
        Ok(Course::Stopped(exit)) => Ok(exit),
        Err(failure) => Err(failure),
    };
    // A request to leave the line or to release is on its way: wait until it arrives.
    let _left = client.shutdown(DRAIN).await;
    course
}

/// Refuses a limit that leaves the command hardly any time.
fn check_max_hold(args: &Run, ttl: Duration) -> Result<(), Failure> {
    match &args.max_hold {
        Some(limit) if limit.span < ttl => Err(Failure::config(format!(
            "the longest hold ({}) must be at least the ttl ({}); nothing was run; change \
             --max-hold or --ttl",
            escape(&limit.text),
            args.guarded.ttl.text
        ))
        .about_any(only(&args.names))),
        _ => Ok(()),
    }
}

/// Waits for a signal that asks to stop. Without handlers, the signal ends us by itself.
async fn interrupt(signals: Option<&mut Signals>) -> Signal {
    match signals {
        Some(signals) => signals.interrupt().await,
        None => std::future::pending().await,
    }
}

fn has(joined: &[Joined], name: &str) -> bool {
    joined.iter().any(|lock| lock.name == name)
}

async fn take_and_hold(
    args: &Run,
    asked: Asked<'_>,
    wanted: &Wanted,
    holding: &Holding<'_>,
    signals: &mut Signals,
) -> Result<Course, Failure> {
    let stopped = |signal: Signal| Ok(Course::Stopped(Exit::Signal(signal.as_raw())));
    let Holding { context, client, .. } = holding;
    let Asked { settings, names, wait, mut patience } = asked;
    let mut pause = PAUSES.0;
    loop {
        let asked = Asked { settings, names, wait, patience };
        let guard = match take(client, asked, wanted, signals, &context.talk).await? {
            Taken::Granted(guard) => guard,
            Taken::Busy(failure) => return Err(Failure { exit: args.take.taken(), ..failure }),
            Taken::Interrupted(signal) => return stopped(signal),
        };
        let since = SystemHost.now();
        if let Some(signal) = signals.interrupted_already().await {
            return stopped(signal);
        }
        let limit = args.max_hold.as_ref().map(|span| since + span.span);
        let holding = Holding { policy: Policy { limit, ..holding.policy }, ..*holding };
        let started = tokio::select! {
            biased;
            signal = signals.interrupt() => return stopped(signal),
            started = holding.start(&guard) => started,
        };
        let ended = match started {
            Ok(mut child) => {
                child.take_our_streams();
                holding.watch(&guard, child, signals).await
            }
            Err(failure) => Err(failure),
        };
        match ended {
            Ok(verdict) => return Ok(Course::Ran(guard, since, verdict)),
            Err(failure) if wait == Wait::ForEver && is_about_the_lease(&failure) => {
                drop(guard);
                let text = format!("{}; trying again in {}", failure.unnamed(), human(pause));
                context.talk.notice(Level::Warning, "not-begun", only(names), &text);
                tokio::select! {
                    biased;
                    signal = signals.interrupt() => return stopped(signal),
                    () = tokio::time::sleep(pause) => {}
                }
                pause = (2 * pause).min(PAUSES.1);
            }
            Err(failure) => return Err(failure),
        }
        // The store has answered once, so retry for ever from now on.
        patience = Patience::endless();
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;
    use crate::args::{Command, Parsed, parse};

    fn parsed(flags: &str) -> Run {
        let line = format!("leasehold run {flags} -- true");
        match parse(line.split(' ').map(OsString::from)).expect("a command line") {
            Parsed::Invocation(invocation) => match invocation.command {
                Command::Run(run) => run,
                other => panic!("{other:?}"),
            },
            Parsed::Text(text, _) => panic!("{text}"),
        }
    }

    /// A shorter one would end a command whose lease was never renewed.
    #[test]
    fn the_longest_hold_is_at_least_a_ttl() {
        let ttl = Duration::from_secs(10);
        for (flags, is_fine) in [
            ("x", true),
            ("x --max-hold 10s", true),
            ("x --max-hold 9999ms", false),
            ("x --max-hold 0", false),
        ] {
            let checked = check_max_hold(&parsed(flags), ttl);
            assert_eq!(
                checked.map_err(|failure| failure.exit).err(),
                (!is_fine).then_some(Exit::CONFIG)
            );
        }
    }

    #[test]
    fn work_is_done_once_in_a_period_from_a_ttl_to_a_day_under_one_name() {
        let ttl = Duration::from_secs(10);
        for (flags, period) in [
            ("x", Ok(None)),
            ("x y", Ok(None)),
            ("x --once-per 10s", Ok(Some(10))),
            ("x --once-per 24h", Ok(Some(86_400))),
            ("x --once-per 9999ms", Err(Exit::CONFIG)),
            ("x --once-per 25h", Err(Exit::CONFIG)),
            ("x y --once-per 1h", Err(Exit::CONFIG)),
        ] {
            let found = once::period(&parsed(flags), ttl).map_err(|failure| failure.exit);
            let found = found.map(|period| period.map(|period| period.as_secs()));
            assert_eq!(found, period, "{flags}");
        }
    }
}
