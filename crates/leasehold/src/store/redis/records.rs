//! The short-lived record of each client on the server: what it is, and when it is written.
//!
//! It is one text of four lines: `host`, `pid`, `user` and `command`. If the client has told the
//! ttl of its leases, the ttl comes after `pid` and a space, in milliseconds.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures_util::future::join_all;

use super::LIMIT;
use super::codec::command::{Command, Value};
use super::keys::{add_record, record_slot};
use super::servers::Lane;
use super::wire::known::Known;
use super::wire::{Plain, Request, Subject};
use crate::core::error::ErrorKind;
use crate::core::moment::Moment;
use crate::core::token::{ClientId, OwnerToken, client_of};
use crate::core::ttl::Ttl;
use crate::host::Host;
use crate::store::{ClientRecord, FENCE_IDLE, Snapshot};

/// How often an active client writes its record again. One lost write does no harm.
const REFRESH_EVERY: Duration = FENCE_IDLE.checked_div(3).expect("three is not zero");

/// Each record outlives a lease of at most this ttl, whenever that was renewed.
const SHORT: Duration = FENCE_IDLE.checked_sub(REFRESH_EVERY).expect("it is two thirds");

/// How many clients one store writes records for. A process usually has one.
const CLIENTS_MAX: usize = 1_024;

/// The longest text that is read as a record, in bytes. Clients write shorter ones.
const RECORD_BYTES_MAX: usize = 4_096;

pub(super) struct Records {
    host: Arc<dyn Host>,
    clients: Arc<Mutex<HashMap<ClientId, Client>>>,
    denied: Arc<AtomicBool>,
    /// When the first record is due, in nanoseconds. Most renewals check only this.
    due: Arc<AtomicU64>,
}

struct Client {
    record: Arc<ClientRecord>,
    written: Option<Moment>,
    /// The longest ttl of its leases so far.
    longest: Duration,
}

impl Client {
    const fn new(record: Arc<ClientRecord>) -> Self {
        Self { record, written: None, longest: Duration::ZERO }
    }

    /// Takes note of a lease. The record has to be written if it might end before the lease.
    fn outlive(&mut self, ttl: Duration) {
        if ttl > self.longest.max(SHORT) {
            self.longest = ttl;
            self.written = None;
        }
    }
}

impl Records {
    pub(super) fn new(host: Arc<dyn Host>) -> Self {
        Self { host, clients: Arc::default(), denied: Arc::default(), due: Arc::default() }
    }

    /// Writes the record of a client that asks for a lease of this ttl, if it is new or was written
    /// long ago. It is sent before any later request.
    pub(super) fn write_if_due(&self, record: &Arc<ClientRecord>, ttl: Ttl, lane: Lane<'_>) {
        let mut clients = lock(&self.clients);
        if !clients.contains_key(&record.id) {
            if clients.len() == CLIENTS_MAX {
                clients.clear();
            }
            clients.insert(record.id.clone(), Client::new(Arc::clone(record)));
            self.due.store(0, Ordering::Release);
        }
        let client = clients.get_mut(&record.id).expect("it was just inserted");
        if client.record != *record {
            client.record = Arc::clone(record);
            client.written = None;
        }
        client.outlive(ttl.get());
        self.write(client, lane);
    }

    /// Writes the record of a holder that renews a lease for this ttl, if it was written long ago.
    pub(super) fn refresh_if_due(&self, owner: &OwnerToken, ttl: Ttl, lane: Lane<'_>) {
        let is_due = self.host.now() >= Moment::from_nanos(self.due.load(Ordering::Acquire));
        if !is_due && ttl.get() <= SHORT || self.denied.load(Ordering::Relaxed) {
            return;
        }
        let Some(id) = owner.client() else { return };
        let mut clients = lock(&self.clients);
        if let Some(client) = clients.get_mut(&id) {
            client.outlive(ttl.get());
            self.write(client, lane);
        }
        let due = clients
            .values()
            .map(|client| client.written.map_or(0, |at| (at + REFRESH_EVERY).as_nanos()));
        self.due.store(due.min().unwrap_or(0), Ordering::Release);
    }

    /// Notes that a lease of this owner is gone. The server may have lost its data, and with it the
    /// record, so the next request writes the record again.
    pub(super) fn doubt(&self, owner: &OwnerToken) {
        let Some(id) = owner.client() else { return };
        if let Some(client) = lock(&self.clients).get_mut(&id) {
            client.written = None;
            self.due.store(0, Ordering::Release);
        }
    }

    fn write(&self, client: &mut Client, lane: Lane<'_>) {
        let now = self.host.now();
        let is_due = client.written.is_none_or(|written| now.since(written) >= REFRESH_EVERY);
        if !is_due || self.denied.load(Ordering::Relaxed) {
            return;
        }
        client.written = Some(now);
        let set = set_record(&client.record, FENCE_IDLE + client.longest);
        let written = lane.submit(LIMIT, Recorded::request(&client.record.id, set));
        let id = client.record.id.clone();
        let (clients, denied) = (Arc::clone(&self.clients), Arc::clone(&self.denied));
        let due = Arc::clone(&self.due);
        self.host.spawn(Box::pin(async move {
            let Err(error) = written.await else { return };
            if error.kind() == ErrorKind::Denied {
                tracing::warn!(
                    cause = %error,
                    "no right to record who holds locks; other clients cannot see it"
                );
                denied.store(true, Ordering::Relaxed);
            } else if let Some(client) = lock(&clients).get_mut(&id) {
                client.written = None;
                due.store(0, Ordering::Release);
            }
        }));
    }

    /// Adds the records of the clients in a snapshot, as far as they can be read within `limit`.
    /// Some may be missing, because the user may lack the right, and a record may be on another
    /// node than the lock.
    pub(super) async fn fill_in(&self, snapshot: &mut Snapshot, lane: Lane<'_>, limit: Duration) {
        let clients = clients_of(snapshot);
        if clients.is_empty() || limit.is_zero() {
            return;
        }
        let records = if lane.has_all_slots() {
            lane.submit(limit, Box::new(Plain(get_records(&clients)))).await
        } else {
            let get = |id| lane.submit(limit, Recorded::request(id, get_record(id)));
            let records = join_all(clients.iter().map(get)).await;
            Ok(Value::Array(records.into_iter().map(|it| it.unwrap_or(Value::Nil)).collect()))
        };
        match records {
            Ok(records) => attach_records(snapshot, &clients, &records),
            Err(error) => tracing::debug!(%error, "no record of any client could be read"),
        }
    }
}

/// A request about the record of one client.
struct Recorded {
    command: Command,
    slot: u16,
}

impl Recorded {
    fn request(id: &ClientId, command: Command) -> Box<dyn Request> {
        Box::new(Self { command, slot: record_slot(id) })
    }
}

impl Request for Recorded {
    fn command(&mut self, _known: &mut Known) -> Command {
        self.command.clone()
    }

    fn subject(&self) -> Option<Subject> {
        Some(Subject { slot: self.slot, lock: None })
    }
}

fn lock(clients: &Mutex<HashMap<ClientId, Client>>) -> MutexGuard<'_, HashMap<ClientId, Client>> {
    clients.lock().expect("nothing panics while it holds the records")
}

/// The command that writes a record, so that it lives that long from now.
fn set_record(record: &ClientRecord, life: Duration) -> Command {
    let ClientRecord { id, host, pid, user, command, ttl } = record;
    let ttl = ttl.map(|ttl| format!(" {}", ttl.as_millis())).unwrap_or_default();
    // Only the last field may contain line breaks.
    let line = |text: &str| text.replace('\n', " ");
    let life_ms = u64::try_from(life.as_millis()).expect("at most a day and some minutes");
    add_record(Command::new("SET"), id)
        .arg(format!("{}\n{pid}{ttl}\n{}\n{command}", line(host), line(user)))
        .arg("PX")
        .number(life_ms)
}

/// The clients in a snapshot, each once.
fn clients_of(snapshot: &Snapshot) -> Vec<ClientId> {
    let holders = snapshot.holders.iter().filter_map(|holder| client_of(&holder.token));
    let waiters = snapshot.waiters.iter().filter_map(|waiter| waiter.id.clone());
    let mut clients: Vec<ClientId> = holders.chain(waiters).collect();
    clients.sort_unstable();
    clients.dedup();
    clients
}

/// The command that reads the records of `clients`, which must not be empty.
fn get_records(clients: &[ClientId]) -> Command {
    clients.iter().fold(Command::new("MGET"), add_record)
}

fn get_record(client: &ClientId) -> Command {
    add_record(Command::new("GET"), client)
}

/// Adds the records to the snapshot. Missing or invalid records are left out.
fn attach_records(snapshot: &mut Snapshot, clients: &[ClientId], reply: &Value) {
    let Value::Array(texts) = reply else { return };
    let records: HashMap<&ClientId, ClientRecord> = clients
        .iter()
        .zip(texts)
        .filter_map(|(id, text)| match text {
            Value::Bytes(text) => Some((id, parse_record(id, text)?)),
            _ => None,
        })
        .collect();
    let record = |id: Option<&ClientId>| id.and_then(|id| records.get(id)).cloned();
    for holder in &mut snapshot.holders {
        holder.client = record(client_of(&holder.token).as_ref());
        holder.ttl = holder.client.as_ref().and_then(|client| client.ttl);
    }
    for waiter in &mut snapshot.waiters {
        waiter.client = record(waiter.id.as_ref());
    }
}

fn parse_record(id: &ClientId, text: &[u8]) -> Option<ClientRecord> {
    let text = str::from_utf8(text).ok().filter(|text| text.len() <= RECORD_BYTES_MAX)?;
    let mut lines = text.splitn(4, '\n').map(str::to_owned);
    let (host, numbers) = (lines.next()?, lines.next()?);
    let (pid, ttl) = match numbers.split_once(' ') {
        Some((pid, ttl)) => (pid, Some(Duration::from_millis(ttl.parse().ok()?))),
        None => (&*numbers, None),
    };
    let (id, pid) = (id.clone(), pid.parse().ok()?);
    Some(ClientRecord { id, host, pid, user: lines.next()?, command: lines.next()?, ttl })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Holder, Waiter};

    fn id(byte: u8) -> ClientId {
        ClientId::from_random([byte; ClientId::CHARS])
    }

    fn client(byte: u8) -> ClientRecord {
        ClientRecord {
            id: id(byte),
            host: "web-1".to_owned(),
            pid: 42,
            user: "anna".to_owned(),
            command: "report\n--all".to_owned(),
            ttl: None,
        }
    }

    fn text_of(record: &ClientRecord) -> Vec<u8> {
        set_record(record, FENCE_IDLE).args().nth(2).expect("the text").to_vec()
    }

    #[test]
    fn a_record_is_kept_for_ten_minutes_and_reads_back() {
        let command = set_record(&client(0), FENCE_IDLE);
        let args: Vec<_> = command.args().map(String::from_utf8_lossy).collect();
        let text = "web-1\n42\nanna\nreport\n--all";
        assert_eq!(args, ["SET", ":lh:client:AAAAAAAAAAAA", text, "PX", "600000"]);
        assert_eq!(parse_record(&id(0), text.as_bytes()), Some(client(0)));
        let odd = ClientRecord { host: "a\nb".to_owned(), user: String::new(), ..client(0) };
        let read = parse_record(&id(0), &text_of(&odd)).expect("it reads back");
        assert_eq!((read.host.as_str(), read.pid, read.user.as_str()), ("a b", 42, ""));
        let timed = ClientRecord { ttl: Some(Duration::from_secs(10)), ..client(0) };
        assert!(text_of(&timed).starts_with(b"web-1\n42 10000\nanna"));
        assert_eq!(parse_record(&id(0), &text_of(&timed)), Some(timed));
    }

    #[test]
    fn hostile_texts_are_no_records() {
        let long = format!("host\n1\nuser\n{}", "x".repeat(RECORD_BYTES_MAX));
        let table: [&[u8]; 10] = [
            b"",
            b"host",
            b"host\n1",
            b"host\n1\nuser",
            b"host\nx\nuser\ncommand",
            b"host\n4294967296\nuser\ncommand",
            b"host\n1 x\nuser\ncommand",
            b"host\n1 -5\nuser\ncommand",
            b"\xff\n1\nuser\ncommand",
            long.as_bytes(),
        ];
        for text in table {
            assert_eq!(parse_record(&id(0), text), None, "{:?}", String::from_utf8_lossy(text));
        }
    }

    #[test]
    fn a_snapshot_takes_the_records_of_its_clients() {
        let waiter = |byte| Waiter { id: Some(id(byte)), ..Waiter::default() };
        let holder = Holder::new(*b"XXXXXXXXXXXXXXXXXXXXXX.AAAAAAAAAAAA");
        let mut snapshot = Snapshot {
            holders: vec![holder],
            waiters: vec![waiter(2), waiter(0), waiter(1)],
            ..Snapshot::default()
        };
        let clients = clients_of(&snapshot);
        assert_eq!(clients, [id(0), id(1), id(2)]);
        let command = get_records(&clients);
        let args: Vec<_> = command.args().map(String::from_utf8_lossy).collect();
        assert_eq!(args[..2], ["MGET", ":lh:client:AAAAAAAAAAAA"]);
        assert_eq!(args.len(), 4);
        let texts = vec![Value::Bytes(text_of(&client(0))), Value::Nil, Value::Bytes(vec![0xff])];
        for strange in [Value::Nil, Value::Array(vec![])] {
            attach_records(&mut snapshot, &clients, &strange);
            assert_eq!(snapshot.holders[0].client, None);
        }
        attach_records(&mut snapshot, &clients, &Value::Array(texts));
        assert_eq!(snapshot.holders[0].client, Some(client(0)));
        assert_eq!(snapshot.holders[0].ttl, None);
        let known: Vec<_> = snapshot.waiters.iter().map(|waiter| waiter.client.clone()).collect();
        assert_eq!(known, [None, Some(client(0)), None]);
        let ttl = Some(Duration::from_secs(10));
        let timed = Value::Bytes(text_of(&ClientRecord { ttl, ..client(0) }));
        attach_records(&mut snapshot, &clients, &Value::Array(vec![timed]));
        assert_eq!(snapshot.holders[0].ttl, ttl, "the client said so");
    }
}
