//! A request for permits passes no waiter that has waited longer.

use leasehold::ErrorKind;
use leasehold::store::{Capabilities, Claim, Hint, Released, Store};

use crate::actor::Actor;
use crate::check::{fence, granted, lost, refused, released, renewed, rises, taken};
use crate::world::{World, key, ms};

pub(crate) const PROMISE: &str = "a request for permits passes no client that waits longer";
pub(crate) const CONTRACT: &str =
    "`Capabilities::permits`, `Claim::Permits`, `Line::Join` and `Store::resize`";

pub(crate) fn needs(capabilities: &Capabilities) -> bool {
    capabilities.permits && capabilities.line
}

/// Otherwise, requests for few permits would starve a request for many.
pub(crate) async fn no_waiter_passes_a_large_request(world: &World) {
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

/// The first waiter fits, the second does not, and the third would.
pub(crate) async fn a_hand_over_stops_at_the_first_request_that_does_not_fit(world: &World) {
    let [anna, bert, carl, dora] = actors(world);
    granted(anna.ask(&key("a")).permits(3, 3).send().await);
    for (waiter, want) in [(&bert, 1), (&carl, 3), (&dora, 1)] {
        taken(waiter.ask(&key("a")).permits(want, 3).join().send().await);
    }
    released(anna.release_as(&key("a"), of(3)).await, Released::HandedOver);
    renewed(bert.renew_as(&key("a"), of(3), 5_000).await);
    taken(dora.ask(&key("a")).permits(1, 3).join().send().await);
    released(bert.release_as(&key("a"), of(3)).await, Released::HandedOver);
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

/// The waiters behind it want so few permits that they could be granted now.
pub(crate) async fn a_waiter_that_leaves_lets_smaller_requests_in(world: &World) {
    let [anna, bert, carl, _] = actors(world);
    granted(anna.ask(&key("a")).permits(2, 3).send().await);
    taken(bert.ask(&key("a")).permits(3, 3).join().send().await);
    taken(carl.ask(&key("a")).permits(1, 3).join().send().await);
    released(bert.release_as(&key("a"), of(3)).await, Released::NotHeld);
    renewed(carl.renew_as(&key("a"), of(3), 5_000).await);
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
    bert.expect_hint(|hint| matches!(hint, Hint::MaybeFree { .. })).await;
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
    rises(second, first);
    rises(third, second);
}

const fn of(of: u32) -> Claim {
    Claim::Permits { want: 1, of }
}

fn actors(world: &World) -> [Actor; 4] {
    std::array::from_fn(|_| world.actor())
}
