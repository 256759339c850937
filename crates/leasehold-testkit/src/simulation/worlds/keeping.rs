//! Worlds in which some guards leave their key taken, as work does that is done once per period.

use std::sync::Arc;
use std::time::Duration;

use leasehold::core::Moment;
use leasehold::{ErrorKind, Guard};

use super::{Draw, Kind};
use crate::history::Bounds;
use crate::history::event::{CallKind, Name, Outcome, WindowId};
use crate::simulation::plan::Plan;
use crate::simulation::worker::{Worker, outcome_of};

/// One world in this many leaves keys taken.
const ONE_IN: usize = 8;

/// For how many ttls a key stays taken after its guard, at most.
pub(in crate::simulation) const KEPT_TTLS: u32 = 3;

/// Makes the guards of a world leave their keys taken if its seed says so. A strict server keeps no
/// lease for longer than its longest ttl.
pub(super) fn draw(draw: Draw<'_>, plan: &mut Plan) {
    let is_other = plan.is(Kind::Strict) || plan.is(Kind::Long);
    plan.keeps = draw.of(Kind::Keeping, 0x0c3e_9e75_0f0a, ONE_IN).is_some() && !is_other;
}

/// Leaves a key taken until some time after its grant, and relies on it until then.
pub(in crate::simulation) async fn leave_taken(
    worker: &mut Worker,
    (key, window): (&Name, WindowId),
    guard: Guard,
    (granted, ttl): (Moment, Duration),
) {
    // If the time were over, this would be a release.
    let more = ttl + worker.span_up_to(ttl * (KEPT_TTLS - 1));
    let span = worker.now().since(granted) + more;
    // A failed request shortens nothing.
    let held_until = worker.now() + guard.remaining();
    worker.world().leaves_taken(window, held_until);
    let call = worker.called_for(key, CallKind::Renew, ttl);
    let keeping = async { guard.keep_for(span).await };
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
