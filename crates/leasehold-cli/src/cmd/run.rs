//! `leasehold run NAME -- CMD`: holds a lock while a command runs.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use leasehold::core::Moment;
use leasehold::host::{Host as _, SystemHost};
use leasehold::{Client, ErrorKind, Guard, Identity, Release, Ttl};
use rustix::process::Signal;

use super::Context;
use super::chain::Chain;
use crate::args::Run;
use crate::environment::{CHAIN, EXPIRES_AT_MS, FENCE, NAME, NAMESPACE, STORE, TOKEN, TTL_MS};
use crate::exit::{Exit, Failure, unnamed};
use crate::log;
use crate::output::{escape, shell_word};
use crate::patience::Patience;
use crate::signals::Signals;
use crate::stderr;
use crate::supervise::machine::{Lease, Policy, Verdict};
use crate::supervise::{Child, child, supervise};
use crate::take::{Asked, DRAIN, Taken, Wait, Wanted, take};
use crate::talk::{Level, Talk};
use crate::view::millis;

/// How long the store may take to confirm that the work is done. Without its answer, another host
/// would do the work again, so this is longer than the time for a release.
const KEEPING_MAX: Duration = Duration::from_secs(10);

/// The longest default grace.
const GRACE_MAX: Duration = Duration::from_secs(5);

/// How far a run came.
enum Course {
    /// The command ran, with this result. The lock is held since that moment.
    Ran(Guard, Moment, Verdict),
    /// The command never started.
    Stopped(Exit),
}

/// Takes the lock, runs the command, releases the lock, and ends as the command did.
pub(crate) async fn run(context: &Context, args: &Run) -> Result<Exit, Failure> {
    let policy = policy(args)?;
    let period = period(args, policy.ttl)?;
    context.settings.refuse_private(&args.name)?;
    // A message must not delay our work for the lease.
    stderr::never_wait();
    // Before the store is connected: from here on we handle signals.
    let mut signals = Signals::install()?;
    let who = Identity::process().command(as_shown(&args.command)).ttl(policy.ttl);
    let mut patience = Patience::new(args.take.wait_store);
    let (name, talk) = (&*args.name, &context.talk);
    let client = tokio::select! {
        biased;
        signal = signals.interrupt() => return Ok(Exit::Signal(signal.as_raw())),
        client = context.settings.connect_patiently(&who, name, &mut patience, talk) => client?,
    };
    let wait = if period.is_some() { Wait::Never } else { args.take.wait() };
    let asked = Asked { name, wait, patience };
    let course = match take_and_hold(context, args, asked, &client, policy, &mut signals).await {
        Ok(Course::Ran(guard, since, verdict)) => {
            // Only a success counts as done.
            let period = period.filter(|_| verdict.exit == Exit::OK);
            return end(guard, since, verdict, period, &context.talk).await;
        }
        Ok(Course::Stopped(exit)) => Ok(exit),
        Err(failure) => Err(failure),
    };
    // A request to leave the line or to release is on its way: wait until it arrives.
    client.shutdown(DRAIN).await;
    course
}

async fn take_and_hold(
    context: &Context,
    args: &Run,
    asked: Asked<'_>,
    client: &Client,
    policy: Policy,
    signals: &mut Signals,
) -> Result<Course, Failure> {
    let stopped = |signal: Signal| Ok(Course::Stopped(Exit::Signal(signal.as_raw())));
    Chain::inherited().and_token().refuse(client, &args.name).await?;
    let wanted = wanted(args, client, policy.ttl);
    let guard = match take(client, asked, &wanted, signals, &context.talk).await? {
        Taken::Granted(guard) => guard,
        Taken::Busy(failure) => return Err(Failure { exit: args.take.taken(), ..failure }),
        Taken::Interrupted(signal) => return stopped(signal),
    };
    let since = SystemHost.now();
    if let Some(signal) = signals.interrupted_already().await {
        return stopped(signal);
    }
    let verdict = hold(context, args, client, &guard, policy, signals).await?;
    Ok(Course::Ran(guard, since, verdict))
}

/// Runs the command, under a lease with enough time left.
async fn hold(
    context: &Context,
    args: &Run,
    client: &Client,
    guard: &Guard,
    policy: Policy,
    signals: &mut Signals,
) -> Result<Verdict, Failure> {
    if guard.remaining() < policy.ttl / 2 {
        // The grant came late: a command started now would be told to stop right away.
        guard.renew().await?;
    }
    let env = environment(context, client, guard, policy.ttl);
    let mut child = Child::start(&args.command, &env, policy.terminal, policy.ttl)?;
    let verdict = supervise(guard, &mut child, signals, policy, &context.talk).await;
    match child.why_not_begun() {
        Some(error) => Err(not_begun(&args.command, &error).about(&args.name)),
        None => Ok(verdict),
    }
}

/// Ends the lease as the verdict says, and returns our own exit. The lock stays taken for `period`
/// if there is one.
async fn end(
    guard: Guard,
    since: Moment,
    verdict: Verdict,
    period: Option<Duration>,
    talk: &Talk,
) -> Result<Exit, Failure> {
    let name = guard.name().to_owned();
    if verdict.lease != Lease::Release {
        // A lost lease needs no release. Under a lease that is left to expire, somebody may still
        // act.
        let _token = guard.detach();
        return Ok(verdict.exit);
    }
    if let Some(period) = period {
        return keep(guard, period, verdict.exit, talk).await;
    }
    let asked = SystemHost.now();
    match tokio::time::timeout(DRAIN, guard.release()).await {
        Ok(Ok(Release::Released)) => {
            let held_ms = millis(asked.since(since));
            tracing::info!(name, held_ms, "released");
            Ok(verdict.exit)
        }
        Ok(Ok(Release::NotHeld)) => Err(lost_before(&name, verdict.exit)),
        Ok(Err(error)) => Ok(not_released(talk, &name, Some(unnamed(&error)), verdict.exit)),
        Err(_) => Ok(not_released(talk, &name, log::trouble_since(asked), verdict.exit)),
    }
}

/// Keeps the lock taken until the period is over: the command is done.
async fn keep(guard: Guard, period: Duration, exit: Exit, talk: &Talk) -> Result<Exit, Failure> {
    let name = guard.name().to_owned();
    let asked = SystemHost.now();
    let cause = match tokio::time::timeout(KEEPING_MAX, guard.keep_for(period)).await {
        Ok(Ok(())) => {
            tracing::info!(name, period_ms = millis(period), "kept");
            return Ok(exit);
        }
        Ok(Err(error)) if error.kind() == ErrorKind::Lost => return Err(lost_before(&name, exit)),
        Ok(Err(error)) => Some(unnamed(&error)),
        Err(_) => log::trouble_since(asked),
    };
    let cause = cause.map(|cause| format!(": {cause}")).unwrap_or_default();
    let text = format!(
        "the command succeeded, but the store did not confirm that the lock stays taken{cause}; \
         another host may run the command again before the period is over"
    );
    talk.notice(Level::Warning, "not-kept", Some(&name), &text);
    Ok(exit)
}

/// The failure for a command that ended well, under a lease that had ended before.
fn lost_before(name: &str, exit: Exit) -> Failure {
    Failure::new(
        Exit::LOST,
        ErrorKind::Lost.as_str(),
        format!(
            "`{}`: the command has ended (exit code {}), but the lease had ended before the \
             release; others may have held the lock while the command ran",
            escape(name),
            exit.shown()
        ),
    )
    .about(name)
}

/// Reports that the lock stays taken for a while. Our exit code is still the command's.
fn not_released(talk: &Talk, name: &str, cause: Option<String>, exit: Exit) -> Exit {
    let cause = cause.map(|cause| format!(": {cause}")).unwrap_or_default();
    let text = format!(
        "the store did not confirm the release{cause}; \
         the lock frees itself when its ttl has run out"
    );
    talk.notice(Level::Warning, "not-released", Some(name), &text);
    exit
}

fn policy(args: &Run) -> Result<Policy, Failure> {
    let ttl = args.ttl.ttl(&args.name)?;
    let grace = args.grace.as_ref().map_or_else(|| GRACE_MAX.min(ttl / 4), |grace| grace.span);
    if grace >= ttl / 2 {
        return Err(Failure::config(format!(
            "the grace ({}) must be below half the ttl ({}), or a command would be told to stop \
             while its lease is still being renewed; nothing was acquired; change --grace or --ttl",
            args.grace.as_ref().map_or("", |grace| &grace.text),
            args.ttl.text
        ))
        .about(&args.name));
    }
    Ok(Policy { ttl, grace, stop: args.stop_signal, terminal: child::at_terminal() })
}

/// The period in which the command is done once, if there is one.
fn period(args: &Run, ttl: Duration) -> Result<Option<Duration>, Failure> {
    let Some(period) = &args.once_per else { return Ok(None) };
    if (ttl..=Ttl::MAX.get()).contains(&period.span) {
        return Ok(Some(period.span));
    }
    Err(Failure::config(format!(
        "the period ({}) must be between the ttl ({}) and 24h; nothing was run; change --once-per \
         or --ttl",
        escape(&period.text),
        args.ttl.text
    ))
    .about(&args.name))
}

fn wanted(args: &Run, client: &Client, ttl: Duration) -> Wanted {
    match &args.once_per {
        Some(period) => {
            let once = client.once(&args.name, period.span);
            Wanted::Once(once.ttl(ttl).why(args.take.why()))
        }
        None => args.take.of(client, &args.name, ttl),
    }
}

/// The holder as other clients see it. Its pid is ours, and so the text begins with our own name.
fn as_shown(command: &[OsString]) -> String {
    format!("leasehold run {}", program(command))
}

/// The program of the command, without its arguments, which may be secret.
fn program(command: &[OsString]) -> String {
    command.first().map(|program| program.to_string_lossy().into_owned()).unwrap_or_default()
}

/// The variables for the command. They replace inherited ones, so that the innermost run is seen.
fn environment(
    context: &Context,
    client: &Client,
    guard: &Guard,
    ttl: Duration,
) -> Vec<(&'static str, Option<String>)> {
    let expires = SystemHost.wall() + guard.remaining();
    let mut all = vec![
        (NAME, Some(guard.name().to_owned())),
        (TOKEN, Some(guard.token().as_str().to_owned())),
        (FENCE, guard.fencing_token().map(|fence| fence.to_string())),
        (EXPIRES_AT_MS, Some(expires.as_unix_millis().to_string())),
        (TTL_MS, Some(ttl.as_millis().to_string())),
        (STORE, Some(client.store_label())),
        (NAMESPACE, context.settings.namespace_for_child()),
        (CHAIN, Some(Chain::inherited().with(guard.token()))),
    ];
    all.extend(context.settings.store_for_child());
    all
}

/// Words that only a shell understands.
const SHELL_WORDS: [&str; 22] = [
    ".", ":", "[[", "alias", "cd", "declare", "eval", "exec", "exit", "export", "for", "if",
    "local", "read", "set", "shopt", "source", "trap", "ulimit", "umask", "wait", "while",
];

fn shell_line(command: &[OsString]) -> String {
    command.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

fn not_begun(command: &[OsString], error: &std::io::Error) -> Failure {
    let program = program(command);
    let exit = child::not_begun(error);
    let shown = escape(&program);
    let message = if program.is_empty() {
        "the command is empty; the lock was released, name a program after --".to_owned()
    } else if exit == Exit::INTERNAL {
        format!("cannot start a process: {error}; the lock was released, nothing was run")
    } else if exit == Exit::CANNOT_EXECUTE {
        format!("cannot execute `{shown}`: {error}; the lock was released")
    } else if program.contains('/') && Path::new(&program).exists() {
        format!("cannot run `{shown}`: its interpreter was not found; the lock was released")
    } else if program.contains(char::is_whitespace) || SHELL_WORDS.contains(&&*program) {
        format!(
            "`{shown}` was not found: commands run without a shell; the lock was released, write \
             -- sh -c {} for shell syntax and builtins",
            escape(&shell_word(&shell_line(command)))
        )
    } else {
        format!("`{shown}` was not found; the lock was released, check the name and PATH")
    };
    let kind = match exit {
        Exit::NOT_FOUND => "not-found",
        Exit::INTERNAL => "internal",
        _ => "cannot-execute",
    };
    Failure::new(exit, kind, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Command, Parsed, parse};

    fn policy_of(flags: &str) -> Result<Policy, Failure> {
        let line = format!("leasehold run x{flags} -- true");
        match parse(line.split(' ').map(OsString::from)).expect("a command line") {
            Parsed::Invocation(invocation) => match invocation.command {
                Command::Run(run) => policy(&run),
                other => panic!("{other:?}"),
            },
            Parsed::Text(text, _) => panic!("{text}"),
        }
    }

    #[test]
    fn the_default_grace_is_5_s_or_a_quarter_of_the_ttl() {
        for (flags, ms) in [
            ("", 2_500),
            (" --ttl 1m", 5_000),
            (" --ttl 100ms", 25),
            (" --grace 0", 0),
            (" --ttl 4s --grace 1999ms", 1_999),
        ] {
            let policy = policy_of(flags).expect(flags);
            assert_eq!(policy.grace, Duration::from_millis(ms), "{flags}");
        }
    }

    #[test]
    fn a_grace_of_half_the_ttl_or_more_is_refused_with_both_values() {
        for flags in [" --ttl 4s --grace 2s", " --ttl 4s --grace 1h"] {
            let failure = policy_of(flags).expect_err(flags);
            assert_eq!(failure.exit, Exit::CONFIG);
            assert!(failure.message.contains("half the ttl (4s)"), "{}", failure.message);
        }
    }

    #[test]
    fn a_period_is_at_least_the_ttl_and_at_most_24_h() {
        let period_of = |flags: &str| {
            let line = format!("leasehold run x{flags} -- true");
            let parsed = parse(line.split(' ').map(OsString::from)).expect("a command line");
            let Parsed::Invocation(invocation) = parsed else { panic!("{line}") };
            let Command::Run(run) = invocation.command else { panic!("{line}") };
            period(&run, run.ttl.span)
        };
        for (flags, seconds) in [
            ("", None),
            (" --once-per 1h", Some(3_600)),
            (" --once-per 24h", Some(86_400)),
            (" --once-per 10s", Some(10)),
            (" --once-per 1 --ttl 1", Some(1)),
        ] {
            let period = period_of(flags).expect(flags);
            assert_eq!(period, seconds.map(Duration::from_secs), "{flags}");
        }
        for (flags, text) in [
            (" --once-per 9s", "the period (9s) must be between the ttl (10s) and 24h"),
            (" --once-per 0", "the period (0)"),
            (" --once-per 7d", "the period (7d)"),
            (" --once-per 1h --ttl 2h", "the ttl (2h)"),
        ] {
            let failure = period_of(flags).expect_err(flags);
            assert_eq!(failure.exit, Exit::CONFIG);
            assert!(failure.message.contains(text), "{}", failure.message);
        }
    }

    #[test]
    fn a_ttl_out_of_bounds_is_refused_before_anything_is_asked() {
        for ttl in ["0", "9ms", "25h"] {
            let failure = policy_of(&format!(" --ttl {ttl}")).expect_err(ttl);
            assert_eq!(failure.exit, Exit::CONFIG);
            assert!(failure.message.contains("between 10 ms and 24 h"), "{}", failure.message);
        }
    }
}
