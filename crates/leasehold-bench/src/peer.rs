//! The other processes of a scenario: this program again, with orders line by line.

use std::fmt::Display;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::str::FromStr;

use leasehold::{Error, ErrorKind};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// Another process, from the side of its starter. Dropping this ends it.
pub(crate) struct Peer {
    child: Child,
    to: ChildStdin,
    from: UnboundedReceiver<String>,
}

impl Peer {
    /// Starts this program with these arguments.
    pub(crate) fn start(arguments: &[&str]) -> Result<Self, Error> {
        let started = std::env::current_exe().and_then(|program| {
            let mut command = Command::new(program);
            command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()
        });
        let mut child = started.map_err(|error| {
            let message = "the other process cannot be started";
            Error::new(ErrorKind::Unavailable, message).with_source(error)
        })?;
        let to = child.stdin.take().expect("it is piped");
        let from = lines(BufReader::new(child.stdout.take().expect("it is piped")), || {});
        Ok(Self { child, to, from })
    }

    /// Sends one line to it.
    pub(crate) fn say(&mut self, line: impl Display) -> Result<(), Error> {
        // In one write, so that it wakes up once.
        let line = format!("{line}\n");
        self.to.write_all(line.as_bytes()).map_err(|_| gone())
    }

    /// The next line that it sends.
    pub(crate) async fn hear(&mut self) -> Result<String, Error> {
        self.from.recv().await.ok_or_else(gone)
    }

    /// Waits until it sends `expected`.
    pub(crate) async fn hear_that(&mut self, expected: &str) -> Result<(), Error> {
        let line = self.hear().await?;
        if line == expected { Ok(()) } else { Err(nonsense(&line)) }
    }

    /// The numbers of its next line.
    pub(crate) async fn hear_numbers<T: FromStr, const N: usize>(
        &mut self,
    ) -> Result<[T; N], Error> {
        let line = self.hear().await?;
        numbers(&line).ok_or_else(|| nonsense(&line))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The orders to a peer. The peer exits when its starter ends.
pub(crate) struct Orders(UnboundedReceiver<String>);

impl Orders {
    pub(crate) fn take() -> Self {
        Self(lines(BufReader::new(std::io::stdin()), || std::process::exit(0)))
    }

    /// The next line.
    pub(crate) async fn next(&mut self) -> Result<String, Error> {
        self.0.recv().await.ok_or_else(gone)
    }

    /// The numbers of the next line.
    pub(crate) async fn numbers<T: FromStr, const N: usize>(&mut self) -> Result<[T; N], Error> {
        let line = self.next().await?;
        numbers(&line).ok_or_else(|| nonsense(&line))
    }
}

/// Sends one line to the starter of this process.
pub(crate) fn say(line: impl Display) {
    let line = format!("{line}\n");
    let mut out = std::io::stdout().lock();
    let said = out.write_all(line.as_bytes()).and_then(|()| out.flush());
    said.expect("the program that started this process reads");
}

/// Reads on a separate thread: waiting for a line must not block a runtime's connections.
fn lines(
    from: impl BufRead + Send + 'static,
    at_end: impl FnOnce() + Send + 'static,
) -> UnboundedReceiver<String> {
    let (sender, receiver) = unbounded_channel();
    std::thread::spawn(move || {
        for line in from.lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
        at_end();
    });
    receiver
}

/// Parses exactly `N` numbers with spaces between.
fn numbers<T: FromStr, const N: usize>(line: &str) -> Option<[T; N]> {
    let numbers: Option<Vec<T>> = line.split(' ').map(|word| word.parse().ok()).collect();
    numbers?.try_into().ok()
}

fn gone() -> Error {
    Error::new(ErrorKind::Unavailable, "the other process ended before it was done")
}

fn nonsense(line: &str) -> Error {
    Error::new(ErrorKind::Unavailable, format!("the other process said `{line}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_if_all_are_there() {
        assert_eq!(numbers("1 2"), Some([1, 2]));
        for line in ["1", "1 2 3", "1 x", ""] {
            assert_eq!(numbers::<u64, 2>(line), None, "{line}");
        }
    }
}
