//! Worlds in which some locks are taken by work that is done once per period.

use std::sync::Arc;
use std::time::Duration;

use leasehold::Run;

use super::keeping::{Kept, leave_taken};
use crate::cut_after;
use crate::history::event::{CallKind, Name, Outcome, WindowId};
use crate::simulation::kind::{Draw, Kind};
use crate::simulation::plan::{KEPT_TTLS, Plan};
use crate::simulation::worker::{Worker, outcome_of};

/// One world in this many has such work.
const ONE_IN: usize = 16;

/// The longest time that the work takes.
const WORKS_MAX: Duration = Duration::from_millis(60);

/// Gives a world work that is done once per period if its seed says so. The same kinds exclude it
/// as for guards that leave their key taken. A lock of this kind also neither shares nor polls.
pub(super) fn draw(draw: Draw<'_>, plan: &mut Plan) {
    let is_other =
        [Kind::Strict, Kind::Long, Kind::Shared, Kind::Permits, Kind::Coexist, Kind::Bare];
    let is_other = is_other.into_iter().any(|kind| plan.is(kind));
    plan.runs_once = draw.of(Kind::Once, 0x000c_e0ce_0ce0, ONE_IN).is_some() && !is_other;
}

/// Starts work if it was not done in this period, does it, and reports how it went.
pub(in crate::simulation) async fn run_once(worker: &mut Worker, key: &Name) {
    let ttl = worker.ttl();
    // A shorter period would be refused.
    let least = ttl + worker.world().plan.lock_delay;
    let period = least + worker.span_up_to(ttl * (KEPT_TTLS - 1));
    let once = worker.client().once(worker.name_of(key), period).ttl(ttl);
    let call = worker.called_for(key, CallKind::TryLock, Duration::ZERO);
    let polls = worker.cut();
    let starting = worker.world().log.during([(Arc::clone(key), call)], once.start());
    let outcome = match cut_after(polls, starting).await {
        None => Outcome::Dropped,
        Some(Ok(None)) => Outcome::Taken,
        Some(Err(error)) => outcome_of(&error),
        Some(Ok(Some(run))) => {
            let (run, granted) = (Arc::new(run), worker.now());
            let window = worker.world().granted(call, worker.process(), key, &run);
            worker.world().returned(call, Outcome::Granted);
            return work(worker, (key, window), run, Kept { granted, ttl, span: period }).await;
        }
    };
    worker.world().returned(call, outcome);
}

async fn work(worker: &mut Worker, (key, window): (&Name, WindowId), run: Arc<Run>, kept: Kept) {
    let until = worker.now() + worker.span_up_to(WORKS_MAX);
    if worker.before(until, run.lost()).await.is_some() {
        return worker.world().told_lost(window);
    }
    let Some(run) = Arc::into_inner(run) else { unreachable!("nobody keeps a run") };
    if worker.below(3) == 0 {
        worker.world().gives_up(window, Duration::ZERO);
        return drop(run);
    }
    worker.world().did("done once");
    let held_until = worker.now() + run.guard().remaining();
    leave_taken(worker, (key, window), (held_until, kept), || run.done()).await;
}
