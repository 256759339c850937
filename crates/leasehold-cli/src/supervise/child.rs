//! The command as `leasehold run` sees it: through its keeper, or directly once that was killed.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use leasehold::core::Moment;
use leasehold::host::{Host as _, SystemHost};
use rustix::process::{
    Pid, Signal, WaitOptions, getpgrp, getpid, kill_process, set_child_subreaper, wait,
};
use rustix::termios::{isatty, tcgetpgrp};
use tokio::io::Interest;
use tokio::net::UnixStream;

use super::keeper::{KEEPER, NAME};
use super::link::{Link, Note, Order, Start, hand_over};
use super::machine::TIMES_A_LOOK;
use super::tree::{Census, Tree};
use crate::exit::{Exit, Failure};

/// Our own program, even after its file was replaced or deleted.
const OURSELVES: &str = "/proc/self/exe";

/// A keeper must answer an order to kill within this time.
const ANSWERED_WITHIN: Duration = Duration::from_millis(100);

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
    /// All processes below us: the keeper and those that it watches.
    tree: Tree,
    all_gone: bool,
    /// Whether the keeper ended before its processes, or we ended it.
    broken: bool,
    told_broken: bool,
    not_begun: Option<i32>,
    census: Census,
    kill_at: Option<Moment>,
    kill_ordered: Option<Moment>,
    /// Whether the keeper has said that it kills everything.
    is_killing: bool,
}

/// A change of the command since the last look.
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

/// Whether the command would share a terminal with us. Then it must also share our process group,
/// or reading and writing would stop it.
pub(crate) fn at_terminal() -> bool {
    let stdin = rustix::stdio::stdin();
    isatty(stdin) && tcgetpgrp(stdin).is_ok_and(|foreground| foreground == getpgrp())
}

impl Child {
    /// Starts `command` with our standard streams and our environment, changed by `env`.
    pub(crate) fn start(
        command: &[OsString],
        env: &[(&str, Option<String>)],
        terminal: bool,
        ttl: Duration,
    ) -> Result<Self, Failure> {
        let refused = |what: &str, error: io::Error| {
            Failure::internal(format!("{what}: {error}; the lock was released, nothing was run"))
        };
        // If the keeper is killed, its processes become our children.
        set_child_subreaper(Some(getpid()))
            .map_err(|error| refused("cannot become the reaper of orphans", error.into()))?;
        let tree = Tree::new();
        let pair = std::os::unix::net::UnixStream::pair();
        let (ours, theirs) = pair.map_err(|error| refused("cannot open a socket", error))?;
        hand_over(&ours, rustix::stdio::stdin())
            .map_err(|error| refused("cannot pass stdin on", error))?;
        let mut keeper = keeper_program();
        keeper.arg0(NAME).arg(KEEPER).stdin(Stdio::from(OwnedFd::from(theirs))).process_group(0);
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
        let mut link = Link::default();
        let group = if terminal { getpgrp().as_raw_nonzero().get() } else { 0 };
        let count_every = (ttl / 10).clamp(Duration::from_millis(100), Duration::from_secs(1));
        let start = Start { group, count_every, command: command.to_vec() };
        link.tell(&ours, &Order::Start(start));
        let watched = ours.set_nonblocking(true).and_then(|()| UnixStream::from_std(ours));
        let socket = watched.map_err(|error| refused("cannot watch a socket", error))?;
        Ok(Self {
            keeper: pid.expect("the system gives positive pids"),
            keeper_gone: false,
            socket,
            link,
            tree,
            all_gone: false,
            broken: false,
            told_broken: false,
            not_begun: None,
            census: Census { alive: 1, took: Duration::ZERO },
            kill_at: None,
            kill_ordered: None,
            is_killing: false,
        })
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
        let no_child_left = self.reap(&mut changes);
        // Once the keeper has ended, all its notes have arrived.
        if self.keeper_gone {
            changes.extend(self.take_notes());
        }
        self.broken |= (self.keeper_gone || self.link.is_cut()) && !self.all_gone;
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
                Note::Killing => (self.kill_ordered, self.is_killing) = (None, true),
                Note::KilledInTime => {
                    self.is_killing = true;
                    changes.push(Change::KilledInTime);
                }
                Note::Signal(signal) => changes.push(Change::Signal(signal)),
            }
        }
        changes
    }

    /// Reaps every child that has ended, including orphans if we are process 1. Returns whether no
    /// child is left.
    fn reap(&mut self, changes: &mut Vec<Change>) -> bool {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, _))) if pid == self.keeper && !self.keeper_gone => {
                    self.keeper_gone = true;
                    // Its processes are ours now.
                    changes.extend(self.take_notes());
                }
                Ok(Some(_)) | Err(rustix::io::Errno::INTR) => {}
                Ok(None) => return false,
                Err(_) => return true,
            }
        }
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
        if !self.broken && !self.kill_at.is_some_and(same) {
            self.kill_at = Some(at);
            self.order(&Order::KillAt(at));
        }
    }

    /// Passes a signal on to the command, or to its remaining processes.
    pub(crate) fn forward(&mut self, signal: Signal) {
        if self.broken {
            self.tree.signal(&[signal]);
        } else {
            self.order(&Order::Forward(signal));
        }
    }

    /// Tells everything that the command started to stop, even processes that moved away.
    pub(crate) fn stop(&mut self, signal: Signal) {
        if self.broken {
            self.tree.signal(&[signal, Signal::CONT]);
        } else {
            self.order(&Order::Stop(signal));
        }
    }

    /// Kills everything that the command started. Call it again until nothing is left.
    pub(crate) fn kill(&mut self) {
        if self.broken {
            // This includes a keeper that hangs.
            return self.tree.signal(&[Signal::KILL]);
        }
        let now = SystemHost.now();
        let answer_within = answer_within(self.is_killing, self.census.took);
        match self.kill_ordered {
            Some(since) if now.since(since) >= answer_within && !self.keeper_gone => {
                // The keeper is stopped, or gets no processor time. We can do its work.
                let _ = kill_process(self.keeper, Signal::KILL);
                self.broken = true;
            }
            Some(_) => {}
            None => {
                self.kill_ordered = Some(now);
                self.order(&Order::Kill);
            }
        }
    }

    /// Stops the command, unless the terminal has already done so.
    pub(crate) fn suspend(&mut self, terminal: bool) {
        if !terminal {
            self.forward(Signal::STOP);
        }
    }

    fn order(&mut self, order: &Order) {
        self.link.tell(&self.socket, order);
    }
}

/// How long a keeper may take to answer an order to kill, when looking at all processes takes
/// `look`. If it kills already, the order may find it in the middle of a round. A keeper that does
/// not answer is killed. Its processes become our children then, and we kill them.
fn answer_within(is_killing: bool, look: Duration) -> Duration {
    let round = if is_killing { look * TIMES_A_LOOK } else { Duration::ZERO };
    ANSWERED_WITHIN + round
}

/// Our own program, to be started again.
fn keeper_program() -> Command {
    if Path::new(OURSELVES).exists() {
        return Command::new(OURSELVES);
    }
    // Without /proc, use the name that we were started with.
    Command::new(std::env::args_os().next().unwrap_or_else(|| "leasehold".into()))
}

/// The exit code for a command that never started, as in env(1) and timeout(1).
pub(crate) fn not_begun(error: &io::Error) -> Exit {
    match error.kind() {
        io::ErrorKind::NotFound => Exit::NOT_FOUND,
        // The system had no room for another process, which is not the command's fault.
        io::ErrorKind::WouldBlock | io::ErrorKind::OutOfMemory => Exit::INTERNAL,
        _ => Exit::CANNOT_EXECUTE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_keeper_that_kills_already_may_finish_its_round_before_it_answers() {
        let ms = Duration::from_millis;
        for (is_killing, look, within) in [
            (false, ms(0), ms(100)),
            (false, ms(500), ms(100)),
            (true, ms(0), ms(100)),
            (true, ms(500), ms(2_100)),
        ] {
            assert_eq!(answer_within(is_killing, look), within, "{is_killing}, {look:?}");
        }
    }
}
