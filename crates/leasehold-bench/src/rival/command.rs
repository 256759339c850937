//! `leasehold run` as a library: each lock is a process.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio::task::spawn_blocking;

use super::orders::Library;

/// Says that it runs, and goes on until its standard input ends.
const WORK: &str = "echo held; exec cat";

/// Nobody ends a process that waits, once this program was killed.
const WAIT: &str = "1m";

#[derive(Clone)]
pub(super) struct Run {
    pub(super) url: String,
    pub(super) ttl: Duration,
}

impl Run {
    fn start(&self, key: &str) -> Result<Child, String> {
        let own = std::env::current_exe().map_err(|error| error.to_string())?;
        let ttl = format!("{}ms", self.ttl.as_millis());
        let mut run = Command::new(own.with_file_name("leasehold"));
        run.args(["--url", &self.url, "run", key, "--ttl", &ttl, "-w", WAIT]);
        run.args(["--", "sh", "-c", WORK]);
        let started = run.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = started.map_err(|error| format!("cannot start leasehold: {error}"))?;
        let stdout = child.stdout.take().ok_or("it has no stdout")?;
        match BufReader::new(stdout).lines().next() {
            Some(Ok(line)) if line == "held" => Ok(child),
            _ => Err("its command did not start".to_owned()),
        }
    }
}

impl Library for Run {
    type Held = Child;

    async fn take(&self, key: &str) -> Result<Child, String> {
        let (run, key) = (self.clone(), key.to_owned());
        let started = spawn_blocking(move || run.start(&key)).await;
        started.map_err(|error| error.to_string())?
    }

    async fn release(mut held: Child) -> Result<(), String> {
        drop(held.stdin.take());
        let ended = spawn_blocking(move || held.wait()).await.map_err(|error| error.to_string())?;
        let ended = ended.map_err(|error| error.to_string())?;
        if ended.success() { Ok(()) } else { Err(format!("`leasehold run` ended: {ended}")) }
    }
}
