//! Replicas, as their primary knows them: how far each has confirmed the data, and who waits for
//! that.

use super::Server;
use super::arguments::Arguments;
use super::numbers;
use super::reply::{Refusal, Reply};

/// What replicas have confirmed.
#[derive(Debug, Default)]
pub(super) struct Replication {
    /// By number; `None` for those that do not follow.
    confirmed: Vec<Option<u64>>,
    /// How far the server had written behind the last command of the connection that asks now.
    written: u64,
    wait: Option<Wait>,
}

/// What a connection waits for. It carries nothing else out until then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// How far replicas have to have confirmed the data: not what this connection wrote last, but
    /// all that was there behind its last command.
    pub written: u64,
    /// How many of them.
    pub replicas: usize,
    /// For how many milliseconds it waits at most; 0: without end.
    pub limit_ms: u64,
}

impl Replication {
    pub(super) fn begin(&mut self, written: u64) {
        (self.written, self.wait) = (written, None);
    }

    pub(super) const fn wait(&self) -> Option<Wait> {
        self.wait
    }

    pub(super) fn confirm(&mut self, replica: usize, written: Option<u64>) {
        if self.confirmed.len() <= replica {
            self.confirmed.resize(replica + 1, None);
        }
        self.confirmed[replica] = written;
    }

    pub(super) fn confirmed_by(&self, written: u64) -> usize {
        self.confirmed.iter().flatten().filter(|confirmed| **confirmed >= written).count()
    }
}

/// What it waits for is for whoever drives the server to see to.
pub(super) fn wait(server: &mut Server, arguments: &Arguments) -> Result<Reply, Refusal> {
    const NOT_A_TIME: Refusal = Refusal::fixed("ERR timeout is not an integer or out of range");
    let replicas = arguments.integer(1)?;
    let limit_ms = numbers::integer(arguments.at(2)).ok_or(NOT_A_TIME)?;
    let limit_ms =
        u64::try_from(limit_ms).map_err(|_negative| Refusal::fixed("ERR timeout is negative"))?;
    let written = server.replication.written;
    let replicas = usize::try_from(replicas).unwrap_or(0);
    server.replication.wait = Some(Wait { written, replicas, limit_ms });
    Ok(Reply::count(server.replication.confirmed_by(written)))
}
