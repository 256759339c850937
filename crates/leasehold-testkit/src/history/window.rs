//! A window: from a grant until its process relies on the lease no more.

use std::time::Duration;

use leasehold::core::Moment;

use super::event::{ProcessId, Share, WindowId};

/// A span in which a process relies on a lease.
#[derive(Clone, Debug)]
pub(super) struct Window<'a> {
    pub(super) id: WindowId,
    /// The beginning of the call that got the window. For several windows of one lease, the
    /// beginning of the first call.
    pub(super) called: Moment,
    pub(super) process: ProcessId,
    pub(super) token: &'a str,
    pub(super) fence: Option<u64>,
    pub(super) began: Moment,
    /// The deadline of its process, as last recorded.
    pub(super) until: Moment,
    pub(super) told: Option<Moment>,
    pub(super) gave_up: Option<Moment>,
    pub(super) crashed: Option<Moment>,
    /// When an operator ended its lease.
    pub(super) evicted: Option<Moment>,
    /// The number of the event by which its process ended the window.
    pub(super) closed: Option<usize>,
    /// How long its client may keep the lease without a guard.
    pub(super) keeps: Duration,
    /// Whether the key was left taken.
    pub(super) is_left_taken: bool,
    /// Until when the store keeps its lease, by the last comparison or renewal.
    pub(super) stored_until: Moment,
    /// The share of the key that it has.
    pub(super) share: Share,
    /// When its hold has to end, if the hold is limited.
    pub(super) limit: Option<Moment>,
}

impl Window<'_> {
    /// When its process stopped relying on the window. A dead process relies on nothing. After an
    /// eviction, nothing is promised.
    pub(super) fn end(&self) -> Moment {
        let ends = [self.told, self.gave_up, self.crashed, self.evicted];
        ends.into_iter().flatten().fold(self.until, Moment::min)
    }

    /// From when to when its process did not know that an operator had ended its lease.
    pub(super) fn believed(&self) -> Option<(Moment, Moment)> {
        let learnt = [self.told, self.gave_up, self.crashed];
        let learnt = learnt.into_iter().flatten().fold(self.until, Moment::min);
        self.evicted.filter(|evicted| *evicted < learnt).map(|evicted| (evicted, learnt))
    }

    /// Whether the window lasted until its deadline.
    pub(super) fn ran_out(&self) -> bool {
        self.end() == self.until
    }

    /// Whether no process ever relied on it.
    pub(super) fn is_empty(&self) -> bool {
        self.end() <= self.began
    }

    pub(super) fn name(&self) -> String {
        format!("window {} of process {}", self.id.0, self.process.0)
    }
}
