//! Starting the command, seeing it end, and reaching it with signals.
//!
//! The command is started in two steps, so that it dies with us even if we are killed and no code
//! of ours runs: we start ourselves again with the hidden argument [`CHILD`], and that process asks
//! the kernel to be killed when its parent dies, then becomes the command. The kernel means the
//! parent *thread*, so [`Child::start`] belongs on the main thread, which lives as long as we do.
//! Limits: only the command itself is covered, not what it starts, and not one that gains rights
//! by being set-user-id.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getpgrp, getpid, getppid, kill_process,
    kill_process_group, set_child_subreaper, set_parent_process_death_signal, wait,
};
use rustix::termios::{isatty, tcgetpgrp};

use super::tree;
use crate::exit::{Exit, Failure};

/// The hidden first argument of the process that becomes the command.
pub(crate) const CHILD: &str = "__child";

/// The program that we are, also after its file was replaced or deleted.
const OURSELVES: &str = "/proc/self/exe";

/// A command that was started.
#[derive(Debug)]
pub(crate) struct Child {
    pid: Pid,
    own_group: bool,
    /// Whether it was waited for. From then on its pid may be another's.
    gone: bool,
    strangers: HashSet<i32>,
    report: Report,
}

/// What looking for ended processes found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reaped {
    /// How the command ended, if that was seen just now.
    pub(crate) ended: Option<Exit>,
    /// Whether nothing that the command started lives any more.
    pub(crate) all_gone: bool,
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
    ) -> Result<Self, Failure> {
        let refused = |what: &str, error: io::Error| {
            Failure::internal(format!("{what}: {error}; the lock was released, nothing was run"))
        };
        set_child_subreaper(Some(getpid()))
            .map_err(|error| refused("cannot become the reaper of orphans", error.into()))?;
        let strangers = tree::children();
        let report = Report::new().map_err(|error| refused("cannot open a pipe", error))?;
        let mut ourselves = Command::new(OURSELVES);
        ourselves.arg0("leasehold").arg(CHILD);
        ourselves.arg(getpid().as_raw_nonzero().to_string()).arg(report.number()).args(command);
        for (name, value) in env {
            match value {
                Some(value) => ourselves.env(name, value),
                None => ourselves.env_remove(name),
            };
        }
        if !terminal {
            ourselves.process_group(0);
        }
        let started =
            ourselves.spawn().map_err(|error| refused("cannot start a process", error))?;
        let pid = i32::try_from(started.id()).ok().and_then(Pid::from_raw);
        let pid = pid.expect("the system gives positive pids");
        Ok(Self { pid, own_group: !terminal, gone: false, strangers, report })
    }

    /// Takes note of every process below us that ended; as process 1, of everybody's.
    pub(crate) fn reap(&mut self) -> Reaped {
        let mut ended = None;
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid == self.pid && !self.gone => {
                    self.gone = true;
                    ended = how(status);
                }
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(rustix::io::Errno::INTR) => {}
                // Nobody is left: the usual case, found without a look at /proc.
                Err(_) => return Reaped { ended, all_gone: self.gone },
            }
        }
        Reaped { ended, all_gone: self.gone && tree::count(&self.strangers) == 0 }
    }

    /// Why the command never began, if that is why it ended.
    pub(crate) fn why_not_begun(&self) -> Option<io::Error> {
        self.report.read()
    }

    /// How many processes of the command are alive.
    pub(crate) fn alive(&self) -> usize {
        tree::count(&self.strangers)
    }

    /// Passes a signal on: to the group of the command; at a terminal to the command alone, since
    /// we are in its group; to whatever is left once the command itself has ended.
    pub(crate) fn forward(&self, signal: Signal) {
        // A process that ended meanwhile needs no signal, so failures mean nothing here.
        if self.gone {
            tree::signal(&self.strangers, &[signal]);
        } else if self.own_group {
            let _ = kill_process_group(self.pid, signal);
        } else {
            let _ = kill_process(self.pid, signal);
        }
    }

    /// Signals everything that the command started, wherever it moved; `then` follows.
    pub(crate) fn signal_all(&self, signal: Signal, then: Option<Signal>) {
        let signals: Vec<Signal> = std::iter::once(signal).chain(then).collect();
        if self.own_group && !self.gone && signal == Signal::KILL {
            // In one step, so that nobody in the group can start another meanwhile.
            let _ = kill_process_group(self.pid, signal);
        }
        tree::signal(&self.strangers, &signals);
    }

    /// Stops the command where the terminal has not done so itself.
    pub(crate) fn suspend(&self) {
        if self.own_group {
            self.forward(Signal::STOP);
        }
    }
}

fn how(status: WaitStatus) -> Option<Exit> {
    let code = status.exit_status().map(|code| Exit::Code(u8::try_from(code).unwrap_or(255)));
    code.or_else(|| status.terminating_signal().map(Exit::Signal))
}

/// A pipe through which the process that was to become the command says why it could not, so that
/// a command that itself ends with 127 is never taken for one that was not found.
///
/// The writer opens our end of it by name, and only when it has something to say: so nothing needs
/// to be handed over, and nothing is left open in the command.
#[derive(Debug)]
struct Report {
    reader: OwnedFd,
    writer: OwnedFd,
}

impl Report {
    fn new() -> io::Result<Self> {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        Ok(Self { reader, writer })
    }

    fn number(&self) -> String {
        self.writer.as_raw_fd().to_string()
    }

    fn read(&self) -> Option<io::Error> {
        let mut text = [0; 16];
        let length = rustix::io::read(&self.reader, &mut text).ok()?;
        let errno = std::str::from_utf8(&text[..length]).ok()?.trim().parse().ok()?;
        Some(io::Error::from_raw_os_error(errno))
    }
}

/// What the process does that becomes the command: `__child PARENT PIPE COMMAND [ARG]…`.
pub(crate) fn become_command(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    let mut number = || args.next().and_then(|arg| arg.to_str()?.parse::<i32>().ok());
    let (Some(parent), Some(pipe)) = (number(), number()) else {
        return Exit::USAGE.end();
    };
    let Some(command) = args.next() else { return Exit::USAGE.end() };
    let armed = set_parent_process_death_signal(Some(Signal::KILL));
    // The parent may have died before the kernel was asked: then nobody would tell us.
    if armed.is_err() || getppid().map(|pid| pid.as_raw_nonzero().get()) != Some(parent) {
        return Exit::INTERNAL.end();
    }
    let error = Command::new(&command).args(args).exec();
    let writer = OpenOptions::new().write(true).open(format!("/proc/{parent}/fd/{pipe}"));
    if let (Ok(mut writer), Some(errno)) = (writer, error.raw_os_error()) {
        let _ = write!(writer, "{errno}");
    }
    not_begun(&error).end()
}

/// The code for a command that never began, as env(1) and timeout(1) have it.
pub(crate) fn not_begun(error: &io::Error) -> Exit {
    if error.kind() == io::ErrorKind::NotFound { Exit::NOT_FOUND } else { Exit::CANNOT_EXECUTE }
}
