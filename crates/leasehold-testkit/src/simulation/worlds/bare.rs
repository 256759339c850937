//! Worlds in which no client queues. Most locks are a single key.

use std::time::Duration;

use crate::simulation::kind::{Draw, Kind};
use crate::simulation::plan::Plan;

/// One world in this many has unqueued locks.
const ONE_IN: usize = 8;

/// Makes all locks of a world unqueued if its seed says so. All clients must lock in this way, as
/// GUARANTEES.md asks.
pub(super) fn draw(draw: Draw<'_>, plan: &mut Plan) {
    let Some(mut random) = draw.of(Kind::Bare, 0x0ba4_e10c_c500, ONE_IN) else { return };
    if plan.is_quorum() || plan.coexists || plan.pace > 1 {
        return;
    }
    plan.is_unqueued = true;
    // A lock with fencing tokens needs a script and a counter.
    let all_are_plain = random.once_in(2);
    for client in &mut plan.clients {
        (client.is_fifo, client.is_mixed, client.why) = (false, false, None);
        client.keep_idle = Duration::ZERO;
        client.is_fenced = !all_are_plain && random.once_in(2);
    }
}
