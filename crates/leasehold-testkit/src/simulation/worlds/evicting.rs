//! Worlds with one server that is short of memory and evicts keys.

use std::time::Duration;

use crate::simulation::fault::Fault;
use crate::simulation::kind::{Draw, Kind};
use crate::simulation::plan::Plan;
use crate::simulation::planned::{Nodes, PlannedFault};

/// One world in this many has a server that evicts.
const ONE_IN: usize = 16;

/// Makes the server of a world evict keys if its seed says so. In such a world, exclusive windows
/// are not promised. But fencing tokens rise, no call hangs, and no key stays for ever. Worlds that
/// promise everything have no eviction.
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
    // A lost counter starts again from the clock, which must not have been set back.
    plan.faults.retain(|planned| !Fault::STEPS.contains(&planned.fault));
    plan.clocks.iter_mut().for_each(|clock| clock.jitter_us = 0);
    let within_ms = u64::try_from(plan.span.as_millis() / 2).expect("some seconds");
    for _ in 0..3 + random.below(4) {
        plan.faults.push(PlannedFault {
            fault: Fault::Eviction,
            at: Duration::from_millis(500 + random.next_u64() % within_ms),
            lasts: Duration::from_millis(500 + random.next_u64() % 3_000),
            client: None,
            // The server evicts one key in this many requests.
            much: [3, 10, 50][random.below(3)],
            nodes: Nodes::FIRST,
        });
    }
    plan.faults.sort_by_key(|planned| planned.at);
}
