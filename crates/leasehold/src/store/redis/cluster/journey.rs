//! The route of one request through the nodes of a cluster.

use std::mem;
use std::sync::Arc;

use super::map::{Refused, refused};
use super::{Cluster, Lane, Member};
use crate::core::moment::Moment;
use crate::store::redis::codec::command::{Command, NoAnswer, Value};
use crate::store::redis::node::Way;
use crate::store::redis::wire::known::Known;
use crate::store::redis::wire::redirect::{Answering, Passed, Redirect, Unsent};
use crate::store::redis::wire::{Request, Retry};
use crate::unpoisoned::Unpoisoned;

/// A request on its way. It keeps the cluster alive until it is answered.
pub(super) struct Journey {
    pub(super) cluster: Arc<Cluster>,
    way: Way,
    /// `None` if any node can serve it.
    pub(super) lane: Option<Lane>,
    /// After this, nobody expects an answer, and the request is not sent again.
    pub(super) deadline: Moment,
    leg: Unpoisoned<Leg>,
}

/// Where a request is.
struct Leg {
    request: Box<dyn Request>,
    at: Member,
    /// Whether the request counts as under way at the node, and if so, whether it is alone in its
    /// lane.
    counts: Option<bool>,
    /// How often it was redirected since it last paused.
    hops: u32,
    /// How often it has paused.
    pauses: u32,
    redirected: bool,
    /// Whether the request carried a script to its first node.
    in_full: bool,
}

impl Journey {
    pub(super) fn new(
        cluster: &Arc<Cluster>,
        (way, lane): (Way, Option<Lane>),
        deadline: Moment,
        request: Box<dyn Request>,
        at: Member,
    ) -> Self {
        let leg = Leg {
            request,
            at,
            counts: None,
            hops: 0,
            pauses: 0,
            redirected: false,
            in_full: false,
        };
        Self { cluster: Arc::clone(cluster), way, lane, deadline, leg: Unpoisoned::new(leg) }
    }

    /// Notes that the request is under way from now on.
    pub(super) fn departs(&self) {
        if self.leg.lock().counts.is_none() {
            self.count(Some(false));
        }
    }

    /// Notes that the request is not under way for now. Returns whether it was under way alone.
    pub(super) fn stops(&self) -> bool {
        self.count(None) == Some(true)
    }

    fn count(&self, counts: Option<bool>) -> Option<bool> {
        let mut leg = self.leg.lock();
        let counted = mem::replace(&mut leg.counts, counts);
        let node = Arc::clone(&leg.at.node);
        drop(leg);
        let lane = self.lane.as_ref()?;
        if let Some(alone) = counts {
            self.cluster.departed(lane, &node, alone);
        }
        if let Some(alone) = counted {
            self.cluster.arrived(lane, &node, alone);
        }
        counted
    }

    /// Counts one more redirection since the last pause.
    pub(super) fn hop(&self) -> u32 {
        let mut leg = self.leg.lock();
        leg.hops += 1;
        leg.hops
    }

    /// How often it has paused so far.
    pub(super) fn pauses(&self) -> u32 {
        self.leg.lock().pauses
    }

    /// Notes that the request has paused.
    pub(super) fn rest(&self) {
        let mut leg = self.leg.lock();
        leg.pauses += 1;
        leg.hops = 0;
    }

    /// Sends the request to another node, after all requests that were sent there before. If it is
    /// `alone`, the others of its lane wait for its answer.
    pub(super) fn go(self: Arc<Self>, to: Member, how: Onward, answering: Answering) -> Gone {
        self.stops();
        let node = Arc::clone(&to.node);
        let mut leg = self.leg.lock();
        leg.redirected = true;
        let left = mem::replace(&mut leg.at, to);
        drop(leg);
        let way = self.way;
        self.count(Some(how.alone));
        let asking = how.asking;
        let journey = Arc::clone(&self);
        let unsent = node.wire(way).pass(Passed { request: self, answering, asking });
        if unsent.is_some() {
            // The requests behind it can then go on, or are refused too.
            journey.stops();
        }
        Gone { unsent, _left: left }
    }
}

/// How a request is sent to another node.
#[derive(Clone, Copy)]
pub(super) struct Onward {
    /// Whether the request follows `ASKING`.
    asking: bool,
    alone: bool,
}

impl Onward {
    /// A renewal is alone only behind `ASKING`. The next renewal must not wait for a node that
    /// never answers, and needs no order: both renew the same lease.
    pub(super) fn new(way: Way, was_refused: bool, asking: bool) -> Self {
        Self { asking, alone: asking || was_refused && way == Way::Asks }
    }
}

/// The leftovers of a request that was sent to another node.
#[must_use = "it is ended when no lock is held"]
pub(super) struct Gone {
    /// The request, if it could not be sent.
    unsent: Option<Unsent>,
    /// The old node. This may be its last handle.
    _left: Member,
}

impl Gone {
    /// Ends the request if it could not be sent. Call this when no lock is held.
    pub(super) fn end(self) {
        if let Some(unsent) = self.unsent {
            unsent.refuse();
        }
    }
}

impl Drop for Journey {
    fn drop(&mut self) {
        self.stops();
    }
}

impl Redirect for Journey {
    fn command(&self) -> Command {
        // The whole script, since another node may lack it.
        self.leg.lock().request.command(&mut Known::default())
    }

    fn deadline(&self) -> Moment {
        self.deadline
    }

    fn was_answered(&self) {
        let was_alone = self.stops();
        if let Some(lane) = self.lane.as_ref().filter(|_| was_alone) {
            self.cluster.answered(lane);
        }
    }

    fn was_refused(self: Arc<Self>, refusal: NoAnswer, answering: Answering) {
        let (from, node, in_full) = {
            let leg = self.leg.lock();
            (Arc::clone(&leg.at.place), Arc::clone(&leg.at.node), leg.in_full && !leg.redirected)
        };
        if in_full {
            // A node does not keep the script of a request that it refuses. A release by hash would
            // be refused once more, and an acquire behind it would overtake it.
            node.wire(self.way).forget_scripts();
        }
        let meaning = match &refusal {
            NoAnswer::Refused { code, text } => refused(code, text, &from),
            NoAnswer::NotSent { .. } | NoAnswer::Broken { .. } => Refused::Here,
        };
        let cluster = Arc::clone(&self.cluster);
        cluster.redirect(self, meaning, refusal, answering);
    }
}

/// A request on its first wire. This wire watches the time limit, and keeps the request if the
/// caller is gone.
pub(super) struct Routed(pub(super) Arc<Journey>);

impl Request for Routed {
    fn command(&mut self, known: &mut Known) -> Command {
        // The request is sent for the first time, or again because the server lacked the script.
        self.0.departs();
        let before = known.scripts();
        let mut leg = self.0.leg.lock();
        let command = leg.request.command(known);
        leg.in_full = known.scripts() != before;
        command
    }

    fn was_refused(&mut self, known: &mut Known, code: &str, text: &str) -> Retry {
        self.0.leg.lock().request.was_refused(known, code, text)
    }

    fn probes(&mut self, known: &mut Known) -> Vec<Command> {
        self.0.leg.lock().request.probes(known)
    }

    fn was_probed(&mut self, known: &mut Known, answers: &[Result<Value, NoAnswer>]) {
        self.0.leg.lock().request.was_probed(known, answers);
    }

    fn goes_on(&mut self, answer: &Value) -> bool {
        self.0.leg.lock().request.goes_on(answer)
    }

    fn was_answered(&mut self, known: &mut Known, answer: &Value) {
        self.0.leg.lock().request.was_answered(known, answer);
    }

    fn teaches(&self) -> bool {
        let leg = self.0.leg.lock();
        // An answer of another node says nothing about the server of the first wire.
        !leg.redirected && leg.request.teaches()
    }

    fn redirect(&self) -> Option<Arc<dyn Redirect>> {
        Some(Arc::clone(&self.0) as Arc<dyn Redirect>)
    }

    fn was_late(&self) {
        let at = {
            let leg = self.0.leg.lock();
            leg.redirected.then(|| leg.at.clone())
        };
        if let Some(at) = at {
            at.node.wire(self.0.way).suspect_now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The next renewal must not wait for a node that never answers.
    #[test]
    fn a_renewal_is_alone_only_behind_asking() {
        for (way, was_refused, asking, alone) in [
            (Way::Asks, false, false, false),
            (Way::Asks, true, false, true),
            (Way::Asks, false, true, true),
            (Way::Asks, true, true, true),
            (Way::Renewals, false, false, false),
            (Way::Renewals, true, false, false),
            (Way::Renewals, true, true, true),
        ] {
            let how = Onward::new(way, was_refused, asking);
            assert_eq!((how.asking, how.alone), (asking, alone), "{way:?} {was_refused}");
        }
    }
}
