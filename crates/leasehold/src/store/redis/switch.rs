//! The record of a database that says whether it is switched to strict mode: who switched it last,
//! when and why.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::codec::command::{Command, Value};
use super::connect::RedisConnector;
use super::connector::{Connector, Settling};
use super::scripts::SWITCH;
use super::scripts::reasons::no_epoch;
use super::terms::record::Act;
use super::terms::{Strict, quarantine, why_not_in_a_cluster};
use super::wire::handshake::run_id;
use super::wire::known::Known;
use super::wire::serving::Home;
use super::wire::{Plain, Request, Retry, Wire};
use super::{LIMIT, keys};
use crate::core::error::{Error, ErrorKind};
use crate::host::Host;
use crate::store::Quarantine;

/// The state of one database.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) act: Option<Act>,
    /// `None` also if no client of the database seems to be strict.
    pub(crate) quarantine: Result<Option<Quarantine>, Error>,
}

/// The answer to an order to switch a database.
#[derive(Clone, Debug)]
pub(crate) struct Done {
    /// Whether the order changed something.
    pub(crate) is_changed: bool,
    /// The last time that somebody switched the database, by this order or before.
    pub(crate) act: Option<Act>,
}

/// Why a cluster cannot be switched.
pub(crate) const NOT_IN_A_CLUSTER: &str =
    concat!("a cluster has no strict mode: ", why_not_in_a_cluster!());

/// The advice if a store cannot be switched.
pub(crate) const NAME_A_SERVER: &str = "use --url with a Redis or Valkey server";

/// The connection for requests about the record. The record and the URL do not matter.
pub(crate) struct Switchboard(Wire);

impl Switchboard {
    /// Connects.
    pub(crate) async fn connect(
        connector: RedisConnector,
        host: Arc<dyn Host>,
    ) -> Result<Self, Error> {
        let connector: Arc<dyn Connector> = Arc::new(connector);
        let wire = Wire::new(host, Arc::new(Settling::neutral(connector)), Home::Asker);
        wire.connect().await?;
        let switchboard = Self(wire);
        // A user without the right to ask this may still switch.
        let info = switchboard.ask(Command::new("INFO").arg("server")).await;
        if matches!(info, Ok(Value::Bytes(info)) if is_in_cluster(&info)) {
            let message = format!("{NOT_IN_A_CLUSTER}; nothing was changed; {NAME_A_SERVER}");
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        Ok(switchboard)
    }

    /// Switches the database, unless it is switched that way already.
    pub(crate) async fn switch(&self, is_on: bool, who: &str, why: &str) -> Result<Done, Error> {
        let command = SWITCH.in_full().number(1).arg(keys::EPOCH);
        let command = command.arg(if is_on { "on" } else { "off" }).arg(who).arg(why);
        let answer = self.ask(command).await.map_err(|error| match error.kind() {
            ErrorKind::Unknown => not_answered().with_source(error),
            _ => explained(error),
        })?;
        match answer {
            Value::Array(parts) => match &parts[..] {
                [Value::Int(changed @ (0 | 1)), Value::Bytes(record)] => {
                    Ok(Done { is_changed: *changed == 1, act: Act::read(record) })
                }
                [Value::Int(2)] => Err(no_epoch()),
                _ => Err(strange()),
            },
            _ => Err(strange()),
        }
    }

    /// Reads the record, and whether the server is quarantined. Writes nothing.
    pub(crate) async fn look(&self) -> Result<Seen, Error> {
        let is_no_hash = Arc::<AtomicBool>::default();
        let fields = Fields { is_no_hash: Arc::clone(&is_no_hash) };
        let fields = self.0.submit(LIMIT, Box::new(fields));
        let info = |section| self.ask(Command::new("INFO").arg(section));
        let (server, replication) = (info("server"), info("replication"));
        let time = self.ask(Command::new("TIME"));
        let fields = fields.await.map_err(|error| {
            let is_no_hash = is_no_hash.load(Ordering::Relaxed);
            if is_no_hash { no_epoch().with_source(error) } else { explained(error) }
        })?;
        let Value::Array(mut fields) = fields else { return Err(strange()) };
        let act = match fields.pop() {
            Some(Value::Bytes(record)) => Act::read(&record),
            _ => None,
        };
        let is_used = fields.first().is_some_and(|run| *run != Value::Nil);
        if !is_used && !act.as_ref().is_some_and(|act| act.is_on) {
            return Ok(Seen { act, quarantine: Ok(None) });
        }
        let quarantine = async {
            let (server, replication, time) = (server.await?, replication.await?, time.await?);
            let run_id = match &server {
                Value::Bytes(info) => run_id(&String::from_utf8_lossy(info)),
                _ => None,
            };
            let fields = Value::Array(fields);
            let strict = Strict::STANDARD;
            Ok(quarantine::conclude(strict, run_id.as_deref(), &fields, &replication, &time))
        };
        Ok(Seen { act, quarantine: quarantine.await })
    }

    fn ask(&self, command: Command) -> impl Future<Output = Result<Value, Error>> + use<> {
        self.0.submit(LIMIT, Box::new(Plain(command)))
    }
}

/// Asks for the fields of the epoch, the record last.
struct Fields {
    is_no_hash: Arc<AtomicBool>,
}

impl Request for Fields {
    fn command(&mut self, _known: &mut Known) -> Command {
        let command = Command::new("HMGET").arg(keys::EPOCH).arg("run").arg("until").arg("replid");
        command.arg(keys::SWITCH)
    }

    fn was_refused(&mut self, _known: &mut Known, code: &str, _text: &str) -> Retry {
        self.is_no_hash.store(code == "WRONGTYPE", Ordering::Relaxed);
        Retry::No
    }
}

/// Whether the answer to INFO is that of a node of a cluster. Valkey says `server_mode` where Redis
/// says `redis_mode`.
fn is_in_cluster(info: &[u8]) -> bool {
    info.split(|byte| *byte == b'\n')
        .any(|line| matches!(line.trim_ascii(), b"redis_mode:cluster" | b"server_mode:cluster"))
}

/// The error, which names all rights if one of them is missing.
fn explained(error: Error) -> Error {
    if error.kind() != ErrorKind::Denied {
        return error;
    }
    Error::new(
        ErrorKind::Denied,
        "this user lacks a right that `leasehold strict` needs; nothing was changed; allow the \
         user `+eval +hset +hget +hmget +time ~:lh:epoch`",
    )
    .with_source(error)
}

fn not_answered() -> Error {
    Error::new(
        ErrorKind::Unknown,
        "the answer was lost, so strict mode may be switched or not; run the same command again: \
         it changes nothing that is done already",
    )
}

fn strange() -> Error {
    Error::new(
        ErrorKind::Unavailable,
        "the server gave an unexpected answer; check that this is a Redis or Valkey server",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_of_a_cluster_is_told_by_its_mode() {
        for (info, is_node) in [
            ("# Server\r\nredis_mode:cluster\r\nos:x\r\n", true),
            ("server_mode:cluster\r\n", true),
            ("redis_mode:standalone\r\n", false),
            ("x_redis_mode:cluster\r\n", false),
            ("", false),
        ] {
            assert_eq!(is_in_cluster(info.as_bytes()), is_node, "{info}");
        }
    }
}
