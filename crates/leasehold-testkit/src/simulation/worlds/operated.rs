//! Worlds in which clients end the leases of others, or ask the holders to let go, as an operator
//! does with `leasehold unlock`.

use std::sync::Arc;

use leasehold::Error;
use leasehold::store::{Evicted, Revoked};

use crate::cut_after;
use crate::history::event::{CallKind, Name, Outcome};
use crate::simulation::kind::{Draw, Kind};
use crate::simulation::plan::Plan;
use crate::simulation::worker::{Worker, outcome_of};

/// One world in this many has operators.
const ONE_IN: usize = 10;

/// The longest time between an operator's look at a holder and the request. The key may have
/// another holder by then.
const THINKS_MAX_MS: u64 = 40;

/// Gives a world operators if its seed says so. A quorum gets none, since operators do not reach
/// its nodes at one moment. A replica may not know of an eviction, and a client of another library
/// cannot learn of it.
pub(super) fn draw(draw: Draw<'_>, plan: &mut Plan) {
    let is_other =
        [Kind::Quorum, Kind::Copies, Kind::Foreign, Kind::Evicting, Kind::Memory, Kind::Sqlite];
    let is_other = is_other.into_iter().any(|kind| plan.is(kind));
    plan.is_operated = draw.of(Kind::Operated, 0x00be_4a70_4000, ONE_IN).is_some() && !is_other;
}

/// Looks who has the key, and ends that lease or asks the holder to let go.
pub(in crate::simulation) async fn operate(worker: &mut Worker, key: &Name) {
    let call = worker.called_for(key, CallKind::Operate, 2 * worker.request_limit());
    let polls = worker.cut();
    let outcome = match cut_after(polls, intervene(worker, key)).await {
        None => Outcome::Dropped,
        Some(Err(error)) => outcome_of(&error),
        Some(Ok(())) => Outcome::Done,
    };
    worker.world().returned(call, outcome);
}

async fn intervene(worker: &mut Worker, key: &Name) -> Result<(), Error> {
    let (client, name) = (worker.client().clone(), worker.name_of(key).to_owned());
    let mut holders = client.inspect(&name).await?.holders;
    if holders.is_empty() {
        return Ok(());
    }
    let token = holders.swap_remove(worker.below(holders.len())).token;
    worker.pause(THINKS_MAX_MS).await;
    let world = Arc::clone(worker.world());
    if worker.below(2) == 0 {
        match client.evict(&name, &token, "the test").await? {
            Evicted::Evicted => world.did("evicted by an operator"),
            _ => world.did("too late to evict"),
        }
    } else if client.revoke(&name, &token, "the test").await? == Revoked::Asked {
        world.did("asked by an operator");
    }
    Ok(())
}
