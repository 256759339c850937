//! Processes that a test starts, talks to, and waits for.

use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{ChildStdin, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};

use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, kill_process};

use super::CEILING;

/// The results of a process that has ended.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Done {
    #[track_caller]
    pub(crate) fn code(&self, expected: i32) -> &Self {
        assert_eq!(self.status.code(), Some(expected), "{self:?}");
        self
    }

    #[track_caller]
    pub(crate) fn signal(&self, expected: Signal) -> &Self {
        assert_eq!(self.status.signal(), Some(expected.as_raw()), "{self:?}");
        assert!(!self.status.core_dumped(), "a core of ours beside the command's");
        self
    }

    #[track_caller]
    pub(crate) fn says(&self, part: &str) -> &Self {
        assert!(self.stderr.contains(part), "`{part}` is not in:\n{}", self.stderr);
        self
    }

    /// Asserts that the message says that the store is as before.
    #[track_caller]
    pub(crate) fn says_that_nothing_happened(&self) {
        let states = ["nothing was ", "no request was sent"];
        let said = states.iter().any(|state| self.stderr.contains(state));
        assert!(said, "the state is not in:\n{}", self.stderr);
    }
}

/// A process group of its own. The tests may run in the foreground of a terminal, and `leasehold`
/// behaves differently there.
const AWAY_FROM_OUR_TERMINAL: i32 = 0;

/// Runs a command to its end. Kills it, and panics, if it does not end within [`CEILING`].
#[track_caller]
pub(crate) fn finish(mut command: Command) -> Done {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    finish_as_it_is(command)
}

/// Like [`finish`], and leaves the streams of the command as the test has set them.
#[track_caller]
pub(crate) fn finish_as_it_is(mut command: Command) -> Done {
    command.process_group(AWAY_FROM_OUR_TERMINAL);
    let child = command.spawn().expect("the command starts");
    let pid = Pid::from_child(&child);
    let (sender, ended) = channel();
    std::thread::spawn(move || sender.send(child.wait_with_output().expect("it is ours")));
    let Ok(Output { status, stdout, stderr }) = ended.recv_timeout(CEILING) else {
        // The process may have ended, and another process may have its output open.
        let _ = kill_process(pid, Signal::KILL);
        panic!("{command:?} does not end");
    };
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    Done { status, stdout: text(&stdout), stderr: text(&stderr) }
}

/// A full pipe that nobody reads.
pub(crate) fn full_pipe() -> (OwnedFd, Stdio) {
    let (reader, writer) = pipe_with(PipeFlags::NONBLOCK | PipeFlags::CLOEXEC).expect("a pipe");
    for piece in [vec![b'x'; 4096], vec![b'x']] {
        while rustix::io::write(&writer, &piece).is_ok() {}
    }
    // Only this test must not block on the pipe. The command must.
    rustix::io::ioctl_fionbio(&writer, false).expect("our own pipe");
    (reader, Stdio::from(writer))
}

/// A process that runs while the test runs. Killed when dropped.
pub(crate) struct Running {
    pid: i32,
    stdin: Option<ChildStdin>,
    stdout: Receiver<String>,
    stderr: Receiver<String>,
    ended: Receiver<ExitStatus>,
    status: Option<ExitStatus>,
    said: String,
}

/// Starts a command with pipes for all streams.
pub(crate) fn start(command: Command) -> Running {
    start_with_stderr(command, Stdio::piped())
}

/// Starts a command with `stderr`, and with pipes for the other streams.
pub(crate) fn start_with_stderr(mut command: Command, stderr: Stdio) -> Running {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(stderr);
    command.process_group(AWAY_FROM_OUR_TERMINAL);
    let mut child = command.spawn().expect("the command starts");
    // Otherwise we would keep the other end open.
    drop(command);
    let pid = i32::try_from(child.id()).expect("a pid");
    let stdin = child.stdin.take();
    let stdout = lines(child.stdout.take().expect("a pipe"));
    let stderr = child.stderr.take().map_or_else(|| channel().1, lines);
    let (sender, ended) = channel();
    std::thread::spawn(move || sender.send(child.wait().expect("it is ours")));
    Running { pid, stdin, stdout, stderr, ended, status: None, said: String::new() }
}

/// Makes the processes that we start have default signal actions. The tests may run with ignored
/// signals, as under nohup, and children inherit those. Children do not inherit handlers, so we
/// install handlers for the ignored signals.
pub(super) fn start_with_default_signals() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let status = std::fs::read_to_string("/proc/self/status").expect("proc is mounted");
        let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        let mask = u64::from_str_radix(mask.expect("the kernel tells").trim(), 16).expect("a mask");
        for signal in [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM, Signal::USR1] {
            if mask & (1 << (signal.as_raw() - 1)) != 0 {
                signal_hook::flag::register(signal.as_raw(), std::sync::Arc::default())
                    .expect("a signal that may be handled");
            }
        }
    });
}

fn lines(stream: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines() {
            let Ok(line) = line else { break };
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    receiver
}

impl Running {
    pub(crate) const fn pid(&self) -> i32 {
        self.pid
    }

    pub(crate) fn kill(&self, signal: Signal) {
        // The process may have ended already. The test finds that out.
        let _ = kill_process(Pid::from_raw(self.pid()).expect("a pid"), signal);
    }

    /// Waits for the next line on stdout.
    #[track_caller]
    pub(crate) fn line(&mut self) -> String {
        match self.stdout.recv_timeout(CEILING) {
            Ok(line) => line,
            Err(_) => panic!("no line on stdout; stderr:\n{}", self.stderr_so_far()),
        }
    }

    /// Waits until no process has stdout open, and returns the remaining lines.
    #[track_caller]
    pub(crate) fn rest_of_stdout(&mut self) -> Vec<String> {
        let mut rest = Vec::new();
        loop {
            match self.stdout.recv_timeout(CEILING) {
                Ok(line) => rest.push(line),
                Err(RecvTimeoutError::Disconnected) => return rest,
                Err(RecvTimeoutError::Timeout) => panic!("somebody lives on; so far: {rest:?}"),
            }
        }
    }

    /// Waits for this line on stdout.
    #[track_caller]
    pub(crate) fn expect(&mut self, line: &str) {
        assert_eq!(self.line(), line, "stderr:\n{}", self.stderr_so_far());
    }

    /// Waits for a line on stderr that contains `part`, and returns it.
    #[track_caller]
    pub(crate) fn expect_message(&mut self, part: &str) -> String {
        loop {
            match self.stderr.recv_timeout(CEILING) {
                Ok(line) => {
                    self.said.push_str(&line);
                    self.said.push('\n');
                    if line.contains(part) {
                        return line;
                    }
                }
                Err(_) => panic!("`{part}` is not in:\n{}", self.said),
            }
        }
    }

    /// Writes a line to stdin.
    pub(crate) fn tell(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("stdin is open");
        writeln!(stdin, "{line}").expect("it reads");
    }

    /// Waits for the end of the process itself.
    #[track_caller]
    pub(crate) fn end(mut self) -> Done {
        drop(self.stdin.take());
        let status = self.exit();
        let mut stdout = String::new();
        while let Ok(line) = self.stdout.recv_timeout(CEILING) {
            stdout.push_str(&line);
            stdout.push('\n');
        }
        while let Ok(line) = self.stderr.recv_timeout(CEILING) {
            self.said.push_str(&line);
            self.said.push('\n');
        }
        Done { status, stdout, stderr: std::mem::take(&mut self.said) }
    }

    /// Waits for the end of the process itself, even if other processes still have its streams.
    #[track_caller]
    pub(crate) fn exit(&mut self) -> ExitStatus {
        if self.status.is_none() {
            self.status = self.ended.recv_timeout(CEILING).ok();
        }
        match self.status {
            Some(status) => status,
            None => panic!("it does not end; stderr:\n{}", self.stderr_so_far()),
        }
    }

    fn stderr_so_far(&mut self) -> String {
        while let Ok(line) = self.stderr.try_recv() {
            self.said.push_str(&line);
            self.said.push('\n');
        }
        self.said.clone()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // After the process has ended, its pid may belong to another process.
        if self.status.is_none() && self.ended.try_recv().is_err() {
            self.kill(Signal::KILL);
            let _ = self.ended.recv_timeout(CEILING);
        }
    }
}
