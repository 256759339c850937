//! The command as `leasehold run` sees it: through its keeper, or directly once that was killed.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold::core::Moment;
use leasehold::host::{Host as _, SystemHost};
use rustix::process::{
    Pid, Signal, WaitOptions, getpgrp, getpid, kill_process, set_child_subreaper, wait,
};
use tokio::io::Interest;
use tokio::net::UnixStream;

use super::keeper::{KEEPER, REAPED_MAX};
use super::link::{Link, Note, Order, Start, hand_over};
use super::policy::TIMES_A_LOOK;
use super::terminal::Terminal;
use super::tree::{Census, Tree};
use crate::exit::{Exit, Failure};
use crate::process::KEEPER_NAME;
use crate::signals::to_pass_on;

/// Our own program, even after its file was replaced or deleted.
const OURSELVES: &str = "/proc/self/exe";

/// A keeper must answer an order to kill within this time, and before its own moment to kill.
const ANSWERED_WITHIN: Duration = Duration::from_millis(100);

/// The least time in which a keeper must answer an order to kill.
const ANSWERED_WITHIN_MIN: Duration = Duration::from_millis(5);

/// A smaller change of the moment to kill is not sent to the keeper.
const SAME_END: Duration = Duration::from_millis(1);

/// A command that was started.
#[derive(Debug)]
pub(crate) struct Child {
    keeper: Pid,
    /// Whether the keeper was reaped. From then on its pid may belong to another process.
    keeper_gone: bool,
    socket: UnixStream,
    link: Link,
    terminal: Terminal,
    /// All processes below us: the keeper and those that it watches.
    tree: Tree,
    all_gone: bool,
    /// Whether the keeper ended before its processes, or we ended it.
    broken: bool,
    told_broken: bool,
    /// Whether our stdin and stdout are the command's alone once it has begun.
    takes_streams: bool,
    not_begun: Option<i32>,
    too_late: bool,
    has_ended: Arc<AtomicBool>,
    census: Census,
    /// The moment to kill that the keeper knows.
    kill_at: Moment,
    kill_order: KillOrder,
}

/// A change of the command since the last call of `changes`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// The command itself ended.
    Ended(Exit),
    /// No process of it is left.
    AllGone,
    /// The keeper killed the command because its moment to kill had come.
    KilledInTime,
    /// The keeper itself was killed.
    KeeperGone,
    /// The keeper received a signal that is meant for us.
    Signal(Signal),
    /// The number of living processes changed.
    Counted(Census),
}

impl Child {
    /// Starts `command` with our standard streams and our environment, changed by `env`. If we are
    /// in the foreground of a terminal, the command joins our process group. The keeper kills it at
    /// `kill_at`, or does not start it after that.
    pub(crate) fn start(
        command: &[OsString],
        env: &[(&str, Option<String>)],
        ttl: Duration,
        kill_at: Moment,
    ) -> Result<Self, Failure> {
        let refused = |what: &str, error: io::Error| {
            Failure::internal(format!("{what}: {error}; the lock was released; nothing was run"))
        };
        // If the keeper is killed, its processes become our children.
        set_child_subreaper(Some(getpid()))
            .map_err(|error| refused("cannot become the reaper of orphans", error.into()))?;
        let tree = Tree::new();
        let pair = std::os::unix::net::UnixStream::pair();
        let (ours, theirs) = pair.map_err(|error| refused("cannot open a socket", error))?;
        let watched = ours.set_nonblocking(true).and_then(|()| UnixStream::from_std(ours));
        let socket = watched.map_err(|error| refused("cannot watch a socket", error))?;
        hand_over(&socket, rustix::stdio::stdin())
            .map_err(|error| refused("cannot pass stdin on", error))?;
        let mut keeper = keeper_program();
        keeper
            .arg0(KEEPER_NAME)
            .arg(KEEPER)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .process_group(0);
        for (name, value) in env {
            match value {
                Some(value) => keeper.env(name, value),
                None => keeper.env_remove(name),
            };
        }
        let started = keeper.spawn().map_err(|error| refused("cannot start a process", error))?;
        // Our copy of the keeper's end would keep the socket open.
        drop(keeper);
        let pid = i32::try_from(started.id()).ok().and_then(Pid::from_raw);
        let keeper = pid.expect("the system gives positive pids");
        // Look only now. A wait may have lasted for hours, and `fg` may have brought us to the
        // foreground.
        let terminal = Terminal::now();
        let group = if terminal.is_shared() { getpgrp().as_raw_nonzero().get() } else { 0 };
        let count_every = (ttl / 10).clamp(Duration::from_millis(100), Duration::from_secs(1));
        let start = Start { group, count_every, kill_at, command: command.to_vec() };
        let mut link = Link::default();
        // Nothing may fail from here on, since the command may run.
        link.tell(&socket, &Order::Start(start));
        Ok(Self {
            keeper,
            keeper_gone: false,
            terminal,
            socket,
            link,
            tree,
            all_gone: false,
            broken: false,
            told_broken: false,
            takes_streams: false,
            not_begun: None,
            too_late: false,
            has_ended: Arc::default(),
            census: Census { alive: 1, took: Duration::ZERO },
            kill_at,
            kill_order: KillOrder::default(),
        })
    }

    /// Closes our stdin and stdout when the command has begun, so that these end when the command
    /// closes them. For a process that starts no other command after that. Until then we may need
    /// them for another attempt.
    pub(crate) const fn take_our_streams(&mut self) {
        self.takes_streams = true;
    }

    /// Waits until the keeper has sent something, or can be sent more.
    pub(crate) async fn stirs(&mut self) {
        if self.broken || self.link.is_cut() {
            // The keeper sends nothing any more: signals and the clock tell us when to look.
            return std::future::pending().await;
        }
        let mut interest = Interest::READABLE;
        if self.link.has_to_send() {
            interest |= Interest::WRITABLE;
        }
        if self.socket.ready(interest).await.is_err() {
            return std::future::pending().await;
        }
        let (socket, link) = (&self.socket, &mut self.link);
        let nothing_more = || io::Result::<()>::Err(io::ErrorKind::WouldBlock.into());
        // Bytes that are not read here would keep the socket ready for ever.
        let _ = socket.try_io(Interest::READABLE, || {
            link.receive(socket);
            nothing_more()
        });
        if link.has_to_send() {
            let _ = socket.try_io(Interest::WRITABLE, || {
                link.send(socket);
                nothing_more()
            });
        }
    }

    /// Returns what happened to the command since the last call.
    pub(crate) fn changes(&mut self) -> Vec<Change> {
        self.link.send(&self.socket);
        let mut changes = self.take_notes();
        if !self.keeper_gone {
            self.tree.adopt_strangers(self.keeper);
        }
        let no_child_left = self.reap(&mut changes);
        // Once the keeper has ended, all its notes have arrived.
        if self.keeper_gone {
            changes.extend(self.take_notes());
        }
        self.broken |= (self.keeper_gone || self.link.is_cut()) && !self.all_gone;
        if self.broken {
            // Without a keeper, nobody would tell us of the end.
            self.has_ended.store(true, Ordering::Relaxed);
        }
        if self.broken && !std::mem::replace(&mut self.told_broken, true) {
            changes.push(Change::KeeperGone);
        }
        let alone = self.broken && self.keeper_gone && !self.all_gone;
        if alone && (no_child_left || self.tree.has_only_strangers()) {
            self.all_gone = true;
            changes.push(Change::AllGone);
        }
        changes
    }

    fn take_notes(&mut self) -> Vec<Change> {
        let mut changes = Vec::new();
        for note in self.link.take::<Note>(&self.socket) {
            match note {
                Note::Begun if self.takes_streams => close_streams(),
                Note::Begun => {}
                Note::TooLate => self.too_late = true,
                Note::NotBegun(errno) => {
                    self.not_begun = Some(errno);
                    changes.push(Change::Ended(not_begun(&io::Error::from_raw_os_error(errno))));
                }
                Note::Ended(exit) => changes.push(Change::Ended(exit)),
                Note::Counted(census) => {
                    self.census = census;
                    changes.push(Change::Counted(census));
                }
                Note::AllGone => {
                    self.all_gone = true;
                    changes.push(Change::AllGone);
                }
                Note::Killing => self.kill_order.answered(),
                Note::KilledInTime => {
                    self.kill_order.is_killing = true;
                    changes.push(Change::KilledInTime);
                }
                Note::Signal(signal) => changes.push(Change::Signal(signal)),
            }
        }
        if self.too_late || changes.iter().any(|change| matches!(change, Change::Ended(_))) {
            self.has_ended.store(true, Ordering::Relaxed);
        }
        changes
    }

    /// Reaps children that have ended, including orphans if we are process 1. Returns whether no
    /// child is left.
    fn reap(&mut self, changes: &mut Vec<Change>) -> bool {
        for _ in 0..REAPED_MAX {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, _))) if pid == self.keeper && !self.keeper_gone => {
                    self.keeper_gone = true;
                    // The keeper's processes are our children now.
                    changes.extend(self.take_notes());
                }
                Ok(Some((pid, _))) => self.tree.forget(pid),
                Err(rustix::io::Errno::INTR) => {}
                Ok(None) => return false,
                Err(_) => return true,
            }
        }
        // There may be more. Nothing else might wake us for them, so our own signal does: each
        // SIGCHLD makes `leasehold run` look at the changes again.
        let _ = kill_process(getpid(), Signal::CHILD);
        false
    }

    /// How the command shares our terminal.
    pub(crate) const fn terminal(&self) -> Terminal {
        self.terminal
    }

    /// Whether the command itself has ended, or will never begin. Processes of it may still run.
    pub(crate) fn has_ended(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.has_ended)
    }

    /// Whether the keeper did not start the command, since it would have had to kill it at once.
    pub(crate) const fn came_too_late(&self) -> bool {
        self.too_late
    }

    /// The moment at which the keeper kills everything, as far as it was told.
    pub(crate) const fn killed_at(&self) -> Moment {
        self.kill_at
    }

    /// Why the command never started, if it did not.
    pub(crate) fn why_not_begun(&self) -> Option<io::Error> {
        self.not_begun.map(io::Error::from_raw_os_error)
    }

    /// The last known number of living processes of the command.
    pub(crate) const fn alive(&self) -> u32 {
        self.census.alive
    }

    /// Makes the keeper kill everything at `at`, even if we are gone by then.
    pub(crate) fn kill_at(&mut self, at: Moment) {
        let same = |known: Moment| known.since(at) < SAME_END && at.since(known) < SAME_END;
        if !self.broken && !same(self.kill_at) {
            self.kill_at = at;
            self.order(&Order::KillAt(at));
        }
    }

    /// Passes a signal on to the command, or to its remaining processes.
    pub(crate) fn forward(&mut self, signal: Signal) {
        if self.broken {
            self.tree.signal(&to_pass_on(signal));
        } else {
            self.order(&Order::Forward(signal));
        }
    }

    /// Passes on what the terminal sent to our group, if the command has left that group.
    pub(crate) fn forward_outside(&mut self, signal: Signal) {
        // Without the keeper, everything is being killed.
        if !self.broken {
            self.order(&Order::ForwardOutside(signal));
        }
    }

    /// Sends a signal to everything that the command started, even to processes that moved away,
    /// and continues them.
    pub(crate) fn signal_all(&mut self, signal: Signal) {
        if self.broken {
            self.tree.signal(&[signal, Signal::CONT]);
        } else {
            self.order(&Order::SignalAll(signal));
        }
    }

    /// Kills everything that the command started. Call it again until nothing is left.
    pub(crate) fn kill(&mut self) {
        if self.broken {
            // This includes a keeper that hangs.
            return self.tree.signal(&[Signal::KILL]);
        }
        match self.kill_order.next(SystemHost.now(), self.census.took, self.kill_at) {
            Next::Give => self.order(&Order::Kill),
            Next::Wait => {}
            // The next call of `changes` sees that it has ended.
            Next::GiveUp if self.keeper_gone => {}
            Next::GiveUp => {
                // The keeper is stopped, or gets no processor time. We can do its work.
                let _ = kill_process(self.keeper, Signal::KILL);
                self.broken = true;
            }
        }
    }

    fn order(&mut self, order: &Order) {
        self.link.tell(&self.socket, order);
    }
}

/// The order to kill everything, which is given again until nothing is left. A keeper that does not
/// answer is killed. Its processes become our children then, and we kill them.
#[derive(Debug, Default)]
struct KillOrder {
    /// Since when an order has no answer.
    given: Option<Moment>,
    /// Whether the keeper has said that it kills everything.
    is_killing: bool,
}

/// The next step when everything must be killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Give,
    Wait,
    /// The keeper does not answer.
    GiveUp,
}

impl KillOrder {
    /// The keeper says that it kills everything.
    const fn answered(&mut self) {
        (self.given, self.is_killing) = (None, true);
    }

    /// The step at `now`. Looking at all processes takes `look`. A keeper that kills already may be
    /// in the middle of a round when the order comes. At `kill_at`, a keeper that runs kills
    /// without an order, so one that has not answered by then is stopped.
    fn next(&mut self, now: Moment, look: Duration, kill_at: Moment) -> Next {
        let round = if self.is_killing { look * TIMES_A_LOOK } else { Duration::ZERO };
        let answers_by = |since: Moment| {
            kill_at.max(since + ANSWERED_WITHIN_MIN).min(since + ANSWERED_WITHIN) + round
        };
        match self.given {
            Some(since) if now >= answers_by(since) => Next::GiveUp,
            Some(_) => Next::Wait,
            None => {
                self.given = Some(now);
                Next::Give
            }
        }
    }
}

/// Our own program, to be started again.
fn keeper_program() -> Command {
    if Path::new(OURSELVES).exists() {
        return Command::new(OURSELVES);
    }
    // Without /proc, use the name that we were started with.
    Command::new(std::env::args_os().next().unwrap_or_else(|| "leasehold".into()))
}

fn close_streams() {
    if let Ok(nothing) = OpenOptions::new().read(true).write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdin(&nothing);
        let _ = rustix::stdio::dup2_stdout(&nothing);
    }
}

/// The exit code for a command that never started, as in env(1) and timeout(1).
pub(crate) fn not_begun(error: &io::Error) -> Exit {
    match error.kind() {
        io::ErrorKind::NotFound => Exit::NOT_FOUND,
        // The system could not start another process, which is not the command's fault.
        io::ErrorKind::WouldBlock | io::ErrorKind::OutOfMemory => Exit::INTERNAL,
        _ => Exit::CANNOT_EXECUTE,
    }
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    fn at(ms: u64) -> Moment {
        Moment::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn a_keeper_that_does_not_answer_is_given_up_and_one_that_kills_may_finish_its_round() {
        let (look, end) = (Duration::from_millis(500), at(60_000));
        let mut order = KillOrder::default();
        for (ms, next) in [(0, Next::Give), (99, Next::Wait), (100, Next::GiveUp)] {
            assert_eq!(order.next(at(ms), look, end), next, "{ms}");
        }
        order.answered();
        for (ms, next) in
            [(1_000, Next::Give), (1_100, Next::Wait), (3_099, Next::Wait), (3_100, Next::GiveUp)]
        {
            assert_eq!(order.next(at(ms), look, end), next, "{ms}");
        }
    }

    /// Otherwise the command would work on after the end of a short lease.
    #[test]
    fn a_keeper_that_does_not_answer_is_given_up_at_the_moment_at_which_it_would_kill() {
        for (kill_at, given_up) in [(1_010, 1_010), (900, 1_005), (5_000, 1_100)] {
            let mut order = KillOrder::default();
            let mut next = |ms| order.next(at(ms), Duration::ZERO, at(kill_at));
            assert_eq!(next(1_000), Next::Give);
            assert_eq!((next(given_up - 1), next(given_up)), (Next::Wait, Next::GiveUp));
        }
    }

    /// A machine without room for another process says nothing about the command.
    #[test]
    fn a_command_that_does_not_begin_ends_as_with_env_unless_the_system_is_full() {
        for (errno, exit) in [
            (Errno::NOENT, Exit::NOT_FOUND),
            (Errno::ACCESS, Exit::CANNOT_EXECUTE),
            (Errno::NOEXEC, Exit::CANNOT_EXECUTE),
            (Errno::TOOBIG, Exit::CANNOT_EXECUTE),
            (Errno::AGAIN, Exit::INTERNAL),
            (Errno::NOMEM, Exit::INTERNAL),
        ] {
            assert_eq!(not_begun(&errno.into()), exit, "{errno:?}");
        }
    }

    #[test]
    fn each_answer_calls_for_another_order() {
        let mut order = KillOrder::default();
        for ms in [0, 90, 180, 270] {
            assert_eq!(order.next(at(ms), Duration::ZERO, at(60_000)), Next::Give, "{ms}");
            order.answered();
        }
    }
}
