//! Implements the contract by calling the procedures of a database, for every engine.

use std::future::ready;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::batch::Work;
use super::engine::Dialect;
use super::errors::is_row_locked;
use super::hints::{Hints, Receive};
use super::locked_row::ask_while_locked;
use super::records::Records;
use super::row::{Answer, Row};
use super::wire::{SILENT_AFTER, SILENT_AFTER_MAX, Wire};
use super::{answer, call};
use crate::core::error::{Error, ErrorKind};
use crate::core::key::Key;
use crate::core::moment::WallTime;
use crate::core::token::ClientId;
use crate::core::ttl::Ttl;
use crate::core::validity::command_limit;
use crate::host::Host;
use crate::process::Process;
use crate::store::net::Home;
use crate::store::{
    Acquired, Ask, BoxAnswer, Browse, Capabilities, Claim, Evicted, Hint, HintSink, LeaseId,
    OnRelease, Page, Reach, Released, Renewal, Renewed, Revocation, Revoked, Sinks, Snapshot,
    Store, impossible_claim,
};

/// How many keys one page of a listing looks at, matching or not.
const LISTED_MAX: u32 = 10_000;

/// A store on a database. Clones share its connections.
#[derive(Clone)]
pub(in crate::store) struct SqlStore<E: Receive> {
    shared: Arc<Shared<E>>,
}

struct Shared<E: Receive> {
    /// The process that opened it. A fork copies the connections, but not the tasks that serve
    /// them.
    process: Process,
    host: Arc<dyn Host>,
    engine: E,
    dialect: Dialect,
    asks: Arc<Wire<E>>,
    renewals: Wire<E>,
    /// For renewals whose row another transaction has locked. They wait here, so no other renewal
    /// waits with them.
    late_renewals: Wire<E>,
    records: Records,
    hints: Arc<Hints<E>>,
    sinks: Arc<Sinks>,
}

impl<E: Receive> SqlStore<E> {
    /// A store that connects with its first request.
    pub(in crate::store) fn open(engine: E, host: Arc<dyn Host>) -> Self {
        let sinks = Arc::<Sinks>::default();
        let wire = |home, longest| Wire::new(Arc::clone(&host), engine.clone(), home, longest);
        let asks = Arc::new(wire(Home::Asker, SILENT_AFTER_MAX));
        let hints = Hints::new(
            Arc::clone(&host),
            engine.clone(),
            Arc::downgrade(&asks),
            Arc::clone(&sinks),
        );
        let shared = Shared {
            process: Process::this(),
            dialect: engine.dialect(),
            asks,
            // Renewals are few, and leases end while they wait.
            renewals: wire(Home::Host, SILENT_AFTER),
            late_renewals: wire(Home::Host, SILENT_AFTER),
            records: Records::new(Arc::clone(&host)),
            host,
            hints,
            sinks,
            engine,
        };
        Self { shared: Arc::new(shared) }
    }

    /// Makes sure that the server answers and has the tables.
    pub(in crate::store) async fn reach(&self) -> Result<(), Error> {
        self.shared.process.check()?;
        // One limit for the login, and one for the checks.
        let limit = 2 * self.shared.engine.connect_limit() + command_limit(Ttl::MAX);
        self.shared.asks.submit(limit, Work::Alone, "SELECT 1".to_owned()).await.map(drop)
    }
}

impl<E: Receive> Shared<E> {
    /// Submits a call now, and returns a future of its answer. The call may share a message with
    /// calls at other keys.
    fn submit<T: Send + 'static>(
        &self,
        (wire, limit): (&Wire<E>, Duration),
        key: &Key,
        sql: String,
        read: impl FnOnce(&[Row]) -> Result<T, Error> + Send + 'static,
    ) -> BoxAnswer<T> {
        let work = Work::Step(key.clone());
        self.answered(self.process.check().map(|()| wire.submit(limit, work, sql)), key, read)
    }

    /// Reads an answer about a key once it is there.
    fn answered<T: Send + 'static>(
        &self,
        answer: Result<impl Future<Output = Answer> + Send + 'static, Error>,
        key: &Key,
        read: impl FnOnce(&[Row]) -> Result<T, Error> + Send + 'static,
    ) -> BoxAnswer<T> {
        let (key, engine) = (key.clone(), self.engine.clone());
        Box::pin(async move {
            let rows = match answer {
                Ok(answer) => answer.await,
                Err(refused) => Err(refused),
            };
            let read = rows.and_then(|rows| {
                read(&rows).map_err(|error| match error.name() {
                    None => error.at(&engine.label()),
                    Some(_) => error,
                })
            });
            read.map_err(|error| error.with_name(key.as_str()))
        })
    }
}

impl<E: Receive> Shared<E> {
    fn acquire(&self, ask: Ask) -> BoxAnswer<Acquired> {
        if let Some(error) = impossible_claim(ask.claim, &ask.key) {
            return Box::pin(ready(Err(error)));
        }
        if self.process.is_this() {
            if let Some(place) = ask.line.place() {
                self.hints.listen(place.inbox);
            }
            if let Some(record) = ask.note.as_ref().and_then(|note| note.client.as_deref()) {
                self.records.write_if_due(&self.asks, &self.dialect, record);
            }
        }
        let (limit, key) = (command_limit(ask.ttl), ask.key.clone());
        let sql = call::acquire(&self.dialect, &ask, limit);
        let (sinks, hints) = (Arc::clone(&self.sinks), Arc::clone(&self.hints));
        let read = move |rows: &[Row]| {
            if let Some(holder) = answer::wanted_of(rows) {
                // A holder in this process hears of it even if it does not listen yet.
                sinks.send(&holder, Hint::Wanted { key: ask.key.clone() });
            }
            let acquired = answer::acquired(&ask, rows);
            if let (Ok(Acquired::Refused(refusal)), Some(place)) = (&acquired, ask.line.place())
                && refusal.is_taken()
            {
                hints.waits(place.waiter_ttl.get(), place.ask_no == 1);
            }
            acquired
        };
        let answer = self.submit((&self.asks, limit), &key, sql, read);
        if self.process.is_this() {
            self.records.purge_if_due(&self.asks, &self.dialect);
        }
        answer
    }
}

impl<E: Receive> Shared<E> {
    /// Renews over `wire`, unless another transaction has locked the row.
    fn renew(&self, wire: &Wire<E>, renewal: &Renewal, limit: Duration) -> BoxAnswer<Renewed> {
        let key = &renewal.lease.key;
        let Some(entry) = self.dialect.list else {
            let sql = call::renew(&self.dialect, renewal, None);
            return self.submit((wire, limit), key, sql, answer::renewed);
        };
        let work = Work::Listed(key.clone());
        let sent = self.process.check().map(|()| wire.submit(limit, work, entry(renewal)));
        self.answered(sent, key, answer::renewed)
    }

    /// Renews, and waits for the row.
    fn renew_late(&self, renewal: &Renewal, limit: Duration) -> BoxAnswer<Renewed> {
        let sql = call::renew(&self.dialect, renewal, Some(limit));
        self.submit((&self.late_renewals, limit), &renewal.lease.key, sql, answer::renewed)
    }
}

impl<E: Receive> Drop for Shared<E> {
    fn drop(&mut self) {
        self.hints.close();
    }
}

impl<E: Receive> Store for SqlStore<E> {
    fn acquire(&self, ask: Ask) -> BoxAnswer<Acquired> {
        self.shared.acquire(ask)
    }

    fn renew(&self, renewal: Renewal) -> BoxAnswer<Renewed> {
        let limit = command_limit(renewal.ttl);
        let deadline = self.shared.host.now() + limit;
        let first = self.shared.renew(&self.shared.renewals, &renewal, limit);
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            let again = || shared.renew(&shared.renewals, &renewal, limit);
            match ask_while_locked(&shared.host, limit, first, again).await {
                Err(error) if is_row_locked(&error) => shared.renew_late(&renewal, limit).await,
                // Nothing was changed. If the server has no second connection for this client, the
                // first one still works.
                Err(error) if error.kind() == ErrorKind::Unavailable => {
                    let left = deadline.since(shared.host.now());
                    if left.is_zero() {
                        Err(error)
                    } else {
                        shared.renew(&shared.asks, &renewal, left).await
                    }
                }
                renewed => renewed,
            }
        })
    }

    fn release(&self, lease: LeaseId, on_release: OnRelease) -> BoxAnswer<Released> {
        let (shared, limit) = (&self.shared, command_limit(Ttl::MAX));
        let sql = call::release(&shared.dialect, &lease, &on_release, limit);
        shared.submit((&shared.asks, limit), &lease.key, sql, answer::released)
    }

    fn inspect(&self, key: Key) -> BoxAnswer<Snapshot> {
        let (shared, limit) = (&self.shared, command_limit(Ttl::MAX));
        let sql = call::inspect(&shared.dialect, &key);
        let answer = shared.process.check().map(|()| shared.asks.submit(limit, Work::Look, sql));
        shared.answered(answer, &key, |rows| Ok(answer::snapshot(rows)))
    }

    fn watch(&self, inbox: &ClientId, sink: Weak<dyn HintSink>) {
        if self.shared.process.is_this() {
            self.shared.sinks.watch(inbox.clone(), sink);
        }
    }

    fn listen(&self, inbox: &ClientId) {
        if self.shared.process.is_this() {
            self.shared.hints.listen(inbox);
        }
    }

    fn resize(&self, key: Key, of: u32) -> BoxAnswer<Option<u32>> {
        if let Some(error) = impossible_claim(Claim::Permits { want: 1, of }, &key) {
            return Box::pin(ready(Err(error)));
        }
        let (shared, limit) = (&self.shared, command_limit(Ttl::MAX));
        let sql = call::resize(&shared.dialect, &key, of, limit);
        let of_key = key.clone();
        let read = move |rows: &[Row]| answer::resized(&of_key, of, rows);
        shared.submit((&shared.asks, limit), &key, sql, read)
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            shared: true,
            permits: true,
            fencing: true,
            line: true,
            watching: true,
            reask: true,
            detached: true,
            frees: true,
            hints: Reach::Network,
            reach: Reach::Network,
            browse: true,
            revoke: true,
            durable: true,
            ..Capabilities::NONE
        }
    }

    fn browse(&self) -> Option<&dyn Browse> {
        Some(self)
    }

    fn label(&self) -> String {
        self.shared.engine.label()
    }
}

impl<E: Receive> Browse for SqlStore<E> {
    fn list(&self, pattern: &str, cursor: Option<Key>) -> BoxAnswer<Page> {
        let shared = &self.shared;
        if let Err(refused) = shared.process.check() {
            return Box::pin(ready(Err(refused)));
        }
        let sql = call::list(&shared.dialect, pattern, cursor.as_ref(), LISTED_MAX);
        let answer = shared.asks.submit(command_limit(Ttl::MAX), Work::Alone, sql);
        Box::pin(async move { Ok(answer::page(&answer.await?)) })
    }

    fn evict(&self, key: Key, seen: Vec<u8>, reason: String) -> BoxAnswer<Evicted> {
        let (shared, limit) = (&self.shared, command_limit(Ttl::MAX));
        // A token that is no text belongs to no owner.
        let Ok(seen) = String::from_utf8(seen) else {
            return Box::pin(ready(Ok(Evicted::Changed)));
        };
        let sql = call::evict(&shared.dialect, &key, &seen, limit);
        let answer = shared.submit((&shared.asks, limit), &key, sql, answer::evicted);
        Box::pin(async move {
            let evicted = answer.await?;
            if evicted == Evicted::Evicted {
                tracing::warn!(key = %key, reason, "a lease was ended by an operator");
            }
            Ok(evicted)
        })
    }

    fn revoke(&self, key: Key, seen: Vec<u8>, by: String, reason: String) -> BoxAnswer<Revoked> {
        let (shared, limit) = (&self.shared, command_limit(Ttl::MAX));
        let Ok(seen) = String::from_utf8(seen) else {
            return Box::pin(ready(Ok(Revoked::Changed)));
        };
        // The server adds the time.
        let words = Revocation::new(by, reason, WallTime::from_unix_micros(0)).words();
        let sql = call::revoke(&shared.dialect, &key, (&seen, &words), limit);
        shared.submit((&shared.asks, limit), &key, sql, answer::revoked)
    }
}

impl<E: Receive> Drop for SqlStore<E> {
    fn drop(&mut self) {
        // After a fork, the child must not close the connections, because the parent uses them.
        if !self.shared.process.is_this() {
            std::mem::forget(Arc::clone(&self.shared));
        }
    }
}
