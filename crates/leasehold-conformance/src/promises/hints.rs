//! Waiters are woken, and nobody else.

use leasehold::store::{Capabilities, Evicted, Hint, Reach, Released};

use crate::check::{granted, released, taken};
use crate::world::{SLACK, World, key, ms};

pub(crate) const PROMISE: &str = "a waiter is woken, and no other client";
pub(crate) const CONTRACT: &str = "`Capabilities::hints`, `Store::watch` and `Hint`";

pub(crate) fn needs(capabilities: &Capabilities) -> bool {
    capabilities.hints != Reach::Nobody && capabilities.line
}

fn granted_key(hint: &Hint) -> Option<leasehold::Key> {
    match hint {
        Hint::Granted { key, .. } => Some(key.clone()),
        _ => None,
    }
}

/// The hint goes only to the inbox that the place names.
pub(crate) async fn a_hand_over_is_told_to_the_new_owner_alone(world: &World) {
    let (anna, bert, carl) = (world.actor(), world.actor(), world.actor());
    granted(anna.ask(&key("a")).send().await);
    taken(bert.ask(&key("a")).join().send().await);
    taken(carl.ask(&key("a")).join().send().await);
    world.settle().await;
    let _ = anna.hints();
    released(anna.release(&key("a")).await, Released::HandedOver);
    assert_eq!(bert.hint(granted_key).await, key("a"));
    world.pass(SLACK).await;
    assert_eq!(anna.hints(), []);
    assert_eq!(carl.hints(), []);
}

/// It does not matter which request caused the hand-over.
pub(crate) async fn a_hand_over_by_an_ask_is_told_too(world: &World) {
    let (anna, bert, carl) = (world.actor(), world.actor(), world.actor());
    granted(anna.ask(&key("a")).ttl(1_000).send().await);
    taken(bert.ask(&key("a")).join().send().await);
    world.pass(ms(1_000) + world.slack()).await;
    taken(carl.ask(&key("a")).send().await);
    assert_eq!(bert.hint(granted_key).await, key("a"));
}

/// The holder can then give up a lease that it does not use. Both clients use one handle, because a
/// store may inform holders in other processes only at their next renewal, by `wanted`.
pub(crate) async fn a_holder_is_told_that_another_waits(world: &World) {
    let (anna, bert) = (world.actor_here(), world.actor_here());
    granted(anna.ask(&key("a")).send().await);
    taken(bert.ask(&key("a")).join().send().await);
    anna.expect_hint(|hint| *hint == Hint::Wanted { key: key("a") }).await;
}

/// Otherwise a client that only tries now and then would end idle leases, and no client would gain.
pub(crate) async fn a_holder_is_not_told_of_a_client_that_only_tries(world: &World) {
    let (anna, bert) = (world.actor_here(), world.actor_here());
    granted(anna.ask(&key("a")).send().await);
    taken(bert.ask(&key("a")).send().await);
    world.pass(SLACK).await;
    assert_eq!(anna.hints(), []);
}

/// Otherwise the new owner would wait until its next poll.
pub(crate) async fn an_eviction_is_told_to_the_new_owner(world: &World) {
    if !world.capabilities().browse {
        return;
    }
    let (anna, bert) = (world.actor(), world.actor());
    granted(anna.ask(&key("a")).send().await);
    taken(bert.ask(&key("a")).join().send().await);
    world.settle().await;
    let seen = anna.owner().as_str().as_bytes().to_vec();
    let evicted = world.browse().evict(key("a"), seen, "a test".to_owned()).await;
    assert_eq!(evicted.expect("answered"), Evicted::Evicted);
    assert_eq!(bert.hint(granted_key).await, key("a"));
    granted(bert.ask(&key("a")).send().await);
}

/// Hints go to the place where the client last connected.
pub(crate) async fn the_latest_sink_of_an_inbox_replaces_the_others(world: &World) {
    let (anna, before) = (world.actor(), world.actor());
    let after = before.watch_anew();
    granted(anna.ask(&key("a")).send().await);
    taken(before.ask(&key("a")).join().send().await);
    world.settle().await;
    released(anna.release(&key("a")).await, Released::HandedOver);
    assert_eq!(after.hint(granted_key).await, key("a"));
    assert_eq!(before.hints(), []);
}

/// The answer does not depend on hints.
pub(crate) async fn a_waiter_that_takes_no_hints_is_still_served(world: &World) {
    let anna = world.actor_here();
    granted(anna.ask(&key("a")).send().await);
    let deaf = {
        let bert = world.actor_here();
        taken(bert.ask(&key("a")).join().send().await);
        bert.owner().clone()
    };
    // The waiter's sink was dropped with it.
    released(anna.release(&key("a")).await, Released::HandedOver);
    world.pass(SLACK).await;
    granted(world.actor_here().with_token(deaf).ask(&key("a")).send().await);
}
