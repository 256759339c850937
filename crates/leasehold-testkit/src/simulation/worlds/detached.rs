//! Worlds in which leases go on by their token, without a guard, as shell commands pass a lease on.

use std::sync::Arc;
use std::time::Duration;

use leasehold::core::Moment;
use leasehold::{OwnerToken, Release};

use crate::history::event::{CallKind, Name, Outcome, WindowId};
use crate::simulation::kind::{Draw, Kind};
use crate::simulation::plan::Plan;
use crate::simulation::worker::{Worker, outcome_of};

/// One world in this many has detached leases.
const ONE_IN: usize = 8;

/// Makes a world detach leases if its seed says so.
pub(super) fn draw(draw: Draw<'_>, plan: &mut Plan) {
    plan.detaches = draw.of(Kind::Detached, 0x000d_e7ac_4ed0, ONE_IN).is_some();
}

/// A detached lease, and until when its holder relies on it.
pub(in crate::simulation) struct Detached {
    pub(in crate::simulation) key: Name,
    pub(in crate::simulation) token: OwnerToken,
    pub(in crate::simulation) window: WindowId,
    pub(in crate::simulation) ttl: Duration,
    /// This moment is on the clock of its process.
    pub(in crate::simulation) until: Moment,
}

/// Goes on with a detached lease: renews it a few times, and releases it at the end.
pub(in crate::simulation) async fn hand_on(worker: &mut Worker, mut held: Detached) {
    let lease = worker.client().lease(worker.name_of(&held.key), held.token.clone());
    for _ in 0..worker.below(4) {
        let call = worker.called(&held.key, CallKind::Renew);
        let sent = worker.now();
        let renewing =
            worker.world().log.during([(Arc::clone(&held.key), call)], lease.renew(held.ttl));
        // Without an answer in time, the holder has lost the lease.
        let renewed = worker.before(held.until, renewing).await;
        let outcome = match &renewed {
            None => Outcome::Dropped,
            Some(Ok(())) => Outcome::Renewed,
            Some(Err(error)) => outcome_of(error),
        };
        worker.world().returned(call, outcome);
        if outcome != Outcome::Renewed {
            break;
        }
        // GUARANTEES.md says this for every lease: its validity begins before the request, and is
        // the ttl less 1 % and 2 ms.
        let valid = (held.ttl - held.ttl / 100).saturating_sub(Duration::from_millis(2));
        held.until = held.until.max(sent + valid);
        worker.world().relies_until(held.window, held.until);
        worker.world().did("renewed by token");
        worker.pause_until(held.until, held.ttl / 2).await;
    }
    worker.world().gives_up(held.window, Duration::ZERO);
    let call = worker.called(&held.key, CallKind::Release);
    let released =
        worker.world().log.during([(Arc::clone(&held.key), call)], lease.release()).await;
    let outcome = match &released {
        Ok(Release::Released) => {
            worker.world().did("released by token");
            Outcome::Released
        }
        Ok(Release::NotHeld) => Outcome::NotHeld,
        Err(error) => outcome_of(error),
    };
    worker.world().returned(call, outcome);
}
