//! Writes and reads a short-lived record about each client.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use super::wire::{Plain, Wire};
use super::{LIMIT, record};
use crate::core::error::{Error, ErrorKind};
use crate::core::moment::Moment;
use crate::core::token::{ClientId, OwnerToken};
use crate::host::Host;
use crate::store::{ClientRecord, FENCE_IDLE, Snapshot};

/// How often an active client writes its record again. One lost write does no harm.
const REFRESH_EVERY: Duration = FENCE_IDLE.checked_div(3).expect("three is not zero");

/// How many clients one store writes records for. A process usually has one.
const CLIENTS_MAX: usize = 1_024;

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
}

impl Records {
    pub(super) fn new(host: Arc<dyn Host>) -> Self {
        Self { host, clients: Arc::default(), denied: Arc::default(), due: Arc::default() }
    }

    /// Writes a record if it is new or was written long ago. It is sent before any later request.
    pub(super) fn write_if_due(&self, record: &Arc<ClientRecord>, wire: &Wire) {
        let mut clients = lock(&self.clients);
        if !clients.contains_key(&record.id) {
            if clients.len() == CLIENTS_MAX {
                clients.clear();
            }
            let client = Client { record: Arc::clone(record), written: None };
            clients.insert(record.id.clone(), client);
            self.due.store(0, Ordering::Release);
        }
        let client = clients.get_mut(&record.id).expect("it was just looked after");
        if client.record != *record {
            *client = Client { record: Arc::clone(record), written: None };
        }
        self.write(client, wire);
    }

    /// Writes the record of a holder again if it was written long ago.
    pub(super) fn refresh_if_due(&self, owner: &OwnerToken, wire: &Wire) {
        if self.host.now() < Moment::from_nanos(self.due.load(Ordering::Acquire)) {
            return;
        }
        let Some(id) = owner.client() else { return };
        let mut clients = lock(&self.clients);
        if let Some(client) = clients.get_mut(&id) {
            self.write(client, wire);
        }
        let due = clients
            .values()
            .map(|client| client.written.map_or(0, |at| (at + REFRESH_EVERY).as_nanos()));
        self.due.store(due.min().unwrap_or(0), Ordering::Release);
    }

    fn write(&self, client: &mut Client, wire: &Wire) {
        let now = self.host.now();
        let is_due = client.written.is_none_or(|written| now.since(written) >= REFRESH_EVERY);
        if !is_due || self.denied.load(Ordering::Relaxed) {
            return;
        }
        client.written = Some(now);
        let written = wire.submit(LIMIT, Box::new(Plain(record::write(&client.record))));
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

    /// Adds the records of the clients in a snapshot.
    pub(super) async fn fill_in(&self, snapshot: &mut Snapshot, wire: &Wire) -> Result<(), Error> {
        let clients = record::clients_of(snapshot);
        if clients.is_empty() {
            return Ok(());
        }
        match wire.submit(LIMIT, Box::new(Plain(record::read(&clients)))).await {
            Ok(records) => record::fill(snapshot, &clients, &records),
            // A user who may inspect locks may lack the right to read the records.
            Err(error) if error.kind() == ErrorKind::Denied => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

fn lock(clients: &Mutex<HashMap<ClientId, Client>>) -> MutexGuard<'_, HashMap<ClientId, Client>> {
    clients.lock().expect("nothing panics while it holds the records")
}
