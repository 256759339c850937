//! Fencing tokens rise with every grant.

use leasehold::ErrorKind;
use leasehold::store::{Capabilities, Evicted, FENCE_IDLE, Released};

use crate::check::{fence, first, granted, last_of, raised, released, renewed, rises};
use crate::world::{World, key, ms};

pub(crate) const PROMISE: &str = "fencing tokens rise with every grant";
pub(crate) const CONTRACT: &str = "`Capabilities::fencing`";

pub(crate) fn needs(capabilities: &Capabilities) -> bool {
    capabilities.fencing
}

/// They rise for any sequence of owners.
pub(crate) async fn tokens_rise_from_release_to_grant(world: &World) {
    let mut before = 0;
    for _ in 0..20 {
        let actor = world.actor();
        let token = fence(actor.ask(&key("a")).send().await);
        rises(token, before);
        before = token;
        released(actor.release(&key("a")).await, Released::Freed);
    }
}

/// This is the purpose of fencing tokens.
pub(crate) async fn tokens_rise_over_an_expiry(world: &World) {
    let (anna, bert) = (world.actor(), world.actor());
    let before = fence(anna.ask(&key("a")).ttl(1_000).send().await);
    world.pass(ms(1_000) + world.slack()).await;
    rises(fence(bert.ask(&key("a")).send().await), before);
}

/// They rise even if the evicted client gets no further grant.
pub(crate) async fn tokens_rise_over_an_eviction(world: &World) {
    if !world.capabilities().browse {
        return;
    }
    let (anna, bert) = (world.actor(), world.actor());
    let before = fence(anna.ask(&key("a")).send().await);
    let seen = anna.owner().as_str().as_bytes().to_vec();
    let evicted = world.browse().evict(key("a"), seen, "a test".to_owned()).await;
    assert_eq!(evicted.expect("answered"), Evicted::Evicted);
    if let Some(shown) = counter(world).await {
        assert!(shown > before, "raised by the eviction itself");
    }
    rises(fence(bert.ask(&key("a")).send().await), before);
}

/// No number is given twice, even if its block was not used up.
pub(crate) async fn a_block_is_consecutive_and_never_given_again(world: &World) {
    let mut used = 0;
    for reserve in [1, 8, 3, 64, 1] {
        let actor = world.actor();
        let block = granted(actor.ask(&key("a")).reserve(reserve).send().await);
        rises(first(block), used);
        used = last_of(block, reserve);
        let shown = world.inspect(&key("a")).await.fencing.expect("the counter is known");
        assert_eq!(shown.get(), used, "the highest given so far");
        released(actor.release(&key("a")).await, Released::Freed);
    }
}

/// The grant gives no tokens either.
pub(crate) async fn a_grant_without_fencing_leaves_the_counter_alone(world: &World) {
    let actor = world.actor();
    let before = fence(actor.ask(&key("a")).send().await);
    released(actor.release(&key("a")).await, Released::Freed);
    for _ in 0..3 {
        let unfenced = world.actor();
        assert_eq!(granted(unfenced.ask(&key("a")).reserve(0).send().await), None);
        assert_eq!(granted(unfenced.ask(&key("a")).reserve(0).send().await), None, "repeated");
        assert_eq!(renewed(unfenced.renew(&key("a"), 1_000).await).0, None);
        released(unfenced.release(&key("a")).await, Released::Freed);
    }
    if let Some(shown) = counter(world).await {
        assert_eq!(shown, before);
    }
    rises(fence(world.actor().ask(&key("a")).send().await), before);
}

/// A quorum raises counters in this way, so a store that cannot be a node of a quorum may refuse
/// it. The lease has the new token, and the next grant is above it. The answer contains the lease's
/// earlier token, from which a quorum sees whether it knows that grant.
pub(crate) async fn a_renewal_raises_a_counter_that_is_behind(world: &World) {
    let (anna, bert) = (world.actor(), world.actor());
    let mut before = granted(anna.ask(&key("a")).reserve(4).send().await);
    let mut ahead = 0;
    for _ in 0..2 {
        ahead = first(before) + 1_000;
        let answer = anna.renew_at_least(&key("a"), 10_000, Some(ahead), 0).await;
        if answer.as_ref().is_err_and(|error| error.kind() == ErrorKind::Unsupported) {
            assert!(!world.may_be_a_node(), "a node of a quorum raises its counters");
            return;
        }
        let (block, raised_from) = raised(answer);
        assert_eq!((first(block), raised_from), (ahead, before));
        before = block;
    }
    assert_eq!(first(granted(anna.ask(&key("a")).send().await)), ahead, "a repeated ask");
    released(anna.release(&key("a")).await, Released::Freed);
    rises(fence(bert.ask(&key("a")).send().await), ahead);
}

/// A counter never goes back.
pub(crate) async fn a_renewal_never_lowers_a_counter(world: &World) {
    let (anna, bert) = (world.actor(), world.actor());
    let block = granted(anna.ask(&key("a")).reserve(10).send().await);
    let used = last_of(block, 10);
    for at_least in [1, first(block), used] {
        let answer = anna.renew_at_least(&key("a"), 10_000, Some(at_least), 0).await;
        assert_eq!(raised(answer), (block, None));
    }
    released(anna.release(&key("a")).await, Released::Freed);
    rises(fence(bert.ask(&key("a")).send().await), used);
}

/// This must hold even if the store forgets unused keys.
pub(crate) async fn tokens_rise_after_a_long_time_without_use(world: &World) {
    let mut before = 0;
    for rounds in 0..4_u32 {
        let actor = world.actor();
        let block = granted(actor.ask(&key("a")).reserve(5).send().await);
        rises(first(block), before);
        before = last_of(block, 5);
        released(actor.release(&key("a")).await, Released::Freed);
        world.pass(FENCE_IDLE * rounds + ms(1)).await;
        // Another key is used meanwhile, which may make the store clean up.
        let other = world.actor();
        granted(other.ask(&key("b")).send().await);
        released(other.release(&key("b")).await, Released::Freed);
    }
}

/// The counter of the free key `a`. A store whose numbers come from one source for all keys has
/// none.
async fn counter(world: &World) -> Option<u64> {
    let shown = world.inspect(&key("a")).await.fencing.map(|shown| shown.get());
    assert!(shown.is_some() || !world.may_be_a_node(), "the counter is known");
    shown
}
