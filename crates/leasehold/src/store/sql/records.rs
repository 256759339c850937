//! The writes that a store makes now and then: the records of its clients, and the removal of idle
//! keys.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::batch::Work;
use super::engine::{Dialect, Engine};
use super::wire::Wire;
use super::{answer, call};
use crate::core::moment::Moment;
use crate::core::token::ClientId;
use crate::core::ttl::Ttl;
use crate::core::validity::command_limit;
use crate::host::Host;
use crate::store::{ClientRecord, FENCE_IDLE};
use crate::unpoisoned::Unpoisoned;

/// How often an active client writes its record again.
const REFRESH_EVERY: Duration = FENCE_IDLE.checked_div(3).expect("three is not zero");

/// How many clients one store writes records for. A process usually has one.
const CLIENTS_MAX: usize = 1_024;

/// How often a store looks whether keys are to be forgotten. The database remembers when that was
/// done last, so the stores share the work.
const PURGE_EVERY: Duration = Duration::from_secs(60);

/// How soon it searches again if the database has more keys than one search takes. `clients.sql` of
/// each engine has the same span.
const PURGE_MORE_IN: Duration = Duration::from_millis(500);

pub(super) struct Records {
    host: Arc<dyn Host>,
    state: Arc<Unpoisoned<State>>,
}

#[derive(Default)]
struct State {
    written: HashMap<ClientId, (ClientRecord, Moment)>,
    /// When to look again whether keys are to be forgotten.
    purge_at: Option<Moment>,
}

/// Whether a record is to be written. `written` was written last.
fn is_due(written: Option<&(ClientRecord, Moment)>, record: &ClientRecord, now: Moment) -> bool {
    written.is_none_or(|(last, at)| last != record || now.since(*at) >= REFRESH_EVERY)
}

impl Records {
    pub(super) fn new(host: Arc<dyn Host>) -> Self {
        Self { host, state: Arc::default() }
    }

    /// Writes a record if it is new, has changed, or was written long ago. It is sent before any
    /// later request. A lost record is written again later.
    pub(super) fn write_if_due<E: Engine>(
        &self,
        wire: &Wire<E>,
        dialect: &Dialect,
        record: &ClientRecord,
    ) {
        let now = self.host.now();
        let mut state = self.state.lock();
        if !is_due(state.written.get(&record.id), record, now) {
            return;
        }
        if state.written.len() >= CLIENTS_MAX {
            state.written.clear();
        }
        state.written.insert(record.id.clone(), (record.clone(), now));
        drop(state);
        drop(wire.submit(command_limit(Ttl::MAX), Work::Alone, call::record(dialect, record)));
    }

    /// Lets the database forget idle keys, now and then.
    pub(super) fn purge_if_due<E: Engine>(&self, wire: &Wire<E>, dialect: &Dialect) {
        let now = self.host.now();
        let mut state = self.state.lock();
        if state.purge_at.is_some_and(|at| now < at) {
            return;
        }
        state.purge_at = Some(now + PURGE_EVERY);
        drop(state);
        let purging = wire.submit(command_limit(Ttl::MAX), Work::Alone, call::purge(dialect));
        let (state, host) = (Arc::clone(&self.state), Arc::clone(&self.host));
        self.host.spawn(Box::pin(async move {
            match purging.await {
                Ok(rows) if answer::is_true(&rows) => {
                    state.lock().purge_at = Some(host.now() + PURGE_MORE_IN);
                }
                Ok(_) => {}
                Err(cause) => tracing::debug!(%cause, "idle keys could not be forgotten"),
            }
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_written_if_it_is_new_or_has_changed_or_was_written_long_ago() {
        let record = ClientRecord::new(ClientId::new("Nn23PXTR8zL5").expect("an id"));
        let renamed = ClientRecord { host: "db2".to_owned(), ..record.clone() };
        let at = Moment::from_nanos(1_000_000_000);
        let soon = at + (REFRESH_EVERY - Duration::from_millis(1));
        for (written, now, is_written) in [
            (None, at, true),
            (Some((record.clone(), at)), soon, false),
            (Some((renamed, at)), soon, true),
            // The database may have forgotten it, or it never arrived.
            (Some((record.clone(), at)), at + REFRESH_EVERY, true),
        ] {
            assert_eq!(is_due(written.as_ref(), &record, now), is_written, "{written:?} {now:?}");
        }
    }
}
