//! The record of a client on the server. It is one text of four lines: `host`, `pid`, `user` and
//! `command`. If the client has told the ttl of its leases, that comes after `pid` and a space, in
//! milliseconds.

use std::collections::HashMap;
use std::time::Duration;

use super::command::{Command, Value};
use super::keys::add_record;
use crate::core::token::{ClientId, client_of};
use crate::store::{ClientRecord, FENCE_IDLE, Snapshot};

/// The longest text that is read as a record, in bytes. Clients write shorter ones.
const RECORD_BYTES_MAX: usize = 4_096;

/// The command that writes a record or extends its life.
pub(super) fn write(record: &ClientRecord) -> Command {
    let ClientRecord { id, host, pid, user, command, ttl } = record;
    let ttl = ttl.map(|ttl| format!(" {}", ttl.as_millis())).unwrap_or_default();
    // Only the last field may contain line breaks.
    let line = |text: &str| text.replace('\n', " ");
    let idle_ms = u64::try_from(FENCE_IDLE.as_millis()).expect("some minutes");
    add_record(Command::new("SET"), id)
        .arg(format!("{}\n{pid}{ttl}\n{}\n{command}", line(host), line(user)))
        .arg("PX")
        .number(idle_ms)
}

/// The clients in a snapshot, each once.
pub(super) fn clients_of(snapshot: &Snapshot) -> Vec<ClientId> {
    let holders = snapshot.holders.iter().filter_map(|holder| client_of(&holder.token));
    let waiters = snapshot.waiters.iter().filter_map(|waiter| waiter.id.clone());
    let mut clients: Vec<ClientId> = holders.chain(waiters).collect();
    clients.sort_unstable();
    clients.dedup();
    clients
}

/// The command that reads the records of `clients`, which must not be empty.
pub(super) fn read(clients: &[ClientId]) -> Command {
    clients.iter().fold(Command::new("MGET"), add_record)
}

/// Adds the records to the snapshot. Missing or invalid records are left out.
pub(super) fn fill(snapshot: &mut Snapshot, clients: &[ClientId], reply: &Value) {
    let Value::Array(texts) = reply else { return };
    let records: HashMap<&ClientId, ClientRecord> = clients
        .iter()
        .zip(texts)
        .filter_map(|(id, text)| match text {
            Value::Bytes(text) => Some((id, parse(id, text)?)),
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

fn parse(id: &ClientId, text: &[u8]) -> Option<ClientRecord> {
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
        write(record).args().nth(2).expect("the text").to_vec()
    }

    #[test]
    fn a_record_is_kept_for_ten_minutes_and_reads_back() {
        let command = write(&client(0));
        let args: Vec<_> = command.args().map(String::from_utf8_lossy).collect();
        let text = "web-1\n42\nanna\nreport\n--all";
        assert_eq!(args, ["SET", ":lh:client:AAAAAAAAAAAA", text, "PX", "600000"]);
        assert_eq!(parse(&id(0), text.as_bytes()), Some(client(0)));
        let odd = ClientRecord { host: "a\nb".to_owned(), user: String::new(), ..client(0) };
        let read = parse(&id(0), &text_of(&odd)).expect("it reads back");
        assert_eq!((read.host.as_str(), read.pid, read.user.as_str()), ("a b", 42, ""));
        let timed = ClientRecord { ttl: Some(Duration::from_secs(10)), ..client(0) };
        assert!(text_of(&timed).starts_with(b"web-1\n42 10000\nanna"));
        assert_eq!(parse(&id(0), &text_of(&timed)), Some(timed));
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
            assert_eq!(parse(&id(0), text), None, "{:?}", String::from_utf8_lossy(text));
        }
    }

    #[test]
    fn a_snapshot_takes_the_records_of_its_clients() {
        let waiter = |byte| Waiter { id: Some(id(byte)), client: None, since: None };
        let holder = Holder {
            token: b"XXXXXXXXXXXXXXXXXXXXXX.AAAAAAAAAAAA".to_vec(),
            client: None,
            why: None,
            since: None,
            ttl: None,
            ttl_left: None,
            fencing: None,
            idle: false,
        };
        let mut snapshot = Snapshot {
            holders: vec![holder],
            waiters: vec![waiter(2), waiter(0), waiter(1)],
            ..Snapshot::default()
        };
        let clients = clients_of(&snapshot);
        assert_eq!(clients, [id(0), id(1), id(2)]);
        let command = read(&clients);
        let args: Vec<_> = command.args().map(String::from_utf8_lossy).collect();
        assert_eq!(args[..2], ["MGET", ":lh:client:AAAAAAAAAAAA"]);
        assert_eq!(args.len(), 4);
        let texts = vec![Value::Bytes(text_of(&client(0))), Value::Nil, Value::Bytes(vec![0xff])];
        for strange in [Value::Nil, Value::Array(vec![])] {
            fill(&mut snapshot, &clients, &strange);
            assert_eq!(snapshot.holders[0].client, None);
        }
        fill(&mut snapshot, &clients, &Value::Array(texts));
        assert_eq!(snapshot.holders[0].client, Some(client(0)));
        assert_eq!(snapshot.holders[0].ttl, None);
        let known: Vec<_> = snapshot.waiters.iter().map(|waiter| waiter.client.clone()).collect();
        assert_eq!(known, [None, Some(client(0)), None]);
    }
}
