//! Reads whether a strict server is quarantined, without asking for a lock.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use super::Strict;
use crate::core::error::Error;
use crate::store::Quarantine;
use crate::store::redis::codec::command::{Command, Value};
use crate::store::redis::scripts::reasons::no_epoch;
use crate::store::redis::scripts::reply;
use crate::store::redis::servers::Lane;
use crate::store::redis::wire::known::Known;
use crate::store::redis::wire::{Plain, Request, Retry};
use crate::store::redis::{LIMIT, keys};
use crate::unpoisoned::Unpoisoned;

/// Returns the quarantine of the server, if there is one. If the server forgot its leases and no
/// acquire request has noticed that yet, the next acquire request begins the quarantine. Then the
/// whole length is returned.
pub(in crate::store::redis) fn look(
    strict: Strict,
    asks: Lane<'_>,
) -> impl Future<Output = Result<Option<Quarantine>, Error>> + use<> {
    let heard = Arc::<Unpoisoned<Heard>>::default();
    let epoch = Epoch { heard: Arc::clone(&heard) };
    let epoch = asks.submit(LIMIT, Box::new(epoch));
    let replication = Command::new("INFO").arg("replication");
    let replication = asks.submit(LIMIT, Box::new(Plain(replication)));
    let time = asks.submit(LIMIT, Box::new(Plain(Command::new("TIME"))));
    async move {
        let (epoch, replication, time) = (epoch.await, replication.await?, time.await?);
        let heard = mem::take(&mut *heard.lock());
        let epoch = epoch.map_err(|error| explained(&heard, error))?;
        Ok(conclude(strict, heard.run_id.as_deref(), &epoch, &replication, &time))
    }
}

/// The error, which names the epoch if that key has the wrong type. The request reads no other key,
/// so no other key can have caused it.
fn explained(heard: &Heard, error: Error) -> Error {
    if heard.no_hash { no_epoch().with_source(error) } else { error }
}

/// The same decision as in strict.lua, from the answers to HMGET, INFO and TIME. Writes nothing.
/// Change both together.
pub(in crate::store::redis) fn conclude(
    strict: Strict,
    run_id: Option<&str>,
    epoch: &Value,
    replication: &Value,
    time: &Value,
) -> Option<Quarantine> {
    let ahead = Quarantine { since: None, left: strict.quarantine() };
    let (Some([run, until, replid]), Some(run_id)) = (listed(epoch), run_id) else {
        return Some(ahead);
    };
    if *run != Value::Bytes(run_id.into()) || !goes_on(replid, replication) {
        return Some(ahead);
    }
    let Value::Bytes(until) = until else { return None };
    let (Some(ends_ms), Some(now_ms)) = (whole(until), millis(time)) else { return Some(ahead) };
    let left = ends_ms.checked_sub(now_ms)?.max(1);
    Some(reply::to_quarantine(Duration::from_millis(left), strict.quarantine()))
}

/// Whether, by the answer to INFO, the server still has the data that was seen under `replid`.
fn goes_on(replid: &Value, replication: &Value) -> bool {
    let Value::Bytes(info) = replication else { return false };
    let info = String::from_utf8_lossy(info);
    let id = |name| info.lines().find_map(|line| line.strip_prefix(name)).map(str::trim_end);
    let was_no_replica = |id: &str| !id.is_empty() && id.bytes().all(|digit: u8| digit == b'0');
    id("master_replid:").is_some_and(|now| *replid == Value::Bytes(now.into()))
        || id("master_replid2:").is_some_and(was_no_replica)
}

/// Reads the answer to TIME.
fn millis(time: &Value) -> Option<u64> {
    let [Value::Bytes(seconds), Value::Bytes(micros)] = listed(time)? else { return None };
    whole(seconds)?.checked_mul(1_000)?.checked_add(whole(micros)? / 1_000)
}

/// Digits as a number, or the greatest number.
fn whole(digits: &[u8]) -> Option<u64> {
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    is_number.then(|| str::from_utf8(digits).ok()?.parse().ok()).map(|it| it.unwrap_or(u64::MAX))
}

fn listed<const N: usize>(value: &Value) -> Option<&[Value; N]> {
    if let Value::Array(values) = value { values.as_array() } else { None }
}

/// Facts about an answer that are not in it.
#[derive(Default)]
struct Heard {
    /// The run id of the process that gave the answer.
    run_id: Option<Arc<str>>,
    /// Whether the server said that the epoch is not a hash.
    no_hash: bool,
}

/// Asks for the process that the data was last seen in, on a connection to a known process.
struct Epoch {
    heard: Arc<Unpoisoned<Heard>>,
}

impl Request for Epoch {
    fn command(&mut self, known: &mut Known) -> Command {
        // If the request is sent more than once, the last connection counts.
        self.heard.lock().run_id = known.strictly().map(|it| Arc::clone(&it.process.run_id));
        Command::new("HMGET").arg(keys::EPOCH).arg("run").arg("until").arg("replid")
    }

    fn was_refused(&mut self, _known: &mut Known, code: &str, _text: &str) -> Retry {
        self.heard.lock().no_hash = code == "WRONGTYPE";
        Retry::No
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::redis::error::refusal;

    fn bytes(text: &str) -> Value {
        Value::Bytes(text.into())
    }

    #[test]
    fn a_quarantine_that_the_next_ask_begins_lies_ahead_as_a_whole() {
        let strict = Strict::STANDARD;
        let ahead = Some(Quarantine { since: None, left: strict.quarantine() });
        let left = |ms| Some(reply::to_quarantine(Duration::from_millis(ms), strict.quarantine()));
        let time = Value::Array(vec![bytes("100"), bytes("7999")]);
        let info = |replid, before| {
            bytes(&format!("# R\r\nmaster_replid:{replid}\r\nmaster_replid2:{before}\r\n"))
        };
        // run, until, result for process `a` at 100 s and 7 ms
        for (run, until, seen) in [
            (bytes("a"), Value::Nil, None),
            (bytes("a"), bytes("105007"), left(5_000)),
            (bytes("a"), bytes("100007"), left(1)),
            (bytes("a"), bytes("100006"), None),
            (bytes("a"), bytes("3700007"), left(3_600_000)),
            (bytes("a"), bytes(&"9".repeat(30)), left(u64::MAX - 100_007)),
            (bytes("a"), bytes("-1"), ahead),
            (bytes("a"), bytes(""), ahead),
            (bytes("b"), Value::Nil, ahead),
            (bytes("b"), bytes("105007"), ahead),
            (Value::Nil, Value::Nil, ahead),
            (Value::Nil, bytes("105007"), ahead),
        ] {
            let epoch = Value::Array(vec![run, until.clone(), bytes("c")]);
            let seen_now = conclude(strict, Some("a"), &epoch, &info("c", "b0"), &time);
            assert_eq!(seen_now, seen, "{until:?}");
        }
        let same = info("c", "00");
        assert_eq!(conclude(strict, Some("a"), &Value::Nil, &same, &time), ahead);
        let odd = Value::Array(vec![bytes("a"), bytes("105007"), bytes("c")]);
        assert_eq!(conclude(strict, Some("a"), &odd, &same, &Value::Nil), ahead);
        // answer to INFO, result for data that was last seen as `c`
        for (replication, seen) in [
            (info("c", "00"), None),
            (info("c", "d"), None),
            (info("d", "00"), None),
            (info("d", "c"), ahead),
            (info("d", "e0"), ahead),
            (info("d", ""), ahead),
            (bytes("# R\r\n"), ahead),
            (Value::Nil, ahead),
        ] {
            let epoch = Value::Array(vec![bytes("a"), Value::Nil, bytes("c")]);
            let seen_now = conclude(strict, Some("a"), &epoch, &replication, &time);
            assert_eq!(seen_now, seen, "{replication:?}");
        }
    }

    /// The refusals of a cluster have the same kind of error as a wrong type.
    #[test]
    fn only_the_wrong_type_is_taken_for_a_broken_epoch() {
        for (code, no_hash) in
            [("WRONGTYPE", true), ("MOVED", false), ("ASK", false), ("CROSSSLOT", false)]
        {
            let heard = Arc::<Unpoisoned<Heard>>::default();
            let mut epoch = Epoch { heard: Arc::clone(&heard) };
            let retry = epoch.was_refused(&mut Known::new(None, None), code, "no");
            assert_eq!(retry, Retry::No);
            let said = |error: Error| explained(&epoch.heard.lock(), error).to_string();
            let text = said(refusal(code, code));
            assert_eq!(text.contains("`:lh:epoch`"), no_hash, "{text}");
            assert_eq!(text.contains("Redis Cluster"), !no_hash, "{text}");
        }
    }
}
