//! A cluster: sends each request to the node that has the slot of its lock.
//!
//! | a node answers | the request | the map |
//! |---|---|---|
//! | `MOVED` | goes to the named node at once | the slot has moved; all of it is read again |
//! | `ASK` | goes to the named node, behind `ASKING` | stays |
//! | `TRYAGAIN` | pauses, and goes to the node of its slot | stays |
//! | `CLUSTERDOWN`, `READONLY`, `LOADING` | is refused | is read again |
//!
//! No node has done anything in these cases, so no request takes effect twice. A request is sent
//! again only within its limit.
//!
//! **Requests for one lock keep their order.** Nodes answer in order, and refused requests are
//! passed on in the order of the answers. While some requests for a slot pause, later ones queue
//! behind them. If the slot has moved while requests for it were under way, later ones take the
//! same way as those. Only if a node fails, nothing is known of its requests, and their order may
//! change.
//!
//! Source: <https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/>

mod journey;
mod map;
mod reading;

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use self::journey::{Journey, Routed};
use self::map::{Map, Place, Refused};
use super::codec::command::NoAnswer;
use super::connector::Connector;
use super::keys::slot;
use super::servers::{Node, Way};
use super::terms::copies::Reply;
use super::wire::Request;
use super::wire::redirect::Answering;
use crate::core::error::Error;
use crate::core::key::Key;
use crate::core::moment::Moment;
use crate::core::token::ClientId;
use crate::host::Host;
use crate::store::sinks::Sinks;

/// How long requests pause whose slot is on its way.
const PAUSE: Duration = Duration::from_millis(20);

/// How often a request is redirected without a pause. Nodes may disagree about a slot for a while.
const HOPS_MAX: u32 = 5;

/// How long requests take the old way after a slot has moved, at most. By then, each earlier
/// request was answered or has reached its limit.
const OLD_WAY: Duration = Duration::from_secs(1);

/// The requests that keep their order: one way, one slot.
type Lane = (Way, u16);

pub(super) struct Cluster {
    host: Arc<dyn Host>,
    connector: Arc<dyn Connector>,
    sinks: Arc<Sinks>,
    /// Locked before a wire.
    state: Mutex<State>,
    /// The last lock, under which nothing else is locked and nothing is dropped.
    under_way: Mutex<HashMap<Lane, UnderWay>>,
    /// Only one task at a time reads the map.
    reading: tokio::sync::Mutex<()>,
    /// Wakes the task that reads the map.
    stale: Arc<Notify>,
    watched: OnceLock<()>,
}

struct State {
    map: Map,
    /// The nodes of the map, in its order.
    members: Vec<Member>,
    /// The epoch of the map.
    epoch: u64,
    read: Option<Moment>,
    /// The number of the node that is asked first.
    first: usize,
    /// Whether there was a request since the map was read.
    used: bool,
    paused: HashMap<Lane, VecDeque<Paused>>,
}

/// A node at its place.
#[derive(Clone)]
struct Member {
    place: Arc<Place>,
    node: Arc<Node>,
}

/// A request whose slot is on its way.
struct Paused {
    journey: Arc<Journey>,
    refusal: NoAnswer,
    answering: Answering,
}

/// The requests of a lane that have no answer yet.
struct UnderWay {
    count: usize,
    /// The node that they were sent to.
    place: Arc<Place>,
    node: Weak<Node>,
    /// Since when the slot is at another node.
    moved: Option<Moment>,
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
            state: Mutex::new(State {
                map: Map::of_seeds(connector.seeds()),
                members: Vec::new(),
                epoch: 0,
                read: None,
                first: 0,
                used: false,
                paused: HashMap::new(),
            }),
            under_way: Mutex::default(),
            reading: tokio::sync::Mutex::default(),
            stale: Arc::new(Notify::new()),
            watched: OnceLock::new(),
        };
        let mut state = cluster.state();
        let places = state.map.places().to_vec();
        state.members = places.into_iter().map(|place| cluster.member(place)).collect();
        drop(state);
        Arc::new(cluster)
    }

    /// Reads the map, unless it is known.
    pub(super) async fn connect(self: &Arc<Self>) -> Result<(), Error> {
        self.watch_over();
        if self.state().read.is_some() {
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
        let lane = request.slot().map(|slot| (way, slot));
        let member = self.choose(lane);
        let node = Arc::clone(&member.node);
        let deadline = self.host.now() + limit;
        let journey = Arc::new(Journey::new(self, (way, lane), deadline, request, member));
        let reply = node.wire(way).submit_to_confirm(limit, Box::new(Routed(journey)));
        let stale = Arc::clone(&self.stale);
        async move {
            let reply = reply.await;
            if reply.as_ref().is_err_and(Error::is_retryable) {
                stale.notify_one();
            }
            reply
        }
    }

    /// The node for the next request, which counts as under way.
    fn choose(&self, lane: Option<Lane>) -> Member {
        let mut state = self.state();
        state.used = true;
        let owner = match lane {
            Some((_, slot)) => state.owner(slot),
            None => state.anybody(),
        };
        drop(state);
        let Some(lane) = lane else { return owner };
        // Nothing is dropped or asked under the lock.
        let old = self.old_way(lane, &owner);
        let chosen = match old {
            Some(old) if old.node.wire(lane.0).is_open() => old,
            _ => owner,
        };
        let mut under_way = self.under_way();
        let entry = under_way.entry(lane).or_insert_with(|| UnderWay::at(&chosen));
        if entry.place != chosen.place || entry.node.as_ptr() != Arc::as_ptr(&chosen.node) {
            *entry = UnderWay { count: entry.count, ..UnderWay::at(&chosen) };
        }
        entry.count += 1;
        chosen
    }

    /// The node that earlier requests were sent to, if it is another one, and they are not all
    /// answered.
    fn old_way(&self, lane: Lane, owner: &Member) -> Option<Member> {
        let now = self.host.now();
        let mut under_way = self.under_way();
        let entry = under_way.get_mut(&lane)?;
        if entry.place == owner.place {
            entry.moved = None;
            return None;
        }
        let moved = *entry.moved.get_or_insert(now);
        if now.since(moved) >= OLD_WAY {
            entry.moved = None;
            return None;
        }
        let node = entry.node.upgrade()?;
        Some(Member { place: Arc::clone(&entry.place), node })
    }

    /// A request of the lane has its answer, or will never have one.
    fn arrived(&self, lane: Lane) {
        let mut under_way = self.under_way();
        if let Some(entry) = under_way.get_mut(&lane) {
            entry.count -= 1;
            if entry.count == 0 {
                under_way.remove(&lane);
            }
        }
    }

    /// Decides about a request that a node refused. All under one lock, so that requests which
    /// paused and others keep their order.
    fn redirect(
        self: &Arc<Self>,
        journey: Arc<Journey>,
        meaning: Refused,
        refusal: NoAnswer,
        answering: Answering,
    ) {
        let mut state = self.state();
        if let Refused::Moved(slot, place) = &meaning {
            self.assign(&mut state, *slot, place);
        }
        if matches!(meaning, Refused::Moved(..) | Refused::Stale) {
            self.stale.notify_one();
        }
        let lane = match (&meaning, journey.lane) {
            (Refused::Moved(..) | Refused::Ask(_) | Refused::Again, Some(lane)) => lane,
            (Refused::Stale | Refused::Here, _) | (_, None) => {
                drop(state);
                return answer(answering, refusal);
            }
        };
        let left = journey.deadline.since(self.host.now());
        let paused = Paused { journey, refusal, answering };
        if let Some(queue) = state.paused.get_mut(&lane) {
            return queue.push_back(paused);
        }
        let to = match meaning {
            Refused::Moved(_, place) => self.find(&mut state, place).map(|to| (to, false)),
            Refused::Ask(place) => self.find(&mut state, place).map(|to| (to, true)),
            _ => None,
        };
        match to {
            _ if left.is_zero() => {
                drop(state);
                paused.refuse();
            }
            Some((to, asking)) if paused.journey.hop() <= HOPS_MAX => {
                paused.journey.go(to, asking, paused.answering);
            }
            _ => {
                state.paused.insert(lane, VecDeque::from([paused]));
                drop(state);
                let (cluster, sleep) = (Arc::clone(self), self.pause());
                self.host.spawn(Box::pin(async move {
                    sleep.await;
                    cluster.go_on(lane);
                }));
            }
        }
    }

    /// Sends all requests of the lane that paused, in order.
    fn go_on(&self, lane: Lane) {
        let now = self.host.now();
        let mut late = Vec::new();
        let mut state = self.state();
        for paused in state.paused.remove(&lane).unwrap_or_default() {
            if paused.journey.deadline.since(now) <= PAUSE {
                late.push(paused);
                continue;
            }
            paused.journey.rest();
            let to = state.owner(lane.1);
            paused.journey.go(to, false, paused.answering);
        }
        drop(state);
        late.into_iter().for_each(Paused::refuse);
    }

    fn pause(&self) -> crate::host::Sleep {
        self.host.sleep_until(self.host.now() + PAUSE)
    }

    /// The slot is at this place now.
    fn assign(&self, state: &mut State, slot: u16, place: &Place) {
        let before = state.map.owner(slot);
        if before.is_some_and(|before| state.map.places()[before] == *place) {
            return;
        }
        // The counters of the slot may change without this node from now on.
        if let Some(before) = before.and_then(|before| state.members.get(before)) {
            before.forget_counters();
        }
        if self.find(state, place.clone()).is_some()
            && let Some(number) = state.map.number_of(place.clone())
        {
            state.map.assign(slot, usize::from(number));
        }
    }

    /// The node at this place. `None` if there are too many.
    fn find(&self, state: &mut State, place: Place) -> Option<Member> {
        let number = usize::from(state.map.number_of(place.clone())?);
        if number == state.members.len() {
            state.members.push(self.member(place));
        }
        state.members.get(number).cloned()
    }

    fn member(&self, place: Place) -> Member {
        let (host, port) = &place;
        let connector = self.connector.node(host, *port);
        let connector = connector.unwrap_or_else(|| Arc::clone(&self.connector));
        let node = Node::new(&self.host, &connector, &self.sinks);
        Member { place: Arc::new(place), node }
    }

    /// The primaries.
    pub(super) async fn each(self: &Arc<Self>) -> Result<Vec<Arc<Node>>, Error> {
        self.connect().await?;
        Ok(self.state().members.iter().map(|member| Arc::clone(&member.node)).collect())
    }

    /// The node that has the slot of this lock, as far as is known.
    pub(super) fn node_of(&self, key: &Key) -> Arc<Node> {
        self.state().owner(slot(key.as_str())).node
    }

    /// Subscribes to the messages for `inbox` at any node: each gets all of them.
    pub(super) fn listen(&self, inbox: &ClientId) {
        let state = self.state();
        if !state.members.iter().any(|member| member.node.hints.listens(inbox)) {
            state.anybody().node.hints.listen(inbox);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // The state is complete at every moment at which foreign code runs.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn under_way(&self) -> MutexGuard<'_, HashMap<Lane, UnderWay>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The node that has the slot. Another one if that is not known: it says where the slot is.
    fn owner(&self, slot: u16) -> Member {
        let owner = self.map.owner(slot).and_then(|owner| self.members.get(owner));
        owner.cloned().unwrap_or_else(|| self.anybody())
    }

    fn anybody(&self) -> Member {
        self.members[self.first % self.members.len()].clone()
    }
}

impl UnderWay {
    fn at(member: &Member) -> Self {
        let (place, node) = (Arc::clone(&member.place), Arc::downgrade(&member.node));
        Self { count: 0, place, node, moved: None }
    }
}

impl Member {
    fn forget_counters(&self) {
        self.node.asks.forget_counters();
        self.node.renewals.forget_counters();
    }
}

impl Paused {
    /// Its time is over. Nothing was done.
    fn refuse(self) {
        let text = match self.refusal {
            NoAnswer::Refused { text, .. } => text,
            NoAnswer::NotSent { reason } | NoAnswer::Broken { reason } => reason,
        };
        answer(self.answering, NoAnswer::Refused { code: "TRYAGAIN".to_owned(), text });
    }
}

fn answer(answering: Answering, refusal: NoAnswer) {
    // A caller that gave up needs no answer.
    let _gone = answering.send(Err(refusal));
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stale.notify_one();
    }
}
