//! The keeper: our own process between `leasehold run` and the command.
//!
//! It starts without children and is the subreaper of everything that the command starts. So `wait`
//! counts exactly those processes, and the kernel decides when no child is left. The keeper reports
//! how the command ended, and exits when no process is left.
//!
//! It kills everything on one of three occasions: `leasehold run` orders it, the moment that
//! `leasehold run` set has come, or the socket to `leasehold run` closes. The kernel closes the
//! socket even after `kill -9`. If such an occasion comes before the command begins, the keeper
//! starts nothing: even a command that is killed immediately may have done something.
//!
//! The keeper has its own process group, name and command line. So signals to those of the command
//! or of `leasehold` do not hit the keeper. It writes nothing and waits for nobody while a process
//! is left. If the keeper itself is killed, its processes become children of `leasehold run`, which
//! is a subreaper as well and kills them.

use std::convert::Infallible;
use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold::core::Moment;
use leasehold::host::{Host as _, SystemHost};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process, kill_process_group,
    set_child_subreaper, wait,
};

use super::descent::KeeperId;
use super::link::{Link, Note, Order, Start, take_over};
use super::tree::{Census, Tree};
use crate::chain::Chain;
use crate::environment::CHAIN;
use crate::exit::Exit;
use crate::process::{Ignored, KEEPER_NAME, program_file};
use crate::signals::{self, FATAL, to_pass_on};

/// The hidden first argument of the keeper.
pub(crate) const KEEPER: &str = "__keep";

/// The other signals that would end or stop us.
const SURVIVED: [Signal; 12] = [
    Signal::USR1,
    Signal::USR2,
    Signal::ALARM,
    Signal::VTALARM,
    Signal::PROF,
    Signal::IO,
    Signal::POWER,
    Signal::XCPU,
    Signal::XFSZ,
    Signal::TSTP,
    Signal::TTIN,
    Signal::TTOU,
];

/// The pauses between two rounds of killing: a twenty-fifth of the time since the first, within
/// these bounds. Short pauses outrun a process that forks and exits again and again. Long pauses
/// are for processes that we have no right to kill.
const PAUSE_MIN: Duration = Duration::from_micros(200);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// Counting uses at most `1 / COUNT_AT_MOST` of the time, while the pause between two counts is
/// below `COUNT_PAUSE_MAX`. One slow scan must not decide for minutes.
const COUNT_AT_MOST: u32 = 50;
const COUNT_PAUSE_MAX: Duration = Duration::from_secs(10);

/// The most children to reap before we look at orders and at the time.
pub(super) const REAPED_MAX: u32 = 1_000;

/// Runs a command and watches over it until no process of it is left.
pub(crate) fn keep() -> ExitCode {
    // Errors before the command runs need no report, since the socket closes, and `leasehold run`
    // sees that.
    match start() {
        Ok(mut keeper) => match keeper.run() {
            Ok(never) => match never {},
            Err(end) => signals::end(end.0),
        },
        Err(_) => signals::end(Exit::INTERNAL),
    }
}

/// How the keeper itself ends.
struct End(Exit);

struct Keeper {
    tree: Tree,
    link: Link,
    /// The command until it was waited for. From then on its pid may be another's.
    command: Option<Pid>,
    /// The process group that the command joined; zero if it got one of its own.
    group: i32,
    kill_at: Option<Moment>,
    killing_since: Option<Moment>,
    count_every: Duration,
    count_at: Moment,
    counted: Census,
    children_ended: UnixStream,
    signals: Vec<(Signal, Arc<AtomicBool>)>,
}

fn socket() -> BorrowedFd<'static> {
    rustix::stdio::stdin()
}

fn start() -> io::Result<Keeper> {
    // Do this first, since `leasehold run` and its keeper may be told to stop right after the
    // start. The command does not inherit these handlers, since a new program starts with the
    // default actions.
    let signals = survive()?;
    rustix::thread::set_name(&CString::new(KEEPER_NAME)?)?;
    set_child_subreaper(Some(getpid()))?;
    let stdin = take_over(socket())?;
    let mut link = Link::default();
    let (start, orders) = first_orders(&mut link)?;
    let tree = Tree::new();
    let (wakes, children_ended) = UnixStream::pair()?;
    signal_hook::low_level::pipe::register(Signal::CHILD.as_raw(), wakes)?;
    children_ended.set_nonblocking(true)?;
    let mut keeper = Keeper {
        tree,
        link,
        command: None,
        group: start.group,
        kill_at: Some(start.kill_at),
        killing_since: None,
        count_every: start.count_every,
        count_at: SystemHost.now() + start.count_every,
        counted: Census { alive: 1, took: Duration::ZERO },
        children_ended,
        signals,
    };
    keeper.begin(&start, orders, stdin)?;
    Ok(keeper)
}

/// Starts the command, unless it is too late for it. If it is a script that names no interpreter,
/// sh(1) runs it, as in every shell.
fn spawn(
    start: &Start,
    stdin: OwnedFd,
    mut is_too_late: impl FnMut() -> bool,
) -> io::Result<Option<Child>> {
    let (program, args) = start.command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let chain = Chain::inherited().kept_by(KeeperId::ours()).text();
    let mut spawn = |command: &mut Command, stdin| {
        command.args(args).stdin(Stdio::from(stdin)).process_group(start.group);
        command.env(CHAIN, &chain);
        // Check this last, since the steps before may have lasted until after the end of the lease.
        if is_too_late() { Ok(None) } else { command.spawn().map(Some) }
    };
    let started = spawn(&mut Command::new(program), stdin.try_clone()?);
    let is_script = |error: &io::Error| Errno::from_io_error(error) == Some(Errno::NOEXEC);
    if !started.as_ref().is_err_and(is_script) {
        return started;
    }
    let script = program_file(program).ok_or(io::ErrorKind::NotFound)?;
    if is_binary(&script)? {
        return started;
    }
    spawn(Command::new("/bin/sh").arg(script), stdin)
}

/// Whether a file is no script, but a program, as one for another machine. Such a file has a NUL
/// in its first line.
fn is_binary(path: &Path) -> io::Result<bool> {
    let mut begin = Vec::new();
    File::open(path)?.take(FIRST_LINE_MAX).read_to_end(&mut begin)?;
    Ok(begin.split(|byte| *byte == b'\n').next().is_some_and(|line| line.contains(&0)))
}

/// How much of a first line is looked at.
const FIRST_LINE_MAX: u64 = 256;

/// Whether a command that begins now would have to be killed at once. Reads the orders that have
/// arrived since `orders`, since each of them may say so.
fn is_too_late(link: &mut Link, orders: &mut Vec<Order>, kill_at: Moment) -> bool {
    orders.extend(link.take(socket()));
    let of_order = |order: &Order| if let Order::KillAt(at) = *order { Some(at) } else { None };
    let kill_at = orders.iter().rev().find_map(of_order).unwrap_or(kill_at);
    link.is_cut() || orders.contains(&Order::Kill) || SystemHost.now() >= kill_at
}

/// Waits for the order to start. More orders may arrive with it.
fn first_orders(link: &mut Link) -> io::Result<(Start, Vec<Order>)> {
    loop {
        let mut orders = link.take(socket()).into_iter();
        match orders.next() {
            Some(Order::Start(start)) => return Ok((start, orders.collect())),
            Some(_) => return Err(io::ErrorKind::InvalidData.into()),
            None if link.is_cut() => return Err(io::ErrorKind::UnexpectedEof.into()),
            None => look(&mut [PollFd::from_borrowed_fd(socket(), PollFlags::IN)], None),
        }
    }
}

/// Closes our copies of the command's output streams, so that they end with the command.
fn close_streams() {
    if let Ok(nothing) = OpenOptions::new().read(true).write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdout(&nothing);
        let _ = rustix::stdio::dup2_stderr(&nothing);
    }
}

/// Handles the signals that would end us, and remembers those that are meant for `leasehold run`: a
/// command may well signal its parent. Ignored signals stay ignored, by the command too.
fn survive() -> io::Result<Vec<(Signal, Arc<AtomicBool>)>> {
    let ignored = Ignored::at_start();
    let mut signals = Vec::new();
    for signal in FATAL.into_iter().chain(SURVIVED).filter(|signal| !ignored.has(*signal)) {
        let came = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(signal.as_raw(), came.clone())?;
        if FATAL.contains(&signal) {
            signals.push((signal, came));
        }
    }
    Ok(signals)
}

/// Waits until something can be read or the limit has passed. A signal ends the wait as well.
fn look(at: &mut [PollFd<'_>], limit: Option<Duration>) {
    let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
    let _ = poll(at, limit.as_ref());
}

impl Keeper {
    /// Starts the command, and obeys the orders that came with the order to start. Fails if it is
    /// too late to start.
    fn begin(&mut self, start: &Start, mut orders: Vec<Order>, stdin: OwnedFd) -> io::Result<()> {
        let link = &mut self.link;
        match spawn(start, stdin, || is_too_late(link, &mut orders, start.kill_at)) {
            Ok(Some(child)) => {
                self.command = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
                self.tell(&Note::Begun);
            }
            Ok(None) => {
                // A signal that asks to stop may have come to us instead of `leasehold run`.
                self.relay();
                self.tell(&Note::TooLate);
                return Err(io::ErrorKind::TimedOut.into());
            }
            Err(error) => self.tell(&Note::NotBegun(error.raw_os_error().unwrap_or(0))),
        }
        close_streams();
        orders.into_iter().for_each(|order| self.obey(order));
        Ok(())
    }

    fn run(&mut self) -> Result<Infallible, End> {
        loop {
            let mut is_behind = self.reap()?;
            for order in self.link.take(socket()) {
                self.obey(order);
            }
            if self.link.is_cut() {
                self.begin_to_kill();
            }
            let now = SystemHost.now();
            if self.kill_at.is_some_and(|at| now >= at) {
                self.kill_at = None;
                self.begin_to_kill();
                self.tell(&Note::KilledInTime);
            }
            self.relay();
            if self.killing_since.is_some() {
                self.kill();
                // The killed processes come back as ended children: look at once.
                is_behind = self.reap()?;
            } else if now >= self.count_at {
                self.count();
            }
            self.rest(is_behind);
        }
    }

    /// Reaps children that have ended, but only some, so that a storm of them does not delay a
    /// kill. Returns whether there may be more. Fails with the keeper's own end if no child is
    /// left.
    fn reap(&mut self) -> Result<bool, End> {
        for _ in 0..REAPED_MAX {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if Some(pid) == self.command => {
                    self.command = None;
                    if let Some(exit) = how(status) {
                        self.tell(&Note::Ended(exit));
                    }
                    self.count_at = SystemHost.now();
                }
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => return Ok(false),
                // No process is left. Only this function decides so.
                Err(_) => {
                    // The signal that ended the command may have come to us, too.
                    self.relay();
                    self.tell(&Note::AllGone);
                    // `leasehold run` may be stopped, with a full socket.
                    self.link.flush(socket());
                    return Err(End(Exit::OK));
                }
            }
        }
        Ok(true)
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::Start(_) => {}
            Order::Forward(signal) => self.forward(signal),
            Order::ForwardOutside(signal) => self.forward_outside(signal),
            Order::SignalAll(signal) => self.tree.signal(&[signal, Signal::CONT]),
            Order::Kill => {
                self.tell(&Note::Killing);
                self.begin_to_kill();
            }
            Order::KillAt(at) => self.kill_at = Some(at),
        }
    }

    /// Passes a signal on to the command, or to its group if the signal
    /// [is meant for all](is_for_all). At a terminal only the command gets it, since `leasehold
    /// run` is in the same group. Once the command has ended, the remaining processes get it if it
    /// is meant for all, or is a HUP, which also tells of the end of a session.
    fn forward(&mut self, signal: Signal) {
        let is_for_group = self.group == 0 && is_for_all(signal);
        let send = if is_for_group { kill_process_group } else { kill_process };
        let signals = to_pass_on(signal);
        match self.command {
            Some(command) => signals.into_iter().for_each(|signal| {
                // A process that has ended meanwhile needs no signal.
                let _ = send(command, signal);
            }),
            None if is_for_all(signal) || signal == Signal::HUP => self.tree.signal(&signals),
            None => {}
        }
    }

    /// Passes on what the terminal sent to the group that the command joined. A command that has
    /// moved to a group of its own, as timeout(1) does, did not get it.
    fn forward_outside(&self, signal: Signal) {
        let Some(command) = self.command.filter(|_| self.group != 0) else { return };
        for signal in to_pass_on(signal) {
            // This fails if the command leads no group. Then, if it has moved to another group, the
            // leader of that group must signal it.
            let _ = kill_process_group(command, signal);
        }
    }

    fn begin_to_kill(&mut self) {
        self.killing_since.get_or_insert_with(|| SystemHost.now());
    }

    fn kill(&mut self) {
        if let (Some(command), true) = (self.command, self.group == 0) {
            // One step for the whole group, so that no member can start another process meanwhile.
            let _ = kill_process_group(command, Signal::KILL);
        }
        self.tree.signal(&[Signal::KILL]);
    }

    fn count(&mut self) {
        let census = self.tree.census();
        if census.is_news_after(&self.counted) && !self.link.has_to_send() {
            self.counted = census;
            self.tell(&Note::Counted(census));
        }
        self.count_at = SystemHost.now() + count_pause(self.count_every, census.took);
    }

    fn relay(&mut self) {
        let came: Vec<Signal> = self
            .signals
            .iter()
            .filter(|(_, came)| came.swap(false, Ordering::Relaxed))
            .map(|(signal, _)| *signal)
            .collect();
        came.into_iter().for_each(|signal| self.tell(&Note::Signal(signal)));
    }

    fn tell(&mut self, note: &Note) {
        self.link.tell(socket(), note);
    }

    /// Waits until there may be something to do.
    fn rest(&mut self, is_behind: bool) {
        let now = SystemHost.now();
        let span = match self.killing_since {
            _ if is_behind => Duration::ZERO,
            Some(_) if self.tree.is_not_seen_yet() => PAUSE_MIN,
            Some(since) => (now.since(since) / 25).clamp(PAUSE_MIN, PAUSE_MAX),
            None => {
                let next = self.kill_at.map_or(self.count_at, |at| at.min(self.count_at));
                next.since(now)
            }
        };
        let wanted = if self.link.has_to_send() { PollFlags::OUT } else { PollFlags::empty() };
        // A closed socket would be readable for ever.
        let wanted = if self.link.is_cut() { wanted } else { wanted | PollFlags::IN };
        let orders = (!wanted.is_empty()).then(|| PollFd::from_borrowed_fd(socket(), wanted));
        let mut at: Vec<PollFd<'_>> = orders.into_iter().collect();
        at.push(PollFd::new(&self.children_ended, PollFlags::IN));
        look(&mut at, Some(span));
        // Each signal wrote a byte: read them all.
        while matches!(rustix::io::read(&self.children_ended, &mut [0; 64]), Ok(1..)) {}
        self.link.send(socket());
    }
}

/// Whether a signal is meant for all processes of a job: to end them, to stop or to continue them.
/// The other signals tell one process something, such as to read its settings again. They would end
/// children of that process that do not expect them.
fn is_for_all(signal: Signal) -> bool {
    [Signal::TERM, Signal::INT, Signal::QUIT, Signal::STOP, Signal::CONT].contains(&signal)
}

/// The pause after a count that took `took`.
fn count_pause(usual: Duration, took: Duration) -> Duration {
    usual.max((took * COUNT_AT_MOST).min(COUNT_PAUSE_MAX))
}

fn how(status: WaitStatus) -> Option<Exit> {
    let code = status.exit_status().map(|code| Exit::Code(u8::try_from(code).unwrap_or(255)));
    code.or_else(|| status.terminating_signal().map(Exit::Signal))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counting_takes_little_time_and_one_slow_look_is_followed_by_another_soon() {
        let usual = Duration::from_millis(100);
        for (took, pause) in [(0, 100), (2, 100), (60, 3_000), (200, 10_000), (20_000, 10_000)] {
            let shown = count_pause(usual, Duration::from_millis(took));
            assert_eq!(shown, Duration::from_millis(pause), "{took}");
        }
    }
}
