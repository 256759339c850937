//! Worlds whose leases last and are held for minutes and hours.
//!
//! The whole world is stretched. It lasts longer, and every client takes more time for everything.
//! So it has as many events as other worlds, and costs as little.

use std::time::Duration;

use crate::simulation::kind::{Draw, Kind};
use crate::simulation::plan::{KeptIn, Plan};
use crate::virtual_host::SeededRandom;

/// One world in this many has long leases.
const ONE_IN: usize = 16;

const MINUTE: Duration = Duration::from_mins(1);

/// How long a fencing counter is kept without a lease. Leases are held for longer than that.
pub(in crate::simulation) const COUNTER_KEPT_FOR: Duration = Duration::from_mins(10);

/// The ttls of a world in seconds, and its length in minutes. With the longest ttls, more time
/// passes between two renewals than a counter is kept for.
const SIZES: [(&[u64], u32); 4] =
    [(&[90], 50), (&[90, 300], 60), (&[1_200], 120), (&[2_700, 7_200], 300)];

/// The largest number of clients. Each looks at its clock ten times a second.
const CLIENTS_MAX: usize = 3;

/// Gives a world long leases if its seed says so. Returns whether it did. A quorum never has long
/// leases, because its nodes are probed every second. A file has none either, because it is polled
/// all the time.
pub(super) fn draw(draw: Draw<'_>, plan: &mut Plan) -> bool {
    let Some(mut random) = draw.of(Kind::Long, 0x0010_4600_77e5, ONE_IN) else { return false };
    if plan.is_quorum() || plan.kept_in == KeptIn::File {
        return false;
    }
    let usual = plan.span;
    let (ttls, minutes) = SIZES[random.below(SIZES.len())];
    plan.span = MINUTE * minutes;
    plan.pace = (plan.span.as_secs() / usual.as_secs().max(1)).max(2);
    plan.clients.truncate(CLIENTS_MAX);
    let pace = u32::try_from(plan.pace).expect("some hundreds");
    for client in &mut plan.clients {
        client.ttl = Duration::from_secs(ttls[random.below(ttls.len())]);
        client.is_hot = false;
        client.tasks = client.tasks.min(3);
        client.shut_down_after = client.shut_down_after.map(|after| after * pace);
        if !client.keep_idle.is_zero() {
            client.keep_idle = [MINUTE, client.ttl][random.below(2)];
        }
    }
    let tenth = plan.ttl_max() / 10;
    plan.lock_delay = [Duration::ZERO, Duration::ZERO, tenth][random.below(3)];
    true
}

/// How long a long lease is held, which is longer than its counter would live by itself.
pub(in crate::simulation) fn long_span(random: &mut SeededRandom, ttl: Duration) -> Duration {
    let least = COUNTER_KEPT_FOR.max(ttl) * 5 / 4;
    let more_ms = u64::try_from(least.as_millis()).expect("hours");
    least + Duration::from_millis(random.next_u64() % more_ms)
}
