//! Leases in tables of a PostgreSQL server.
//!
//! A step is one call of a function in the database, so one message, one transaction and one round
//! trip. The row of the key orders the steps. Time is the clock of the server.
//!
//! | file | purpose |
//! |---|---|
//! | `sql/` | the tables, and the functions that are the steps |
//! | `schema` | the migration that makes them |
//! | `url`, `connect`, `link` | how a connection is made, and which servers are refused |
//! | `wire` | sends requests in order, and connects again |
//! | `hints` | receives messages of the server |
//! | `call`, `answer` | requests as SQL, and rows as answers |
//! | `error` | what the errors of a server mean |

mod answer;
mod call;
mod connect;
mod error;
pub(crate) mod examine;
mod hints;
mod link;
mod records;
mod schema;
mod text;
mod url;
mod wire;

use std::fmt;
use std::future::{Future, ready};
use std::sync::{Arc, Weak};
use std::time::Duration;

pub use self::connect::PostgresConnector;
use self::hints::Hints;
use self::link::Row;
use self::records::Records;
pub use self::schema::{Migrated, migrate};
use self::wire::Wire;
use super::net::Home;
pub use super::net::{Opening, Stream};
use super::sinks::Sinks;
use super::{
    Acquired, Ask, BoxAnswer, Browse, Capabilities, Claim, Evicted, Hint, HintSink, LeaseId,
    OnRelease, Page, Reach, Released, Renewal, Renewed, Revocation, Revoked, Snapshot, Store,
    impossible_claim,
};
use crate::core::error::Error;
use crate::core::key::Key;
use crate::core::moment::WallTime;
use crate::core::token::ClientId;
use crate::core::ttl::Ttl;
use crate::core::validity::command_limit;
use crate::host::Host;
use crate::process::Process;

/// How many keys one page of a listing looks at, matching or not.
const LISTED_MAX: u32 = 10_000;

/// A store in a schema of a PostgreSQL database, version 13 or newer.
///
/// [`migrate`] makes its tables, once. Clones share the connections: one for requests, one for
/// renewals, and one for hints, each opened when it is first used. The locks reach every client of
/// the database, and outlive its restarts. The clock of the server decides when a lease ends.
#[derive(Clone)]
pub struct PostgresStore {
    shared: Arc<Shared>,
}

struct Shared {
    /// The process that opened it. A fork copies the connections, but not the tasks that serve
    /// them.
    process: Process,
    connector: PostgresConnector,
    /// The name of the schema, quoted.
    schema: String,
    asks: Wire,
    renewals: Wire,
    records: Records,
    hints: Arc<Hints>,
    sinks: Arc<Sinks>,
}

impl PostgresStore {
    /// A store that connects with its first request.
    #[must_use]
    pub fn open(connector: PostgresConnector, host: Arc<dyn Host>) -> Self {
        let sinks = Arc::<Sinks>::default();
        let wire = |home| Wire::new(Arc::clone(&host), connector.clone(), home);
        let schema = format!("\"{}\"", connector.address.schema.replace('"', "\"\""));
        let shared = Shared {
            process: Process::this(),
            schema,
            asks: wire(Home::Asker),
            renewals: wire(Home::Host),
            records: Records::new(Arc::clone(&host)),
            hints: Hints::new(Arc::clone(&host), connector.clone(), Arc::clone(&sinks)),
            sinks,
            connector,
        };
        Self { shared: Arc::new(shared) }
    }

    /// Connects to the server of a connector.
    ///
    /// # Errors
    ///
    /// - [`Config`](crate::ErrorKind::Config) if the tables are missing, or the server cannot keep
    ///   locks.
    /// - [`Denied`](crate::ErrorKind::Denied) for a wrong password or a missing right.
    /// - [`Unavailable`](crate::ErrorKind::Unavailable) if the server cannot be reached.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future opens no store, and changes nothing in the database.
    pub async fn connect_with(
        connector: PostgresConnector,
        host: Arc<dyn Host>,
    ) -> Result<Self, Error> {
        let store = Self::open(connector, host);
        store.reach().await?;
        Ok(store)
    }

    /// Makes sure that the server answers and has the tables.
    pub(crate) async fn reach(&self) -> Result<(), Error> {
        self.shared.process.check()?;
        let limit = self.shared.connector.address.connect_limit + command_limit(Ttl::MAX);
        self.shared.asks.submit(limit, "SELECT 1".to_owned()).await.map(drop)
    }
}

impl Shared {
    /// Submits a call now, and returns a future of its answer.
    fn submit<T: Send + 'static>(
        &self,
        (wire, limit): (&Wire, Duration),
        key: &Key,
        sql: String,
        read: impl FnOnce(&[Row]) -> Result<T, Error> + Send + 'static,
    ) -> BoxAnswer<T> {
        let answer = self.process.check().map(|()| wire.submit(limit, sql));
        let (key, connector) = (key.clone(), self.connector.clone());
        Box::pin(async move {
            let rows = match answer {
                Ok(answer) => answer.await,
                Err(refused) => Err(refused),
            };
            let read = rows.and_then(|rows| {
                read(&rows).map_err(|error| match error.name() {
                    None => error.at(&connector.label()),
                    Some(_) => error,
                })
            });
            read.map_err(|error| error.with_name(key.as_str()))
        })
    }
}

impl Shared {
    fn acquire(&self, ask: Ask) -> BoxAnswer<Acquired> {
        if let Some(error) = impossible_claim(ask.claim, &ask.key) {
            return Box::pin(ready(Err(error)));
        }
        if self.process.is_this() {
            if let Some(place) = ask.line.place() {
                self.hints.listen(place.inbox);
            }
            if let Some(record) = ask.note.as_ref().and_then(|note| note.client.as_deref()) {
                self.records.write_if_due(&self.asks, &self.schema, record);
            }
        }
        let (limit, key) = (command_limit(ask.ttl), ask.key.clone());
        let sql = call::acquire(&self.schema, &ask, limit);
        let sinks = Arc::clone(&self.sinks);
        let read = move |rows: &[Row]| {
            if let Some(holder) = answer::wanted_of(rows) {
                // A holder in this process hears of it even if it does not listen yet.
                sinks.send(&holder, Hint::Wanted { key: ask.key.clone() });
            }
            answer::acquired(&ask, rows)
        };
        let answer = self.submit((&self.asks, limit), &key, sql, read);
        if self.process.is_this() {
            self.records.purge_if_due(&self.asks, &self.schema);
        }
        answer
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.hints.close();
    }
}

impl Store for PostgresStore {
    fn acquire(&self, ask: Ask) -> impl Future<Output = Result<Acquired, Error>> + Send + 'static {
        self.shared.acquire(ask)
    }

    fn renew(
        &self,
        renewal: Renewal,
    ) -> impl Future<Output = Result<Renewed, Error>> + Send + 'static {
        let (shared, limit) = (&self.shared, command_limit(renewal.ttl));
        let sql = call::renew(&shared.schema, &renewal, limit);
        shared.submit((&shared.renewals, limit), &renewal.lease.key, sql, answer::renewed)
    }

    fn release(
        &self,
        lease: LeaseId,
        on_release: OnRelease,
    ) -> impl Future<Output = Result<Released, Error>> + Send + 'static {
        let (shared, limit) = (&self.shared, command_limit(Ttl::MAX));
        let sql = call::release(&shared.schema, &lease, &on_release, limit);
        shared.submit((&shared.asks, limit), &lease.key, sql, answer::released)
    }

    fn inspect(&self, key: Key) -> impl Future<Output = Result<Snapshot, Error>> + Send + 'static {
        let (shared, limit) = (&self.shared, command_limit(Ttl::MAX));
        let sql = call::inspect(&shared.schema, &key);
        shared.submit((&shared.asks, limit), &key, sql, |rows| Ok(answer::snapshot(rows)))
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
        let sql = call::resize(&shared.schema, &key, of, limit);
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
        self.shared.connector.label()
    }
}

impl Browse for PostgresStore {
    fn list(&self, pattern: &str, cursor: Option<Key>) -> BoxAnswer<Page> {
        let shared = &self.shared;
        if let Err(refused) = shared.process.check() {
            return Box::pin(ready(Err(refused)));
        }
        let sql = call::list(&shared.schema, pattern, cursor.as_ref(), LISTED_MAX);
        let answer = shared.asks.submit(command_limit(Ttl::MAX), sql);
        Box::pin(async move { Ok(answer::page(&answer.await?)) })
    }

    fn evict(&self, key: Key, seen: Vec<u8>, reason: String) -> BoxAnswer<Evicted> {
        let (shared, limit) = (&self.shared, command_limit(Ttl::MAX));
        // No owner of ours has another token.
        let Ok(seen) = String::from_utf8(seen) else {
            return Box::pin(ready(Ok(Evicted::Changed)));
        };
        let sql = call::evict(&shared.schema, &key, &seen, limit);
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
        let sql = call::revoke(&shared.schema, &key, (&seen, &words), limit);
        shared.submit((&shared.asks, limit), &key, sql, answer::revoked)
    }
}

impl Drop for PostgresStore {
    fn drop(&mut self) {
        // Closing the connections of a forked copy would close those of the original.
        if !self.shared.process.is_this() {
            std::mem::forget(Arc::clone(&self.shared));
        }
    }
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PostgresStore({})", self.shared.connector.label())
    }
}
