//! Leases on a Redis or Valkey server, or on a cluster.
//!
//! A lock is a string key that holds an owner token and has an expiry. Most other clients use the
//! same recipe, so they and Leasehold exclude each other. Everything else is in companion keys: the
//! line, the fencing counter, and details about the holder.
//!
//! The server's clock counts. If it jumps, the end of every lease moves. See GUARANTEES.md.

#[cfg(feature = "redis-crate")]
mod application;
mod browse;
mod cluster;
mod codec;
mod connect;
mod connector;
mod error;
pub(crate) mod examine;
mod hints;
mod keys;
mod node;
mod options;
mod place;
mod records;
mod scripts;
mod sentinel;
mod servers;
mod shared;
pub(crate) mod switch;
pub(crate) mod terms;
mod url;
mod wire;

use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::ready;

#[cfg(feature = "redis-crate")]
pub use application::ApplicationConnector;
#[cfg(fuzzing)]
pub use codec::fuzz_codec;
pub use connect::RedisConnector;
pub use connector::{Access, Connector, Opening, Stream};
pub use terms::{Copies, Replicas, Strict, Strictness, Terms};

use self::connector::Settling;
use self::records::Records;
use self::scripts::native;
use self::scripts::reply::{self, Set};
use self::scripts::scripted::Scripted;
use self::scripts::step::Step;
use self::servers::Servers;
use self::terms::copies::{Reply, Spent};
use self::terms::no_line;
use super::{
    Acquired, Afterwards, Ask, BoxAnswer, Browse, Capabilities, Claim, Hint, HintSink, LeaseId,
    Line, OnRelease, Reach, Refusal, Released, Renewal, Renewed, Snapshot, Store, Why,
    impossible_claim, unsupported_claim,
};
use crate::core::error::Error;
use crate::core::key::Key;
use crate::core::token::ClientId;
use crate::core::validity::command_limit;
use crate::host::Host;
use crate::process::Process;

/// How many requests to one server may wait for an answer. Further ones are refused.
const IN_FLIGHT_MAX: usize = 65_536;

/// The time limit of requests that have no ttl.
const LIMIT: Duration = Duration::from_secs(1);

/// Leases on one Redis or Valkey server, or on a cluster of them. Clones share its connections.
///
/// Acquires and releases share one connection and keep their order, so a release arrives before the
/// client's next request for that key. Renewals have a second connection, which the first renewal
/// opens. It is served by a thread that no user task can block. Hints arrive on a third connection,
/// opened for the first waiter. On a cluster, each node that keeps locks of this client has
/// connections of its own.
///
/// ```no_run
/// # async fn run() -> Result<(), leasehold::Error> {
/// use leasehold::Client;
/// use leasehold::host::SystemHost;
/// use leasehold::store::RedisStore;
///
/// // What `Client::connect` does with such a URL.
/// let store = RedisStore::connect("redis://localhost:6379/0", SystemHost::shared()).await?;
/// let client = Client::with_store(store).namespace("shop").connect().await?;
/// let guard = client.mutex("stock:42").lock().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct RedisStore {
    shared: Arc<Shared>,
}

struct Shared {
    /// The process that opened the store. After a fork, the child shares the connections of its
    /// parent.
    process: Process,
    host: Arc<dyn Host>,
    label: String,
    access: Access,
    servers: Servers,
    records: Records,
    spent: Spent,
    /// Whether the missing right to publish was logged.
    told_of_mute: AtomicBool,
}

impl RedisStore {
    /// Connects to the server at `url`, which [`RedisConnector`] describes.
    ///
    /// # Errors
    ///
    /// [`Config`](crate::ErrorKind::Config) for an invalid URL or a missing database,
    /// [`Unsupported`](crate::ErrorKind::Unsupported) for a server that cannot keep locks,
    /// [`Denied`](crate::ErrorKind::Denied) for wrong credentials,
    /// [`Unavailable`](crate::ErrorKind::Unavailable) if the server could not be reached.
    ///
    /// # Cancel safety
    ///
    /// Nothing is left behind.
    pub async fn connect(url: &str, host: Arc<dyn Host>) -> Result<Self, Error> {
        Self::connect_with(RedisConnector::new(url)?, host).await
    }

    /// Like [`connect`](Self::connect), with your own connector.
    ///
    /// # Errors
    ///
    /// The errors of the connector.
    ///
    /// # Cancel safety
    ///
    /// Nothing is left behind.
    pub async fn connect_with(
        connector: impl Connector,
        host: Arc<dyn Host>,
    ) -> Result<Self, Error> {
        let store = Self::open(connector, host);
        store.reach().await?;
        Ok(store)
    }

    /// Creates a store that connects with its first request, with your own connector. The server
    /// may be down at first, for example as a node of a [`Quorum`](crate::store::Quorum).
    ///
    /// If the database decides whether the client is strict ([`Strictness::AsDatabase`]), the store
    /// does not know it before it connects. Until then it promises no line. A request that strict
    /// mode does not allow is then refused when the connection is made.
    pub fn open(connector: impl Connector, host: Arc<dyn Host>) -> Self {
        let connector: Arc<dyn Connector> = Arc::new(Settling::new(Arc::new(connector)));
        let shared = Shared {
            process: Process::this(),
            label: connector.label(),
            access: connector.access(),
            servers: Servers::new(&host, &connector),
            records: Records::new(Arc::clone(&host)),
            host,
            told_of_mute: AtomicBool::new(false),
            spent: Spent::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Connects, unless there is a connection already.
    pub(crate) async fn reach(&self) -> Result<(), Error> {
        self.shared.servers.check_terms(&self.shared.access.terms)?;
        self.shared.servers.connect().await
    }
}

impl RedisStore {
    /// Asks for a lock without companion keys.
    fn acquire_plain(&self, ask: Ask, terms: Terms) -> BoxAnswer<Acquired> {
        let shared = Arc::clone(&self.shared);
        let limit = command_limit(ask.ttl);
        if let Some(client) = ask.note.as_ref().and_then(|note| note.client.as_ref()) {
            shared.records.write_if_due(client, ask.ttl, shared.servers.asks());
        }
        let ask = Ask { note: None, line: Line::None, ..ask };
        let request = Scripted::new(Step::Acquire(ask.clone())).on(&terms);
        let reply = shared.servers.asks().submit_to_confirm(limit, request);
        Box::pin(async move {
            let key = ask.key.clone();
            let named = |error: Error| error.with_name(key.as_str());
            let mut reply = reply.await.map_err(named)?;
            let lease = ask.lease();
            match reply::set(&ask.owner, &reply.value) {
                Set::Done => {
                    let granted = Acquired::Granted { fencing: None };
                    return shared.confirmed(granted, reply.confirmed, lease, limit).await;
                }
                Set::Taken => return Ok(Refusal::taken(None, 0).into()),
                // The command did not change the key. A repeated request must restart the whole
                // ttl, so ask in another way.
                Set::Before => {
                    let again = Scripted::new(Step::Acquire(ask)).again().on(&terms);
                    let again = shared.servers.asks().submit_to_confirm(limit, again);
                    reply = again.await.map_err(named)?;
                }
                Set::Scripted => {}
            }
            let Reply { value, confirmed } = reply;
            let answer = match native::renewed(&value) {
                Some(true) => Acquired::Granted { fencing: None },
                // The lease ended between the two requests.
                Some(false) => Refusal::taken(None, 0).into(),
                None => reply::acquired(&key, Claim::Plain, &value)?.answer,
            };
            shared.confirmed(answer, confirmed, lease, limit).await
        })
    }
}

impl Store for RedisStore {
    fn acquire(&self, ask: Ask) -> BoxAnswer<Acquired> {
        // A probe of a quorum uses a new name, which nobody can have held before the server forgot
        // its data. Such a request needs no terms.
        let terms = if ask.key.is_probe() { Terms::default() } else { self.shared.terms() };
        // If the store does not know yet whether it is strict, its connection decides.
        let never_hands_over = terms.strict.strict().is_some() || !terms.copies.hand_over();
        let refused = match (&ask.line, never_hands_over) {
            (Line::Join { .. }, true) => Err(no_line(&ask.key)),
            _ => terms.allow(ask.ttl, &ask.key),
        };
        let refused = self.shared.check_here(&ask.key).and(refused);
        if let Err(refused) = refused {
            return Box::pin(ready(Err(refused)));
        }
        if terms.copies.is_any()
            && let Some(spent) = self.shared.spent.look(&ask.key, &ask.owner)
        {
            let refusal = Refusal::too_few_copies(spent).at_once();
            let refusal = refusal.with_token(Afterwards::Leave);
            return Box::pin(ready(Ok(refusal.into())));
        }
        let claim = ask.claim;
        if claim == Claim::Plain {
            return self.acquire_plain(ask, terms);
        }
        let impossible = impossible_claim(claim, &ask.key);
        // A hand-over is part of sharing, because a holder that leaves lets others in.
        let refused = if !claim.is_alone() && never_hands_over {
            Some(unsupported_claim(claim, &ask.key))
        } else {
            impossible
        };
        if let Some(refused) = refused {
            return Box::pin(ready(Err(refused)));
        }
        let shared = Arc::clone(&self.shared);
        if let Some(client) = ask.note.as_ref().and_then(|note| note.client.as_ref()) {
            shared.records.write_if_due(client, ask.ttl, shared.servers.asks());
        }
        let key = ask.key.clone();
        let inbox = ask.line.place().map(|place| place.inbox.clone());
        let limit = command_limit(ask.ttl);
        let lease = ask.lease();
        let tag = inbox.as_ref().and_then(|inbox| shared.servers.tag(&key, inbox));
        let request = Scripted::new(Step::Acquire(ask)).on(&terms).heard_at(tag);
        let reply = shared.servers.asks().submit_to_confirm(limit, request);
        Box::pin(async move {
            let reply = reply.await.map_err(|error| error.with_name(key.as_str()))?;
            let mut answered = reply::acquired(&key, claim, &reply.value)?;
            answered.answer =
                shared.confirmed(answered.answer, reply.confirmed, lease, limit).await?;
            if let (Acquired::Refused(Refusal { why: Why::Taken, .. }), Some(inbox)) =
                (&answered.answer, &inbox)
            {
                let behind_a_foreigner = answered.is_first_behind_a_foreigner;
                shared.servers.await_turn(&key, inbox, behind_a_foreigner);
            }
            shared.notice_muteness(answered.hints_denied);
            if let Some(holder) = &answered.holder {
                shared.servers.send(holder, Hint::Wanted { key });
            }
            Ok(answered.answer)
        })
    }

    fn renew(&self, renewal: Renewal) -> BoxAnswer<Renewed> {
        let shared = &self.shared;
        let key = &renewal.lease.key;
        let refused = shared.check_here(key).and_then(|()| shared.terms().allow(renewal.ttl, key));
        if let Err(refused) = refused {
            return Box::pin(ready(Err(refused)));
        }
        // The release of this lease is on its way over another connection, and may arrive at any
        // time.
        if shared.access.terms.copies.is_any()
            && shared.spent.look(key, &renewal.lease.owner).is_some()
        {
            return Box::pin(ready(Ok(Renewed::Lost)));
        }
        shared.records.refresh_if_due(&renewal.lease.owner, renewal.ttl, shared.servers.renewals());
        let LeaseId { key, owner, claim } = renewal.lease.clone();
        let is_plain = claim == Claim::Plain;
        let shared = Arc::clone(shared);
        let limit = command_limit(renewal.ttl);
        let request = Scripted::new(Step::Renew(renewal)).on(&shared.access.terms);
        let reply = shared.servers.renewals().submit_to_confirm(limit, request);
        Box::pin(async move {
            let named = |error: Error| error.with_name(key.as_str());
            let Reply { value, confirmed } = reply.await.map_err(named)?;
            let renewed = match native::renewed(&value).filter(|_| is_plain) {
                Some(true) => Renewed::Renewed {
                    fencing: None,
                    raised_from: None,
                    wanted: false,
                    revoked: None,
                },
                Some(false) => Renewed::Lost,
                None => reply::renewed(&key, &value)?,
            };
            if renewed == Renewed::Lost {
                shared.records.doubt(&owner);
            } else {
                confirmed.map_err(|shortfall| named(shortfall.renewed()))?;
            }
            Ok(match renewed {
                // There is no note about such a lease. If other clients left a counter, the script
                // takes its last token for the token of this lease.
                Renewed::Renewed { wanted, revoked, .. } if is_plain => {
                    Renewed::Renewed { fencing: None, raised_from: None, wanted, revoked }
                }
                renewed => renewed,
            })
        })
    }

    fn release(&self, lease: LeaseId, on_release: OnRelease) -> BoxAnswer<Released> {
        let shared = Arc::clone(&self.shared);
        let key = lease.key.clone();
        let refused = shared.check_here(&key).and_then(|()| match &on_release {
            OnRelease::KeepIfAlone { ttl, .. } => shared.terms().allow(*ttl, &key),
            OnRelease::Downgrade { .. } if !shared.terms().hand_over() => {
                Err(unsupported_claim(Claim::Shared, &key))
            }
            _ => Ok(()),
        });
        if let Err(refused) = refused {
            return Box::pin(ready(Err(refused)));
        }
        let step = Scripted::new(Step::Release(lease, on_release)).on(&shared.access.terms);
        let reply = shared.servers.asks().submit_to_confirm(LIMIT, step);
        Box::pin(async move {
            let named = |error: Error| error.with_name(key.as_str());
            let Reply { value, confirmed } = reply.await.map_err(named)?;
            let answered = reply::released(&key, &value)?;
            if let Released::Kept { .. } = &answered.answer {
                confirmed.map_err(|shortfall| named(shortfall.kept()))?;
            }
            shared.notice_muteness(answered.hints_denied);
            Ok(answered.answer)
        })
    }

    fn inspect(&self, key: Key) -> BoxAnswer<Snapshot> {
        let shared = Arc::clone(&self.shared);
        if let Err(refused) = shared.check_here(&key) {
            return Box::pin(ready(Err(refused)));
        }
        let step = Step::Inspect(key.clone());
        let deadline = shared.host.now() + LIMIT;
        let answer = shared.servers.asks().submit(LIMIT, Scripted::new(step));
        let quarantine = shared.quarantine();
        Box::pin(async move {
            let named = |error: Error| error.with_name(key.as_str());
            let mut snapshot = reply::inspected(&key, &answer.await.map_err(named)?)?;
            snapshot.quarantine = quarantine.await.map_err(named)?;
            let left = deadline.since(shared.host.now());
            shared.records.fill_in(&mut snapshot, shared.servers.asks(), left).await;
            Ok(snapshot)
        })
    }

    fn watch(&self, inbox: &ClientId, sink: Weak<dyn HintSink>) {
        if self.shared.process.is_this() {
            self.shared.servers.watch(inbox.clone(), sink);
        }
    }

    fn listen(&self, inbox: &ClientId) {
        if self.shared.process.is_this() {
            self.shared.servers.listen(inbox);
        }
    }

    fn tell_when_free(&self, key: &Key, inbox: &ClientId) {
        if self.shared.process.is_this() {
            // A holder without a line tells nobody, like a holder with other client software.
            self.shared.servers.await_turn(key, inbox, true);
        }
    }

    fn shard(&self, key: &Key) -> u64 {
        self.shared.servers.shard(key)
    }

    fn resize(&self, key: Key, of: u32) -> BoxAnswer<Option<u32>> {
        let shared = Arc::clone(&self.shared);
        let claim = Claim::Permits { want: 1, of };
        let refused = shared.check_here(&key).and_then(|()| {
            let impossible = impossible_claim(claim, &key);
            let can_share = shared.terms().hand_over();
            let refused =
                impossible.or_else(|| (!can_share).then(|| unsupported_claim(claim, &key)));
            refused.map_or(Ok(()), Err)
        });
        if let Err(refused) = refused {
            return Box::pin(ready(Err(refused)));
        }
        let step = Scripted::new(Step::Resize { key: key.clone(), of });
        let answer = shared.servers.asks().submit(LIMIT, step.on(&shared.access.terms));
        Box::pin(async move {
            let answer = answer.await.map_err(|error| error.with_name(key.as_str()))?;
            let answered = reply::resized(&key, claim, &answer)?;
            shared.notice_muteness(answered.hints_denied);
            Ok(answered.answer)
        })
    }

    fn capabilities(&self) -> Capabilities {
        let terms = self.shared.terms();
        Capabilities {
            shared: terms.hand_over(),
            permits: terms.hand_over(),
            fencing: true,
            line: terms.hand_over(),
            watching: true,
            opens: terms.hand_over(),
            reask: !terms.copies.is_any(),
            detached: true,
            frees: true,
            hints: Reach::Network,
            reach: Reach::Network,
            browse: true,
            revoke: true,
            durable: true,
            strict: match terms.strict {
                Strictness::AsDatabase => None,
                Strictness::No => Some(false),
                Strictness::Yes(_) => Some(true),
            },
            ..Capabilities::NONE
        }
    }

    fn browse(&self) -> Option<&dyn Browse> {
        Some(self)
    }

    fn label(&self) -> String {
        self.shared.label.clone()
    }
}

impl Drop for RedisStore {
    fn drop(&mut self) {
        // After a fork, the child must not close the connections, because the parent uses them.
        if !self.shared.process.is_this() {
            std::mem::forget(Arc::clone(&self.shared));
        }
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedisStore({})", self.shared.label)
    }
}
