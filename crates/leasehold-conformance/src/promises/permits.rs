//! A key has a number of permits. There are never more permits taken than that number.

use leasehold::ErrorKind;
use leasehold::core::claim::PERMITS_MAX;
use leasehold::store::{Capabilities, Claim, Released, Store};

use crate::actor::Actor;
use crate::check::{granted, lost, refused, released, renewed, taken};
use crate::world::{HOUR_MS, World, key, ms};

pub(crate) const PROMISE: &str = "never more permits are taken than there are";
pub(crate) const CONTRACT: &str = "`Capabilities::permits`, `Claim::Permits` and `Store::resize`";

pub(crate) fn needs(capabilities: &Capabilities) -> bool {
    capabilities.permits
}

/// Each owner takes one permit.
pub(crate) async fn no_more_permits_are_taken_than_there_are(world: &World) {
    let [anna, bert, carl, _] = actors(world);
    granted(anna.ask(&key("a")).permits(1, 2).send().await);
    granted(bert.ask(&key("a")).permits(1, 2).send().await);
    let (retry_in, _) = taken(carl.ask(&key("a")).permits(1, 2).send().await);
    assert!(retry_in.is_some_and(|left| left <= ms(10_000)), "{retry_in:?}");
    released(anna.release_as(&key("a"), of(2)).await, Released::Freed);
    released(anna.release_as(&key("a"), of(2)).await, Released::NotHeld);
    granted(carl.ask(&key("a")).permits(1, 2).send().await);
    taken(anna.another().ask(&key("a")).permits(1, 2).send().await);
}

/// One owner may take several.
pub(crate) async fn permits_have_weights(world: &World) {
    let [anna, bert, carl, dora] = actors(world);
    granted(anna.ask(&key("a")).permits(3, 5).send().await);
    taken(bert.ask(&key("a")).permits(3, 5).send().await);
    granted(bert.ask(&key("a")).permits(2, 5).send().await);
    taken(carl.ask(&key("a")).permits(1, 5).send().await);
    released(anna.release_as(&key("a"), of(5)).await, Released::Freed);
    granted(carl.ask(&key("a")).permits(1, 5).send().await);
    granted(dora.ask(&key("a")).permits(2, 5).send().await);
    taken(anna.another().ask(&key("a")).permits(1, 5).send().await);
}

/// A crash leaks no permits, since they are free when the lease ends.
pub(crate) async fn permits_of_the_dead_come_back(world: &World) {
    let [anna, bert, carl, _] = actors(world);
    granted(anna.ask(&key("a")).permits(2, 3).ttl(1_000).send().await);
    granted(bert.ask(&key("a")).permits(1, 3).send().await);
    taken(carl.ask(&key("a")).permits(2, 3).send().await);
    world.pass(ms(1_000) + world.slack()).await;
    granted(carl.ask(&key("a")).permits(2, 3).send().await);
    lost(anna.renew_as(&key("a"), of(3), 5_000).await);
    renewed(bert.renew_as(&key("a"), of(3), 5_000).await);
}

/// Each owner also loses them alone.
pub(crate) async fn each_owner_renews_its_permits_alone(world: &World) {
    let [anna, bert, carl, _] = actors(world);
    granted(anna.ask(&key("a")).permits(1, 2).ttl(1_000).send().await);
    granted(bert.ask(&key("a")).permits(1, 2).ttl(1_000).send().await);
    world.pass(ms(900)).await;
    renewed(bert.renew_as(&key("a"), of(2), 5_000).await);
    world.pass(ms(100) + world.slack()).await;
    granted(carl.ask(&key("a")).permits(1, 2).send().await);
    taken(anna.another().ask(&key("a")).permits(1, 2).send().await);
}

/// Nobody can tell which number is wrong, so both clients must hear of it.
pub(crate) async fn a_number_of_permits_that_others_do_not_use_is_refused(world: &World) {
    let [anna, bert, ..] = actors(world);
    granted(anna.ask(&key("a")).permits(1, 2).send().await);
    let error = bert.ask(&key("a")).permits(1, 3).send().await.expect_err("another number");
    assert_eq!(error.kind(), ErrorKind::Config);
    let text = error.to_string();
    assert!(text.contains("2 permits") && text.contains("3 permits"), "{text}");
    refused(bert.ask(&key("a")).permits(1, 3).join_or_try().send().await, ErrorKind::Config);
    granted(bert.ask(&key("a")).permits(1, 2).send().await);
}

/// This holds as long as somebody uses the key.
pub(crate) async fn a_key_is_a_lock_or_a_semaphore_and_not_both(world: &World) {
    let [anna, bert, carl, _] = actors(world);
    granted(anna.ask(&key("a")).permits(1, 2).send().await);
    refused(bert.ask(&key("a")).send().await, ErrorKind::Config);
    refused(bert.ask(&key("a")).join_or_try().send().await, ErrorKind::Config);
    granted(anna.ask(&key("b")).send().await);
    refused(bert.ask(&key("b")).permits(1, 2).send().await, ErrorKind::Config);
    if world.capabilities().shared {
        refused(bert.ask(&key("a")).shared().send().await, ErrorKind::Config);
        granted(anna.ask(&key("c")).shared().send().await);
        refused(bert.ask(&key("c")).permits(1, 2).join_or_try().send().await, ErrorKind::Config);
        released(anna.release_as(&key("c"), Claim::Shared).await, Released::Freed);
        granted(bert.ask(&key("c")).permits(1, 2).send().await);
    }
    released(anna.release_as(&key("a"), of(2)).await, Released::Freed);
    granted(bert.ask(&key("a")).send().await);
    taken(carl.ask(&key("a")).send().await);
    refused(carl.ask(&key("a")).permits(1, 2).send().await, ErrorKind::Config);
}

/// Otherwise people and latches would take readers for owners of permits.
pub(crate) async fn readers_of_a_name_that_was_a_semaphore_are_shown_as_readers(world: &World) {
    if !world.capabilities().shared {
        return;
    }
    let [anna, bert, ..] = actors(world);
    granted(anna.ask(&key("a")).permits(1, 2).send().await);
    released(anna.release_as(&key("a"), of(2)).await, Released::Freed);
    granted(bert.ask(&key("a")).shared().send().await);
    let seen = world.inspect(&key("a")).await;
    assert_eq!((seen.permits, seen.holders[0].claim), (None, Claim::Shared));
}

/// These are requests for no permits, and for more than there are.
pub(crate) async fn permits_that_cannot_exist_are_refused(world: &World) {
    let anna = world.actor();
    for (want, of) in [(0, 2), (3, 2), (0, 0), (1, PERMITS_MAX + 1)] {
        refused(anna.ask(&key("a")).permits(want, of).send().await, ErrorKind::Config);
        refused(
            anna.ask(&key("a")).permits(want, of).join_or_try().send().await,
            ErrorKind::Config,
        );
    }
    refused(world.store().resize(key("a"), 0).await, ErrorKind::Config);
    granted(anna.ask(&key("a")).permits(PERMITS_MAX, PERMITS_MAX).send().await);
}

/// A start of a rate limit and a count of a latch are such permits, and nobody renews them.
pub(crate) async fn permits_with_a_long_ttl_are_not_forgotten(world: &World) {
    let [anna, bert, carl, dora] = actors(world);
    granted(anna.ask(&key("a")).permits(1, 1).ttl(HOUR_MS).send().await);
    granted(anna.ask(&key("b")).permits(1, 2).ttl(HOUR_MS).send().await);
    // A permit that was taken later, for a shorter time, shortens nothing.
    granted(bert.ask(&key("b")).permits(1, 2).send().await);
    granted(carl.ask(&key("c")).permits(1, 1).send().await);
    renewed(carl.renew_as(&key("c"), of(1), HOUR_MS).await);
    world.leave_idle().await;
    for (owner, name, number) in [(&anna, "a", 1), (&anna, "b", 2), (&carl, "c", 1)] {
        taken(dora.ask(&key(name)).permits(number, number).send().await);
        renewed(owner.renew_as(&key(name), of(number), HOUR_MS).await);
    }
    granted(dora.ask(&key("b")).permits(1, 2).send().await);
}

const fn of(of: u32) -> Claim {
    Claim::Permits { want: 1, of }
}

fn actors(world: &World) -> [Actor; 4] {
    std::array::from_fn(|_| world.actor())
}
