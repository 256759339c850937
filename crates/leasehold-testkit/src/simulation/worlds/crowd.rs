//! Worlds in which one client has a thousand leases or more at the same time.

use std::sync::Arc;
use std::time::Duration;

use crate::simulation::kind::{Draw, Kind};
use crate::simulation::plan::{KeptIn, Plan};
use crate::simulation::worker::Worker;
use crate::virtual_host::SeededRandom;

/// One world in this many has a crowd. Such worlds cost several times the work.
const ONE_IN: usize = 32;

/// The shortest ttl of the client with the crowd. Its leases are checked a part at a time, and a
/// renewal must be seen before the deadline that it extends.
const TTL_MIN: Duration = Duration::from_secs(2);

/// Gives a world a crowd of leases if its seed says so. It does not if a lease costs more than one
/// request, or lasts for hours.
pub(super) fn draw(draw: Draw<'_>, plan: &mut Plan) {
    let Some(mut random) = draw.of(Kind::Crowd, 0x000c_4071_d5ed, ONE_IN) else { return };
    if plan.is_quorum()
        || plan.kept_in == KeptIn::File
        || plan.copies.is_some()
        || plan.strict.is_some()
        || plan.pace > 1
    {
        return;
    }
    plan.crowd = [1_000, 1_500, 3_000][random.below(3)];
    let first = &mut plan.clients[0];
    first.ttl = first.ttl.max(TTL_MIN);
    first.shut_down_after = None;
}

/// Takes all leases of the crowd together, holds them until they were renewed, and gives them up.
pub(in crate::simulation) async fn hoard(worker: Worker, mut random: SeededRandom) {
    let plan = &worker.world().plan;
    let (crowd, ttl, span) = (plan.crowd, plan.clients[0].ttl, plan.span);
    // These are the names that the server uses.
    let namespace = plan.clients[0].namespace.map(|namespace| format!("{namespace}:"));
    let namespace = namespace.unwrap_or_default();
    let begins_ms = u64::try_from(span.as_millis() / 2).expect("some seconds");
    let now = worker.now();
    worker.sleep_until(now + Duration::from_millis(random.next_u64() % begins_ms)).await;
    let until = worker.now() + ttl * 3 / 2;
    for number in 0..crowd {
        let key = Arc::from(format!("{namespace}one of many {number}"));
        let one = worker.another(SeededRandom::new(random.next_u64()));
        worker.spawn(Box::pin(one.hold_one_of_many(key, until)));
    }
}
