//! One process of a subject: orders go in, answers come out. `interop/README.md` describes both.

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// How long an answer may take.
const ANSWERS_WITHIN: Duration = Duration::from_secs(15);

/// How many of the last lines on its stderr are kept.
const LAST_WORDS: usize = 8;

/// The length to which such a line is cut.
const WORDS_MAX: usize = 300;

/// A process. It is killed when it is dropped.
pub(crate) struct Process {
    child: Child,
    /// `None` after it was closed.
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    last_words: Arc<Mutex<Vec<String>>>,
    complaints: Option<JoinHandle<()>>,
}

impl Process {
    /// Starts a program, and waits until it is ready.
    pub(crate) fn start(program: &[OsString], args: &[String]) -> Result<Self, String> {
        let mut command = Command::new(&program[0]);
        command.args(&program[1..]).args(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let started = command.spawn();
        let mut child = started
            .map_err(|error| format!("cannot start {}: {error}", program[0].to_string_lossy()))?;
        let stdin = Some(child.stdin.take().ok_or("it has no stdin")?);
        let (send, lines) = channel();
        let stdout = BufReader::new(child.stdout.take().ok_or("it has no stdout")?);
        std::thread::spawn(move || {
            let mut lines = stdout.lines().map_while(Result::ok);
            lines.try_for_each(|line| send.send(line)).ok()
        });
        let last_words = Arc::<Mutex<Vec<String>>>::default();
        let (kept, stderr) = (Arc::clone(&last_words), child.stderr.take().ok_or("no stderr")?);
        let complaints = std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                if kept.len() == LAST_WORDS {
                    kept.remove(0);
                }
                kept.push(line.chars().take(WORDS_MAX).collect());
            }
        });
        let mut process = Self { child, stdin, lines, last_words, complaints: Some(complaints) };
        process.hear("ready")?;
        Ok(process)
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Gives an order.
    pub(crate) fn tell(&mut self, order: &str) -> Result<(), String> {
        let line = format!("{order}\n");
        let written = self.stdin.as_mut().is_some_and(|it| it.write_all(line.as_bytes()).is_ok());
        if written { Ok(()) } else { Err(self.failed("it does not read")) }
    }

    /// The words of its next answer, which is of that kind.
    pub(crate) fn hear(&mut self, kind: &str) -> Result<Vec<String>, String> {
        match self.lines.recv_timeout(ANSWERS_WITHIN) {
            Ok(line) => {
                let mut words = line.split(' ').map(str::to_owned);
                if words.next().is_some_and(|word| word == kind) {
                    return Ok(words.collect());
                }
                Err(self.failed(&format!("it said `{line}` instead of `{kind}`")))
            }
            Err(RecvTimeoutError::Timeout) => {
                let seconds = ANSWERS_WITHIN.as_secs();
                let what = format!(
                    "the program did not answer `{kind}` within {seconds} s: one of its tasks \
                     waits for ever"
                );
                Err(self.failed(&what))
            }
            Err(RecvTimeoutError::Disconnected) => Err(self.hung_up()),
        }
    }

    /// The next line that it has already said, if there is one.
    pub(crate) fn next_line(&mut self) -> Result<Option<String>, String> {
        match self.lines.try_recv() {
            Ok(line) => Ok(Some(line)),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(self.hung_up()),
        }
    }

    /// The next line of a process that was killed, or `None` at the end.
    pub(crate) fn rest(&mut self) -> Option<String> {
        self.lines.recv().ok()
    }

    /// The error for a process that closed its output.
    fn hung_up(&mut self) -> String {
        let ended = self.child.wait();
        self.ended(&ended.map_or_else(|it| it.to_string(), |it| it.to_string()))
    }

    /// The numbers of its next answer, which is of that kind.
    pub(crate) fn numbers<const N: usize>(&mut self, kind: &str) -> Result<[u64; N], String> {
        let words = self.hear(kind)?;
        let numbers: Option<Vec<u64>> = words.iter().map(|word| word.parse().ok()).collect();
        let numbers = numbers.and_then(|numbers| numbers.try_into().ok());
        numbers.ok_or_else(|| self.failed(&format!("it said {kind} {}", words.join(" "))))
    }

    /// The key and the moment of its next answer, which is of that kind.
    pub(crate) fn moment(&mut self, kind: &str) -> Result<(String, u64), String> {
        let words = self.hear(kind)?;
        match &words[..] {
            [key, at] => at.parse().ok().map(|at| (key.clone(), at)),
            _ => None,
        }
        .ok_or_else(|| self.failed(&format!("it said {kind} {}", words.join(" "))))
    }

    /// Checks that the process still runs. If it has ended, it does not wait any more.
    pub(crate) fn must_run(&mut self) -> Result<(), String> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(ended)) => Err(self.ended(&ended.to_string())),
            Err(error) => Err(self.failed(&error.to_string())),
        }
    }

    /// The error for a process that has ended.
    fn ended(&mut self, how: &str) -> String {
        // Wait until its stderr was read to the end, so that all its last lines are there.
        let _read = self.complaints.take().map(JoinHandle::join);
        self.failed(&format!("it ended too early: {how}"))
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) -> Result<(), String> {
        kill_process(Pid::from_child(&self.child), signal).map_err(|error| error.to_string())
    }

    /// Ends its input, and waits until the process has ended. A process with a server removes the
    /// server's files.
    pub(crate) fn close(&mut self) {
        self.stdin = None;
        let _waited = self.child.wait();
    }

    /// Ends it without a warning.
    pub(crate) fn kill(&mut self) {
        // Neither call fails for a process that has ended and was waited for.
        let _killed = self.child.kill();
        let _waited = self.child.wait();
    }

    fn failed(&self, what: &str) -> String {
        let words = self.last_words.lock().unwrap_or_else(PoisonError::into_inner).join("\n");
        if words.is_empty() { what.to_owned() } else { format!("{what}. Its last words:\n{words}") }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Starts a process that runs this script.
    fn says(script: &str) -> Result<Process, String> {
        Process::start(&["sh".into(), "-c".into(), script.into()], &[])
    }

    fn error(script: &str) -> String {
        let ended = says(script).and_then(|mut process| process.numbers::<2>("cycles"));
        ended.expect_err("it fails")
    }

    #[test]
    fn answers_are_heard_and_a_failure_has_the_last_words_of_the_process() {
        let mut process =
            says("echo ready; read o; echo cycles 5 7; echo held k 9").expect("ready");
        process.tell("throughput").expect("it reads");
        assert_eq!(process.numbers("cycles"), Ok([5, 7]));
        assert_eq!(process.moment("held"), Ok(("k".to_owned(), 9)));
        assert!(error("echo ready; echo cycles 5").contains("cycles 5"));
        assert!(error("echo ready; echo freed k 5").contains("instead of `cycles`"));
        assert!(
            error("echo ready; echo no >&2; exit 3")
                .contains("exit status: 3. Its last words:\nno")
        );
        assert!(says("exit 4").is_err_and(|error| error.contains("too early: exit status: 4")));
    }
}
