//! Whether a strict server is quarantined, for whoever looks and asks for no lock.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use super::known::Known;
use super::link::{Command, Value};
use super::terms::Strict;
use super::wire::{Plain, Request, Wire};
use super::{LIMIT, keys, reply};
use crate::core::error::Error;
use crate::store::Quarantine;

/// Looks. A server of which the next ask would find that it has forgotten counts: its quarantine
/// has not begun, and lies ahead as a whole.
pub(super) fn look(
    strict: Strict,
    asks: &Wire,
) -> impl Future<Output = Result<Option<Quarantine>, Error>> + use<> {
    let asked_of = AskedOf::default();
    let epoch = Epoch { asked_of: Arc::clone(&asked_of) };
    let epoch = asks.submit(LIMIT, Box::new(epoch));
    let left = Command::new("PTTL").arg(keys::QUARANTINE);
    let left = asks.submit(LIMIT, Box::new(Plain(left)));
    async move {
        let (epoch, left) = (epoch.await?, left.await?);
        let run_id = asked_of.lock().unwrap_or_else(PoisonError::into_inner).take();
        Ok(conclude(strict, run_id.as_deref(), &epoch, &left))
    }
}

fn conclude(
    strict: Strict,
    run_id: Option<&str>,
    epoch: &Value,
    left: &Value,
) -> Option<Quarantine> {
    let is_known = matches!((epoch, run_id), (Value::Bytes(epoch), Some(run_id))
        if epoch[..] == *run_id.as_bytes());
    match left {
        _ if !is_known => Some(Quarantine { since: None, left: Some(strict.quarantine()) }),
        Value::Int(left) if *left != -2 => {
            Some(reply::quarantine(*left, Some(strict.quarantine())))
        }
        _ => None,
    }
}

/// Which process answered.
type AskedOf = Arc<Mutex<Option<Arc<str>>>>;

/// In which process the data was last seen, asked of a process that is known.
struct Epoch {
    asked_of: AskedOf,
}

impl Request for Epoch {
    fn command(&mut self, known: &mut Known) -> Command {
        // That of the connection that it is sent on last, if it is sent more than once.
        let mut asked_of = self.asked_of.lock().unwrap_or_else(PoisonError::into_inner);
        *asked_of = known.run_id().cloned();
        Command::new("GET").arg(keys::EPOCH)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarantine_that_the_next_ask_begins_lies_ahead_as_a_whole() {
        let strict = Strict::STANDARD;
        let whole = Some(Quarantine { since: None, left: Some(strict.quarantine()) });
        let begun = reply::quarantine(5_000, Some(strict.quarantine()));
        let endless = Some(Quarantine { since: None, left: None });
        let epoch = |text: &str| Value::Bytes(text.as_bytes().to_vec());
        // epoch, PTTL of the quarantine, what is seen by process `a`
        for (epoch, left, seen) in [
            (epoch("a"), -2, None),
            (epoch("a"), 5_000, Some(begun)),
            (epoch("a"), -1, endless),
            (epoch("b"), -2, whole),
            (epoch("b"), 5_000, whole),
            (epoch("b"), -1, whole),
            (Value::Nil, -2, whole),
        ] {
            let found = conclude(strict, Some("a"), &epoch, &Value::Int(left));
            assert_eq!(found, seen, "{epoch:?} {left}");
        }
    }
}
