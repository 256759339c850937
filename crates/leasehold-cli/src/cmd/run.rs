//! `leasehold run NAME... -- CMD`: holds one lock, or several together, while a command runs.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use leasehold::core::Moment;
use leasehold::host::{Host as _, SystemHost};
use leasehold::{Client, ErrorKind, Guard, Identity, MultiGuard, MultiRelease};
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
use crate::take::{Asked, DRAIN, Taken, only, take};
use crate::talk::{Level, Talk};
use crate::view::millis;

/// The longest default grace.
const GRACE_MAX: Duration = Duration::from_secs(5);

/// How far a run came.
enum Course {
    /// The command ran, with this result. The locks are held since that moment.
    Ran(MultiGuard, Moment, Verdict),
    /// The command never started.
    Stopped(Exit),
}

/// Takes the locks, runs the command, releases the locks, and ends as the command did.
pub(crate) async fn run(context: &Context, args: &Run) -> Result<Exit, Failure> {
    let policy = policy(args)?;
    args.take.refuse_parts_of(&args.names)?;
    let name = only(&args.names);
    context.settings.refuse_private(name)?;
    // A message must not delay our work for the lease.
    stderr::never_wait();
    // Before the store is connected: from here on we handle signals.
    let mut signals = Signals::install()?;
    let who = Identity::process().command(as_shown(&args.command)).ttl(policy.ttl);
    let mut patience = Patience::new(args.take.wait_store);
    let talk = &context.talk;
    let client = tokio::select! {
        biased;
        signal = signals.interrupt() => return Ok(Exit::Signal(signal.as_raw())),
        client = context.settings.connect_patiently(&who, name, &mut patience, talk) => client?,
    };
    let asked = Asked { names: &args.names, wait: args.take.wait(), patience };
    let course = match take_and_hold(context, args, asked, &client, policy, &mut signals).await {
        Ok(Course::Ran(guard, since, verdict)) => {
            return end(guard, since, verdict, &context.talk).await;
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
    let chain = Chain::inherited().and_token();
    for name in args.names.iter() {
        chain.refuse(client, name).await?;
    }
    let wanted = args.take.of_all(client, &args.names, policy.ttl);
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

/// Runs the command, under leases with enough time left.
async fn hold(
    context: &Context,
    args: &Run,
    client: &Client,
    guard: &MultiGuard,
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
        Some(error) => Err(not_begun(&args.command, &error).about_any(only(&args.names))),
        None => Ok(verdict),
    }
}

/// Ends the leases as the verdict says, and returns our own exit.
async fn end(
    guard: MultiGuard,
    since: Moment,
    verdict: Verdict,
    talk: &Talk,
) -> Result<Exit, Failure> {
    if verdict.lease != Lease::Release {
        let others_are_held = guard.guards().iter().any(Guard::is_held);
        if (verdict.lease, verdict.exit) == (Lease::Lost, Exit::LOST) && others_are_held {
            // One lock of several is lost, and the command has ended: nobody needs the others.
            let _ends_by_its_ttl = tokio::time::timeout(DRAIN, guard.release()).await;
            return Ok(verdict.exit);
        }
        // A lost lease needs no release. Under a lease that is left to expire, somebody may still
        // act.
        guard.into_guards().into_iter().for_each(|guard| drop(guard.detach()));
        return Ok(verdict.exit);
    }
    let names: Vec<_> = guard.names().map(str::to_owned).collect();
    let asked = SystemHost.now();
    match tokio::time::timeout(DRAIN, guard.release()).await {
        Ok(Ok(MultiRelease::Released)) => {
            let held_ms = millis(asked.since(since));
            names.iter().for_each(|name| tracing::info!(name, held_ms, "released"));
            Ok(verdict.exit)
        }
        Ok(Ok(MultiRelease::NotHeld(lost))) => {
            let shown: Vec<_> = lost.iter().map(|name| format!("`{}`", escape(name))).collect();
            let message = format!(
                "{}: the command has ended (exit code {}), but the lease had ended before the \
                 release; others may have held the lock while the command ran",
                shown.join(", "),
                verdict.exit.shown()
            );
            let failure = Failure::new(Exit::LOST, ErrorKind::Lost.as_str(), message);
            Err(failure.about_any(only(&lost)))
        }
        Ok(Err(error)) => Ok(not_released(
            talk,
            error.name().or_else(|| only(&names)),
            Some(unnamed(&error)),
            verdict.exit,
        )),
        Err(_) => Ok(not_released(talk, only(&names), log::trouble_since(asked), verdict.exit)),
    }
}

/// Reports that the lock stays taken for a while. Our exit code is still the command's.
fn not_released(talk: &Talk, name: Option<&str>, cause: Option<String>, exit: Exit) -> Exit {
    let cause = cause.map(|cause| format!(": {cause}")).unwrap_or_default();
    let text = format!(
        "the store did not confirm the release{cause}; \
         the lock frees itself when its ttl has run out"
    );
    talk.notice(Level::Warning, "not-released", name, &text);
    exit
}

fn policy(args: &Run) -> Result<Policy, Failure> {
    let name = only(&args.names);
    let ttl = args.ttl.ttl(name)?;
    let grace = args.grace.as_ref().map_or_else(|| GRACE_MAX.min(ttl / 4), |grace| grace.span);
    if grace >= ttl / 2 {
        return Err(Failure::config(format!(
            "the grace ({}) must be below half the ttl ({}), or a command would be told to stop \
             while its lease is still being renewed; nothing was acquired; change --grace or --ttl",
            args.grace.as_ref().map_or("", |grace| &grace.text),
            args.ttl.text
        ))
        .about_any(name));
    }
    Ok(Policy { ttl, grace, stop: args.stop_signal, terminal: child::at_terminal() })
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
/// Those that differ between several locks have a line for each: no name has a line break in it.
fn environment(
    context: &Context,
    client: &Client,
    guard: &MultiGuard,
    ttl: Duration,
) -> Vec<(&'static str, Option<String>)> {
    let expires = SystemHost.wall() + guard.remaining();
    let (locks, lines) = (guard.guards(), |all: Vec<String>| all.join("\n"));
    let tokens = locks.iter().map(|lock| lock.token().as_str().to_owned()).collect();
    let fences = locks.iter().map(|lock| Some(lock.fencing_token()?.to_string()));
    let mut all = vec![
        (NAME, Some(lines(guard.names().map(str::to_owned).collect()))),
        (TOKEN, Some(lines(tokens))),
        (FENCE, fences.collect::<Option<_>>().map(lines)),
        (EXPIRES_AT_MS, Some(expires.as_unix_millis().to_string())),
        (TTL_MS, Some(ttl.as_millis().to_string())),
        (STORE, Some(client.store_label())),
        (NAMESPACE, context.settings.namespace_for_child()),
        (CHAIN, Some(Chain::inherited().with(locks.iter().map(Guard::token)))),
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
    fn a_ttl_out_of_bounds_is_refused_before_anything_is_asked() {
        for ttl in ["0", "9ms", "25h"] {
            let failure = policy_of(&format!(" --ttl {ttl}")).expect_err(ttl);
            assert_eq!(failure.exit, Exit::CONFIG);
            assert!(failure.message.contains("between 10 ms and 24 h"), "{}", failure.message);
        }
    }
}
