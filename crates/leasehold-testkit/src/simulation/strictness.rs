//! Worlds whose servers are strict: what they forget excuses nothing there.

use std::time::Duration;

use leasehold::core::Moment;
use leasehold::store::redis::Strict;

use super::fault::Fault;
use super::plan::Plan;
use crate::virtual_host::{SeededRandom, UP_AT_START};

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
pub(super) fn draw(seed: u64, plan: &mut Plan) {
    let mut random = SeededRandom::new(SeededRandom::new(seed).next_u64() ^ 0x0057_71c7_0e8a);
    // Nothing is promised of windows where nodes evict locks, so there is nothing to be seen.
    let evicts = plan.faults.iter().any(|planned| planned.fault == Fault::Eviction);
    if random.below(STRICT_ONE_IN) != STRICT_ONE_IN / 2 || evicts {
        return;
    }
    let longest = plan.ttl_max() + plan.lock_delay;
    plan.strict = Some(Strict::of(longest, longest.max(plan.clocks_apart_max())));
    for clock in &mut plan.clocks {
        clock.set_right_at(Moment::from_nanos(0) + UP_AT_START);
    }
    for planned in &mut plan.faults {
        // Nothing is promised of clocks that step, also here.
        if Fault::STEPS.contains(&planned.fault) || random.once_in(3) {
            planned.fault = Fault::FORGETTING[random.below(Fault::FORGETTING.len())];
            planned.lasts = Duration::from_millis(random.next_u64() % 500);
            planned.much = random.next_u64();
        }
    }
}
