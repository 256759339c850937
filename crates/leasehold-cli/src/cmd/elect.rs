//! `leasehold elect NAME -- CMD`: one of many instances leads, and a command runs while it does.

use std::sync::Arc;
use std::time::Duration;

use leasehold::host::{Host as _, SystemHost};
use leasehold::{Client, Identity, MultiGuard};
use rustix::process::Signal;

use super::Context;
use super::holding::{End, Holding, as_shown, end, is_about_the_lease, policy};
use super::join::{INNER_ADVICE, Own};
use crate::args::Elect;
use crate::board::Board;
use crate::duration::human;
use crate::exit::{DRAIN, Exit, Failure};
use crate::patience::Patience;
use crate::serve::Server;
use crate::signals::Signals;
use crate::stderr;
use crate::supervise::Policy;
use crate::supervise::verdict::{Cause, Verdict};
use crate::take::{Asked, Taken, Wait, Wanted, take};
use crate::talk::{Level, Talk};

/// The first and the longest pause after a command that failed; each is twice the one before.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// After a command that ran for this long, the pauses start again from the shortest one.
const RAN_WELL: Duration = Duration::from_secs(60);

/// Campaigns, runs the command while this instance leads, and campaigns again if the term ends
/// before the command is done.
pub(crate) async fn elect(context: &Context, args: &Elect) -> Result<Exit, Failure> {
    let policy = policy(Some(&args.name), &args.guarded)?;
    context.settings.refuse_out_of_reach(Some(&args.name))?;
    // A message must not delay our work for the lease.
    stderr::never_wait();
    // Handle signals before the server starts and the store is connected.
    let mut signals = Signals::install()?;
    let (name, talk) = (&*args.name, &context.talk);
    let board = Arc::new(Board::new(name, policy.ttl));
    let _server = serve(args, &board, talk).await?;
    let who = Identity::process().command(as_shown("elect", &args.guarded.command)).ttl(policy.ttl);
    let mut patience = Patience::new(args.wait_store).noting(board.last_failure());
    let connecting = context.settings.connect_patiently(&who, Some(name), &mut patience, talk);
    let client = tokio::select! {
        biased;
        signal = signals.interrupt() => return Ok(Exit::Signal(signal.as_raw())),
        client = connecting => client?,
    };
    let candidate = Candidate { context, args, client: &client, policy, board: &board };
    let ended = candidate.stand(patience, &mut signals).await;
    // A request to leave the line or to release may be on its way: wait until it arrives.
    let _left = client.shutdown(DRAIN).await;
    ended
}

/// Starts the server, if one is wanted.
async fn serve(args: &Elect, board: &Arc<Board>, talk: &Talk) -> Result<Option<Server>, Failure> {
    let Some(address) = args.serve else { return Ok(None) };
    let server = Server::start(address, board).await.map_err(|it| it.about(&args.name))?;
    let text = format!("serving http://{}/leader and /readyz", server.address);
    talk.notice(Level::Info, "serving", Some(&args.name), &text);
    Ok(Some(server))
}

/// This instance.
struct Candidate<'a> {
    context: &'a Context,
    args: &'a Elect,
    client: &'a Client,
    policy: Policy,
    board: &'a Board,
}

/// How a term ended.
enum Term {
    /// The command never started, because the lease was in doubt.
    NotBegun(Failure),
    /// We were told to stop before the command could start.
    Stopped(Signal),
    /// The command ran for this long.
    Ran { verdict: Verdict, end: End, lasted: Duration },
}

impl Candidate<'_> {
    /// Campaigns and leads again and again, until the command has done its work or we are told to
    /// stop.
    async fn stand(&self, first: Patience, signals: &mut Signals) -> Result<Exit, Failure> {
        let (name, talk) = (&*self.args.name, &self.context.talk);
        if let Some(own) = Own::find(self.context, self.client, name).await? {
            return Err(own.refused(name, INNER_ADVICE));
        }
        let election = self.client.election(name).ttl(self.policy.ttl).why(&self.args.why);
        let wanted = Wanted::Term(election);
        let names = [name.to_owned()];
        let (mut patience, mut pauses) = (first, Pauses::default());
        loop {
            self.board.campaigns();
            let settings = &self.context.settings;
            let asked = Asked { settings, names: &names, wait: Wait::ForEver, patience };
            let guard = match take(self.client, asked, &wanted, signals, talk).await? {
                Taken::Granted(guard) => guard,
                Taken::Busy(failure) => return Err(failure),
                Taken::Interrupted(signal) => return Ok(Exit::Signal(signal.as_raw())),
            };
            if let Some(signal) = signals.interrupted_already().await {
                return Ok(Exit::Signal(signal.as_raw()));
            }
            let (why, pause) = match self.lead(guard, signals).await? {
                Term::Stopped(signal) => return Ok(Exit::Signal(signal.as_raw())),
                Term::NotBegun(failure) => {
                    (failure.unnamed().to_owned(), pauses.next(Duration::ZERO))
                }
                Term::Ran { verdict: Verdict { exit, cause, by_itself, .. }, end, lasted } => {
                    let has_done_its_work = by_itself && exit == Exit::OK;
                    if cause == Cause::Request || has_done_its_work {
                        return end.exit(exit);
                    }
                    self.say_over(end);
                    match cause {
                        Cause::Lease => {
                            ("this instance no longer leads".to_owned(), Duration::ZERO)
                        }
                        Cause::Revoked => {
                            ("asked to let go: resigned".to_owned(), pauses.next(lasted))
                        }
                        _ => (failed(exit), pauses.next(lasted)),
                    }
                }
            };
            if let Some(signal) = self.pause(&why, pause, signals).await {
                return Ok(Exit::Signal(signal.as_raw()));
            }
            // The store has answered once, so retry for ever from now on.
            patience = Patience::endless().noting(self.board.last_failure());
        }
    }

    /// Runs the command for one term.
    async fn lead(&self, guard: MultiGuard, signals: &mut Signals) -> Result<Term, Failure> {
        let Self { context, client, policy, .. } = *self;
        let (name, talk, since) = (&*self.args.name, &self.context.talk, SystemHost.now());
        let guarded = &self.args.guarded;
        let names = &[name.to_owned()];
        let holding = Holding { context, client, guarded, policy, names, joined: &[] };
        let started = tokio::select! {
            biased;
            signal = signals.interrupt() => return Ok(Term::Stopped(signal)),
            started = holding.start(&guard) => started,
        };
        let child = match started {
            Ok(child) => child,
            Err(failure) if is_about_the_lease(&failure) => return Ok(Term::NotBegun(failure)),
            Err(failure) => return Err(failure),
        };
        let fence = guard.fencing_token(name).map(|it| it.to_string()).unwrap_or_default();
        let text = format!("this instance leads, with fencing token {fence}");
        talk.notice(Level::Info, "leading", Some(name), &text);
        let guard = Arc::new(guard);
        self.board.leads(&guard, child.has_ended());
        let watched = holding.watch(&guard, child, signals).await;
        self.board.pauses();
        let guard = Arc::into_inner(guard).expect("the board kept the only other one");
        let verdict = match watched {
            Ok(verdict) => verdict,
            Err(failure) if is_about_the_lease(&failure) => return Ok(Term::NotBegun(failure)),
            Err(failure) => return Err(failure),
        };
        let lasted = SystemHost.now().since(since);
        let end = end(guard, since, verdict, talk).await;
        Ok(Term::Ran { verdict, end, lasted })
    }

    /// Reports a lease that had ended before the end of its term.
    fn say_over(&self, end: End) {
        if let End::NotOurs(_, text) = end {
            let talk = &self.context.talk;
            talk.notice(Level::Error, "lost", Some(&self.args.name), &text);
        }
    }

    /// Waits before the next campaign. Returns the signal if we are told to stop.
    async fn pause(&self, why: &str, pause: Duration, signals: &mut Signals) -> Option<Signal> {
        if let Some(signal) = signals.interrupted_already().await {
            return Some(signal);
        }
        let when = if pause.is_zero() { String::new() } else { format!(" in {}", human(pause)) };
        let text = format!("{why}; campaigning again{when}");
        let talk = &self.context.talk;
        talk.notice(Level::Warning, "campaigning", Some(&self.args.name), &text);
        tokio::select! {
            biased;
            signal = signals.interrupt() => Some(signal),
            () = tokio::time::sleep(pause) => None,
        }
    }
}

/// The message about a command that failed by itself.
fn failed(exit: Exit) -> String {
    match exit {
        Exit::Signal(signal) => format!("signal {signal} ended the command: resigned"),
        Exit::Code(code) => format!("the command failed with exit code {code}: resigned"),
    }
}

/// The pauses after commands that failed.
#[derive(Debug, Default)]
struct Pauses(u32);

impl Pauses {
    /// The next pause, after a command that ran for `lasted`.
    fn next(&mut self, lasted: Duration) -> Duration {
        if lasted >= RAN_WELL {
            self.0 = 0;
        }
        let times = 1_u32.checked_shl(self.0).unwrap_or(u32::MAX);
        self.0 = self.0.saturating_add(1);
        PAUSES.0.saturating_mul(times).min(PAUSES.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pauses_grow_and_begin_anew_after_a_command_that_ran_well() {
        let mut pauses = Pauses::default();
        let mut next = |lasted| pauses.next(Duration::from_secs(lasted)).as_secs();
        assert_eq!([0, 1, 59, 0, 0, 0].map(&mut next), [1, 2, 4, 8, 16, 32]);
        assert!((0..100).all(|_| next(0) == 60));
        assert_eq!([60, 0, 0].map(&mut next), [1, 2, 4]);
    }
}
