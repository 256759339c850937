//! The command as `leasehold run` sees it: by way of its keeper, or without one if that was killed.

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
use super::tree::{Census, Tree};
use crate::exit::{Exit, Failure};

/// The program that we are, also after its file was replaced or deleted.
const OURSELVES: &str = "/proc/self/exe";

/// A keeper that does not answer an order to kill for so long is killed: then its processes come
/// to us, and we kill them.
const ANSWERED_WITHIN: Duration = Duration::from_millis(100);

/// A change of the lease's end below this is not worth a message.
const SAME_END: Duration = Duration::from_millis(1);

/// A command that was started.
#[derive(Debug)]
pub(crate) struct Child {
    keeper: Pid,
    /// Whether the keeper was waited for. From then on its pid may be another's.
    keeper_gone: bool,
    socket: UnixStream,
    link: Link,
    /// Below us: the keeper and all that it keeps.
    tree: Tree,
    all_gone: bool,
    /// Whether the keeper ended with work left, or we ended it.
    broken: bool,
    told_broken: bool,
    not_begun: Option<i32>,
    census: Census,
    kill_at: Option<Moment>,
    kill_ordered: Option<Moment>,
}

/// What became of the command since the last look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// The command itself ended.
    Ended(Exit),
    /// No process of it is left.
    AllGone,
    /// The keeper killed it because its moment had come.
    KilledInTime,
    /// The keeper itself was killed.
    KeeperGone,
    /// A signal for us came to the keeper.
    Signal(Signal),
    /// So many processes are there now.
    Counted(Census),
}

/// Whether the command would share a terminal with us: then it must share our process group too,
/// or reading and writing would stop it.
pub(crate) fn at_terminal() -> bool {
    let stdin = rustix::stdio::stdin();
    isatty(stdin) && tcgetpgrp(stdin).is_ok_and(|foreground| foreground == getpgrp())
}

impl Child {
    /// Starts `command` with our own standard streams, and with `env` beside our environment.
    pub(crate) fn start(
        command: &[OsString],
        env: &[(&str, Option<String>)],
        terminal: bool,
        ttl: Duration,
    ) -> Result<Self, Failure> {
        let refused = |what: &str, error: io::Error| {
            Failure::internal(format!("{what}: {error}; the lock was released, nothing was run"))
        };
        // If the keeper is killed, what it keeps comes to us.
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
        // Our copy of its end would keep the socket open.
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
        })
    }

    /// Waits until the keeper has something for us, or can be told more.
    pub(crate) async fn stirs(&mut self) {
        if self.broken || self.link.is_cut() {
            // Nothing comes from there any more: signals and the clock tell us when to look.
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
        // What is not taken in here would be said again and again.
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

    /// Looks what became of the command.
    pub(crate) fn changes(&mut self) -> Vec<Change> {
        self.link.send(&self.socket);
        let mut changes = self.take_notes();
        let no_child_left = self.reap(&mut changes);
        // Once it has ended, all that it said is there.
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
                Note::Killing => self.kill_ordered = None,
                Note::KilledInTime => changes.push(Change::KilledInTime),
                Note::Signal(signal) => changes.push(Change::Signal(signal)),
            }
        }
        changes
    }

    /// Takes note of every child that ended; as process 1, of everybody's. Says whether we have
    /// none left.
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

    /// Why the command never began, if that is why it ended.
    pub(crate) fn why_not_begun(&self) -> Option<io::Error> {
        self.not_begun.map(io::Error::from_raw_os_error)
    }

    /// How many processes of the command are alive, as far as that is known.
    pub(crate) const fn alive(&self) -> u32 {
        self.census.alive
    }

    /// Has everything killed at `at`, whatever becomes of us until then.
    pub(crate) fn kill_at(&mut self, at: Moment) {
        let same = |known: Moment| known.since(at) < SAME_END && at.since(known) < SAME_END;
        if !self.broken && !self.kill_at.is_some_and(same) {
            self.kill_at = Some(at);
            self.order(&Order::KillAt(at));
        }
    }

    /// Passes a signal on to the command, or to what is left of it.
    pub(crate) fn forward(&mut self, signal: Signal) {
        if self.broken {
            self.tree.signal(&[signal]);
        } else {
            self.order(&Order::Forward(signal));
        }
    }

    /// Tells everything that the command started to stop, wherever it moved.
    pub(crate) fn stop(&mut self, signal: Signal) {
        if self.broken {
            self.tree.signal(&[signal, Signal::CONT]);
        } else {
            self.order(&Order::Stop(signal));
        }
    }

    /// Kills everything that the command started. To be called again until nothing is left.
    pub(crate) fn kill(&mut self) {
        if self.broken {
            // This includes a keeper that hangs.
            return self.tree.signal(&[Signal::KILL]);
        }
        let now = SystemHost.now();
        match self.kill_ordered {
            Some(since) if now.since(since) >= ANSWERED_WITHIN && !self.keeper_gone => {
                // It was stopped, or has no turn at the processor: what it does, we can do.
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

    /// Stops the command where the terminal has not done so itself.
    pub(crate) fn suspend(&mut self, terminal: bool) {
        if !terminal {
            self.forward(Signal::STOP);
        }
    }

    fn order(&mut self, order: &Order) {
        self.link.tell(&self.socket, order);
    }
}

/// Ourselves, to be started again.
fn keeper_program() -> Command {
    if Path::new(OURSELVES).exists() {
        return Command::new(OURSELVES);
    }
    // Without /proc, by the name that we were called by.
    Command::new(std::env::args_os().next().unwrap_or_else(|| "leasehold".into()))
}

/// The code for a command that never began, as env(1) and timeout(1) have it.
pub(crate) fn not_begun(error: &io::Error) -> Exit {
    match error.kind() {
        io::ErrorKind::NotFound => Exit::NOT_FOUND,
        // The system had no room for another process. That is not the command's fault.
        io::ErrorKind::WouldBlock | io::ErrorKind::OutOfMemory => Exit::INTERNAL,
        _ => Exit::CANNOT_EXECUTE,
    }
}
