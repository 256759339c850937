//! Servers that run under a shell. The shell kills the server when the test process ends, even by a
//! crash.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::{Pid, Signal, kill_process};

use crate::servers::process::tail;

/// Starts the server, and ends it by a signal when the test process ends. The shell notices the
/// end, because the other end of its stdin is closed then. It removes the folder unless it reads
/// `keep`. A name of a signal behind that word replaces the signal.
const KEEPER: &str = r#"home=$1; signal=$2; shift 2
"$@" & server=$!
echo $server > "$home/pid"
read -r word other
kill -${other:-$signal} $server; wait $server
case $word in keep) ;; *) rm -rf "$home" ;; esac"#;

/// A process with a folder of its own.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) folder: PathBuf,
    /// The name of the signal that ends it at once.
    signal: &'static str,
    keeper: Mutex<Option<Child>>,
}

impl Kept {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self::ended_by("KILL", folder)
    }

    /// A process that `signal` ends at once. If it has children, the signal must end them too.
    pub(super) fn ended_by(signal: &'static str, folder: PathBuf) -> Self {
        fs::create_dir_all(&folder).expect("a folder for a server");
        Self { folder, signal, keeper: Mutex::default() }
    }

    fn keeper(&self) -> MutexGuard<'_, Option<Child>> {
        self.keeper.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a program. Does not wait until it answers.
    pub(super) fn start(&self, program: &Command) {
        let log = File::options().create(true).append(true).open(self.log());
        let log = log.expect("the folder takes files");
        let mut command = Command::new("sh");
        command.args(["-c", KEEPER, "sh"]).arg(&self.folder).arg(self.signal);
        command.arg(program.get_program()).args(program.get_args());
        command.stdin(Stdio::piped()).stdout(log.try_clone().expect("a file"));
        // An interrupt from the keyboard must reach only the tests.
        command.stderr(log).process_group(0);
        *self.keeper() = Some(command.spawn().expect("sh runs"));
    }

    /// Ends the process at once, as a crash does. Keeps its files.
    pub(super) fn kill(&self) {
        self.end(self.signal);
    }

    /// Ends the process by this signal. Keeps its files.
    pub(super) fn end(&self, signal: &str) {
        let keeper = self.keeper().take();
        if let Some(mut keeper) = keeper {
            let mut pipe = keeper.stdin.take().expect("it was asked for");
            // The keeper may have ended by itself.
            let _ = writeln!(pipe, "keep {signal}");
            drop(pipe);
            keeper.wait().expect("it is ours");
        }
    }

    pub(super) fn pid(&self) -> Pid {
        let file = fs::read_to_string(self.folder.join("pid")).expect("it runs");
        file.trim().parse().ok().and_then(Pid::from_raw).expect("a number")
    }

    pub(super) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("it runs");
    }

    fn log(&self) -> PathBuf {
        self.folder.join("log")
    }

    pub(super) fn last_words(&self) -> String {
        File::open(self.log()).map_or_else(|error| error.to_string(), |log| tail(&log))
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.kill();
    }
}
