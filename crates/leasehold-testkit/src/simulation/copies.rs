//! Worlds whose clients demand that replicas confirm each grant. A failover to a replica that has
//! confirmed a grant excuses no violation.

use std::time::Duration;

use leasehold::store::redis::Replicas;

use super::fault::Fault;
use super::kind::{Draw, Kind};
use super::plan::{Copied, Plan};
use super::planned::PlannedFault;
use super::replicas::ALL;
use crate::virtual_host::SeededRandom;

/// One world in this many has copies.
const COPIES_ONE_IN: usize = 8;

/// The largest number of replicas.
const REPLICAS_MAX: usize = 3;

/// Gives a world's server replicas if the seed says so. The choice uses its own random source, so
/// all other worlds stay as they are. A quorum gets no replicas, since it has several nodes
/// already.
///
/// Failovers replace the other faults that make a server forget, except at a strict server, where
/// everything is promised in any case.
pub(super) fn draw(draw: Draw<'_>, plan: &mut Plan) {
    let drawn = draw.of(Kind::Copies, 0xc091_e500_4e91, COPIES_ONE_IN);
    let Some(mut random) = drawn.filter(|_| !plan.is_quorum() && !plan.is_local()) else { return };
    let replicas = 1 + random.below(REPLICAS_MAX);
    let count = u8::try_from(1 + random.below(replicas)).expect("a few");
    let wanted = if random.once_in(3) { Replicas::Majority } else { Replicas::Count(count) };
    plan.copies = Some(Copied { replicas, wanted, disk_us: None });
    let is_strict = plan.strict.is_some();
    let mut meanwhile = Vec::new();
    for planned in &mut plan.faults {
        let stays = Fault::COVERED.contains(&planned.fault)
            || is_strict && Fault::FORGETTING.contains(&planned.fault);
        if stays && !random.once_in(3) {
            continue;
        }
        planned.fault = Fault::OF_COPIES[random.below(Fault::OF_COPIES.len())];
        (planned.lasts, planned.much) = extent(&mut random, planned.fault);
        // Missing data matters only if such a replica takes over before the data arrives.
        if planned.fault != Fault::FailoverCopies {
            let after = u64::try_from(planned.lasts.as_millis()).expect("short");
            let after = Duration::from_millis(after / 2 + random.next_u64() % (after / 2 + 1));
            let (fault, at) = (Fault::FailoverCopies, planned.at + after);
            let (lasts, much) = extent(&mut random, fault);
            meanwhile.push(PlannedFault { fault, at, lasts, much, ..*planned });
        }
    }
    plan.faults.append(&mut meanwhile);
    plan.faults.sort_by_key(|planned| planned.at);
}

/// How long a fault of copies lasts, and its size.
fn extent(random: &mut SeededRandom, fault: Fault) -> (Duration, u64) {
    let (lasts_ms, much) = match fault {
        // The size chooses among the fit replicas. After a short outage, more of the leases that
        // the replica lacks are still alive.
        Fault::FailoverCopies => {
            (random.next_u64() % [20, 100, 500][random.below(3)], random.next_u64())
        }
        // The size is the largest lag in milliseconds.
        Fault::ReplicaLag => (200 + random.next_u64() % 3_000, [5, 50, 500][random.below(3)]),
        // The size chooses the replicas. In half of the cases, it chooses all of them.
        _ => {
            let all = random.once_in(2);
            (50 + random.next_u64() % 3_000, if all { ALL } else { random.next_u64() })
        }
    };
    (Duration::from_millis(lasts_ms), much)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_world_in_eight_has_copies_and_promises_everything() {
        let (mut copied, mut strict, mut failing_over) = (0, 0, 0);
        for seed in 0..4_000 {
            let plan = Plan::among(
                seed,
                Duration::from_secs(30),
                &[Kind::Quorum, Kind::Strict, Kind::Copies],
            );
            let of_copies = |one: &PlannedFault| Fault::OF_COPIES.contains(&one.fault);
            let Some(copies) = plan.copies else {
                assert!(!plan.faults.iter().any(of_copies), "nobody wants copies: seed {seed}");
                continue;
            };
            copied += 1;
            strict += u32::from(plan.strict.is_some());
            let fails_over = |one: &PlannedFault| one.fault == Fault::FailoverCopies;
            failing_over += u32::from(plan.faults.iter().any(fails_over));
            assert!(plan.is_covered() && !plan.is_quorum(), "seed {seed}");
            if let Replicas::Count(count) = copies.wanted {
                assert!((1..=copies.replicas).contains(&count.into()), "seed {seed}");
            }
        }
        assert!((350..550).contains(&copied), "{copied} of 4 000 worlds have copies");
        assert!((25..100).contains(&strict), "{strict} of them are strict");
        assert!(
            failing_over > copied * 2 / 3,
            "in {failing_over} of {copied} a replica takes over"
        );
    }
}
