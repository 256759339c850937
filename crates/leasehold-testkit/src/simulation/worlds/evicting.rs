//! Worlds whose one server is short of memory and evicts keys.

use std::time::Duration;

use super::{Draw, Kind};
use crate::simulation::fault::Fault;
use crate::simulation::nodes::Nodes;
use crate::simulation::plan::{Plan, PlannedFault};

/// One world in so many.
const ONE_IN: usize = 16;

/// Makes a world one of a server that evicts, if its seed says so. Nothing is promised of its
/// windows; fencing tokens rise, and nothing hangs or stays. Not where all is promised.
pub(super) fn draw(draw: Draw<'_>, plan: &mut Plan) {
    let Some(mut random) = draw.of(Kind::Evicting, 0x0e71_c700_0a11, ONE_IN) else { return };
    if plan.is_quorum()
        || plan.is_local()
        || plan.strict.is_some()
        || plan.copies.is_some()
        || plan.pace > 1
    {
        return;
    }
    // A counter that is lost is begun anew from the clock: that must not have been set back.
    plan.faults.retain(|planned| !Fault::STEPS.contains(&planned.fault));
    plan.clocks.iter_mut().for_each(|clock| clock.jitter_us = 0);
    let within_ms = u64::try_from(plan.span.as_millis() / 2).expect("some seconds");
    for _ in 0..3 + random.below(4) {
        plan.faults.push(PlannedFault {
            fault: Fault::Eviction,
            at: Duration::from_millis(500 + random.next_u64() % within_ms),
            lasts: Duration::from_millis(500 + random.next_u64() % 3_000),
            client: None,
            // Before how many requests one key goes.
            much: [3, 10, 50][random.below(3)],
            nodes: Nodes::FIRST,
        });
    }
    plan.faults.sort_by_key(|planned| planned.at);
}
