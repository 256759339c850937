//! Asks one sentinel about the primary.

use std::sync::Arc;

use super::facts::{Gap, Info, SentinelFacts};
use super::line::Line;
use crate::core::error::{Error, ErrorKind};
use crate::core::moment::Moment;
use crate::host::Host;
use crate::store::redis::codec::command::{Command, Value};
use crate::store::redis::connector::Connector;

/// Asks for the settings of the primary, and whether a failover is possible.
pub(super) async fn ask(
    sentinel: &dyn Connector,
    primary: &str,
    (host, ends): (&Arc<dyn Host>, Moment),
) -> SentinelFacts {
    let label = sentinel.label();
    let mut line = match Line::open(sentinel, host, ends).await {
        Ok(line) => line,
        Err(error) => {
            return SentinelFacts { label, primary: Err(error), has_quorum: Err(Gap::NotAsked) };
        }
    };
    let settings = match line.ask(Command::new("SENTINEL").arg("MASTER").arg(primary)).await {
        Ok(Value::Array(fields)) => Ok(Info::of_pairs(&fields)),
        Ok(_) => Err(silent("its answer is not that of a sentinel")),
        Err(Gap::Refused { text, .. }) => Err(silent(&format!("it says `{text}`"))),
        Err(Gap::Denied) => Err(silent("this user has no right to `SENTINEL`")),
        Err(Gap::Absent) => Err(silent("it is not a sentinel")),
        Err(_) => Err(silent("it does not answer")),
    };
    let asked = line.ask(Command::new("SENTINEL").arg("CKQUORUM").arg(primary)).await;
    let has_quorum = match asked {
        Ok(_) => Ok(true),
        Err(Gap::Refused { code, .. }) if code == "NOQUORUM" => Ok(false),
        Err(gap) => Err(gap),
    };
    SentinelFacts { label, primary: settings, has_quorum }
}

fn silent(why: &str) -> Error {
    Error::new(ErrorKind::Unavailable, why)
}
