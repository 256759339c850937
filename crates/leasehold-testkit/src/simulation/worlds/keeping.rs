//! Worlds in which some guards leave their key taken, as work does that is done once per period.

use std::sync::Arc;
use std::time::Duration;

use leasehold::core::Moment;
use leasehold::{Error, ErrorKind, Guard, Release};

use crate::history::Bounds;
use crate::history::event::{CallKind, Name, Outcome, WindowId};
use crate::simulation::kind::{Draw, Kind};
use crate::simulation::plan::{KEPT_TTLS, Plan};
use crate::simulation::worker::{Worker, outcome_of};
use crate::virtual_host::SeededRandom;

/// One world in this many leaves keys taken.
const ONE_IN: usize = 8;

/// One mutex in this many has a `min_hold`, in worlds that leave keys taken.
const MIN_HOLD_ONE_IN: usize = 12;

/// Makes the guards of a world leave their keys taken if its seed says so. A strict server keeps no
/// lease for longer than its longest ttl.
pub(super) fn draw(draw: Draw<'_>, plan: &mut Plan) {
    let is_other = plan.is(Kind::Strict) || plan.is(Kind::Long);
    plan.keeps = draw.of(Kind::Keeping, 0x0c3e_9e75_0f0a, ONE_IN).is_some() && !is_other;
}

/// When a lease was granted, its ttl, and how long after its grant the key stays taken.
#[derive(Clone, Copy)]
pub(in crate::simulation) struct Kept {
    pub(in crate::simulation) granted: Moment,
    pub(in crate::simulation) ttl: Duration,
    pub(in crate::simulation) span: Duration,
}

/// Draws how long a mutex stays taken after each grant, at least.
pub(in crate::simulation) fn min_hold(
    world: &Plan,
    ttl: Duration,
    random: &mut SeededRandom,
) -> Duration {
    if !world.keeps || !random.once_in(MIN_HOLD_ONE_IN) {
        return Duration::ZERO;
    }
    // The library refuses a shorter one.
    let least = ttl + world.lock_delay;
    let percent = u32::try_from(random.below(100)).expect("below 100");
    least + ttl * (KEPT_TTLS - 1) * percent / 100
}

/// Releases a guard before the `min_hold` of its lock is over.
pub(in crate::simulation) async fn leave_early(
    worker: &Worker,
    (key, window): (&Name, WindowId),
    guard: Guard,
    kept: Kept,
) {
    let held_until = worker.now() + guard.remaining();
    let ends = kept.granted + kept.span;
    let is_almost_over = ends.since(worker.now()) <= Bounds::drift(kept.span);
    if is_almost_over {
        // The guard may know that the time is over, and free the key.
        worker.world().leaves_taken(window, held_until);
        drop(guard);
        return worker.world().gives_up(window, Duration::ZERO);
    }
    let release = || async {
        match guard.release().await? {
            Release::Released => Ok(()),
            Release::NotHeld => Err(Error::new(ErrorKind::Lost, "the lock was not held")),
        }
    };
    worker.world().did("ended early");
    leave_taken(worker, (key, window), (held_until, kept), release).await;
}

/// Leaves a key taken until some time after its grant.
pub(in crate::simulation) async fn leave_guard(
    worker: &mut Worker,
    held: (&Name, WindowId),
    guard: Guard,
    (granted, ttl): (Moment, Duration),
) {
    // If the time were over, this would be a release.
    let more = ttl + worker.span_up_to(ttl * (KEPT_TTLS - 1));
    let span = worker.now().since(granted) + more;
    let held_until = worker.now() + guard.remaining();
    let kept = Kept { granted, ttl, span };
    leave_taken(worker, held, (held_until, kept), || guard.keep_for(span)).await;
}

/// Leaves a key taken by `keep`, and relies on it until the end of that time.
pub(in crate::simulation) async fn leave_taken<K>(
    worker: &Worker,
    (key, window): (&Name, WindowId),
    (held_until, Kept { granted, ttl, span }): (Moment, Kept),
    keep: impl FnOnce() -> K,
) where
    K: Future<Output = Result<(), Error>>,
{
    // A failed request shortens nothing.
    worker.world().leaves_taken(window, held_until);
    let call = worker.called_for(key, CallKind::Renew, ttl);
    let keeping = async { keep().await };
    let kept = worker.world().log.during([(Arc::clone(key), call)], keeping).await;
    worker.world().returned(
        call,
        match &kept {
            Ok(()) => Outcome::Renewed,
            Err(error) => outcome_of(error),
        },
    );
    match kept {
        Ok(()) => {
            // Its clock and the store's may differ. Beyond its window, a lease lasts for the lock
            // delay.
            let until = granted + span.saturating_sub(Bounds::drift(span));
            let until = until.minus(worker.world().plan.lock_delay);
            worker.world().relies_until(window, until);
            worker.world().did("left taken");
            worker.watch_until(until).await;
            worker.world().gives_up(window, Duration::ZERO);
        }
        Err(error) if error.kind() == ErrorKind::Lost => worker.world().told_lost(window),
        Err(_) => worker.world().gives_up(window, Duration::ZERO),
    }
}
