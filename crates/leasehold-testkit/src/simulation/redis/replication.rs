//! Replicas, as their primary knows them: how far each has confirmed the data, who waits for that,
//! and by which id they know whose data it is. And how far the data is on disk.

use leasehold::store::redis::Value;

use super::Server;
use super::arguments::Arguments;
use super::numbers;
use super::reply::{Refusal, Reply};

/// What replicas have confirmed.
#[derive(Debug, Default)]
pub(super) struct Replication {
    /// By number; `None` for those that do not follow.
    confirmed: Vec<Option<u64>>,
    /// How far the data is on the disk of the server.
    synced: u64,
    /// How far the server had written behind the last command of the connection that asks now.
    written: u64,
    wait: Option<Wait>,
    /// Names the history of the data, and that of before if the server was a replica then.
    ids: [String; 2],
}

/// What a connection waits for. It carries nothing else out until then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// How far replicas have to have confirmed the data: not what this connection wrote last, but
    /// all that was there behind its last command.
    pub written: u64,
    /// How many of them.
    pub replicas: usize,
    /// On how many disks of the server itself it has to be, where that is asked: one or none.
    pub on_disk: Option<usize>,
    /// For how many milliseconds it waits at most; 0: without end.
    pub limit_ms: u64,
}

impl Replication {
    pub(super) fn begin(&mut self, written: u64) {
        (self.written, self.wait) = (written, None);
    }

    /// The data has another history from now on.
    pub(super) fn set_ids(&mut self, id: &str, before: Option<&str>) {
        self.ids = [id, before.unwrap_or_default()].map(str::to_owned);
    }

    /// The lines of a real primary that matter here.
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

    /// What whoever waits is answered by now.
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

/// For how long somebody waits.
fn limit_ms(argument: &[u8]) -> Result<u64, Refusal> {
    const NOT_A_TIME: Refusal = Refusal::fixed("ERR timeout is not an integer or out of range");
    let limit_ms = numbers::integer(argument).ok_or(NOT_A_TIME)?;
    u64::try_from(limit_ms).map_err(|_negative| Refusal::fixed("ERR timeout is negative"))
}

/// What it waits for is for whoever drives the server to see to.
pub(super) fn wait(server: &mut Server, arguments: &Arguments) -> Result<Reply, Refusal> {
    let replicas = arguments.integer(1)?;
    let limit_ms = limit_ms(arguments.at(2))?;
    let written = server.replication.written;
    let replicas = usize::try_from(replicas).unwrap_or(0);
    server.replication.wait = Some(Wait { written, replicas, on_disk: None, limit_ms });
    Ok(Reply::count(server.replication.confirmed_by(written)))
}

/// As [`wait`], for what is on disk: of the server itself, and of replicas, which confirm here only
/// what they have on theirs.
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
