//! A cluster: sends each request to the node that has the slot of its lock.
//!
//! | a node answers | the request | the map |
//! |---|---|---|
//! | `MOVED` | goes to the named node at once | the slot has moved; all of it is read again |
//! | `ASK` | goes to the named node, behind `ASKING` | stays |
//! | `TRYAGAIN` | pauses, and goes to the node of its slot | stays |
//! | `MOVED` or `ASK` without an address | pauses, and goes to the node of its slot | is read again |
//! | `CLUSTERDOWN`, `READONLY`, `LOADING` | is refused | is read again |
//!
//! No node has done anything in these cases, so no request takes effect twice. A request is sent
//! again only within its limit.
//!
//! Requests for one lock keep their order, see [`order`].
//!
//! Source: <https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/>

mod journey;
pub(super) mod map;
mod order;
mod reading;

use std::collections::HashMap;
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::Either;
use tokio::sync::Notify;

use self::journey::{Journey, Routed};
use self::map::Map;
use self::order::{Queue, UnderWay};
use self::reading::{READ_EVERY, Reading};
use super::connector::Connector;
use super::keys::slot;
use super::node::{Node, Way};
use super::place::Place;
use super::terms::copies::Reply;
use super::wire::{Request, Subject};
use crate::core::error::Error;
use crate::core::key::Key;
use crate::core::moment::Moment;
use crate::core::token::ClientId;
use crate::host::Host;
use crate::store::sinks::Sinks;
use crate::unpoisoned::Unpoisoned;

/// A queue of requests that are sent in the order of their calls: those about one lock, sent one
/// way.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Lane {
    way: Way,
    subject: Subject,
}

pub(super) struct Cluster {
    host: Arc<dyn Host>,
    connector: Arc<dyn Connector>,
    sinks: Arc<Sinks>,
    /// Lock this before a wire, never after one.
    state: Unpoisoned<State>,
    /// The innermost lock. While it is held, nothing else is locked and nothing is dropped.
    under_way: Unpoisoned<HashMap<Lane, UnderWay>>,
    /// The reading of the map that is under way.
    reading: Unpoisoned<Option<Reading>>,
    /// Tells the task that reads the map that the map may be wrong, or that this cluster is
    /// dropped.
    stale: Arc<Notify>,
    /// Tells that task of the first request since the map was read.
    in_use: Arc<Notify>,
    watched: OnceLock<()>,
    /// How many nodes this client has ever known.
    met: AtomicU64,
}

struct State {
    map: Map,
    /// The nodes of the map, in its order.
    members: Vec<Member>,
    /// The epoch of the map.
    epoch: u64,
    read: Option<Moment>,
    /// The number of the node that is asked for the map first.
    first: usize,
    /// Whether a request was made since the map was read.
    used: bool,
    queues: HashMap<Lane, Queue>,
}

/// A node at its place.
#[derive(Clone)]
struct Member {
    place: Arc<Place>,
    node: Arc<Node>,
    /// Differs from that of every other node.
    number: u64,
}

impl Cluster {
    pub(super) fn new(
        host: &Arc<dyn Host>,
        connector: &Arc<dyn Connector>,
        sinks: &Arc<Sinks>,
    ) -> Arc<Self> {
        let cluster = Self {
            host: Arc::clone(host),
            connector: Arc::clone(connector),
            sinks: Arc::clone(sinks),
            state: Unpoisoned::new(State {
                map: Map::of_seeds(connector.seeds()),
                members: Vec::new(),
                epoch: 0,
                read: None,
                first: 0,
                used: false,
                queues: HashMap::new(),
            }),
            under_way: Unpoisoned::default(),
            reading: Unpoisoned::default(),
            stale: Arc::new(Notify::new()),
            in_use: Arc::new(Notify::new()),
            watched: OnceLock::new(),
            met: AtomicU64::new(0),
        };
        let mut state = cluster.state.lock();
        let places = state.map.places().to_vec();
        state.members = places.into_iter().map(|place| cluster.member(place)).collect();
        drop(state);
        Arc::new(cluster)
    }

    /// Reads the map, unless it is known.
    pub(super) async fn connect(self: &Arc<Self>) -> Result<(), Error> {
        self.watch_over();
        if self.state.lock().read.is_some() {
            return Ok(());
        }
        self.read(Way::Asks).await
    }

    /// Sends a request before this returns, as [`Wire`](super::wire::Wire) does.
    pub(super) fn submit(
        self: &Arc<Self>,
        way: Way,
        limit: Duration,
        request: Box<dyn Request>,
    ) -> impl Future<Output = Result<Reply, Error>> + Send + 'static + use<> {
        self.watch_over();
        let lane = request.subject().map(|subject| Lane { way, subject });
        let (owner, waits) = self.choose(lane.as_ref());
        let node = Arc::clone(&owner.node);
        let deadline = self.host.now() + limit;
        let journey = Journey::new(self, (way, lane.clone()), deadline, request, owner);
        let journey = Arc::new(journey);
        let routed = Box::new(Routed(Arc::clone(&journey)));
        let reply = match lane.filter(|_| waits) {
            Some(lane) => {
                let (answering, reply) = node.wire(way).submit_later(limit, routed);
                if let Some(answering) = answering {
                    self.hold(lane, journey, answering);
                }
                Either::Left(reply)
            }
            None => {
                journey.departs();
                Either::Right(node.wire(way).submit_to_confirm(limit, routed))
            }
        };
        let stale = Arc::clone(&self.stale);
        async move {
            let reply = reply.await;
            if reply.as_ref().is_err_and(Error::is_retryable) {
                stale.notify_one();
            }
            reply
        }
    }

    /// Chooses the node for the next request. Returns it, and whether the request must wait for
    /// earlier ones. Notes that the map is in use.
    fn choose(&self, lane: Option<&Lane>) -> (Member, bool) {
        let mut state = self.state.lock();
        if !mem::replace(&mut state.used, true) {
            // Nobody watched the map while it was not used. Meanwhile another node may have been
            // the primary, granted locks, and become a replica again.
            let now = self.host.now();
            if state.read.is_none_or(|read| now.since(read) > READ_EVERY) {
                state.members.iter().for_each(Member::forget_counters);
                self.stale.notify_one();
            }
            self.in_use.notify_one();
        }
        let Some(lane) = lane else { return (state.anybody(), false) };
        let owner = state.owner(lane.subject.slot);
        let waits = state.queues.contains_key(lane) || self.is_alone(lane);
        drop(state);
        let waits = waits || !self.elsewhere(lane, &owner).is_empty();
        (owner, waits)
    }

    /// Notes that the slot is at this place now.
    fn assign(&self, state: &mut State, slot: u16, place: &Place) {
        let before = state.map.owner(slot);
        if before.is_some_and(|before| state.map.places()[before] == *place) {
            return;
        }
        // The counters of the slot may change without this node from now on.
        if let Some(before) = before.and_then(|before| state.members.get(before)) {
            before.forget_counters();
        }
        if let Some(owner) = self.find(state, place.clone())
            && let Some(number) = state.map.number_of(place.clone())
        {
            // This node may have had the slot before.
            owner.forget_counters();
            state.map.assign(slot, usize::from(number));
        }
    }

    /// The node at this place. `None` if there are too many nodes.
    fn find(&self, state: &mut State, place: Place) -> Option<Member> {
        if let Some(known) = state.members.iter().find(|known| *known.place == place) {
            return Some(known.clone());
        }
        // Make the node first, because that runs foreign code. The map and the members then change
        // together.
        let member = self.member(place.clone());
        state.map.number_of(place)?;
        state.members.push(member.clone());
        Some(member)
    }

    /// A node at a place that was not known before.
    fn member(&self, place: Place) -> Member {
        let (host, port) = &place;
        let connector = self.connector.node(host, *port);
        let connector = connector.unwrap_or_else(|| Arc::clone(&self.connector));
        let stale = Some(Arc::clone(&self.stale));
        let node = Node::new(&self.host, &connector, &self.sinks, stale);
        let number = self.met.fetch_add(1, Ordering::Relaxed);
        Member { place: Arc::new(place), node, number }
    }

    /// The primaries.
    pub(super) async fn each(self: &Arc<Self>) -> Result<Vec<Arc<Node>>, Error> {
        self.connect().await?;
        Ok(self.state.lock().members.iter().map(|member| Arc::clone(&member.node)).collect())
    }

    /// The node that has the slot of this lock, as far as is known.
    pub(super) fn node_of(&self, key: &Key) -> Arc<Node> {
        self.state.lock().owner(slot(key.as_str())).node
    }

    /// The number of the node that has the slot of this lock. It stays when the map is read again.
    pub(super) fn shard(&self, key: &Key) -> u64 {
        self.state.lock().owner(slot(key.as_str())).number
    }

    /// Subscribes to the messages for `inbox` at any one node, since each node gets all of them.
    pub(super) fn listen(&self, inbox: &ClientId) {
        let state = self.state.lock();
        let listens = state.members.iter().any(|member| member.node.hints.listens(inbox));
        let first = state.anybody();
        drop(state);
        if !listens {
            first.node.hints.listen(inbox);
        }
    }
}

impl State {
    /// The node that has the slot. If that is not known, another node, which says where the slot
    /// is.
    fn owner(&self, slot: u16) -> Member {
        let owner = self.map.owner(slot).and_then(|owner| self.members.get(owner));
        owner.cloned().unwrap_or_else(|| self.anybody())
    }

    fn anybody(&self) -> Member {
        self.members[self.first % self.members.len()].clone()
    }
}

impl Member {
    fn forget_counters(&self) {
        self.node.asks.forget_counters();
        self.node.renewals.forget_counters();
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stale.notify_one();
    }
}
