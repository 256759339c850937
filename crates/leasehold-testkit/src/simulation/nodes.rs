//! The nodes of a world: one server, or the nodes of a quorum.

use std::time::Duration;

use super::clock::{self, ServerClock};
use super::fault::Fault;
use super::kind::{Draw, Kind};
use super::plan::Plan;
use super::planned::{Nodes, PlannedFault};
use crate::virtual_host::SeededRandom;

/// One world in this many has a quorum. Such worlds cost several times the work.
const QUORUM_ONE_IN: usize = 8;

/// In one quorum world in this many, nodes evict keys.
const EVICTING_ONE_IN: usize = 2;

/// Makes a world use a quorum if its seed says so. The choice uses its own random source, so all
/// other worlds stay as they are.
pub(super) fn draw(draw: Draw<'_>, plan: &mut Plan) {
    let drawn = draw.of(Kind::Quorum, 0x0000_5ea7_b0a7, QUORUM_ONE_IN);
    let Some(mut random) = drawn else { return };
    let all = [3, 3, 3, 5, 5, 4][random.below(6)];
    let drifts = !plan.clocks[0].is_right();
    plan.clocks = (0..all)
        .map(|_| if drifts { clock::drawn(&mut random) } else { ServerClock::default() })
        .collect();
    for planned in &mut plan.faults {
        if !Fault::COVERED.contains(&planned.fault) {
            // No quorum is safe when nodes forget, so these faults are replaced.
            planned.fault = [Fault::ServerRestart, Fault::Partition][random.below(2)];
        }
        let minority = (all - 1) / 2;
        // Sometimes a fault hits all nodes at the same time. Then no client gets a lock, but no
        // promise is broken.
        let number = if random.once_in(8) { all } else { 1 + random.below(minority) };
        planned.nodes = Nodes::some(&mut random, number, all);
    }
    if random.once_in(EVICTING_ONE_IN) {
        evictions(&mut random, plan);
    }
}

/// Lets nodes evict locks. Other nodes may be out of reach as well, so no quorum promises exclusive
/// windows then. But fencing tokens still rise, as long as the counters stay.
fn evictions(random: &mut SeededRandom, plan: &mut Plan) {
    let (first, last) = match &plan.faults[..] {
        [first, .., last] => (first.at, last.at),
        _ => return,
    };
    for _ in 0..1 + random.below(3) {
        let after =
            random.next_u64() % u64::try_from((last - first).as_millis() + 1).expect("short");
        let all = plan.nodes();
        let number = 1 + random.below(all);
        plan.faults.push(PlannedFault {
            fault: Fault::Eviction,
            at: first + Duration::from_millis(after),
            lasts: Duration::from_millis(500 + random.next_u64() % 3_000),
            client: None,
            // The server evicts one lock in this many requests.
            much: [3, 10, 50][random.below(3)],
            nodes: Nodes::some(random, number, all),
        });
    }
    plan.faults.sort_by_key(|planned| planned.at);
}
