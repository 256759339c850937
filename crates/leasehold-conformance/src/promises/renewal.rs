//! A renewal restarts the ttl. It never shortens a lease, and never brings one back.

use leasehold::store::{Capabilities, Released};

use crate::check::{granted, last_of, lost, released, renewed, rises_past, taken};
use crate::world::{World, key, ms};

pub(crate) const PROMISE: &str = "a renewal restarts the ttl, never shortens, never brings back";
pub(crate) const CONTRACT: &str =
    "`Store::renew`, and `Store`, section \"Same owner, same answer\"";

pub(crate) fn needs(_: &Capabilities) -> bool {
    true
}

/// The ttl counts from the renewal.
pub(crate) async fn a_renewal_restarts_the_ttl(world: &World) {
    let (anna, bert) = (world.actor(), world.actor());
    granted(anna.ask(&key("a")).ttl(1_000).send().await);
    for _ in 0..5 {
        world.pass(ms(900)).await;
        renewed(anna.renew(&key("a"), 1_000).await);
    }
    let early = world.early(ms(10));
    world.pass(ms(1_000) - early).await;
    taken(bert.ask(&key("a")).send().await);
    world.pass(early + world.slack()).await;
    granted(bert.ask(&key("a")).send().await);
}

/// The new time left is the larger of the time left and the ttl.
pub(crate) async fn a_renewal_never_shortens_a_lease(world: &World) {
    let (anna, bert) = (world.actor(), world.actor());
    granted(anna.ask(&key("a")).ttl(10_000).send().await);
    renewed(anna.renew(&key("a"), 100).await);
    world.pass(ms(9_900)).await;
    taken(bert.ask(&key("a")).send().await);
    world.pass(ms(100) + world.slack()).await;
    granted(bert.ask(&key("a")).send().await);
}

/// This holds even if no other client wants the key.
pub(crate) async fn a_renewal_never_brings_an_ended_lease_back(world: &World) {
    let (anna, bert) = (world.actor(), world.actor());
    granted(anna.ask(&key("released")).send().await);
    released(anna.release(&key("released")).await, Released::Freed);
    lost(anna.renew(&key("released"), 10_000).await);
    granted(bert.ask(&key("released")).send().await);

    granted(anna.ask(&key("expired")).ttl(1_000).send().await);
    world.pass(ms(1_000) + world.slack()).await;
    lost(anna.renew(&key("expired"), 10_000).await);
    granted(bert.ask(&key("expired")).send().await);
}

/// The tokens belong to the grant, not to the renewal.
pub(crate) async fn a_renewal_keeps_the_fencing_tokens(world: &World) {
    let anna = world.actor();
    for (name, reserve) in [("one", 1), ("several", 5), ("none", 0)] {
        let block = granted(anna.ask(&key(name)).reserve(reserve).send().await);
        let (same, wanted) = renewed(anna.renew(&key(name), 10_000).await);
        assert_eq!((same, wanted), (block, false));
    }
}

/// The new tokens replace those of the lease.
pub(crate) async fn a_renewal_reserves_further_tokens(world: &World) {
    if !world.capabilities().fencing {
        return;
    }
    let anna = world.actor();
    let before = granted(anna.ask(&key("a")).reserve(2).send().await);
    let (reserved, _) = renewed(anna.renew_at_least(&key("a"), 10_000, None, 4).await);
    rises_past(reserved, before, 2);
    last_of(reserved, 4);
    assert_eq!(renewed(anna.renew(&key("a"), 10_000).await).0, reserved);
    assert_eq!(granted(anna.ask(&key("a")).send().await), reserved);
}

/// `wanted` is the safety net for the hint with that name.
pub(crate) async fn a_renewal_tells_whether_somebody_waits(world: &World) {
    if !world.capabilities().line {
        return;
    }
    let (anna, bert, carl) = (world.actor(), world.actor(), world.actor());
    let wanted = async || renewed(anna.renew(&key("a"), 10_000).await).1;
    granted(anna.ask(&key("a")).send().await);
    taken(carl.ask(&key("a")).send().await);
    assert!(!wanted().await, "a client that does not wait is not counted");
    taken(bert.ask(&key("a")).join_as(1, 1_000, 1_000).send().await);
    assert!(wanted().await);
    world.pass(ms(1_000) + world.slack()).await;
    assert!(!wanted().await, "the place has expired");
    taken(bert.ask(&key("a")).join_as(2, 1_000, 1_000).send().await);
    assert!(wanted().await);
    released(bert.release(&key("a")).await, Released::NotHeld);
    assert!(!wanted().await, "the waiter has left its place");
}
