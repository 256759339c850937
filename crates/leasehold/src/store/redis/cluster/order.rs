//! The order of requests for one lock, while its slot moves.
//!
//! A node answers in order, and requests that it refused are passed on in the order of its
//! answers. Three rules keep the order beyond that, for each way and lock:
//!
//! - While refused requests pause, later refused ones queue behind them, and so do new ones.
//! - New requests wait while a node other than the slot's owner still owes answers to earlier ones.
//!   If that node refuses the earlier ones, they reach the owner first.
//! - A request that was refused once is alone when it is sent again: all others wait for its
//!   answer. Otherwise the node could refuse it, become the owner, and serve the next one first.
//!
//! If a request was already sent when an earlier one begins to pause, it may be served first. If a
//! node fails, nothing is known of its requests, and later ones do not wait for them. A renewal is
//! alone only behind `ASKING`, since the next renewal must not wait for a node that never answers.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::journey::{Gone, Journey, Onward};
use super::map::Refused;
use super::{Cluster, Lane, Member};
use crate::core::moment::Moment;
use crate::store::redis::codec::command::NoAnswer;
use crate::store::redis::node::{Node, Way};
use crate::store::redis::wire::redirect::Answering;

/// How long a request pauses first if its slot is being moved. Each further pause is twice as long,
/// up to eight times as long as the first one.
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
    /// When the lane goes on. One task sleeps until then.
    due: Option<Moment>,
}

/// A request that pauses.
struct Paused {
    journey: Arc<Journey>,
    /// The answer of the last node; `None` if no node was asked.
    refusal: Option<NoAnswer>,
    answering: Answering,
}

/// How many requests of a lane are under way.
#[derive(Default)]
pub(super) struct UnderWay {
    /// How many are under way at each node.
    at: Vec<(Weak<Node>, usize)>,
    /// How many of them are alone. All others of the lane wait for these.
    alone: usize,
}

impl UnderWay {
    fn count(&mut self, node: &Arc<Node>) -> Option<&mut usize> {
        let at = self.at.iter_mut().find(|(known, _)| known.as_ptr() == Arc::as_ptr(node));
        at.map(|(_, count)| count)
    }
}

impl Cluster {
    /// Notes that a request of the lane is sent to this node.
    pub(super) fn departed(&self, lane: &Lane, node: &Arc<Node>, alone: bool) {
        let mut under_way = self.under_way.lock();
        let of_lane = under_way.entry(lane.clone()).or_default();
        of_lane.alone += usize::from(alone);
        match of_lane.count(node) {
            Some(count) => *count += 1,
            None => of_lane.at.push((Arc::downgrade(node), 1)),
        }
    }

    /// Notes that a request of the lane has its answer, or will never have one.
    pub(super) fn arrived(&self, lane: &Lane, node: &Arc<Node>, alone: bool) {
        let mut under_way = self.under_way.lock();
        let Some(of_lane) = under_way.get_mut(lane) else { return };
        of_lane.alone = of_lane.alone.saturating_sub(alone.into());
        if let Some(count) = of_lane.count(node) {
            *count = count.saturating_sub(1);
        }
        of_lane.at.retain(|(_, count)| *count > 0);
        if of_lane.at.is_empty() {
            under_way.remove(lane);
        }
    }

    /// Whether a request of the lane is under way alone, so that all others wait for it.
    pub(super) fn is_alone(&self, lane: &Lane) -> bool {
        self.under_way.lock().get(lane).is_some_and(|of_lane| of_lane.alone > 0)
    }

    /// Lets the waiting requests of the lane go on, after an answer to a request of the lane.
    pub(super) fn answered(self: &Arc<Self>, lane: &Lane) {
        let due = self.state.lock().queues.get(lane).and_then(|queue| queue.due);
        if let Some(due) = due {
            self.go_on(lane, due);
        }
    }

    /// The other nodes at which requests of the lane are under way. A node without a connection
    /// does not count for renewals, which must not wait for a dead node. For acquires and releases,
    /// it counts unless it is closed, because they may queue for a connection.
    pub(super) fn elsewhere(&self, lane: &Lane, owner: &Member) -> Vec<Arc<Node>> {
        let nodes: Vec<_> = {
            let under_way = self.under_way.lock();
            let Some(of_lane) = under_way.get(lane) else { return Vec::new() };
            let nodes = of_lane.at.iter().map(|(node, _)| Weak::clone(node));
            nodes.filter(|node| node.as_ptr() != Arc::as_ptr(&owner.node)).collect()
        };
        let may_answer = |node: &Arc<Node>| match lane.way {
            Way::Asks => !node.asks.is_closed(),
            Way::Renewals => node.renewals.is_open(),
        };
        // Nothing is dropped or asked under the lock.
        nodes.into_iter().filter_map(|node| node.upgrade()).filter(may_answer).collect()
    }

    /// Sends a new request when the earlier ones of its lane are answered.
    pub(super) fn hold(self: &Arc<Self>, lane: Lane, journey: Arc<Journey>, answering: Answering) {
        let held = Paused { journey, refusal: None, answering };
        let mut state = self.state.lock();
        let queue = state.queues.entry(lane.clone()).or_default();
        queue.new.push_back(held);
        let nothing_pauses = queue.refused.is_empty();
        let owner = state.owner(lane.subject.slot);
        drop(state);
        self.go_on_after(&lane, PAUSE);
        // The last request to wait for may have been answered just before.
        let is_free = nothing_pauses && !self.is_alone(&lane);
        if is_free && self.elsewhere(&lane, &owner).is_empty() {
            self.answered(&lane);
        }
    }

    /// Decides about a request that a node refused. It does so under one lock, so that paused
    /// requests and others keep their order.
    pub(super) fn redirect(
        self: &Arc<Self>,
        journey: Arc<Journey>,
        meaning: Refused,
        refusal: NoAnswer,
        answering: Answering,
    ) {
        let mut state = self.state.lock();
        if let Refused::Moved(slot, place) = &meaning {
            self.assign(&mut state, *slot, place);
        }
        if matches!(meaning, Refused::Moved(..) | Refused::Unnamed | Refused::Stale) {
            self.stale.notify_one();
        }
        let left = journey.deadline.since(self.host.now());
        // Whether all others of the lane waited for this request.
        let was_alone = journey.stops();
        let lane = match (&meaning, journey.lane.clone()) {
            (Refused::Stale | Refused::Here, _) | (_, None) => {
                drop(state);
                if let Some(lane) = journey.lane.as_ref().filter(|_| was_alone) {
                    self.answered(lane);
                }
                return answer(answering, refusal);
            }
            (_, Some(lane)) => lane,
        };
        let paused = Paused { journey, refusal: Some(refusal), answering };
        let is_queueing = state.queues.get(&lane).is_some_and(|queue| !queue.refused.is_empty());
        if !was_alone && (is_queueing || self.is_alone(&lane)) {
            let queue = state.queues.entry(lane.clone()).or_default();
            queue.refused.push_back(paused);
            let goes_on = queue.due.is_some();
            drop(state);
            if !goes_on {
                self.go_on_after(&lane, PAUSE);
            }
            return;
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
                let how = Onward::new(lane.way, true, asking);
                let gone = paused.journey.go(to, how, paused.answering);
                drop(state);
                gone.end();
            }
            _ if left <= PAUSE => {
                drop(state);
                paused.refuse();
            }
            _ => {
                // This leaves time to tell the caller if nothing helps.
                let pause = PAUSE * 2_u32.pow(paused.journey.pauses().min(DOUBLINGS_MAX));
                let pause = pause.min(left.saturating_sub(PAUSE));
                // To the front, because all others of the lane came later.
                state.queues.entry(lane.clone()).or_default().refused.push_front(paused);
                drop(state);
                self.go_on_after(&lane, pause);
            }
        }
    }

    /// Lets the lane go on after a pause, or earlier if an earlier end was set before.
    fn go_on_after(self: &Arc<Self>, lane: &Lane, pause: Duration) {
        let due = self.host.now() + pause;
        let mut state = self.state.lock();
        let Some(queue) = state.queues.get_mut(lane) else { return };
        if queue.due.is_some_and(|before| before <= due) {
            return;
        }
        queue.due = Some(due);
        drop(state);
        self.go_on_at(lane, due);
    }

    fn go_on_at(self: &Arc<Self>, lane: &Lane, due: Moment) {
        let sleep = self.host.sleep_until(due);
        let timer = Timer { cluster: Arc::clone(self), lane: lane.clone(), due };
        self.host.spawn(Box::pin(async move {
            sleep.await;
            timer.fire();
        }));
    }

    /// Sends the paused requests of the lane, up to one that is alone. New requests still wait if
    /// earlier ones are under way.
    fn go_on(self: &Arc<Self>, lane: &Lane, due: Moment) {
        let now = self.host.now();
        let is_late = |paused: &Paused| paused.journey.deadline.since(now) <= PAUSE;
        // Dropped after the lock.
        let elsewhere;
        let mut state = self.state.lock();
        if state.queues.get(lane).is_none_or(|queue| queue.due != Some(due)) {
            return;
        }
        let owner = state.owner(lane.subject.slot);
        elsewhere = self.elsewhere(lane, &owner);
        let Queue { refused, new, .. } = state.queues.remove(lane).unwrap_or_default();
        let (late, mut refused): (VecDeque<_>, VecDeque<_>) =
            refused.into_iter().partition(is_late);
        let (new_late, mut new): (VecDeque<_>, VecDeque<_>) = new.into_iter().partition(is_late);
        let mut gone = Vec::new();
        while !self.is_alone(lane) {
            let next_new = || elsewhere.is_empty().then(|| new.pop_front()).flatten();
            let Some(next) = refused.pop_front().or_else(next_new) else { break };
            next.journey.rest();
            let how = Onward::new(lane.way, next.refusal.is_some(), false);
            gone.push(next.journey.go(owner.clone(), how, next.answering));
        }
        let due = (!new.is_empty() || !refused.is_empty()).then(|| now + PAUSE);
        if due.is_some() {
            state.queues.insert(lane.clone(), Queue { refused, new, due });
        }
        drop(state);
        late.into_iter().chain(new_late).for_each(Paused::refuse);
        gone.into_iter().for_each(Gone::end);
        if let Some(due) = due {
            self.go_on_at(lane, due);
        }
    }
}

/// Lets a lane go on after a pause. If the task with the timer is dropped, nobody else would, so
/// all requests of the lane are refused.
struct Timer {
    cluster: Arc<Cluster>,
    lane: Lane,
    due: Moment,
}

impl Timer {
    fn fire(self) {
        self.cluster.go_on(&self.lane, self.due);
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        let mut state = self.cluster.state.lock();
        // If the lane went on before, it has another queue, or none.
        if state.queues.get(&self.lane).is_some_and(|queue| queue.due == Some(self.due)) {
            let queue = state.queues.remove(&self.lane).unwrap_or_default();
            drop(state);
            queue.refused.into_iter().chain(queue.new).for_each(Paused::refuse);
        }
    }
}

impl Paused {
    /// Tells the caller that the request was not sent in time.
    fn refuse(self) {
        let refusal = match self.refusal {
            Some(NoAnswer::Refused { text, .. }) => {
                NoAnswer::Refused { code: "TRYAGAIN".to_owned(), text }
            }
            Some(refusal) => refusal,
            None => {
                let reason = "earlier requests for the slot have no answer yet".to_owned();
                NoAnswer::NotSent { reason }
            }
        };
        answer(self.answering, refusal);
    }
}

fn answer(answering: Answering, refusal: NoAnswer) {
    // A caller that gave up needs no answer.
    let _gone = answering.send(Err(refusal));
}
