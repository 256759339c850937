//! Requests arrive in the order of their submission, and dropping an answer does not undo a
//! request.

use leasehold::store::{Capabilities, Released};

use crate::check::{granted, released, renewed, taken};
use crate::world::{World, key};

pub(crate) const PROMISE: &str =
    "requests of a client arrive in the order of its calls, answered or not";
pub(crate) const CONTRACT: &str = "`Store`, section \"Order\"";

pub(crate) fn needs(_: &Capabilities) -> bool {
    true
}

/// A request is on its way when the method returns.
pub(crate) async fn an_ask_whose_answer_was_dropped_has_taken_the_key(world: &World) {
    let (anna, bert) = (world.actor_here(), world.actor_here());
    drop(anna.ask(&key("a")).send());
    taken(bert.ask(&key("a")).send().await);
    renewed(anna.renew(&key("a"), 10_000).await);
}

/// This is what `drop(guard)` does.
pub(crate) async fn a_release_whose_answer_was_dropped_has_freed_the_key(world: &World) {
    let (anna, bert) = (world.actor_here(), world.actor_here());
    for _ in 0..100 {
        granted(anna.ask(&key("a")).send().await);
        drop(anna.release(&key("a")));
        granted(bert.ask(&key("a")).send().await);
        drop(bert.release(&key("a")));
    }
}

/// This is what a cancelled ask does.
pub(crate) async fn a_release_comes_after_the_ask_that_it_gives_back(world: &World) {
    let (anna, bert) = (world.actor_here(), world.actor_here());
    for _ in 0..100 {
        let another = anna.another();
        drop(another.ask(&key("a")).send());
        drop(another.release(&key("a")));
        granted(bert.ask(&key("a")).send().await);
        released(bert.release(&key("a")).await, Released::Freed);
    }
}

/// Nobody waited for the answer.
pub(crate) async fn a_renewal_whose_answer_was_dropped_has_restarted_the_ttl(world: &World) {
    let (anna, bert) = (world.actor_here(), world.actor_here());
    granted(anna.ask(&key("a")).ttl(1_000).send().await);
    drop(anna.renew(&key("a"), 20_000));
    world.pass(crate::world::ms(19_000)).await;
    taken(bert.ask(&key("a")).send().await);
}

/// This holds even if the answers are polled in another order, or late.
pub(crate) async fn requests_are_answered_in_the_order_in_which_they_were_made(world: &World) {
    let (anna, bert) = (world.actor_here(), world.actor_here());
    for _ in 0..20 {
        let first = anna.ask(&key("a")).send();
        let refused = bert.ask(&key("a")).send();
        let release = anna.release(&key("a"));
        let late = anna.release(&key("a"));
        let second = bert.ask(&key("a")).send();
        let end = bert.release(&key("a"));
        released(end.await, Released::Freed);
        granted(second.await);
        released(late.await, Released::NotHeld);
        released(release.await, Released::Freed);
        taken(refused.await);
        granted(first.await);
    }
}

/// A cancelled waiter blocks nobody.
pub(crate) async fn a_join_whose_answer_was_dropped_is_left_by_a_release(world: &World) {
    if !world.capabilities().line {
        return;
    }
    let (anna, bert) = (world.actor_here(), world.actor_here());
    granted(anna.ask(&key("a")).send().await);
    drop(bert.ask(&key("a")).join().send());
    drop(bert.release(&key("a")));
    released(anna.release(&key("a")).await, Released::Freed);
    assert_eq!(world.inspect(&key("a")).await.waiting, 0);
}

/// A guard may be dropped after its executor has ended.
pub(crate) async fn a_store_outlives_the_handle_that_asked(world: &World) {
    let short_lived = world.open_store().await;
    let anna = world.actor().through(&short_lived);
    granted(anna.ask(&key("a")).send().await);
    drop(anna.release(&key("a")));
    drop((anna, short_lived));
    world.settle().await;
    granted(world.actor().ask(&key("a")).send().await);
}
