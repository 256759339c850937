//! A world of its own for each test: a home, a store, and processes that are gone when it ends.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{ChildStdin, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use serde_json::Value;
use tempfile::TempDir;

/// How long anything may take before the test gives up: far more than a slow machine needs.
pub(crate) const CEILING: Duration = Duration::from_secs(60);

/// A home and a store that nobody else uses.
pub(crate) struct World {
    dir: TempDir,
}

impl World {
    pub(crate) fn new() -> Self {
        start_with_default_signals();
        Self { dir: tempfile::tempdir().expect("a temporary directory") }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.path("locks.db")
    }

    pub(crate) fn url(&self) -> String {
        format!("sqlite:{}", self.database().display())
    }

    /// `leasehold` in this world, on the store that the environment names.
    pub(crate) fn bare(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("LEASEHOLD_") {
                command.env_remove(name);
            }
        }
        command.env("HOME", self.dir.path()).env_remove("XDG_STATE_HOME");
        command.stdin(Stdio::null()).current_dir(self.dir.path());
        command
    }

    /// `leasehold` on the store of this world.
    pub(crate) fn leasehold<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = self.bare();
        command.arg("--url").arg(self.url()).args(args);
        command
    }

    /// `leasehold run NAME FLAGS -- sh -c SCRIPT`, with the directory of this world as `$1`.
    pub(crate) fn run(&self, name: &str, flags: &[&str], script: &str) -> Command {
        let mut command = self.leasehold(["run", name]);
        command.args(flags).args(["--", "sh", "-c", script, "sh"]).arg(self.dir.path());
        command
    }

    /// What `inspect --json` shows.
    pub(crate) fn inspect(&self, name: &str) -> Value {
        let seen = finish(self.leasehold(["inspect", name, "--json"]));
        assert!(seen.status.success(), "{}", seen.stderr);
        serde_json::from_str(&seen.stdout).expect("JSON")
    }

    pub(crate) fn state(&self, name: &str) -> String {
        self.inspect(name)["state"].as_str().expect("a state").to_owned()
    }

    pub(crate) fn waiters(&self, name: &str) -> usize {
        self.inspect(name)["waiters"].as_array().expect("waiters").len()
    }

    /// Asserts that no lease and no place is left in the store.
    #[track_caller]
    pub(crate) fn assert_nothing_left(&self) {
        let seen = finish(self.leasehold(["ls", "--json"]));
        assert!(seen.status.success(), "{}", seen.stderr);
        assert_eq!(seen.stdout, "", "something is held or waited for");
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }
}

/// What a process left behind.
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
}

/// Runs a command to its end.
pub(crate) fn finish(mut command: Command) -> Done {
    let Output { status, stdout, stderr } = command.output().expect("the command starts");
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    Done { status, stdout: text(&stdout), stderr: text(&stderr) }
}

/// A process that runs beside the test. Killed when dropped.
pub(crate) struct Running {
    pid: i32,
    stdin: Option<ChildStdin>,
    stdout: Receiver<String>,
    stderr: Receiver<String>,
    ended: Receiver<ExitStatus>,
    status: Option<ExitStatus>,
    said: String,
}

/// Starts a command with pipes for everything.
pub(crate) fn start(mut command: Command) -> Running {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the command starts");
    let pid = i32::try_from(child.id()).expect("a pid");
    let stdin = child.stdin.take();
    let stdout = lines(child.stdout.take().expect("a pipe"));
    let stderr = lines(child.stderr.take().expect("a pipe"));
    let (sender, ended) = channel();
    std::thread::spawn(move || sender.send(child.wait().expect("it is ours")));
    Running { pid, stdin, stdout, stderr, ended, status: None, said: String::new() }
}

/// Whoever started these tests may ignore signals, as nohup does, and what is ignored is inherited.
/// What is handled is not: a process that we start then has the default again.
fn start_with_default_signals() {
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
        // It may have ended: that is for the test to find out.
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

    /// Waits for this line on stdout.
    #[track_caller]
    pub(crate) fn expect(&mut self, line: &str) {
        assert_eq!(self.line(), line, "stderr:\n{}", self.stderr_so_far());
    }

    /// Waits for a line on stderr that has this in it, and returns it.
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

    /// Waits for the end of the process itself, whoever may still have its streams.
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
        // Once its end was reported its pid may be another's.
        if self.status.is_none() && self.ended.try_recv().is_err() {
            self.kill(Signal::KILL);
            let _ = self.ended.recv_timeout(CEILING);
        }
    }
}

/// Waits until something holds that nobody announces, looking again and again.
#[track_caller]
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < CEILING, "not within {CEILING:?}: {what}");
        std::thread::yield_now();
    }
}

/// Waits until a process that is not our child has ended.
#[track_caller]
pub(crate) fn until_dead(pid: i32) {
    let Ok(handle) = pidfd_open(Pid::from_raw(pid).expect("a pid"), PidfdFlags::empty()) else {
        return;
    };
    let ceiling = Timespec { tv_sec: 60, tv_nsec: 0 };
    let ended = poll(&mut [PollFd::new(&handle, PollFlags::IN)], Some(&ceiling));
    assert_eq!(ended, Ok(1), "process {pid} lives on");
}

/// The state letter of a process as proc(5) has it; `X` if there is none.
pub(crate) fn state_of(pid: i32) -> char {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rfind(')').and_then(|at| stat[at + 1..].trim_start().chars().next());
    state.unwrap_or('X')
}

/// Whether a process runs, stopped or not.
pub(crate) fn is_alive(pid: i32) -> bool {
    !matches!(state_of(pid), 'X' | 'Z')
}
