//! Promises about a key with a number of permits. There are never more permits taken than that
//! number, and no waiter passes another one that has waited longer.

use leasehold::ErrorKind;
use leasehold::core::claim::PERMITS_MAX;
use leasehold::store::{Capabilities, Claim, Hint, Released, Store};

use crate::actor::Actor;
use crate::check::{fence, granted, lost, refused, released, renewed, taken};
use crate::world::{World, key, ms};

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

/// Otherwise, requests for few permits would starve a request for many.
pub(crate) async fn nobody_passes_a_large_wish(world: &World) {
    let [anna, bert, carl, dora] = actors(world);
    granted(anna.ask(&key("a")).permits(2, 4).send().await);
    taken(bert.ask(&key("a")).permits(4, 4).join().send().await);
    taken(carl.ask(&key("a")).permits(1, 4).send().await);
    taken(dora.ask(&key("a")).permits(1, 4).join().send().await);
    released(anna.release_as(&key("a"), of(4)).await, Released::HandedOver);
    granted(bert.ask(&key("a")).permits(4, 4).send().await);
    released(bert.release_as(&key("a"), of(4)).await, Released::HandedOver);
    granted(dora.ask(&key("a")).permits(1, 4).send().await);
}

/// The release starts at the front of the line.
pub(crate) async fn a_release_hands_over_to_as_many_as_fit(world: &World) {
    let [anna, bert, carl, dora] = actors(world);
    granted(anna.ask(&key("a")).permits(3, 3).send().await);
    for (waiter, want) in [(&bert, 2), (&carl, 1), (&dora, 1)] {
        taken(waiter.ask(&key("a")).permits(want, 3).join().send().await);
    }
    released(anna.release_as(&key("a"), of(3)).await, Released::HandedOver);
    renewed(bert.renew_as(&key("a"), of(3), 5_000).await);
    renewed(carl.renew_as(&key("a"), of(3), 5_000).await);
    lost(dora.renew_as(&key("a"), of(3), 5_000).await);
    released(carl.release_as(&key("a"), of(3)).await, Released::HandedOver);
    renewed(dora.renew_as(&key("a"), of(3), 5_000).await);
}

/// A lost reply is repaired by asking again.
pub(crate) async fn a_repeated_ask_takes_no_more_permits(world: &World) {
    let [anna, bert, carl, _] = actors(world);
    let block = granted(anna.ask(&key("a")).permits(1, 2).send().await);
    assert_eq!(granted(anna.ask(&key("a")).permits(1, 2).send().await), block);
    granted(bert.ask(&key("a")).permits(1, 2).send().await);
    taken(carl.ask(&key("a")).permits(1, 2).join().send().await);
    assert_eq!(granted(anna.ask(&key("a")).permits(1, 2).join().send().await), block);
    released(anna.release_as(&key("a"), of(2)).await, Released::HandedOver);
    renewed(carl.renew_as(&key("a"), of(2), 5_000).await);
    taken(anna.another().ask(&key("a")).permits(1, 2).send().await);
}

/// A crash leaks no permits: they are free when the lease ends.
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

/// The place of the dead waiter may still be there, since another waiter came and went meanwhile.
pub(crate) async fn a_waiter_that_died_does_not_decide_what_a_free_key_is(world: &World) {
    let [anna, bert, carl, dora] = actors(world);
    granted(anna.ask(&key("a")).permits(1, 1).ttl(3_000).send().await);
    taken(bert.ask(&key("a")).permits(1, 1).join_as(1, 2_000, 5_000).send().await);
    world.pass(ms(1_800)).await;
    taken(carl.ask(&key("a")).permits(1, 1).join_as(1, 3_000, 5_000).send().await);
    released(carl.release_as(&key("a"), of(1)).await, Released::NotHeld);
    world.pass(ms(1_200) + world.slack()).await;
    granted(dora.ask(&key("a")).send().await);
}

/// This is the other way round. Nobody asks between the death of the waiter and the new use.
pub(crate) async fn a_free_lock_whose_waiter_died_may_be_used_as_a_semaphore(world: &World) {
    let [anna, bert, carl, dora] = actors(world);
    granted(anna.ask(&key("a")).ttl(2_000).send().await);
    taken(bert.ask(&key("a")).join_as(1, 1_000, 5_000).send().await);
    taken(carl.ask(&key("a")).join_as(1, 4_000, 5_000).send().await);
    released(carl.release(&key("a")).await, Released::NotHeld);
    world.pass(ms(2_000) + world.slack()).await;
    granted(dora.ask(&key("a")).permits(1, 2).send().await);
    granted(carl.another().ask(&key("a")).permits(1, 2).send().await);
}

/// It also loses them alone.
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

/// The waiters behind it want few enough permits to fit beside the holders.
pub(crate) async fn who_goes_away_lets_smaller_wishes_in(world: &World) {
    let [anna, bert, carl, _] = actors(world);
    granted(anna.ask(&key("a")).permits(2, 3).send().await);
    taken(bert.ask(&key("a")).permits(3, 3).join().send().await);
    taken(carl.ask(&key("a")).permits(1, 3).join().send().await);
    released(bert.release_as(&key("a"), of(3)).await, Released::NotHeld);
    renewed(carl.renew_as(&key("a"), of(3), 5_000).await);
}

/// Nobody can tell which of them is wrong, so both must hear of it.
pub(crate) async fn a_number_of_permits_that_others_do_not_use_is_refused(world: &World) {
    let [anna, bert, ..] = actors(world);
    granted(anna.ask(&key("a")).permits(1, 2).send().await);
    let error = bert.ask(&key("a")).permits(1, 3).send().await.expect_err("another number");
    assert_eq!(error.kind(), ErrorKind::Config);
    let text = error.to_string();
    assert!(text.contains("2 permits") && text.contains("3 permits"), "{text}");
    refused(bert.ask(&key("a")).permits(1, 3).join().send().await, ErrorKind::Config);
    granted(bert.ask(&key("a")).permits(1, 2).send().await);
}

/// This holds as long as somebody uses the key.
pub(crate) async fn a_key_is_a_lock_or_a_semaphore_and_not_both(world: &World) {
    let [anna, bert, carl, _] = actors(world);
    granted(anna.ask(&key("a")).permits(1, 2).send().await);
    refused(bert.ask(&key("a")).send().await, ErrorKind::Config);
    refused(bert.ask(&key("a")).join().send().await, ErrorKind::Config);
    granted(anna.ask(&key("b")).send().await);
    refused(bert.ask(&key("b")).permits(1, 2).send().await, ErrorKind::Config);
    if world.capabilities().shared {
        refused(bert.ask(&key("a")).shared().send().await, ErrorKind::Config);
        granted(anna.ask(&key("c")).shared().send().await);
        refused(bert.ask(&key("c")).permits(1, 2).join().send().await, ErrorKind::Config);
        released(anna.release_as(&key("c"), Claim::Shared).await, Released::Freed);
        granted(bert.ask(&key("c")).permits(1, 2).send().await);
    }
    released(anna.release_as(&key("a"), of(2)).await, Released::Freed);
    granted(bert.ask(&key("a")).send().await);
    taken(carl.ask(&key("a")).send().await);
    refused(carl.ask(&key("a")).permits(1, 2).send().await, ErrorKind::Config);
}

/// Requests for no permits, and for more than there are.
pub(crate) async fn permits_that_cannot_exist_are_refused(world: &World) {
    let anna = world.actor();
    for (want, of) in [(0, 2), (3, 2), (0, 0), (1, PERMITS_MAX + 1)] {
        refused(anna.ask(&key("a")).permits(want, of).send().await, ErrorKind::Config);
        refused(anna.ask(&key("a")).permits(want, of).join().send().await, ErrorKind::Config);
    }
    refused(world.store().resize(key("a"), 0).await, ErrorKind::Config);
    granted(anna.ask(&key("a")).permits(PERMITS_MAX, PERMITS_MAX).send().await);
}

/// Added permits go to waiters at once. If the number falls, no holder loses permits.
pub(crate) async fn a_semaphore_is_resized_while_it_is_in_use(world: &World) {
    let [anna, bert, carl, dora] = actors(world);
    let resize = async |of| world.other_store().resize(key("a"), of).await;
    granted(anna.ask(&key("a")).permits(1, 1).send().await);
    taken(bert.ask(&key("a")).permits(1, 1).join().send().await);
    assert_eq!(resize(2).await.expect("an answer"), Some(1));
    renewed(bert.renew_as(&key("a"), of(1), 5_000).await);
    refused(carl.ask(&key("a")).permits(1, 1).send().await, ErrorKind::Config);
    taken(carl.ask(&key("a")).permits(1, 2).send().await);
    assert_eq!(resize(1).await.expect("an answer"), Some(2));
    released(anna.release_as(&key("a"), of(1)).await, Released::Freed);
    taken(dora.ask(&key("a")).permits(1, 1).send().await);
    released(bert.release_as(&key("a"), of(1)).await, Released::Freed);
    granted(dora.ask(&key("a")).permits(1, 1).send().await);
    granted(anna.ask(&key("b")).send().await);
    refused(world.store().resize(key("b"), 3).await, ErrorKind::Config);
}

/// The number of permits was lowered while it waited. It learns that from its next ask.
pub(crate) async fn a_waiter_that_wants_more_than_there_are_now_is_granted_nothing(world: &World) {
    let [anna, bert, carl, _] = actors(world);
    granted(anna.ask(&key("a")).permits(2, 4).send().await);
    taken(bert.ask(&key("a")).permits(4, 4).join().send().await);
    world.settle().await;
    assert_eq!(world.other_store().resize(key("a"), 3).await.expect("an answer"), Some(4));
    bert.hint(|hint| matches!(hint, Hint::MaybeFree { .. }).then_some(())).await;
    released(anna.release_as(&key("a"), of(4)).await, Released::Freed);
    taken(carl.ask(&key("a")).permits(3, 3).send().await);
    refused(bert.ask(&key("a")).permits(4, 4).join().send().await, ErrorKind::Config);
    released(bert.release_as(&key("a"), of(4)).await, Released::NotHeld);
    granted(carl.ask(&key("a")).permits(3, 3).send().await);
}

/// Grants of permits have fencing tokens like any other grant.
pub(crate) async fn tokens_of_permits_rise(world: &World) {
    if !world.capabilities().fencing {
        return;
    }
    let [anna, bert, carl, _] = actors(world);
    let first = fence(anna.ask(&key("a")).permits(1, 2).send().await);
    let second = fence(bert.ask(&key("a")).permits(1, 2).send().await);
    taken(carl.ask(&key("a")).permits(1, 2).join().send().await);
    released(anna.release_as(&key("a"), of(2)).await, Released::HandedOver);
    let third = fence(carl.ask(&key("a")).permits(1, 2).send().await);
    assert!(first < second && second < third, "{first} {second} {third}");
}

const fn of(of: u32) -> Claim {
    Claim::Permits { want: 1, of }
}

fn actors(world: &World) -> [Actor; 4] {
    std::array::from_fn(|_| world.actor())
}
