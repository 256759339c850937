//! Worlds with latches, in addition to the locks of other worlds: one latch after the other. All
//! clients count each latch down and wait for it.

use std::sync::Arc;
use std::time::Duration;

use leasehold::core::Moment;
use leasehold::host::Host as _;
use leasehold::{CountDown, Error, Latch};

use super::sharing::may_share;
use crate::cut_after;
use crate::history::event::{CallId, CallKind, Name, Outcome, What};
use crate::simulation::kind::{Draw, Kind};
use crate::simulation::plan::Plan;
use crate::simulation::worker::{Worker, outcome_of};

/// One world in this many has latches.
const ONE_IN: usize = 16;

/// The most counts of a latch.
const COUNT_MAX: usize = 8;

/// How long a latch is used before all clients turn to the next one.
const ROUND: Duration = Duration::from_secs(4);

/// How long a count lasts. This is longer than a run, whatever happens to the clocks.
const KEPT_FOR: Duration = Duration::from_hours(1);

/// The longest wait of a task for a latch, and its longest pause between two calls.
const WAITS_MAX: Duration = Duration::from_secs(5);
const PAUSES_MAX_MS: u64 = 800;

/// Gives a world latches if its seed says so.
pub(super) fn draw(draw: Draw<'_>, plan: &mut Plan) {
    let Some(mut random) = draw.of(Kind::Latched, 0x001a_7c4e_d000, ONE_IN) else { return };
    if may_share(plan) {
        plan.latch = Some(u32::try_from(1 + random.below(COUNT_MAX)).expect("a few"));
    }
}

/// Counts latches down, waits for them, and looks at their counts, until `until` or until the run
/// ends.
pub(in crate::simulation) async fn use_latches(
    mut worker: Worker,
    count: u32,
    until: Option<Moment>,
) {
    while worker.goes_on(until) {
        let now = worker.world().host.now().as_nanos();
        let round = u128::from(now) / ROUND.as_nanos();
        let key = worker.key_named(&format!("latch {round}"));
        worker.world().log.push(What::Latches { key: Arc::clone(&key), of: count });
        let latch = worker.client().latch(worker.name_of(&key), count).keep(KEPT_FOR);
        match worker.below(10) {
            0..5 => count_down(&mut worker, &key, &latch).await,
            5..7 => look(&mut worker, &key, &latch).await,
            _ => wait(&mut worker, &key, &latch).await,
        }
        worker.pause(PAUSES_MAX_MS).await;
    }
}

async fn count_down(worker: &mut Worker, key: &Name, latch: &Latch) {
    // The call tries twice, and then looks at the latch if it was refused.
    let longest = 2 * worker.request_limit();
    let call = worker.called_for(key, CallKind::CountDown, longest);
    match of_call(worker, (key, call), latch.count_down()).await {
        Ok(CountDown::Counted) => {
            worker.world().returned(call, Outcome::Done);
            worker.world().did("counted down");
        }
        Ok(CountDown::AlreadyOpen) => {
            worker.world().log.push(What::Remains { call, left: 0 });
            worker.world().returned(call, Outcome::Taken);
        }
        Err(outcome) => worker.world().returned(call, outcome),
    }
}

async fn look(worker: &mut Worker, key: &Name, latch: &Latch) {
    let call = worker.called_for(key, CallKind::Look, Duration::ZERO);
    match of_call(worker, (key, call), latch.remaining()).await {
        Ok(left) => {
            worker.world().log.push(What::Remains { call, left });
            worker.world().returned(call, Outcome::Done);
        }
        Err(outcome) => worker.world().returned(call, outcome),
    }
}

async fn wait(worker: &mut Worker, key: &Name, latch: &Latch) {
    let wait = worker.span_up_to(WAITS_MAX);
    let call = worker.called_for(key, CallKind::AwaitLatch, wait);
    match of_call(worker, (key, call), latch.wait_timeout(wait)).await {
        Ok(()) => {
            worker.world().log.push(What::Remains { call, left: 0 });
            worker.world().returned(call, Outcome::Done);
            worker.world().did("waited for a latch");
        }
        Err(outcome) => worker.world().returned(call, outcome),
    }
}

/// Runs a call, which may be dropped half way. Returns its answer, or how it ended without one.
async fn of_call<T>(
    worker: &mut Worker,
    (key, call): (&Name, CallId),
    calling: impl Future<Output = Result<T, Error>>,
) -> Result<T, Outcome> {
    let polls = worker.cut();
    let calling = worker.world().log.during([(Arc::clone(key), call)], calling);
    match cut_after(polls, calling).await {
        None => Err(Outcome::Dropped),
        Some(answer) => answer.map_err(|error| outcome_of(&error)),
    }
}
