//! One process that wants the lock, and what it prints.

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a process may take to end.
const ENDS_WITHIN: Duration = Duration::from_secs(20);

/// A moment on the clock that all processes of the machine share, in nanoseconds.
pub(super) type Nanos = u64;

/// One time with the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Turn {
    pub(super) task: u32,
    pub(super) from: Nanos,
    /// `None` if the process ended before it released the lock.
    pub(super) to: Option<Nanos>,
}

/// All that a process printed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) started: Option<Nanos>,
    pub(super) turns: Vec<Turn>,
}

impl Told {
    /// Reads one more line.
    fn hear(&mut self, line: &str) -> Result<(), String> {
        let strange = || format!("`{line}` is not a line of a contender");
        let words: Vec<_> = line.split(' ').collect();
        let nanos = |text: &str| text.parse::<Nanos>().map_err(|_| strange());
        let number = |text: &str| text.parse::<u32>().map_err(|_| strange());
        match words[..] {
            ["start", at, _wall_ms] => self.started = Some(nanos(at)?),
            ["acquired", task, at, _wall_ms] => {
                self.turns.push(Turn { task: number(task)?, from: nanos(at)?, to: None });
            }
            ["released", task, at, _wall_ms] => {
                let task = number(task)?;
                let mut turns = self.turns.iter_mut().rev();
                let turn = turns.find(|turn| turn.task == task && turn.to.is_none());
                turn.ok_or_else(strange)?.to = Some(nanos(at)?);
            }
            _ => return Err(strange()),
        }
        Ok(())
    }
}

/// A process. It is killed if it is dropped before its end.
pub(super) struct Contender {
    child: Child,
    stdin: Option<ChildStdin>,
    name: String,
    acquired: Arc<AtomicUsize>,
    runs: Arc<AtomicBool>,
    complaint: Arc<Mutex<String>>,
    reader: Option<JoinHandle<Result<Told, String>>>,
    complainer: Option<JoinHandle<()>>,
}

impl Contender {
    pub(super) fn start(program: &[OsString], args: &[&str]) -> Result<Self, String> {
        let name = program[0].to_string_lossy().into_owned();
        let mut command = Command::new(&program[0]);
        command.args(&program[1..]).args(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child =
            command.spawn().map_err(|error| format!("cannot start `{name}`: {error}"))?;
        let (acquired, runs) = (Arc::<AtomicUsize>::default(), Arc::new(AtomicBool::new(true)));
        let complaint = Arc::<Mutex<String>>::default();
        let stdout = child.stdout.take().ok_or("it has no stdout")?;
        let (count, is_running) = (Arc::clone(&acquired), Arc::clone(&runs));
        let reader = std::thread::spawn(move || {
            let mut told = Told::default();
            for line in BufReader::new(stdout).lines() {
                let heard = line.map_err(|error| error.to_string());
                if let Err(error) = heard.and_then(|line| told.hear(&line)) {
                    is_running.store(false, Ordering::Relaxed);
                    return Err(error);
                }
                count.store(told.turns.len(), Ordering::Relaxed);
            }
            is_running.store(false, Ordering::Relaxed);
            Ok(told)
        });
        let mut stderr = child.stderr.take().ok_or("it has no stderr")?;
        let text = Arc::clone(&complaint);
        let complainer = std::thread::spawn(move || {
            let mut all = Vec::new();
            let _ended = stderr.read_to_end(&mut all);
            *text.lock().unwrap_or_else(PoisonError::into_inner) =
                String::from_utf8_lossy(&all).into_owned();
        });
        let stdin = child.stdin.take();
        Ok(Self {
            child,
            stdin,
            name,
            acquired,
            runs,
            complaint,
            reader: Some(reader),
            complainer: Some(complainer),
        })
    }

    /// How often it had the lock so far.
    pub(super) fn acquired(&self) -> usize {
        self.acquired.load(Ordering::Relaxed)
    }

    /// Whether it still prints.
    pub(super) fn runs(&self) -> bool {
        self.runs.load(Ordering::Relaxed)
    }

    /// Tells it to end, and waits until it has.
    pub(super) fn end(mut self) -> Result<Told, String> {
        drop(self.stdin.take());
        let until = Instant::now() + ENDS_WITHIN;
        let status = loop {
            match self.child.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) if Instant::now() < until => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                Ok(None) => return Err(format!("`{}` does not end", self.name)),
                Err(error) => return Err(format!("cannot wait for `{}`: {error}", self.name)),
            }
        };
        let told = self.reader.take().map(JoinHandle::join);
        let _read = self.complainer.take().map(JoinHandle::join);
        let complaint = self.complaint.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if !status.success() {
            return Err(format!("`{}` failed: {status}\n{}", self.name, complaint.trim_end()));
        }
        told.and_then(Result::ok).ok_or("its reader failed")?
    }
}

impl Drop for Contender {
    fn drop(&mut self) {
        // Neither fails for a process that has ended and was waited for.
        let _killed = self.child.kill();
        let _waited = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_contender_prints_is_understood_or_refused() {
        let mut told = Told::default();
        for line in ["start 5 1", "acquired 1 10 1", "acquired 0 12 1", "released 1 14 1"] {
            told.hear(line).expect(line);
        }
        let turn = |task, from, to| Turn { task, from, to };
        let turns = vec![turn(1, 10, Some(14)), turn(0, 12, None)];
        assert_eq!(told, Told { started: Some(5), turns });
        for line in ["released 1 15 1", "released 7 1 1", "acquired x 1 1", "start", "hello"] {
            assert!(told.hear(line).is_err(), "{line}");
        }
    }
}
