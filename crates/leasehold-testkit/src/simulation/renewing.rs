//! A call of `renew`, as the log knows it.

use super::worker::Worker;
use crate::history::event::{CallId, Outcome};

/// A renewal that is dropped if its lease is lost meanwhile.
pub(super) struct Renewing<'a> {
    worker: &'a Worker,
    call: CallId,
}

impl<'a> Renewing<'a> {
    pub(super) const fn new(worker: &'a Worker, call: CallId) -> Self {
        Self { worker, call }
    }

    pub(super) fn returned(self, outcome: Outcome) {
        self.worker.world().returned(self.call, outcome);
        std::mem::forget(self);
    }
}

impl Drop for Renewing<'_> {
    fn drop(&mut self) {
        // A killed process drops it too, but nobody sees that.
        if !self.worker.process().is_dead() {
            self.worker.world().returned(self.call, Outcome::Dropped);
        }
    }
}
