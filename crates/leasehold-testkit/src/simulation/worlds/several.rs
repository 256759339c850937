//! Worlds in which some locks are taken together, in any order of their names.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use leasehold::MultiGuard;

use crate::cut_after;
use crate::history::event::{CallId, CallKind, Name, Outcome, WindowId};
use crate::simulation::kind::{Draw, Kind};
use crate::simulation::plan::Plan;
use crate::simulation::terms::Terms;
use crate::simulation::worker::{Worker, outcome_of};

/// One world in this many takes locks together.
const ONE_IN: usize = 8;

/// The fewest keys of such a world.
const KEYS_MIN: usize = 2;

/// The longest time for which locks that were taken together are held.
const HOLDS_MAX: Duration = Duration::from_millis(60);

/// Makes a world take locks together if its seed says so.
pub(super) fn draw(draw: Draw<'_>, plan: &mut Plan) {
    if draw.of(Kind::Several, 0x05e7_e4a1_0000, ONE_IN).is_none() {
        return;
    }
    // Locks that are taken together have places in line, hand keys over, and are exclusive.
    let is_other = [Kind::Coexist, Kind::Bare, Kind::Shared, Kind::Permits, Kind::Long];
    if is_other.into_iter().any(|kind| plan.is(kind)) {
        return;
    }
    plan.takes_several = true;
    plan.keys = plan.keys.max(KEYS_MIN);
}

/// Takes some locks together, holds them, and gives them up one after the other.
pub(in crate::simulation) async fn take_several(worker: &mut Worker, terms: &Terms) {
    let keys = worker.some_keys();
    let names: Vec<_> = keys.iter().map(|key| worker.name_of(key)).collect();
    let locks = terms.lock_all(worker.client(), &names);
    let (polls, wait, limit) = worker.draw_wait(keys.len());
    let world = Arc::clone(worker.world());
    let called = |key| world.called(worker.process(), key, CallKind::LockAll, Some(limit));
    let calls: Vec<_> = keys.iter().map(|key| (Arc::clone(key), called(key))).collect();
    let taking = async {
        match wait {
            Some(wait) => locks.lock_timeout(wait).await.map(Some),
            None => locks.try_lock().await,
        }
    };
    let taking = worker.world().log.during(calls.clone(), taking);
    // The refusal does not say which of the locks was taken.
    let ended = match cut_after(polls, taking).await {
        Some(Ok(Some(guard))) => return hold(worker, &calls, guard).await,
        Some(Err(error)) if outcome_of(&error) == Outcome::Failed => Outcome::Failed,
        _ => Outcome::Dropped,
    };
    for (_, call) in calls {
        worker.world().returned(call, ended);
    }
}

async fn hold(worker: &mut Worker, calls: &[(Name, CallId)], guard: MultiGuard) {
    let guards: Vec<_> = guard.into_guards().into_iter().map(Arc::new).collect();
    let mut held: Vec<(WindowId, _)> = Vec::with_capacity(guards.len());
    for ((key, call), guard) in calls.iter().zip(guards) {
        let window = worker.world().granted(*call, worker.process(), key, &guard);
        worker.world().returned(*call, Outcome::Granted);
        held.push((window, guard));
    }
    worker.world().did("taken together");
    let until = worker.now() + worker.span_up_to(HOLDS_MAX);
    let mut losses = FuturesUnordered::new();
    for (window, guard) in &held {
        let window = *window;
        losses.push(guard.lost().map(move |_| window));
    }
    while let Some(Some(lost)) = worker.before(until, losses.next()).await {
        worker.world().told_lost(lost);
        held.retain(|(window, _)| *window != lost);
    }
    while !held.is_empty() {
        let (window, guard) = held.swap_remove(worker.below(held.len()));
        worker.world().gives_up(window, Duration::ZERO);
        drop(guard);
    }
}
