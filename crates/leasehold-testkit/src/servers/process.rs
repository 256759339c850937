//! Processes that end when their parent ends, even if it is killed.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process, pidfd_open, waitid,
};

/// A shell script that executes the program. The script ends at once if its parent died before the
/// kernel was asked to kill it with its parent.
const BECOME: &str = r#"[ "$PPID" = "$1" ] && shift && exec "$@""#;

/// The largest part of a log that is shown.
const LOG_SHOWN_BYTES_MAX: u64 = 16 * 1024;

/// A process that is killed when this is dropped or when our own process ends.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    pid: Pid,
    end: OwnedFd,
}

impl Process {
    /// Starts `program` from PATH. Its output goes to `log`.
    pub(crate) fn start(
        program: &str,
        args: &[&str],
        env: &[(&str, String)],
        log: &File,
    ) -> io::Result<Self> {
        let mut command = becoming(program, args);
        command.envs(env.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log.try_clone()?);
        Self::spawn(command)
    }

    /// Starts `program` with pipes for its standard input and output. Its standard error goes to
    /// `log`.
    pub(crate) fn start_piped(
        program: &str,
        args: &[&str],
        log: &File,
    ) -> io::Result<(Self, ChildStdin, ChildStdout)> {
        let mut command = becoming(program, args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log.try_clone()?);
        let mut process = Self::spawn(command)?;
        let stdin = process.child.stdin.take().expect("it was asked for");
        let stdout = process.child.stdout.take().expect("it was asked for");
        Ok((process, stdin, stdout))
    }

    fn spawn(command: Command) -> io::Result<Self> {
        let child = spawn_on_lasting_thread(command)?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).expect("a pid");
        let end = pidfd_open(pid, PidfdFlags::empty())?;
        Ok(Self { child, pid, end })
    }

    pub(crate) fn pid(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// Waits at most `span` for its end. Returns whether it has ended.
    pub(crate) fn ends_within(&self, span: Duration) -> bool {
        let limit = Timespec {
            tv_sec: i64::try_from(span.as_secs()).expect("a span of this century"),
            tv_nsec: span.subsec_nanos().into(),
        };
        poll(&mut [PollFd::new(&self.end, PollFlags::IN)], Some(&limit)) == Ok(1)
    }

    /// Its exit code, after it has ended; `None` if a signal ended it.
    pub(crate) fn exit_code(&mut self) -> Option<i32> {
        self.child.wait().expect("it is ours").code()
    }

    /// Stops the whole process, and returns when it has stopped. Returns false if it has ended.
    pub(crate) fn stop(&self) -> bool {
        self.signal(Signal::STOP);
        loop {
            // The end of the process must stay waitable.
            let options = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            let waited = waitid(WaitId::Pid(self.pid), options);
            match waited {
                Ok(status) => return status.is_some_and(|status| status.stopped()),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => panic!("cannot wait for process {} to stop: {error}", self.pid()),
            }
        }
    }

    pub(crate) fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    pub(crate) fn signal(&self, signal: Signal) {
        // The process is our child and was not reaped yet, so no other process can have its pid.
        kill_process(self.pid, signal).expect("a process of ours can be signalled");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process may have ended by itself, which is fine.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The command that becomes `program` with those arguments.
fn becoming(program: &str, args: &[&str]) -> Command {
    let mut command = Command::new(find("setpriv", "util-linux"));
    command.args(["--pdeathsig", "KILL", "sh", "-c", BECOME, "sh"]);
    command.arg(std::process::id().to_string()).arg(program).args(args);
    command
}

/// Starts a command on a thread that lives as long as this process. The kernel kills a child when
/// the *thread* that started it ends, and the threads of tests end early.
fn spawn_on_lasting_thread(command: Command) -> io::Result<Child> {
    type Order = (Command, Sender<io::Result<Child>>);
    static ORDERS: OnceLock<Sender<Order>> = OnceLock::new();
    let orders = ORDERS.get_or_init(|| {
        let (orders, taken) = channel::<Order>();
        std::thread::Builder::new()
            .name("server parent".to_owned())
            .spawn(move || {
                for (mut command, reply) in taken {
                    // The thread that ordered it may have given up.
                    let _ = reply.send(command.spawn());
                }
            })
            .expect("the process may start one more thread");
        orders
    });
    let (reply, started) = channel();
    orders.send((command, reply)).expect("the thread lives as long as the process");
    started.recv().expect("the thread lives as long as the process")
}

/// The path of a program.
///
/// # Panics
///
/// If the program is missing. The message says what to install.
pub(crate) fn find(program: &str, package: &str) -> PathBuf {
    in_path(program).unwrap_or_else(|| panic!("{}", missing(program, package)))
}

/// The path of a program in PATH, if it is there.
pub(crate) fn in_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // `join` keeps an absolute path as it is.
    std::env::split_paths(&path).map(|dir| dir.join(program)).find(|at| at.is_file())
}

fn missing(program: &str, package: &str) -> String {
    format!(
        "`{program}` is missing, and this test needs it. On Debian and Ubuntu run, as root,\n\
         \u{20} apt-get update && apt-get install -y --no-install-recommends {package}\n\
         (as root, `cargo xtask test` does that by itself), elsewhere install your system's package"
    )
}

/// The last part of a process's log.
pub(crate) fn tail(log: &File) -> String {
    let length = log.metadata().map_or(0, |metadata| metadata.len());
    let start = length.saturating_sub(LOG_SHOWN_BYTES_MAX);
    let mut bytes = vec![0; usize::try_from(length - start).expect("a few kilobytes")];
    match log.read_exact_at(&mut bytes, start) {
        Ok(()) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) => format!("(the log cannot be read: {error})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_told_with_what_to_install() {
        let text = std::panic::catch_unwind(|| find("no-such-server", "no-such-package"))
            .expect_err("there is no such program");
        let text = text.downcast_ref::<String>().expect("a text");
        assert!(text.contains("`no-such-server` is missing"), "{text}");
        assert!(text.contains("apt-get install -y --no-install-recommends no-such-package"));
    }

    #[test]
    fn a_process_outlives_the_thread_that_started_it_and_not_its_owner() {
        let log = tempfile::tempfile().expect("a file");
        let copy = log.try_clone().expect("a file");
        let started = std::thread::spawn(move || {
            let process = Process::start("sleep", &["1000"], &[], &copy).expect("it starts");
            // Before `exec`, the process has not asked to be killed with its parent.
            let name = format!("/proc/{}/comm", process.pid());
            while std::fs::read_to_string(&name).expect("it lives") != "sleep\n" {
                std::thread::yield_now();
            }
            process
        });
        let process = started.join().expect("no panic");
        assert!(!process.ends_within(Duration::from_millis(50)), "{}", tail(&log));
        let end = pidfd_open(process.pid, PidfdFlags::empty()).expect("it lives");
        drop(process);
        assert_eq!(poll(&mut [PollFd::new(&end, PollFlags::IN)], None), Ok(1));
    }
}
