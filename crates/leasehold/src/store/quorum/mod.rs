//! A lock over several independent stores, of which a majority must grant it.
//!
//! As in [Redlock](https://redis.io/docs/latest/develop/use/patterns/distributed-locks/), a
//! minority of the nodes may be down, slow, or cut off. The quorum asks all nodes at the same time
//! and answers as soon as a majority decides. The other answers are read in the background. The
//! quorum releases leftover grants on the nodes, even if the caller drops its future.
//!
//! | file | what it is |
//! |---|---|
//! | `ballot` | counts the answers of the nodes to one request |
//! | `asking`, `renewing`, `leaving` | one acquire, renewal or release at all nodes |
//! | `filling` | asks a node again for a lease that it does not have |
//! | `side_by_side` | answers of several nodes, as they come |
//! | `leases` | the leases that this quorum granted |
//! | `admission` | checks that a node is a separate store |
//! | `hints` | the hints of all nodes, merged |
//! | `snapshot`, `browse` | the state that the nodes report, merged |

mod admission;
mod asking;
mod ballot;
mod browse;
mod error;
mod filling;
mod hints;
mod leases;
mod leaving;
mod node;
mod renewing;
mod side_by_side;
mod snapshot;
mod surplus;

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::{join_all, ready};
use tokio::sync::Semaphore;

use self::asking::Asking;
use self::ballot::Ballot;
use self::hints::{Gathering, NodeHints};
use self::leases::Leases;
use self::leaving::{Leaving, RETRYING_MAX};
use self::node::Node;
use self::renewing::Renewing;
use super::{
    Acquired, Ask, BoxAnswer, Browse, Capabilities, Claim, HintSink, LeaseId, Line, OnRelease,
    Reach, Released, Renewal, Renewed, Snapshot, Store, unsupported_claim,
};
use crate::core::error::{Error, ErrorKind};
use crate::core::key::Key;
use crate::core::majority::majority;
use crate::core::moment::Moment;
use crate::core::token::ClientId;
use crate::host::Host;
use crate::unpoisoned::Unpoisoned;

/// Leases that a majority of independent stores has to grant. Clones share the same quorum.
///
/// Validity windows do not overlap, whichever nodes are down, slow or cut off. A node that was
/// restarted without its data, or whose clock stepped forward, has forgotten its grants. Such nodes
/// and the nodes without the lease must together be fewer than a majority. A node that voted for
/// another client gets the lease when that vote ends. A node that was out of reach gets it with the
/// next renewal. Fencing tokens rise as long as no node's counter goes back. See *Several stores*
/// in GUARANTEES.md.
///
/// All clients must name the same nodes, in any order. Nothing checks this. A Redis node that is
/// [strict](crate::strict) notices that it has forgotten its grants. It gives no vote until all of
/// them have expired. Either all nodes are strict or none is.
///
/// Every node wakes the waiters, and a waiter then asks all nodes again. The order is usually the
/// order of arrival, but this is not promised. An even number of nodes tolerates no more failures
/// than one node less.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), leasehold::Error> {
/// use leasehold::Client;
///
/// // For instance `redis://a:6379`, `redis://b:6379`, `redis://c:6379`.
/// let client = Client::quorum(["memory:", "memory:", "memory:"]).connect().await?;
/// let guard = client.mutex("stock:42").lock().await?;
/// # Ok(()) }
/// ```
pub struct Quorum<S> {
    shared: Arc<Shared<S>>,
}

impl<S> Clone for Quorum<S> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

struct Shared<S> {
    host: Arc<dyn Host>,
    nodes: Vec<Node<S>>,
    leases: Leases,
    /// The sinks for the hints of the nodes, by client. The nodes hold weak references to them.
    sinks: Unpoisoned<HashMap<ClientId, Vec<Arc<NodeHints>>>>,
    /// The slots for retries of releases after their decisions.
    retry_slots: Semaphore,
    /// When the nodes without a vote were last tried, in nanoseconds.
    tried_at: AtomicU64,
    is_trying: AtomicBool,
}

impl<S> Shared<S> {
    fn majority(&self) -> usize {
        majority(self.nodes.len())
    }

    /// How long it usually takes until a majority has answered.
    fn round_trip(&self) -> Duration {
        let mut round_trips: Vec<_> = self.nodes.iter().map(Node::round_trip).collect();
        round_trips.sort_unstable();
        round_trips[self.majority() - 1]
    }

    /// The store of a node, if it may vote on this ballot. If not, the ballot gets the reason.
    fn voter(&self, node: usize, ballot: &mut Ballot) -> Option<&S> {
        match self.nodes[node].standing().into_vote() {
            Ok(unseen) => {
                ballot.may_be_same(node, &unseen);
                Some(&self.nodes[node].store)
            }
            Err(error) => {
                ballot.failed(node, error);
                None
            }
        }
    }

    /// The nodes among these that have no vote, and why.
    fn without_vote(&self, nodes: impl IntoIterator<Item = usize>) -> Vec<(usize, Error)> {
        let of = |node: usize| Some((node, self.nodes[node].no_vote()?));
        nodes.into_iter().filter_map(of).collect()
    }
}

/// The largest number of nodes in a quorum.
pub const NODES_MAX: usize = 15;

impl<S: Store> Quorum<S> {
    /// Connects a quorum of these stores. They must be independent. No two may be the same server,
    /// or a primary and its replica. Before a node may vote, the quorum checks this with a lease
    /// under a unique name (`leasehold:probe:…`). A minority may be out of reach. The quorum keeps
    /// trying such nodes, and they vote once they answer. Connecting does not wait for silent nodes
    /// once a majority works. Until it is known whether such a node works, a request waits for it
    /// if its vote would decide, for a quarter of the ttl or 1 s at most.
    ///
    /// # Errors
    ///
    /// [`Config`](ErrorKind::Config) for no stores, more than [`NODES_MAX`], or two that are the
    /// same; [`Unavailable`](ErrorKind::Unavailable), or the error of the nodes, if no majority
    /// could be reached. `Config`, [`Denied`](ErrorKind::Denied) or
    /// [`Unsupported`](ErrorKind::Unsupported) of a single node is an error even if a majority
    /// works, because retrying does not help. A node that is found later to be the same store as
    /// another is logged as an error and never votes. A mix of strict nodes and other nodes is an
    /// error too.
    ///
    /// # Cancel safety
    ///
    /// Leftover probe leases expire in 5 seconds.
    pub async fn connect(
        stores: impl IntoIterator<Item = S>,
        host: Arc<dyn Host>,
    ) -> Result<Self, Error> {
        let node = |store: S| {
            let label = store.label();
            Node::new(store, label)
        };
        let nodes: Vec<_> = stores.into_iter().map(node).collect();
        if nodes.is_empty() || nodes.len() > NODES_MAX {
            return Err(wrong_number(nodes.len()));
        }
        let shared = Arc::new(Shared {
            host,
            nodes,
            leases: Leases::default(),
            sinks: Unpoisoned::default(),
            retry_slots: Semaphore::new(RETRYING_MAX),
            tried_at: AtomicU64::new(Moment::default().as_nanos()),
            is_trying: AtomicBool::new(false),
        });
        shared.admit_first().await;
        let tried = (0..shared.nodes.len()).filter(|node| shared.nodes[*node].is_tried());
        let failures = shared.without_vote(tried);
        // Errors that retrying cannot fix are reported now, even if only one node has such an
        // error.
        let is_final = |(_, error): &&(usize, Error)| !error.is_retryable();
        let wrong = failures.iter().find(is_final).map(|(_, error)| error.kind());
        let reached = shared.nodes.iter().filter(|node| node.is_admitted()).count();
        if wrong.is_some() || reached < shared.majority() {
            let kind = wrong.unwrap_or(ErrorKind::Unavailable);
            return Err(error::not_connected(&shared, &failures, kind));
        }
        for (node, error) in &failures {
            // Only a warning, because the quorum works without these nodes.
            tracing::warn!(node = shared.nodes[*node].label, cause = %error, "it is out of reach");
        }
        Ok(Self { shared })
    }
}

impl<S: Store> Store for Quorum<S> {
    fn acquire(&self, ask: Ask) -> BoxAnswer<Acquired> {
        if matches!(ask.line, Line::Join { .. }) {
            return Box::pin(ready(Err(no_line(&ask.key))));
        }
        // A node may have room for a claim where the others have none, and the quorum does not
        // count permits.
        if !ask.claim.is_alone() {
            return Box::pin(ready(Err(unsupported_claim(ask.claim, &ask.key))));
        }
        self.shared.admit_if_due();
        Box::pin(Asking::submit(&self.shared, ask).decided())
    }

    fn renew(&self, renewal: Renewal) -> BoxAnswer<Renewed> {
        // Admit nodes that came back even if the client only renews.
        self.shared.admit_if_due();
        Box::pin(Renewing::submit(&self.shared, renewal).decided())
    }

    /// Frees the lease even if the client asked to keep it. Some nodes would keep it and others
    /// would not, and that would split the votes. The client asks again.
    fn release(&self, lease: LeaseId, on_release: OnRelease) -> BoxAnswer<Released> {
        let on_release = match on_release {
            OnRelease::KeepIfAlone { .. } | OnRelease::Open => OnRelease::Free,
            OnRelease::Downgrade { .. } => {
                let error = unsupported_claim(Claim::Shared, &lease.key);
                return Box::pin(ready(Err(error)));
            }
            on_release @ (OnRelease::Free | OnRelease::FreeAndWake) => on_release,
        };
        Box::pin(Leaving::submit(&self.shared, lease, on_release).decided())
    }

    fn inspect(&self, key: Key) -> BoxAnswer<Snapshot> {
        self.shared.admit_if_due();
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            shared.first_trials().await?;
            let looks = shared.nodes.iter().map(|node| match node.no_vote() {
                None => node.store.inspect(key.clone()),
                // The node's snapshot does not count as a vote, because a replica shows the leases
                // of its primary.
                Some(error) => Box::pin(ready(Err(error))),
            });
            let seen = join_all(looks).await;
            let failed = |(node, seen): (usize, &Result<_, Error>)| {
                Some((node, seen.as_ref().err()?.clone()))
            };
            let failures: Vec<_> = seen.iter().enumerate().filter_map(failed).collect();
            if seen.len() - failures.len() < shared.majority() {
                return Err(error::not_seen(&shared, &failures).with_name(key.as_str()));
            }
            let seen = shared.nodes.iter().zip(seen).map(|(node, seen)| {
                let why = |error| error::without_label(&node.label, &error).to_owned();
                (node.label.clone(), seen.map_err(why))
            });
            Ok(snapshot::merge(seen.collect()))
        })
    }

    fn watch(&self, inbox: &ClientId, sink: Weak<dyn HintSink>) {
        let shared = Arc::downgrade(&self.shared);
        let round_trip =
            move || shared.upgrade().map_or(Duration::ZERO, |shared| shared.round_trip());
        let nodes = self.shared.nodes.len();
        let gathering = Gathering::new(Arc::clone(&self.shared.host), sink, nodes, round_trip);
        let of_node = |node| Arc::new(NodeHints { node, gathering: Arc::clone(&gathering) });
        let sinks: Vec<_> = (0..nodes).map(of_node).collect();
        for (node, sink) in self.shared.nodes.iter().zip(&sinks) {
            let sink: Arc<dyn HintSink> = sink.clone();
            node.store.watch(inbox, Arc::downgrade(&sink));
        }
        let mut watching = self.shared.sinks.lock();
        watching.retain(|_, sinks| sinks.first().is_some_and(|sink| sink.gathering.is_wanted()));
        watching.insert(inbox.clone(), sinks);
    }

    fn listen(&self, inbox: &ClientId) {
        for node in &self.shared.nodes {
            node.store.listen(inbox);
        }
    }

    fn let_go(&self, lease: &LeaseId) {
        self.shared.leases.let_go(&lease.owner);
        self.shared.nodes.iter().for_each(|node| node.store.let_go(lease));
    }

    fn capabilities(&self) -> Capabilities {
        let nodes: Vec<_> =
            self.shared.nodes.iter().map(|node| node.store.capabilities()).collect();
        let all = |promised: fn(&Capabilities) -> bool| nodes.iter().all(promised);
        Capabilities {
            fencing: all(|promised| promised.fencing),
            watching: all(|promised| promised.watching),
            detached: all(|promised| promised.detached),
            frees: all(|promised| promised.frees),
            hints: nodes.iter().map(|promised| promised.hints).min().unwrap_or(Reach::Nobody),
            reach: nodes.iter().map(|promised| promised.reach).min().unwrap_or(Reach::Process),
            browse: all(|promised| promised.browse),
            revoke: all(|promised| promised.revoke),
            durable: all(|promised| promised.durable),
            // If some say yes and others no, the majority may say yes.
            strict: nodes.iter().filter_map(|promised| promised.strict).max(),
            // No `line`, because each node would hand over to its own head of the line. No `reask`,
            // because the grants of late nodes are released in the background.
            ..Capabilities::NONE
        }
    }

    fn browse(&self) -> Option<&dyn Browse> {
        self.capabilities().browse.then_some(self)
    }

    fn label(&self) -> String {
        let labels: Vec<_> = self.shared.nodes.iter().map(|node| &*node.label).collect();
        labels.join(", ")
    }
}

impl<S: Store> fmt::Debug for Quorum<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Quorum({})", self.label())
    }
}

/// The error for [`Line::Join`]. Each node would make the head of its own line the owner, and that
/// would split the votes.
fn no_line(key: &Key) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        "a quorum does not hand locks over; no request was sent; watch the lock instead",
    )
    .with_name(key.as_str())
}

fn wrong_number(nodes: usize) -> Error {
    Error::new(
        ErrorKind::Config,
        format!("a quorum must have 1 to {NODES_MAX} nodes, not {nodes}; no request was sent"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::SystemHost;

    #[test]
    fn a_round_trip_takes_until_a_majority_has_answered() {
        // the usual round trip of each node, and that of the quorum, in ms
        for (nodes, expected) in
            [(&[3][..], 3), (&[9, 1, 5], 5), (&[1, 9, 5, 7], 7), (&[1, 1, 8, 9, 9], 8)]
        {
            let node = |ms: &u64| {
                let node = Node::new((), String::new());
                node.answered_after(Duration::from_millis(*ms));
                node
            };
            let shared = Shared {
                host: SystemHost::shared(),
                nodes: nodes.iter().map(node).collect(),
                leases: Leases::default(),
                sinks: Unpoisoned::default(),
                retry_slots: Semaphore::new(RETRYING_MAX),
                tried_at: AtomicU64::new(0),
                is_trying: AtomicBool::new(false),
            };
            assert_eq!(shared.round_trip(), Duration::from_millis(expected), "{nodes:?}");
        }
    }
}
