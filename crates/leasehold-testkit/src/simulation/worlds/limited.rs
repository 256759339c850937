//! Worlds with a limit on how often work starts, in addition to the locks of other worlds.

use std::sync::Arc;
use std::time::Duration;

use leasehold::core::Moment;

use super::sharing::may_share;
use crate::cut_after;
use crate::history::event::{CallKind, Outcome, What};
use crate::simulation::kind::{Draw, Kind};
use crate::simulation::plan::{Limit, Plan};
use crate::simulation::worker::{Worker, outcome_of};

/// One world in this many has a limit.
const ONE_IN: usize = 16;

/// The limits: how many starts, and the period.
const STARTS_MAX: usize = 4;
const PERIODS_MS: [u64; 4] = [200, 700, 2_000, 4_000];

/// The longest wait of a start for its turn, and the longest pause of a task after it.
const WAITS_MAX: Duration = Duration::from_millis(2_500);
const PAUSES_MAX_MS: u64 = 300;

/// Limits the starts of a world if its seed says so.
pub(super) fn draw(draw: Draw<'_>, plan: &mut Plan) {
    let Some(mut random) = draw.of(Kind::Limited, 0x011a_17ed_0000, ONE_IN) else { return };
    if may_share(plan) {
        let starts = u32::try_from(1 + random.below(STARTS_MAX)).expect("a few");
        let per = Duration::from_millis(PERIODS_MS[random.below(PERIODS_MS.len())]);
        plan.limit = Some(Limit { starts, per });
    }
}

/// Starts work as often as the limit allows, until `until` or until the run ends.
pub(in crate::simulation) async fn start_work(
    mut worker: Worker,
    Limit { starts, per }: Limit,
    until: Option<Moment>,
) {
    let key = worker.key_named("starts");
    let rate = worker.client().rate_limit(worker.name_of(&key), starts, per);
    worker.world().log.push(What::Limits { key: Arc::clone(&key), of: starts, per });
    while worker.goes_on(until) {
        let wait = worker.span_up_to(WAITS_MAX);
        let wait = (worker.below(3) > 0).then_some(wait);
        // The store confirms a start before its lease ends, or not at all.
        let longest = wait.unwrap_or_default() + worker.ttl();
        let call = worker.called_for(&key, CallKind::Start, longest);
        let polls = worker.cut();
        let starting = async {
            match wait {
                Some(wait) => rate.start_timeout(wait).await.map(|()| true),
                None => rate.try_start().await,
            }
        };
        let starting = worker.world().log.during([(Arc::clone(&key), call)], starting);
        let outcome = match cut_after(polls, starting).await {
            None => Outcome::Dropped,
            Some(Ok(true)) => Outcome::Done,
            Some(Ok(false)) => Outcome::Taken,
            Some(Err(error)) => outcome_of(&error),
        };
        worker.world().returned(call, outcome);
        match outcome {
            Outcome::Done => worker.world().did("started within a limit"),
            Outcome::Taken => worker.world().did("refused by a limit"),
            _ => {}
        }
        worker.pause(PAUSES_MAX_MS).await;
    }
}
