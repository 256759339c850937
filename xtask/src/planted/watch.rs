//! Runs a program for a limited time, and keeps part of its output.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// How a program ended, and the kept part of its output.
#[derive(Debug)]
pub(super) struct Ended<T> {
    pub(super) status: ExitStatus,
    /// The last item that was kept of its output.
    pub(super) kept: Option<T>,
    /// The last line that it wrote to its standard error.
    pub(super) last_words: String,
}

/// Runs a program and reports how it ended. `keep` selects the important lines among many. The
/// program is killed if it runs for longer than `limit`.
pub(super) fn watch<T: Send + 'static>(
    mut command: Command,
    limit: Duration,
    mut keep: impl FnMut(&str) -> Option<T> + Send + 'static,
) -> Result<Ended<T>, String> {
    let began = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = began.map_err(|error| {
        format!("cannot start {}: {error}", Path::new(command.get_program()).display())
    })?;
    let said = child.stdout.take().expect("the output was asked for");
    let complained = child.stderr.take().expect("the complaints were asked for");
    let (ended, wait) = mpsc::channel();
    std::thread::spawn(move || {
        let lines = BufReader::new(said).split(b'\n').map_while(Result::ok);
        let kept = lines.filter_map(|line| keep(&String::from_utf8_lossy(&line))).last();
        // The receiver is gone once the limit has passed.
        let _ = ended.send(kept);
    });
    let last_words = std::thread::spawn(move || last_line(complained));
    let Ok(kept) = wait.recv_timeout(limit) else {
        let _ = child.kill();
        let _ = child.wait();
        return Err(format!("it ran for {limit:?}: hangs, or is not found"));
    };
    let status = child.wait().map_err(|error| format!("cannot wait for it: {error}"))?;
    Ok(Ended { status, kept, last_words: last_words.join().unwrap_or_default() })
}

fn last_line(from: impl Read) -> String {
    BufReader::new(from).lines().map_while(Result::ok).last().unwrap_or_default()
}
