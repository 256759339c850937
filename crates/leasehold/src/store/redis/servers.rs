//! The servers that keep the locks: one, or the nodes of a cluster.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::Either;

use super::cluster::Cluster;
use super::codec::command::Value;
use super::connector::Connector;
use super::keys::Keys;
use super::node::{Node, Way};
use super::terms::Terms;
use super::terms::copies::Reply;
use super::wire::Request;
use crate::core::error::{Error, ErrorKind};
use crate::core::key::Key;
use crate::core::token::ClientId;
use crate::host::Host;
use crate::store::sinks::Sinks;
use crate::store::{Hint, HintSink};

/// All servers of a store.
pub(super) struct Servers {
    sinks: Arc<Sinks>,
    which: Which,
    /// Whether any key was ever tracked. If not, grants need not look for tracked keys.
    has_tracked: AtomicBool,
}

enum Which {
    One(Arc<Node>),
    Cluster(Arc<Cluster>),
}

impl Servers {
    pub(super) fn new(host: &Arc<dyn Host>, connector: &Arc<dyn Connector>) -> Self {
        let sinks = Arc::<Sinks>::default();
        let which = if connector.seeds().is_empty() {
            Which::One(Node::new(host, connector, &sinks, None))
        } else {
            Which::Cluster(Cluster::new(host, connector, &sinks))
        };
        Self { sinks, which, has_tracked: AtomicBool::new(false) }
    }

    /// The lane of acquires, releases, and all other requests that must keep their order.
    pub(super) const fn asks(&self) -> Lane<'_> {
        Lane { servers: self, way: Way::Asks }
    }

    /// The lane of renewals.
    pub(super) const fn renewals(&self) -> Lane<'_> {
        Lane { servers: self, way: Way::Renewals }
    }

    /// Connects, unless there is a connection already.
    pub(super) async fn connect(&self) -> Result<(), Error> {
        match &self.which {
            Which::One(node) => node.asks.connect().await,
            Which::Cluster(cluster) => cluster.connect().await,
        }
    }

    /// Refuses terms that a cluster cannot keep.
    pub(super) fn check_terms(&self, terms: &Terms) -> Result<(), Error> {
        match (&self.which, terms.not_for_a_cluster()) {
            (Which::Cluster(_), Some(why)) => {
                Err(Error::new(ErrorKind::Unsupported, format!("{why}; no request was sent")))
            }
            _ => Ok(()),
        }
    }

    /// Refuses a name whose keys cannot be in one slot of a cluster.
    pub(super) fn check(&self, key: &Key) -> Result<(), Error> {
        match &self.which {
            Which::Cluster(_) if !Keys::of(key).one_slot() => Err(scattered(key)),
            _ => Ok(()),
        }
    }

    /// Each server that keeps locks.
    pub(super) async fn each(&self) -> Result<Vec<Arc<Node>>, Error> {
        match &self.which {
            Which::One(node) => Ok(vec![Arc::clone(node)]),
            Which::Cluster(cluster) => cluster.each().await,
        }
    }

    /// The server that keeps this lock.
    fn node_of(&self, key: &Key) -> Arc<Node> {
        match &self.which {
            Which::One(node) => Arc::clone(node),
            Which::Cluster(cluster) => cluster.node_of(key),
        }
    }

    /// A number for the server that keeps this lock.
    pub(super) fn shard(&self, key: &Key) -> u64 {
        match &self.which {
            Which::One(_) => 0,
            Which::Cluster(cluster) => cluster.shard(key),
        }
    }

    pub(super) fn watch(&self, inbox: ClientId, sink: Weak<dyn HintSink>) {
        self.sinks.watch(inbox, sink);
    }

    /// Passes a hint to a client of this process.
    pub(super) fn send(&self, inbox: &ClientId, hint: Hint) {
        self.sinks.send(inbox, hint);
    }

    /// The tag of the shard channel that a place in line should name, if any.
    pub(super) fn tag(&self, key: &Key, inbox: &ClientId) -> Option<u32> {
        match &self.which {
            Which::One(_) => None,
            Which::Cluster(cluster) => cluster.node_of(key).hints.tag(inbox),
        }
    }

    /// Subscribes to the messages for `inbox`. Every node of a cluster gets all of them.
    pub(super) fn listen(&self, inbox: &ClientId) {
        match &self.which {
            Which::One(node) => node.hints.listen(inbox),
            Which::Cluster(cluster) => cluster.listen(inbox),
        }
    }

    /// Subscribes to the messages for a waiter, at the server that keeps the lock. Subscribes also
    /// to changes of the key, if the waiter is the first one behind a holder with other client
    /// software.
    pub(super) fn await_turn(&self, key: &Key, inbox: &ClientId, behind_a_foreigner: bool) {
        let node = self.node_of(key);
        node.hints.listen(inbox);
        if behind_a_foreigner {
            self.has_tracked.store(true, Ordering::Relaxed);
            node.hints.track(key, inbox);
        }
    }

    /// Notes that a waiter of this process has got the lock.
    pub(super) fn granted(&self, key: &Key) {
        if self.has_tracked.load(Ordering::Relaxed) {
            self.node_of(key).hints.granted(key);
        }
    }
}

/// The route of requests that keep their order for each lock.
#[derive(Clone, Copy)]
pub(super) struct Lane<'a> {
    servers: &'a Servers,
    way: Way,
}

impl Lane<'_> {
    /// Like [`Wire::submit`], to the server that has the slot of the request.
    pub(super) fn submit(
        self,
        limit: Duration,
        request: Box<dyn Request>,
    ) -> impl Future<Output = Result<Value, Error>> + Send + 'static + use<> {
        let reply = self.submit_to_confirm(limit, request);
        async move { Ok(reply.await?.value) }
    }

    /// Like [`Wire::submit_to_confirm`], to the server that has the slot of the request.
    pub(super) fn submit_to_confirm(
        self,
        limit: Duration,
        request: Box<dyn Request>,
    ) -> impl Future<Output = Result<Reply, Error>> + Send + 'static + use<> {
        match &self.servers.which {
            Which::One(node) => Either::Left(node.wire(self.way).submit_to_confirm(limit, request)),
            Which::Cluster(cluster) => Either::Right(cluster.submit(self.way, limit, request)),
        }
    }

    /// Whether one request may read keys of several slots.
    pub(super) const fn has_all_slots(self) -> bool {
        matches!(self.servers.which, Which::One(_))
    }
}

fn scattered(key: &Key) -> Error {
    Error::new(
        ErrorKind::Config,
        "a cluster cannot keep the parts of this lock together: the name has a `}` that does not \
         end a hash tag such as `{user:1}`; no request was sent; choose a name without braces",
    )
    .with_name(key.as_str())
}
