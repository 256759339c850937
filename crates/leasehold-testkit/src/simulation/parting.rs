//! The holder gives its lock up.

use leasehold::Guard;

use super::worker::{Worker, outcome_of_release};
use crate::cut_after;
use crate::history::event::{CallKind, Name};

/// Drops the guard, or releases it with or without waiting for the answer.
pub(super) async fn part(worker: &mut Worker, key: &Name, guard: Guard) {
    match worker.below(5) {
        0 => drop(guard.release()),
        1 | 2 => drop(guard),
        _ => {
            let polls = worker.cut();
            let call = worker.called(key, CallKind::Release);
            let released = cut_after(polls, guard.release()).await;
            worker.world().returned(call, outcome_of_release(released));
        }
    }
}
