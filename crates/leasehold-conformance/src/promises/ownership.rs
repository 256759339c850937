//! Only the owner ends or lengthens a lease.

use leasehold::store::{Capabilities, Released};
use leasehold::{ErrorKind, OwnerToken};

use crate::check::{granted, lost, refused, released, renewed, taken};
use crate::world::{World, key, ms};

pub(crate) const PROMISE: &str = "only the owner ends or lengthens a lease";
pub(crate) const CONTRACT: &str = "`Store::renew` and `Store::release`";

pub(crate) fn needs(_: &Capabilities) -> bool {
    true
}

/// The key is free at once, for all clients.
pub(crate) async fn a_release_by_the_owner_frees_the_key(world: &World) {
    let (anna, bert) = (world.actor(), world.actor());
    granted(anna.ask(&key("a")).send().await);
    released(anna.release(&key("a")).await, Released::Freed);
    granted(bert.ask(&key("a")).send().await);
}

/// The answer says so.
pub(crate) async fn a_release_by_another_owner_ends_nothing(world: &World) {
    let (anna, bert) = (world.actor(), world.actor());
    granted(anna.ask(&key("a")).send().await);
    released(bert.release(&key("a")).await, Released::NotHeld);
    released(anna.another().release(&key("a")).await, Released::NotHeld);
    taken(bert.ask(&key("a")).send().await);
    renewed(anna.renew(&key("a"), 10_000).await);
}

/// The opposite is the classic bug of locks without an owner token.
pub(crate) async fn a_release_by_a_former_holder_leaves_the_new_holder_untouched(world: &World) {
    let (anna, bert, carl) = (world.actor(), world.actor(), world.actor());
    granted(anna.ask(&key("a")).ttl(1_000).send().await);
    world.pass(ms(1_000) + world.slack()).await;
    granted(bert.ask(&key("a")).send().await);
    released(anna.release(&key("a")).await, Released::NotHeld);
    taken(carl.ask(&key("a")).send().await);
    renewed(bert.renew(&key("a"), 10_000).await);
}

/// A client gets this answer if it repeats a release whose reply was lost.
pub(crate) async fn a_second_release_finds_nothing(world: &World) {
    let anna = world.actor();
    granted(anna.ask(&key("a")).send().await);
    released(anna.release(&key("a")).await, Released::Freed);
    released(anna.release(&key("a")).await, Released::NotHeld);
}

/// This is not an error.
pub(crate) async fn a_key_that_nobody_ever_held_is_not_held(world: &World) {
    let anna = world.actor();
    released(anna.release(&key("a")).await, Released::NotHeld);
    released(anna.keep_for(&world.actor(), &key("a"), 1_000, 1).await, Released::NotHeld);
    lost(anna.renew(&key("a"), 1_000).await);
}

/// The expiry stays as it is.
pub(crate) async fn a_renewal_by_another_owner_is_lost_and_changes_nothing(world: &World) {
    let (anna, bert) = (world.actor(), world.actor());
    granted(anna.ask(&key("a")).ttl(1_000).send().await);
    lost(bert.renew(&key("a"), 20_000).await);
    world.pass(ms(1_000) + world.slack()).await;
    granted(bert.ask(&key("a")).send().await);
    lost(anna.renew(&key("a"), 20_000).await);
}

/// A lease belongs to its token, not to a process. Another process may continue it, or at least
/// release it.
pub(crate) async fn a_lease_is_renewed_and_released_through_any_handle(world: &World) {
    let anna = world.actor_here();
    let block = granted(anna.ask(&key("a")).send().await);
    let elsewhere = anna.through(world.other_store());
    let renewal = elsewhere.renew(&key("a"), 20_000).await;
    if world.capabilities().detached {
        assert_eq!(renewed(renewal).0, block);
    } else {
        refused(renewal, ErrorKind::Unsupported);
    }
    released(elsewhere.release(&key("a")).await, Released::Freed);
    lost(anna.renew(&key("a"), 1_000).await);
}

/// There is no case folding, and no truncation.
pub(crate) async fn tokens_are_compared_byte_for_byte(world: &World) {
    let token = |text: &str| world.actor().with_token(OwnerToken::new(text).expect("printable"));
    let long = "x".repeat(OwnerToken::MAX_BYTES);
    granted(token("Token-1").ask(&key("a")).send().await);
    granted(token(&long).ask(&key("b")).send().await);
    for other in ["token-1", "TOKEN-1", "Token-", "Token-11", "%", "*", "Token_1", "1"] {
        taken(token(other).ask(&key("a")).send().await);
        lost(token(other).renew(&key("a"), 1_000).await);
        released(token(other).release(&key("a")).await, Released::NotHeld);
    }
    released(token(&long[1..]).release(&key("b")).await, Released::NotHeld);
    released(token("Token-1").release(&key("a")).await, Released::Freed);
    released(token(&long).release(&key("b")).await, Released::Freed);
}
