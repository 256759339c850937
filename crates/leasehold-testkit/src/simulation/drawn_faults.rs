//! Draws the planned faults of a world.

use std::time::Duration;

use super::fault::Fault;
use super::plan::Plan;
use super::planned::{Nodes, PlannedFault};
use crate::virtual_host::SeededRandom;

/// The longest time of most faults, and the shortest time without faults at the end of a run.
const FAULT_MAX: Duration = Duration::from_secs(3);
const CALM_MIN: Duration = Duration::from_secs(4);

/// The largest step of a clock, in milliseconds.
const STEP_MAX_MS: u64 = 40_000;

/// Draws at least five faults, early enough in the run to see how the world recovers.
pub(super) fn draw(random: &mut SeededRandom, plan: &Plan) -> Vec<PlannedFault> {
    // In a third of the worlds a server forgets or its clock steps. Both never happen, since
    // fencing tokens cannot survive a server that forgets after its clock went back.
    let beyond: &[Fault] = match random.below(6) {
        0 => &Fault::FORGETTING,
        1 => &Fault::STEPS,
        _ => &[],
    };
    // There are no faults at the end, so that the last requests are made without trouble.
    let felt = plan.bounds().aftermath() + FAULT_MAX + CALM_MIN;
    let troubled = (plan.span * 3 / 5).min(plan.span.saturating_sub(felt));
    let troubled_ms = u64::try_from(troubled.as_millis()).unwrap_or(u64::MAX).max(2_000);
    let number = 5 + random.below(8);
    let mut faults = (0..number)
        .map(|_| {
            let fault = if !beyond.is_empty() && random.once_in(3) {
                beyond[random.below(beyond.len())]
            } else {
                Fault::COVERED[random.below(Fault::COVERED.len())]
            };
            let at = Duration::from_millis(500 + random.next_u64() % (troubled_ms - 500));
            planned(random, fault, at, plan)
        })
        .collect::<Vec<_>>();
    faults.sort_by_key(|planned| planned.at);
    faults
}

/// Draws the extent of a fault that begins at `at`.
pub(super) fn planned(
    random: &mut SeededRandom,
    fault: Fault,
    at: Duration,
    plan: &Plan,
) -> PlannedFault {
    let ttl_ms = u64::try_from(plan.ttl_max().as_millis()).unwrap_or(u64::MAX);
    let (lasts_ms, much) = match fault {
        // The size is the longest delay of a message in milliseconds.
        Fault::Delay => (200 + random.next_u64() % 3_000, [20, 200, 1_000][random.below(3)]),
        Fault::Loss => (500 + random.next_u64() % 3_000, 3 + random.next_u64() % 20),
        // The size is the number of requests that are hit.
        Fault::ReplyLost | Fault::LateRequest | Fault::Duplicate => {
            (500 + random.next_u64() % (2 * ttl_ms), 1 + random.next_u64() % 4)
        }
        Fault::ClientCrash | Fault::ServerRestart | Fault::RestartEmpty | Fault::RestartOld => {
            (random.next_u64() % 1_000, random.next_u64())
        }
        // All steps together set a clock back by less than a counter is kept for.
        Fault::ClockStepForward | Fault::ClockStepBack => {
            (0, 1 + random.next_u64() % (2 * ttl_ms).min(STEP_MAX_MS))
        }
        Fault::Reset | Fault::SubscriberKill | Fault::ScriptFlush | Fault::Flushall => (0, 0),
        // The size is how many tenths of a second of data are lost.
        Fault::Failover => (random.next_u64() % 500, random.next_u64()),
        Fault::DroppedFuture => (500 + random.next_u64() % 3_000, 0),
        _ => (50 + random.next_u64() % (ttl_ms * 3 / 2), random.next_u64()),
    };
    let all = random.once_in(4);
    let client = (!all).then(|| random.below(plan.clients.len()));
    let lasts = Duration::from_millis(lasts_ms);
    PlannedFault { fault, at, lasts, client, much, nodes: Nodes::FIRST }
}
