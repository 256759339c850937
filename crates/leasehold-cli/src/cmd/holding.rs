//! Holding a lock while a command runs, for all commands that do so.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use leasehold::core::Moment;
use leasehold::host::{Host as _, SystemHost};
use leasehold::{Client, ErrorKind, Guard, MultiGuard, MultiRelease};

use super::Context;
use super::variables::{Joined, variables};
use crate::args::Guarded;
use crate::chain::{Chain, LockId};
use crate::environment::{CHAIN, EXPIRES_AT_MS, TTL_MS};
use crate::exit::{DRAIN, Exit, Failure, only, unnamed};
use crate::log;
use crate::output::{escape, shell_word};
use crate::process::program_file;
use crate::signals::Signals;
use crate::supervise::verdict::{Cause, Lease, Outcome, Verdict};
use crate::supervise::{Child, Policy, child, supervise};
use crate::talk::{Level, Talk};
use crate::view::millis;

/// The longest default grace.
const GRACE_MAX: Duration = Duration::from_secs(5);

/// The kind of the failure for a command that was not found.
const NOT_FOUND: &str = "not-found";

/// The pause between two renewals of a lease that came late.
const RENEWAL_PAUSE: Duration = Duration::from_millis(50);

/// Renews the leases of a grant that came late, or that were handed over for a short time, until at
/// least half of the ttl is left.
pub(crate) async fn lengthen(guard: &MultiGuard, ttl: Duration) -> Result<(), Failure> {
    while guard.remaining() < ttl / 2 {
        let Err(error) = guard.renew().await else { break };
        if !error.is_retryable() || !guard.guards().iter().all(Guard::is_held) {
            return Err(error.into());
        }
        tokio::time::sleep(RENEWAL_PAUSE).await;
    }
    Ok(())
}

/// The command that is to run under a lock, and its surroundings.
pub(crate) struct Holding<'a> {
    /// The context of every command.
    pub(crate) context: &'a Context,
    /// The client that holds the lock.
    pub(crate) client: &'a Client,
    /// The command, and how to run it.
    pub(crate) guarded: &'a Guarded,
    /// How to watch over it.
    pub(crate) policy: Policy,
    /// The names of all locks, in the order of the command line.
    pub(crate) names: &'a [String],
    /// The locks of enclosing runs that the command joins.
    pub(crate) joined: &'a [Joined],
}

impl Holding<'_> {
    /// Starts the command, under leases with enough time left. A failure that
    /// [is about the lease](is_about_the_lease) means that the leases ended first.
    pub(crate) async fn start(&self, guard: &MultiGuard) -> Result<Child, Failure> {
        let ttl = self.policy.ttl;
        // A command with little time left would be told to stop right away.
        lengthen(guard, ttl).await?;
        let env = self.environment(guard, ttl)?;
        let now = SystemHost.now();
        let kill_at = self.policy.keeper_kills_at(now, guard.remaining(), Duration::ZERO);
        Child::start(&self.guarded.command, &env, ttl, kill_at)
    }

    /// The variables for the command.
    fn environment(
        &self,
        guard: &MultiGuard,
        ttl: Duration,
    ) -> Result<Vec<(&'static str, Option<String>)>, Failure> {
        let Self { context, client, names, joined, .. } = self;
        let of_joined = joined.iter().filter_map(|lock| lock.holder.as_ref()?.ttl_left);
        let expires = SystemHost.wall() + of_joined.fold(guard.remaining(), Duration::min);
        let own = guard.guards().iter().map(Joined::from);
        let mut locks: Vec<_> = joined.iter().cloned().chain(own).collect();
        locks.sort_by_key(|lock| names.iter().position(|name| *name == lock.name));
        let (store, namespace) = (client.store_label(), context.settings.namespace());
        let id = |guard: &Guard| LockId::new(&store, namespace, guard.name());
        let chain = Chain::inherited().with(guard.guards().iter().map(|it| (it, id(it))));
        let mut all = variables(context, client, &locks)?;
        all.extend([
            (EXPIRES_AT_MS, Some(expires.as_unix_millis().to_string())),
            (TTL_MS, Some(ttl.as_millis().to_string())),
            (CHAIN, Some(chain.text())),
        ]);
        Ok(all)
    }

    /// Watches over the command until no process of it is left. A failure that
    /// [is about the lease](is_about_the_lease) means that the lease ended before the command could
    /// begin.
    pub(crate) async fn watch(
        &self,
        guard: &MultiGuard,
        mut child: Child,
        signals: &mut Signals,
    ) -> Result<Verdict, Failure> {
        let talk = &self.context.talk;
        match supervise(guard, &mut child, signals, self.policy, talk).await {
            Outcome::TooLate(Some(signal)) => {
                let is_held = guard.guards().iter().all(Guard::is_held);
                Ok(Verdict {
                    exit: Exit::Signal(signal.as_raw()),
                    lease: if is_held { Lease::Release } else { Lease::Lost },
                    cause: Cause::Request,
                    by_itself: false,
                    hung_up: false,
                })
            }
            Outcome::TooLate(None) => Err(too_late().about_any(only(self.names))),
            Outcome::Ran(verdict) => match child.why_not_begun() {
                Some(error) => {
                    let state = "the lock was released";
                    Err(not_begun(&self.guarded.command, &error, state).about_any(only(self.names)))
                }
                None => Ok(verdict),
            },
        }
    }
}

/// The failure for a command that was not started, because its lease was about to end.
fn too_late() -> Failure {
    let message = "the lease was about to end before the command could begin; nothing was run; if \
                   this machine was not suspended, choose a longer --ttl";
    Failure::new(Exit::LOST, ErrorKind::Lost.as_str(), message)
}

/// Whether a command did not start because of its lease, so that another lease may help.
pub(super) fn is_about_the_lease(failure: &Failure) -> bool {
    let kinds = [ErrorKind::Lost, ErrorKind::Unavailable, ErrorKind::Unknown];
    kinds.iter().any(|kind| kind.as_str() == failure.kind)
}

/// The result of the end of a hold.
pub(crate) enum End {
    /// Nothing new: the locks are released, or left to their ttl, or the loss was reported before.
    AsExpected,
    /// The leases of these locks had ended before the release. The text says so.
    NotOurs(Vec<String>, String),
}

impl End {
    /// The command has ended with `exit`, and the leases of these locks before that.
    pub(super) fn lost_before(names: Vec<String>, exit: Exit) -> Self {
        let text = format!(
            "the command has ended (exit code {}), but the lease had ended before the release; \
             others may have held the lock while the command ran",
            exit.shown()
        );
        Self::NotOurs(names, text)
    }

    /// Our own exit after the command has ended with `exit`.
    pub(crate) fn exit(self, exit: Exit) -> Result<Exit, Failure> {
        match self {
            Self::AsExpected => Ok(exit),
            Self::NotOurs(names, text) => {
                let shown: Vec<_> = names.iter().map(|it| format!("`{}`", escape(it))).collect();
                let message = format!("{}: {text}", shown.join(", "));
                let failure = Failure::new(Exit::LOST, ErrorKind::Lost.as_str(), message);
                Err(failure.about_any(only(&names)))
            }
        }
    }
}

/// Ends the leases, which are held since `since`, as the verdict says.
pub(crate) async fn end(guard: MultiGuard, since: Moment, verdict: Verdict, talk: &Talk) -> End {
    match verdict.lease {
        Lease::Release => {}
        Lease::Lost => {
            let others_are_held = guard.guards().iter().any(Guard::is_held);
            if verdict.exit == Exit::LOST && others_are_held {
                // One lock of several is lost, and the command has ended, so nobody needs the
                // others.
                let _ends_by_its_ttl = tokio::time::timeout(DRAIN, guard.release()).await;
            } else {
                // A lost lease needs no release.
                detach(guard);
            }
            return End::AsExpected;
        }
        // A process may still act under the lease.
        Lease::LeaveToExpire => {
            detach(guard);
            return End::AsExpected;
        }
    }
    let names: Vec<_> = guard.names().map(str::to_owned).collect();
    let asked = SystemHost.now();
    match tokio::time::timeout(DRAIN, guard.release()).await {
        Ok(Ok(MultiRelease::Released)) => {
            let held_ms = millis(asked.since(since));
            names.iter().for_each(|name| tracing::info!(name, held_ms, "released"));
        }
        Ok(Ok(MultiRelease::NotHeld(lost))) => return End::lost_before(lost, verdict.exit),
        Ok(Err(error)) => {
            not_released(talk, error.name().or_else(|| only(&names)), Some(unnamed(&error)));
        }
        Err(_) => not_released(talk, only(&names), log::trouble_since(asked)),
    }
    End::AsExpected
}

fn detach(guard: MultiGuard) {
    guard.into_guards().into_iter().for_each(|guard| drop(guard.detach()));
}

/// Reports that the lock stays taken for a while.
fn not_released(talk: &Talk, name: Option<&str>, cause: Option<String>) {
    let cause = cause.map(|cause| format!(": {cause}")).unwrap_or_default();
    let text = format!(
        "the store did not confirm the release{cause}; \
         the lock frees itself when its ttl has run out"
    );
    talk.notice(Level::Warning, "not-released", name, &text);
}

/// How to watch over a command, or why its options cannot be carried out.
pub(crate) fn policy(name: Option<&str>, guarded: &Guarded) -> Result<Policy, Failure> {
    let Guarded { ttl: typed, grace, stop_signal, command } = guarded;
    if program(command).is_empty() {
        let message = "the command is empty; no lock was asked for; name a program after --";
        return Err(Failure::new(Exit::NOT_FOUND, NOT_FOUND, message).about_any(name));
    }
    let ttl = typed.ttl(name)?;
    let span = grace.as_ref().map_or_else(|| GRACE_MAX.min(ttl / 4), |grace| grace.span);
    if span >= ttl / 2 {
        return Err(Failure::config(format!(
            "the grace ({}) must be below half the ttl ({}), or a command would be told to stop \
             while its lease is still being renewed; nothing was acquired; change --grace or --ttl",
            grace.as_ref().map_or("", |grace| &grace.text),
            typed.text
        ))
        .about_any(name));
    }
    Ok(Policy { ttl, grace: span, stop: *stop_signal, limit: None })
}

/// The holder as other clients see it: `verb` is our own command. The pid that they see is ours,
/// and so the text begins with our own name.
pub(crate) fn as_shown(verb: &str, command: &[OsString]) -> String {
    format!("leasehold {verb} {}", program(command))
}

/// Stands for arguments that are not shown.
const AND_MORE: &str = "...";

/// The program of the command. Its arguments may be secret, so they are left out, even if one word
/// contains the whole line. The value of `NAME=value` may be secret too, and is left out.
fn program(command: &[OsString]) -> String {
    let Some(program) = command.first().map(|program| program.to_string_lossy()) else {
        return String::new();
    };
    match program.trim_start().split_once(char::is_whitespace) {
        Some((first, _)) if !Path::new(&*program).exists() => {
            format!("{} {AND_MORE}", without_value(first))
        }
        _ => without_value(&program),
    }
}

/// The word, but only the name of an assignment such as `PGPASSWORD=secret`.
fn without_value(word: &str) -> String {
    let is_name = |name: &str| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    match word.split_once('=') {
        Some((name, _)) if is_name(name) => format!("{name}={AND_MORE}"),
        _ => word.to_owned(),
    }
}

/// Words that only a shell understands.
const SHELL_WORDS: [&str; 22] = [
    ".", ":", "[[", "alias", "cd", "declare", "eval", "exec", "exit", "export", "for", "if",
    "local", "read", "set", "shopt", "source", "trap", "ulimit", "umask", "wait", "while",
];

/// The command in a line, without its arguments.
fn shell_line(command: &[OsString]) -> String {
    let program = program(command);
    if command.len() == 1 || program.ends_with(AND_MORE) {
        return program;
    }
    format!("{program} {AND_MORE}")
}

/// The failure for a command that did not start. `state` is that of the lock.
pub(super) fn not_begun(command: &[OsString], error: &std::io::Error, state: &str) -> Failure {
    let program = program(command);
    let exit = child::not_begun(error);
    let shown = escape(&program);
    let message = if exit == Exit::INTERNAL {
        format!("cannot start a process: {error}; {state}; nothing was run")
    } else if exit == Exit::CANNOT_EXECUTE {
        format!("cannot execute `{shown}`: {error}; {state}")
    } else if command.first().is_some_and(|word| program_file(word).is_some()) {
        format!("cannot run `{shown}`: its interpreter was not found; {state}")
    } else if program.ends_with(&format!("={AND_MORE}")) {
        format!("`{shown}` was not found; {state}; write -- env {shown} CMD to set a variable")
    } else if program.contains(char::is_whitespace) || SHELL_WORDS.contains(&&*program) {
        format!(
            "`{shown}` was not found: commands run without a shell; {state}; write \
             -- sh -c {} for shell syntax and builtins",
            escape(&shell_word(&shell_line(command)))
        )
    } else {
        format!("`{shown}` was not found; {state}; check the name and PATH")
    };
    let kind = match exit {
        Exit::NOT_FOUND => NOT_FOUND,
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
                Command::Run(run) => policy(only(&run.names), &run.guarded),
                other => panic!("{other:?}"),
            },
            Parsed::Text(text, _) => panic!("{text}"),
        }
    }

    /// `elect` campaigns again after such a failure, and ends after any other.
    #[test]
    fn a_lease_that_was_lost_or_in_doubt_is_worth_another_one_and_a_mistake_is_not() {
        let kinds = ErrorKind::ALL.iter().copied();
        let again = kinds
            .filter(|kind| is_about_the_lease(&Failure::from(leasehold::Error::new(*kind, "why"))));
        let expected = [ErrorKind::Lost, ErrorKind::Unavailable, ErrorKind::Unknown];
        let again: Vec<_> = again.collect();
        assert!(again.len() == 3 && expected.iter().all(|kind| again.contains(kind)), "{again:?}");
        assert!(!is_about_the_lease(&Failure::internal("no process can be started")));
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
