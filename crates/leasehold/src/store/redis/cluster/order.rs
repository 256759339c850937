//! The order of requests for one lock, while its slot moves.
//!
//! A node answers in order, and requests that it refused are passed on in the order of its answers.
//! Two rules keep the order beyond that, for each way and slot:
//!
//! - While refused requests pause, later refused ones queue behind them, and so do new ones.
//! - If requests are still under way at another node than the one that has the slot now, new ones
//!   wait until these are answered: a refusal sends them to the new node.
//!
//! If a node fails, nothing is known of its requests, and later ones do not wait for them.

use std::collections::VecDeque;
use std::mem;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::journey::Journey;
use super::map::Refused;
use super::{Cluster, Lane, Member};
use crate::store::redis::codec::command::NoAnswer;
use crate::store::redis::servers::Node;
use crate::store::redis::wire::redirect::{Answering, Unsent};

/// How long requests pause at first whose slot is on its way. Each next pause is twice as long, up
/// to eight times as long as the first one.
const PAUSE: Duration = Duration::from_millis(20);

/// How often the length of a pause is doubled.
const DOUBLINGS_MAX: u32 = 3;

/// How often a request is redirected without a pause. Nodes may disagree about a slot for a while.
const HOPS_MAX: u32 = 5;

/// The requests of one lane that are not under way.
#[derive(Default)]
pub(super) struct Queue {
    /// These were refused, so they come before all others.
    refused: VecDeque<Paused>,
    /// These were not sent yet.
    new: VecDeque<Paused>,
}

/// A request that pauses.
struct Paused {
    journey: Arc<Journey>,
    /// What the last node said; `None` if no node was asked.
    refusal: Option<NoAnswer>,
    answering: Answering,
}

/// How many requests of a lane are under way at which nodes.
#[derive(Default)]
pub(super) struct UnderWay(Vec<(Weak<Node>, usize)>);

impl UnderWay {
    fn count(&mut self, node: &Arc<Node>) -> &mut usize {
        let position = self.0.iter().position(|(known, _)| known.as_ptr() == Arc::as_ptr(node));
        let position = position.unwrap_or_else(|| {
            self.0.push((Arc::downgrade(node), 0));
            self.0.len() - 1
        });
        &mut self.0[position].1
    }
}

impl Cluster {
    /// A request of the lane is sent to this node.
    pub(super) fn departed(&self, lane: Lane, node: &Arc<Node>) {
        *self.under_way().entry(lane).or_default().count(node) += 1;
    }

    /// A request of the lane has its answer, or will never have one.
    pub(super) fn arrived(&self, lane: Lane, node: &Arc<Node>) {
        let mut under_way = self.under_way();
        let Some(of_lane) = under_way.get_mut(&lane) else { return };
        *of_lane.count(node) -= 1;
        of_lane.0.retain(|(_, count)| *count > 0);
        if of_lane.0.is_empty() {
            under_way.remove(&lane);
        }
    }

    /// Whether a new request of the lane must wait for earlier ones.
    pub(super) fn must_wait(&self, lane: Lane, owner: &Member) -> bool {
        let is_queueing = self.state().queues.contains_key(&lane);
        is_queueing || !self.elsewhere(lane, owner).is_empty()
    }

    /// The other nodes at which requests of the lane are under way. A node without a connection
    /// does not count: what was sent to it has no answer.
    fn elsewhere(&self, lane: Lane, owner: &Member) -> Vec<Arc<Node>> {
        let nodes: Vec<_> = {
            let under_way = self.under_way();
            let Some(of_lane) = under_way.get(&lane) else { return Vec::new() };
            let nodes = of_lane.0.iter().map(|(node, _)| Weak::clone(node));
            nodes.filter(|node| node.as_ptr() != Arc::as_ptr(&owner.node)).collect()
        };
        // Nothing is dropped or asked under the lock.
        let nodes = nodes.into_iter().filter_map(|node| node.upgrade());
        nodes.filter(|node| node.wire(lane.0).is_open()).collect()
    }

    /// Sends a new request when the earlier ones of its lane are answered.
    pub(super) fn hold(self: &Arc<Self>, lane: Lane, journey: Arc<Journey>, answering: Answering) {
        let held = Paused { journey, refusal: None, answering };
        let mut state = self.state();
        let is_first = !state.queues.contains_key(&lane);
        state.queues.entry(lane).or_default().new.push_back(held);
        drop(state);
        if is_first {
            self.go_on_after(lane, PAUSE);
        }
    }

    /// Decides about a request that a node refused. All under one lock, so that requests which
    /// paused and others keep their order.
    pub(super) fn redirect(
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
        if matches!(meaning, Refused::Moved(..) | Refused::Unnamed | Refused::Stale) {
            self.stale.notify_one();
        }
        let lane = match (&meaning, journey.lane) {
            (Refused::Stale | Refused::Here, _) | (_, None) => {
                drop(state);
                return answer(answering, refusal);
            }
            (_, Some(lane)) => lane,
        };
        let left = journey.deadline.since(self.host.now());
        let paused = Paused { journey, refusal: Some(refusal), answering };
        if let Some(queue) = state.queues.get_mut(&lane).filter(|queue| !queue.refused.is_empty()) {
            paused.journey.stops();
            return queue.refused.push_back(paused);
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
                let unsent = paused.journey.go(to, asking, paused.answering);
                drop(state);
                unsent.into_iter().for_each(Unsent::refuse);
            }
            _ if left <= PAUSE => {
                drop(state);
                paused.refuse();
            }
            _ => {
                paused.journey.stops();
                // Its caller is told in time if nothing helps.
                let pause = PAUSE * 2_u32.pow(paused.journey.pauses().min(DOUBLINGS_MAX));
                let pause = pause.min(left.saturating_sub(PAUSE));
                state.queues.entry(lane).or_default().refused.push_back(paused);
                drop(state);
                self.go_on_after(lane, pause);
            }
        }
    }

    fn go_on_after(self: &Arc<Self>, lane: Lane, pause: Duration) {
        let sleep = self.host.sleep_until(self.host.now() + pause);
        let cluster = Arc::clone(self);
        self.host.spawn(Box::pin(async move {
            sleep.await;
            cluster.go_on(lane);
        }));
    }

    /// Sends the requests of the lane that paused, in order. New ones wait on if earlier ones are
    /// still under way.
    fn go_on(self: &Arc<Self>, lane: Lane) {
        let now = self.host.now();
        let is_late = |paused: &Paused| paused.journey.deadline.since(now) <= PAUSE;
        let (mut late, mut unsent) = (Vec::new(), Vec::new());
        // Dropped after the lock.
        let elsewhere;
        let mut state = self.state();
        let owner = state.owner(lane.1);
        elsewhere = self.elsewhere(lane, &owner);
        let mut queue = state.queues.remove(&lane).unwrap_or_default();
        let mut ready = mem::take(&mut queue.refused);
        let (new_late, mut new) = queue.new.into_iter().partition(is_late);
        let new_late: VecDeque<_> = new_late;
        if elsewhere.is_empty() {
            ready.append(&mut new);
        }
        for paused in ready {
            if is_late(&paused) {
                late.push(paused);
                continue;
            }
            paused.journey.rest();
            unsent.extend(paused.journey.go(owner.clone(), false, paused.answering));
        }
        let waits = !new.is_empty();
        if waits {
            state.queues.insert(lane, Queue { new, ..Queue::default() });
        }
        drop(state);
        late.extend(new_late);
        late.into_iter().for_each(Paused::refuse);
        unsent.into_iter().for_each(Unsent::refuse);
        if waits {
            self.go_on_after(lane, PAUSE);
        }
    }
}

impl Paused {
    /// Its time is over. Nothing was done.
    fn refuse(self) {
        let text = match self.refusal {
            Some(NoAnswer::Refused { text, .. }) => text,
            Some(NoAnswer::NotSent { reason } | NoAnswer::Broken { reason }) => reason,
            None => "earlier requests for the slot have no answer yet".to_owned(),
        };
        answer(self.answering, NoAnswer::Refused { code: "TRYAGAIN".to_owned(), text });
    }
}

fn answer(answering: Answering, refusal: NoAnswer) {
    // A caller that gave up needs no answer.
    let _gone = answering.send(Err(refusal));
}
