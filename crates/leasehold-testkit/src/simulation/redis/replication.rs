//! Replicas as their primary sees them: which data each has confirmed, which connections wait for
//! that, and the replication id of the data. This module also knows which data is on disk.

use super::Server;
use super::arguments::Arguments;
use super::numbers;
use super::reply::{Refusal, Reply};
use crate::protocol::Value;

/// Which data the replicas and the disk have.
#[derive(Debug, Default)]
pub(super) struct Replication {
    /// The write position that each replica has confirmed; `None` if the replica does not follow.
    confirmed: Vec<Option<u64>>,
    /// The write position on the server's disk.
    synced: u64,
    /// The write position after the last command of the current connection.
    written: u64,
    wait: Option<Wait>,
    /// The replication id of the data, and the earlier id if the server was a replica.
    ids: [String; 2],
}

/// The wait of a connection. The connection runs no other command meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The write position that replicas must confirm. It may include writes of other connections,
    /// because it is the server's position after this connection's last command.
    pub written: u64,
    /// How many replicas must confirm it.
    pub replicas: usize,
    /// For WAITAOF, how many of the server's own disks must have the data: one or none.
    pub on_disk: Option<usize>,
    /// The longest wait in milliseconds; 0 means no limit.
    pub limit_ms: u64,
}

impl Replication {
    pub(super) fn begin(&mut self, written: u64) {
        (self.written, self.wait) = (written, None);
    }

    /// Sets the replication ids. From now on, the data has another history.
    pub(super) fn set_ids(&mut self, id: &str, before: Option<&str>) {
        self.ids = [id, before.unwrap_or_default()].map(str::to_owned);
    }

    /// The lines of a real primary that the store needs.
    pub(super) fn info(&self) -> String {
        let replicas = self.confirmed.iter().flatten().count();
        let [id, before] = &self.ids;
        format!(
            "# Replication\r\nrole:master\r\nconnected_slaves:{replicas}\r\nmaster_replid:{id}\r\n\
             master_replid2:{before:0>40}\r\n"
        )
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

    pub(super) fn sync(&mut self, written: u64) {
        self.synced = written;
    }

    pub(super) fn on_disk(&self, written: u64) -> usize {
        usize::from(self.synced >= written)
    }

    /// The current answer to a wait.
    pub(super) fn copies(&self, wait: Wait) -> Value {
        let count = |copies: usize| Value::Int(i64::try_from(copies).expect("a few"));
        let replicas = count(self.confirmed_by(wait.written));
        match wait.on_disk {
            None => replicas,
            Some(_) => Value::Array(vec![count(self.on_disk(wait.written)), replicas]),
        }
    }

    pub(super) fn confirmed_by(&self, written: u64) -> usize {
        self.confirmed.iter().flatten().filter(|confirmed| **confirmed >= written).count()
    }
}

/// The time limit of a wait.
fn limit_ms(argument: &[u8]) -> Result<u64, Refusal> {
    const NOT_A_TIME: Refusal = Refusal::fixed("ERR timeout is not an integer or out of range");
    let limit_ms = numbers::integer(argument).ok_or(NOT_A_TIME)?;
    u64::try_from(limit_ms).map_err(|_negative| Refusal::fixed("ERR timeout is negative"))
}

/// Records the wait. The caller of the server carries it out.
pub(super) fn wait(server: &mut Server, arguments: &Arguments) -> Result<Reply, Refusal> {
    let replicas = arguments.integer(1)?;
    let limit_ms = limit_ms(arguments.at(2))?;
    let written = server.replication.written;
    let replicas = usize::try_from(replicas).unwrap_or(0);
    server.replication.wait = Some(Wait { written, replicas, on_disk: None, limit_ms });
    Ok(Reply::count(server.replication.confirmed_by(written)))
}

/// Like [`wait`], but for data on the server's own disk and on the disks of replicas. Here,
/// replicas confirm only data that is on their disks.
pub(super) fn waitaof(server: &mut Server, arguments: &Arguments) -> Result<Reply, Refusal> {
    const NOT_ONE: Refusal = Refusal::fixed("ERR value is out of range, must be between 0 and 1");
    let local = usize::try_from(arguments.integer(1)?).ok().filter(|local| *local <= 1);
    let local = local.ok_or(NOT_ONE)?;
    let replicas = arguments.integer(2)?;
    let (written, limit_ms) = (server.replication.written, limit_ms(arguments.at(3))?);
    let replicas = usize::try_from(replicas).unwrap_or(0);
    let wait = Wait { written, replicas, on_disk: Some(local), limit_ms };
    server.replication.wait = Some(wait);
    let confirmed = server.replication.confirmed_by(written);
    let on_disk = server.replication.on_disk(written);
    Ok(Reply::Array(vec![Reply::count(on_disk), Reply::count(confirmed)]))
}
