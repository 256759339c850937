//! Worlds whose servers are strict: what they forget excuses nothing there.

use std::time::Duration;

use leasehold::core::Moment;
use leasehold::store::redis::Strict;

use super::fault::Fault;
use super::plan::Plan;
use super::worlds::{Draw, Kind};
use crate::virtual_host::UP_AT_START;

/// One world in so many.
const STRICT_ONE_IN: usize = 8;

/// Makes a world one of strict servers, if its seed says so: drawn apart, so that all other worlds
/// are what they would be without.
///
/// A minute of quarantine would be the whole world, so it is as long as the longest lease there, or
/// as far as clocks drift apart if that is longer, and not a millisecond more: the margin that it
/// has in production is for clocks that step. What forgets goes on counting fencing tokens from its
/// clock, so the clocks of nodes have to agree to within a quarantine: they are set right when the
/// world begins.
pub(super) fn draw(draw: Draw<'_>, plan: &mut Plan) {
    let drawn = draw.of(Kind::Strict, 0x0057_71c7_0e8a, STRICT_ONE_IN);
    let Some(mut random) = drawn else { return };
    // Nothing is promised of windows where nodes evict locks, so there is nothing to be seen.
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
        // Nothing is promised of clocks that step, also here.
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

    /// Or fencing tokens could fall: what a node forgot, it counts on from its clock.
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
