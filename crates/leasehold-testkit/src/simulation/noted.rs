//! A store between a client and its connection, which adds facts that the bytes do not show.
//!
//! It notes which call each request belongs to. A connection writes its requests later, in its own
//! task, and writes requests of several calls together. The owner token then leads back to the
//! call.
//!
//! It also puts a fixed machine, process and user into the record of the client. The real values
//! differ from run to run, and their length would decide where a write is cut.

use std::sync::Arc;

use leasehold::store::{
    Acquired, Ask, BoxAnswer, ClientRecord, LeaseId, OnRelease, Released, Renewal, Renewed, Store,
};

use super::log::Log;

/// A store whose requests are noted in a log.
pub(super) struct Noted<S> {
    store: S,
    log: Log,
}

impl<S> Noted<S> {
    pub(super) const fn new(store: S, log: Log) -> Self {
        Self { store, log }
    }
}

/// A copy of a client's record with a fixed machine, user and program, for identical runs.
fn record(of: &ClientRecord) -> ClientRecord {
    let mut record = ClientRecord::new(of.id.clone());
    (record.host, record.user) = ("machine".to_owned(), "user".to_owned());
    (record.pid, record.command) = (4_711, "simulated".to_owned());
    record.ttl = of.ttl;
    record
}

impl<S: Store> Store for Noted<S> {
    fn acquire(&self, mut ask: Ask) -> BoxAnswer<Acquired> {
        self.log.note(&ask.key, &ask.owner);
        if let Some(client) = ask.note.as_mut().and_then(|note| note.client.as_mut()) {
            *client = Arc::new(record(client));
        }
        self.store.acquire(ask)
    }

    fn renew(&self, renewal: Renewal) -> BoxAnswer<Renewed> {
        self.log.note(&renewal.lease.key, &renewal.lease.owner);
        self.store.renew(renewal)
    }

    fn release(&self, lease: LeaseId, on_release: OnRelease) -> BoxAnswer<Released> {
        self.log.note(&lease.key, &lease.owner);
        self.store.release(lease, on_release)
    }

    crate::forward!(store: inspect, watch, rest);
}
