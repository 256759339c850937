//! Worlds in which some holds are limited, and some holders would go on.

use std::time::Duration;

use crate::simulation::kind::{Draw, Kind};
use crate::simulation::plan::Plan;
use crate::simulation::worker::Worker;
use crate::virtual_host::SeededRandom;

/// One world in this many limits holds.
const ONE_IN: usize = 10;

/// One mutex in this many has a limit, in such worlds.
const LIMITED_ONE_IN: usize = 12;

/// Limits some holds of a world if its seed says so. In worlds of hours, holders work for so long
/// that most of them would reach their limits.
pub(super) fn draw(draw: Draw<'_>, plan: &mut Plan) {
    let is_drawn = draw.of(Kind::Bounded, 0x0b00_4de0_0d1e, ONE_IN).is_some();
    plan.limits_holds = is_drawn && !plan.is(Kind::Long);
}

/// Draws the limit of a hold. The library refuses one that is shorter than `least`.
pub(in crate::simulation) fn max_hold(
    world: &Plan,
    least: Duration,
    random: &mut SeededRandom,
) -> Option<Duration> {
    if !world.limits_holds || !random.once_in(LIMITED_ONE_IN) {
        return None;
    }
    let percent = u32::try_from(random.below(100)).expect("below 100");
    Some(least + least * percent / 100)
}

/// How long a task wants to hold a lock with this limit and ttl, if it usually holds it for `span`.
/// Half of the holds with a limit would go on beyond it.
pub(in crate::simulation) fn goes_over(
    worker: &mut Worker,
    (limit, ttl): (Option<Duration>, Duration),
    span: Duration,
) -> Duration {
    match limit {
        Some(limit) if worker.below(2) == 0 => limit + ttl,
        _ => span,
    }
}
