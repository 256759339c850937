//! Worlds whose clients want grants on the server's disk. All counted data survives a power cut.

use std::time::Duration;

use leasehold::store::redis::Replicas;

use crate::simulation::fault::Fault;
use crate::simulation::kind::{Draw, Kind};
use crate::simulation::plan::{Copied, Plan};
use crate::simulation::planned::{Nodes, PlannedFault};
use crate::virtual_host::SeededRandom;

/// One world in this many has a disk.
const ONE_IN: usize = 16;

/// The shortest and longest time of a write to disk, in microseconds.
const DISKS: [(u64, u64); 3] = [(200, 2_000), (1_000, 10_000), (5_000, 25_000)];

/// How many power cuts are added to those that replace other faults.
const MORE_CUTS: usize = 8;

/// Gives the server of a world a disk if its seed says so, besides its replicas if there are any. A
/// quorum and a world without a server get none.
pub(super) fn draw(draw: Draw<'_>, plan: &mut Plan) {
    let Some(mut random) = draw.of(Kind::Fsync, 0xf517_c000_d15c, ONE_IN) else { return };
    if plan.is_quorum() || plan.is_local() || plan.pace > 1 {
        return;
    }
    // An acquire waits for copies for an eighth of its ttl, and some ttls are two thirds of the
    // client's.
    let shortest = plan.clients.iter().map(|client| client.ttl).min().unwrap_or_default();
    let longest_us = u64::try_from(shortest.as_micros() / 24).expect("some seconds");
    let alone = || Copied { replicas: 0, wanted: Replicas::Count(0), disk_us: None };
    let copied = plan.copies.get_or_insert_with(alone);
    let (least, most) = DISKS[random.below(DISKS.len())];
    copied.disk_us = Some((least.min(longest_us / 2), most.min(longest_us)));
    let is_strict = plan.strict.is_some();
    for planned in &mut plan.faults {
        let stays = Fault::COVERED.contains(&planned.fault)
            || Fault::OF_COPIES.contains(&planned.fault)
            || is_strict && Fault::FORGETTING.contains(&planned.fault)
            || is_strict && Fault::OF_STRICT.contains(&planned.fault);
        if stays && !random.once_in(3) {
            continue;
        }
        (planned.fault, planned.lasts) = (Fault::PowerCut, away(&mut random));
    }
    // Add power cuts, since few of them happen while the disk lacks something.
    let Some(last) = plan.faults.last().map(|planned| planned.at) else { return };
    let last_ms = u64::try_from(last.as_millis()).expect("some seconds").max(501);
    for _ in 0..MORE_CUTS {
        plan.faults.push(PlannedFault {
            fault: Fault::PowerCut,
            at: Duration::from_millis(500 + random.next_u64() % (last_ms - 500)),
            lasts: away(&mut random),
            client: None,
            much: 0,
            nodes: Nodes::FIRST,
        });
    }
    plan.faults.sort_by_key(|planned| planned.at);
}

/// How long the server is away. After a short time, more of the leases that the disk lacks are
/// still alive.
fn away(random: &mut SeededRandom) -> Duration {
    let longest_ms = [20, 20, 100, 500][random.below(4)];
    Duration::from_millis(random.next_u64() % longest_ms)
}
