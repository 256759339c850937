//! Worlds whose servers are strict. A forgetting server excuses no violation there.

use std::time::Duration;

use leasehold::core::Moment;
use leasehold::store::redis::Strict;

use super::fault::Fault;
use super::kind::{Draw, Kind};
use super::plan::Plan;
use crate::virtual_host::UP_AT_START;

/// One world in this many is strict.
const STRICT_ONE_IN: usize = 8;

/// Makes a world's servers strict if its seed says so. The choice uses its own random source, so
/// all other worlds stay as they are.
///
/// A quarantine of a minute would fill the whole world. So it is as long as the longest lease, or
/// as the largest drift between clocks if that is longer. Production adds a margin for clocks that
/// step. A server that forgot derives new fencing tokens from its clock. So the clocks of nodes
/// must agree to within a quarantine. They are set right when the world begins.
pub(super) fn draw(draw: Draw<'_>, plan: &mut Plan) {
    let drawn = draw.of(Kind::Strict, 0x0057_71c7_0e8a, STRICT_ONE_IN);
    let Some(mut random) = drawn else { return };
    // Evicted locks void the promise of exclusive windows, so there would be nothing to check.
    let evicts = plan.faults.iter().any(|planned| planned.fault == Fault::Eviction);
    if evicts || plan.is_local() {
        return;
    }
    let longest = plan.ttl_max() + plan.lock_delay;
    plan.strict = Some(Strict::new(longest, longest.max(plan.clocks_apart_max())));
    for clock in &mut plan.clocks {
        clock.set_right_at(Moment::from_nanos(0) + UP_AT_START);
    }
    for planned in &mut plan.faults {
        // Stepping clocks void all promises, even of strict servers.
        if Fault::STEPS.contains(&planned.fault) || random.once_in(3) {
            let forgetting = [&Fault::FORGETTING[..], &Fault::OF_STRICT].concat();
            planned.fault = forgetting[random.below(forgetting.len())];
            planned.lasts = Duration::from_millis(random.next_u64() % 500);
            planned.much = random.next_u64();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Otherwise fencing tokens could fall, since a node that forgot continues from its clock.
    #[test]
    fn clocks_are_less_than_a_quarantine_apart_for_as_long_as_a_strict_world_lasts() {
        let time = Duration::from_secs(30);
        let begin = Moment::from_nanos(0) + UP_AT_START;
        let mut drifting = 0;
        for plan in (0..2_000).map(|seed| Plan::new(seed, time)) {
            let Some(strict) = plan.strict else { continue };
            let end = begin + plan.span + plan.kept_for();
            for moment in [begin, end] {
                let shown = || plan.clocks.iter().map(|clock| clock.at(moment));
                let apart = shown().max().expect("a node") - shown().min().expect("a node");
                let apart = Duration::from_micros(apart);
                assert!(apart < strict.quarantine(), "seed {}: {apart:?}", plan.seed);
                drifting += u32::from(apart > Duration::from_millis(10));
            }
        }
        assert!(drifting > 0, "all of them agree");
    }
}
