//! A release that frees the key for the first client that asks. It is for keys that are also locked
//! by clients outside the line.

use leasehold::store::{Capabilities, Hint, Released, Renewed};

use crate::check::{granted, may_be_free, released, rises_past, taken};
use crate::world::{SLACK, World, key, ms};

pub(crate) const PROMISE: &str =
    "a release that wakes frees the key and tells the head of the line";
pub(crate) const CONTRACT: &str = "`OnRelease::FreeAndWake` and `Capabilities::frees`";

pub(crate) fn needs(capabilities: &Capabilities) -> bool {
    capabilities.line && capabilities.frees
}

/// Nobody holds the key then, so a client outside the line can take it.
pub(crate) async fn a_waking_release_frees_the_key_instead_of_handing_it_over(world: &World) {
    let (anna, bert, carl) = (world.actor(), world.actor(), world.actor());
    granted(anna.ask(&key("a")).send().await);
    taken(bert.ask(&key("a")).join().send().await);
    taken(carl.ask(&key("a")).join().send().await);
    world.settle().await;
    released(anna.free(&key("a")).await, Released::Freed);
    let snapshot = world.inspect(&key("a")).await;
    assert!(snapshot.holders.is_empty(), "{:?}", snapshot.holders);
    assert_eq!(snapshot.waiting, 2, "the waiters still wait");
    assert_eq!(anna.renew(&key("a"), 1_000).await.expect("an answer"), Renewed::Lost);
    bert.expect_hint(may_be_free).await;
}

/// Leasehold's own clients keep the order of the line: an ask that finds the key free hands it to
/// the head.
pub(crate) async fn a_woken_waiter_keeps_its_place_and_its_turn(world: &World) {
    let (anna, bert, carl) = (world.actor(), world.actor(), world.actor());
    let before = granted(anna.ask(&key("a")).send().await);
    taken(bert.ask(&key("a")).join().send().await);
    taken(carl.ask(&key("a")).join().send().await);
    released(anna.free(&key("a")).await, Released::Freed);
    taken(anna.another().ask(&key("a")).send().await);
    let snapshot = world.inspect(&key("a")).await;
    assert_eq!(snapshot.holders[0].token, bert.owner().as_str().as_bytes());
    let handed = granted(bert.ask(&key("a")).send().await);
    released(bert.free(&key("a")).await, Released::Freed);
    let last = granted(carl.ask(&key("a")).join_as(2, 3_000, 3_000).send().await);
    if world.capabilities().fencing {
        rises_past(handed, before, 1);
        rises_past(last, handed, 1);
    }
    assert_eq!(world.inspect(&key("a")).await.waiting, 0, "a grant removes the place");
}

/// The release also ends the place of its owner.
pub(crate) async fn a_waking_release_leaves_the_line_like_any_release(world: &World) {
    let (anna, bert) = (world.actor(), world.actor());
    granted(anna.ask(&key("a")).send().await);
    taken(bert.ask(&key("a")).join().send().await);
    released(bert.free(&key("a")).await, Released::NotHeld);
    assert_eq!(world.inspect(&key("a")).await.waiting, 0);
    released(anna.release(&key("a")).await, Released::Freed);
}

/// There is nobody to wake.
pub(crate) async fn a_waking_release_without_a_line_is_like_any_release(world: &World) {
    let (anna, bert) = (world.actor(), world.actor());
    granted(anna.ask(&key("a")).send().await);
    released(anna.free(&key("a")).await, Released::Freed);
    released(anna.free(&key("a")).await, Released::NotHeld);
    granted(bert.ask(&key("a")).send().await);
}

/// The release wakes nobody either.
pub(crate) async fn a_waking_release_by_another_owner_ends_nothing(world: &World) {
    let (anna, bert, carl) = (world.actor(), world.actor(), world.actor());
    granted(anna.ask(&key("a")).send().await);
    taken(bert.ask(&key("a")).join().send().await);
    world.settle().await;
    released(carl.free(&key("a")).await, Released::NotHeld);
    world.settle().await;
    assert!(!bert.hints().iter().any(may_be_free));
    let snapshot = world.inspect(&key("a")).await;
    assert_eq!(snapshot.holders[0].token, anna.owner().as_str().as_bytes());
    assert_eq!(snapshot.waiting, 1);
}

/// The release wakes the first living waiter.
pub(crate) async fn a_waking_release_skips_dead_waiters(world: &World) {
    world.fine_only("such a store keeps a place for longer than half a second").await;
    let (anna, bert, carl) = (world.actor(), world.actor(), world.actor());
    let before = granted(anna.ask(&key("a")).send().await);
    taken(bert.ask(&key("a")).join_as(1, 500, 500).send().await);
    taken(carl.ask(&key("a")).join_as(1, 9_000, 3_000).send().await);
    world.settle().await;
    world.pass(ms(600)).await;
    released(anna.free(&key("a")).await, Released::Freed);
    carl.expect_hint(may_be_free).await;
    let last = granted(carl.ask(&key("a")).join_as(2, 3_000, 3_000).send().await);
    if world.capabilities().fencing {
        rises_past(last, before, 1);
    }
}

/// The release has woken the head alone. If the head leaves, nobody else knows that the key is
/// free. A store may also hand the key over then.
pub(crate) async fn the_next_waiter_is_told_when_a_woken_head_leaves(world: &World) {
    let (anna, bert, carl) = (world.actor(), world.actor(), world.actor());
    granted(anna.ask(&key("a")).send().await);
    taken(bert.ask(&key("a")).join_as(1, 9_000, 3_000).send().await);
    taken(carl.ask(&key("a")).join_as(1, 9_000, 3_000).send().await);
    world.settle().await;
    released(anna.free(&key("a")).await, Released::Freed);
    bert.expect_hint(may_be_free).await;
    world.forget_extra_hints(&carl).await;
    released(bert.free(&key("a")).await, Released::NotHeld);
    carl.expect_hint(|hint| matches!(hint, Hint::MaybeFree { .. } | Hint::Granted { .. })).await;
    granted(carl.ask(&key("a")).join_as(2, 9_000, 3_000).send().await);
}

/// The head knows already that the key is free.
pub(crate) async fn a_waiter_that_leaves_a_free_key_tells_nobody_in_vain(world: &World) {
    let (anna, bert, carl) = (world.actor(), world.actor(), world.actor());
    granted(anna.ask(&key("a")).send().await);
    taken(bert.ask(&key("a")).join_as(1, 9_000, 3_000).send().await);
    taken(carl.ask(&key("a")).join_as(1, 9_000, 3_000).send().await);
    world.settle().await;
    released(anna.free(&key("a")).await, Released::Freed);
    bert.expect_hint(may_be_free).await;
    world.forget_extra_hints(&bert).await;
    released(carl.free(&key("a")).await, Released::NotHeld);
    world.pass(SLACK).await;
    assert_eq!(bert.hints(), [], "it was woken before");
}
