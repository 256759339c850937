//! Worlds whose leases last for minutes and hours, and are held for as long.
//!
//! A world is stretched as a whole: it lasts longer, and everybody takes that much more time for
//! everything. So it has as many events as others, and costs as little.

use std::time::Duration;

use super::{Draw, Kind};
use crate::simulation::plan::{KeptIn, Plan};
use crate::virtual_host::SeededRandom;

/// One world in so many.
const ONE_IN: usize = 16;

const MINUTE: Duration = Duration::from_mins(1);

/// For how long a fencing counter is kept of which nobody has a lease: leases are held for longer
/// than that.
pub(in crate::simulation) const COUNTER_KEPT_FOR: Duration = Duration::from_mins(10);

/// The ttls of a world in seconds, and for how many minutes it goes on. Between two renewals of the
/// longest ones lies more than a counter is kept for.
const SIZES: [(&[u64], u32); 4] =
    [(&[90], 50), (&[90, 300], 60), (&[1_200], 120), (&[2_700, 7_200], 300)];

/// How many clients there are at most: each looks at its clock ten times a second.
const CLIENTS_MAX: usize = 3;

/// Makes a world one of long leases, if its seed says so, and returns whether it did. Never that of
/// a quorum, whose nodes are tried every second, or of a file, which is looked at all the time.
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

/// For how long a long lease is held: longer than its counter would stay by itself.
pub(in crate::simulation) fn long_span(random: &mut SeededRandom, ttl: Duration) -> Duration {
    let least = COUNTER_KEPT_FOR.max(ttl) * 5 / 4;
    let more_ms = u64::try_from(least.as_millis()).expect("hours");
    least + Duration::from_millis(random.next_u64() % more_ms)
}
