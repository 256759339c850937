//! Waiters stand in line, and nobody passes them.

use leasehold::ErrorKind;
use leasehold::core::line::{PLACES_MAX, REAPED_MAX};
use leasehold::store::{Capabilities, Hint, Released};

use crate::actor::Actor;
use crate::check::{contended, granted, refused, released, taken};
use crate::world::{World, key, ms};

pub(crate) const PROMISE: &str = "waiters stand in line, and no client passes them";
pub(crate) const CONTRACT: &str = "`Capabilities::line` and `Line::Join`";

pub(crate) fn needs(capabilities: &Capabilities) -> bool {
    capabilities.line
}

/// `ahead` counts the places before the client's own, or all places if it has none.
pub(crate) async fn a_client_that_joins_is_told_how_many_are_ahead(world: &World) {
    let holder = world.actor();
    granted(holder.ask(&key("a")).join().send().await);
    for ahead in 0..4 {
        assert_eq!(taken(world.actor().ask(&key("a")).join().send().await).1, ahead);
    }
    assert_eq!(taken(world.actor().ask(&key("a")).send().await).1, 4, "a client without a place");
    let snapshot = world.inspect(&key("a")).await;
    assert_eq!((snapshot.waiting, snapshot.waiters.len()), (4, 4));
}

/// An ask that joins needs no place if the key is free.
pub(crate) async fn a_client_that_joins_is_granted_a_free_key_without_a_place(world: &World) {
    let (anna, bert) = (world.actor(), world.actor());
    granted(anna.ask(&key("a")).join().send().await);
    granted(anna.ask(&key("a")).join_as(2, 3_000, 3_000).send().await);
    assert_eq!(world.inspect(&key("a")).await.waiting, 0);
    released(anna.release(&key("a")).await, Released::Freed);
    granted(bert.ask(&key("a")).send().await);
}

/// Another ask refreshes the place and keeps the turn.
pub(crate) async fn a_repeated_join_keeps_its_place(world: &World) {
    let (anna, bert, carl) = (world.actor(), world.actor(), world.actor());
    granted(anna.ask(&key("a")).send().await);
    taken(bert.ask(&key("a")).join().send().await);
    taken(carl.ask(&key("a")).join().send().await);
    for ask_no in 2..5 {
        world.pass(ms(1_000)).await;
        assert_eq!(taken(bert.ask(&key("a")).join_as(ask_no, 3_000, 3_000).send().await).1, 0);
        assert_eq!(taken(carl.ask(&key("a")).join_as(ask_no, 3_000, 3_000).send().await).1, 1);
    }
    assert_eq!(world.inspect(&key("a")).await.waiting, 2);
}

/// A client that does not wait has no turn.
pub(crate) async fn an_ask_that_only_stands_by_takes_no_place(world: &World) {
    let (anna, bert) = (world.actor(), world.actor());
    granted(anna.ask(&key("a")).send().await);
    taken(bert.ask(&key("a")).send().await);
    assert_eq!(world.inspect(&key("a")).await.waiting, 0);
    released(anna.release(&key("a")).await, Released::Freed);
}

/// A client that passes the line would make it unfair.
pub(crate) async fn a_client_without_a_place_never_passes_a_living_place(world: &World) {
    let (anna, bert, carl) = (world.actor(), world.actor(), world.actor());
    granted(anna.ask(&key("a")).ttl(1_000).send().await);
    taken(bert.ask(&key("a")).join().send().await);
    world.pass(ms(1_000) + world.slack()).await;
    // The lease has ended, and no client has asked since. Bert is next in line.
    let (retry_in, ahead) = taken(carl.ask(&key("a")).send().await);
    assert!(retry_in.is_some_and(|left| left <= ms(3_000)), "{retry_in:?}: the handed lease");
    assert_eq!(ahead, 0, "the line is empty: its head is the owner now");
    let holder = world.inspect(&key("a")).await.holders[0].token.clone();
    assert_eq!(holder, bert.owner().as_str().as_bytes(), "handed over by that very ask");
}

/// There is no hand-over, because the head itself asks.
pub(crate) async fn the_head_of_the_line_is_granted_a_free_key(world: &World) {
    let (anna, bert, carl) = (world.actor(), world.actor(), world.actor());
    granted(anna.ask(&key("a")).ttl(1_000).send().await);
    taken(bert.ask(&key("a")).join().send().await);
    taken(carl.ask(&key("a")).join().send().await);
    world.pass(ms(1_000) + world.slack()).await;
    let block = granted(bert.ask(&key("a")).join_as(2, 3_000, 3_000).send().await);
    let snapshot = world.inspect(&key("a")).await;
    assert_eq!(snapshot.waiting, 1, "its own place is gone, the other is not");
    assert!(snapshot.holders[0].ttl_left > Some(ms(9_000)), "for its full ttl: {snapshot:?}");
    // A hint may come twice. A store that watches its keys may tell of this very grant, too.
    let is_another =
        |hint: &Hint| matches!(hint, Hint::Granted { fencing, .. } if *fencing != block);
    if world.capabilities().frees {
        let hints = bert.hints();
        assert!(!hints.iter().any(is_another), "only what it asked for: {block:?}, {hints:?}");
    }
}

/// This holds even if the head does not join again.
pub(crate) async fn the_head_of_the_line_is_granted_without_joining_again(world: &World) {
    let (anna, bert) = (world.actor(), world.actor());
    granted(anna.ask(&key("a")).ttl(1_000).send().await);
    taken(bert.ask(&key("a")).join().send().await);
    world.pass(ms(1_000) + world.slack()).await;
    granted(bert.ask(&key("a")).send().await);
    assert_eq!(world.inspect(&key("a")).await.waiting, 0);
}

/// Otherwise the asker would be told *taken* without a place in the line.
pub(crate) async fn an_asker_behind_the_head_takes_its_place_before_the_hand_over(world: &World) {
    let (anna, bert, carl) = (world.actor(), world.actor(), world.actor());
    granted(anna.ask(&key("a")).ttl(1_000).send().await);
    taken(bert.ask(&key("a")).join().send().await);
    world.pass(ms(1_000) + world.slack()).await;
    assert_eq!(taken(carl.ask(&key("a")).join().send().await).1, 0, "next after bert");
    let snapshot = world.inspect(&key("a")).await;
    assert_eq!(snapshot.holders[0].token, bert.owner().as_str().as_bytes());
    assert_eq!(snapshot.waiters[0].id.as_ref(), Some(carl.id()));
    released(bert.release(&key("a")).await, Released::HandedOver);
    granted(carl.ask(&key("a")).send().await);
}

/// A dead place costs the others no more than its own short lease.
pub(crate) async fn a_dead_place_is_passed(world: &World) {
    let [anna, bert, carl, dora, emil] = [(); 5].map(|()| world.actor());
    granted(anna.ask(&key("a")).send().await);
    taken(bert.ask(&key("a")).join_as(1, 1_000, 1_000).send().await);
    for waiter in [&carl, &dora] {
        taken(waiter.ask(&key("a")).join_as(1, 9_000, 3_000).send().await);
    }
    world.pass(ms(1_000) + world.slack()).await;
    assert_eq!(world.inspect(&key("a")).await.waiting, 2);
    released(anna.release(&key("a")).await, Released::HandedOver);
    granted(carl.ask(&key("a")).send().await);
    taken(bert.ask(&key("a")).send().await);
    let (_, ahead) = taken(emil.ask(&key("a")).send().await);
    assert_eq!(ahead, 1, "dora waits, and nobody else");
}

/// It lives to the last millisecond.
pub(crate) async fn a_place_lives_for_all_of_its_ttl(world: &World) {
    let (anna, bert) = (world.actor(), world.actor());
    granted(anna.ask(&key("a")).send().await);
    let sent = world.now();
    taken(bert.ask(&key("a")).join_as(1, 1_000, 1_000).send().await);
    world.pass_until(sent + (ms(1_000) - world.early(ms(1)))).await;
    released(anna.release(&key("a")).await, Released::HandedOver);
}

/// A refresh counts from the time of the ask, and never shortens the place.
pub(crate) async fn a_place_is_refreshed_by_asking_and_never_shortened(world: &World) {
    let (anna, bert, carl) = (world.actor(), world.actor(), world.actor());
    granted(anna.ask(&key("a")).send().await);
    taken(bert.ask(&key("a")).join_as(1, 1_000, 1_000).send().await);
    taken(carl.ask(&key("a")).join_as(1, 5_000, 1_000).send().await);
    world.pass(ms(900)).await;
    taken(bert.ask(&key("a")).join_as(2, 2_000, 1_000).send().await);
    taken(carl.ask(&key("a")).join_as(2, 100, 1_000).send().await);
    world.pass(ms(1_900)).await;
    assert_eq!(world.inspect(&key("a")).await.waiting, 2);
}

/// A waiter that gives up blocks nobody.
pub(crate) async fn a_release_leaves_the_line(world: &World) {
    let (anna, bert, carl) = (world.actor(), world.actor(), world.actor());
    granted(anna.ask(&key("a")).send().await);
    taken(bert.ask(&key("a")).join().send().await);
    taken(carl.ask(&key("a")).join().send().await);
    released(bert.release(&key("a")).await, Released::NotHeld);
    assert_eq!(taken(carl.ask(&key("a")).join_as(2, 3_000, 3_000).send().await).1, 0);
    released(anna.release(&key("a")).await, Released::HandedOver);
    granted(carl.ask(&key("a")).send().await);
    taken(bert.ask(&key("a")).send().await);
}

/// Two acquisitions of one client have two places.
pub(crate) async fn places_belong_to_owners_and_not_to_clients(world: &World) {
    let (anna, bert) = (world.actor(), world.actor());
    let again = bert.another();
    granted(anna.ask(&key("a")).send().await);
    assert_eq!(taken(bert.ask(&key("a")).join().send().await).1, 0);
    assert_eq!(taken(again.ask(&key("a")).join().send().await).1, 1);
    released(bert.release(&key("a")).await, Released::NotHeld);
    released(anna.release(&key("a")).await, Released::HandedOver);
    granted(again.ask(&key("a")).send().await);
}

/// The lines of two keys are independent.
pub(crate) async fn each_key_has_a_line_of_its_own(world: &World) {
    let (anna, bert, carl) = (world.actor(), world.actor(), world.actor());
    for name in ["a", "b"] {
        granted(anna.ask(&key(name)).send().await);
    }
    taken(bert.ask(&key("a")).join().send().await);
    taken(carl.ask(&key("b")).join().send().await);
    released(anna.release(&key("b")).await, Released::HandedOver);
    granted(carl.ask(&key("b")).send().await);
    taken(bert.ask(&key("a")).join_as(2, 3_000, 3_000).send().await);
    assert_eq!(world.inspect(&key("a")).await.waiting, 1);
}

/// A holder, and a living place behind many dead ones. The living place matters, because a store
/// may forget a line without living places at once.
async fn dead_places(world: &World, many: usize) -> (Actor, Actor) {
    world.fine_only("the server of such a store removes dead places by itself").await;
    let (holder, living) = (world.actor(), world.actor());
    granted(holder.ask(&key("a")).ttl(5_000).send().await);
    for _ in 0..many {
        taken(world.actor().ask(&key("a")).join_as(1, 1_000, 1_000).send().await);
    }
    taken(living.ask(&key("a")).join_as(1, 20_000, 3_000).send().await);
    world.pass(ms(1_000) + world.slack()).await;
    (holder, living)
}

/// No step takes long, and no step grants the key past places that it did not check.
pub(crate) async fn a_step_drops_few_dead_places_and_asks_to_be_asked_again(world: &World) {
    let (_, living) = dead_places(world, 2 * REAPED_MAX + 4).await;
    world.pass(ms(4_000) + world.slack()).await;
    let anna = world.actor();
    for _ in 0..2 {
        let (retry_in, _) = taken(anna.ask(&key("a")).send().await);
        assert_eq!(retry_in, Some(ms(0)), "at once: it is not known yet who is next");
    }
    let (retry_in, _) = taken(anna.ask(&key("a")).send().await);
    assert_eq!(retry_in, Some(ms(3_000)), "handed over");
    granted(living.ask(&key("a")).send().await);
}

/// The next ask goes on with the line.
pub(crate) async fn a_release_before_many_dead_places_frees_the_key(world: &World) {
    let (holder, living) = dead_places(world, 2 * REAPED_MAX + 4).await;
    released(holder.release(&key("a")).await, Released::Freed);
    let late = world.actor();
    for _ in 0..10 {
        match late.ask(&key("a")).send().await.expect("answered") {
            leasehold::store::Acquired::Granted { .. } => panic!("granted past a living place"),
            leasehold::store::Acquired::Refused(refusal) => {
                let (retry_in, is_taken) = (refusal.retry_in, refusal.is_taken());
                contended(refusal);
                if !is_taken || retry_in != Some(ms(0)) {
                    break;
                }
            }
        }
    }
    granted(living.ask(&key("a")).send().await);
}

/// A line has a stated limit. A full line loses nobody. Only living places of this key count.
pub(crate) async fn a_full_line_refuses_the_next_and_loses_nobody(world: &World) {
    world.virtual_only("ten thousand clients wait, and time has to pass until they go").await;
    if !world.is_first_run() {
        // This case takes long. Its asks come one after the other, so other seeds change nothing.
        return;
    }
    let (holder, first) = (world.actor_here(), world.actor_here());
    for name in ["b", "a"] {
        granted(holder.ask(&key(name)).ttl(600_000).send().await);
    }
    for _ in 0..2 {
        taken(first.another().ask(&key("b")).join_as(1, 500_000, 3_000).send().await);
    }
    taken(first.ask(&key("a")).join_as(1, 500_000, 3_000).send().await);
    let crowd: Vec<_> = (1..PLACES_MAX).map(|_| first.another()).collect();
    let join = |actor: &Actor| actor.ask(&key("a")).join_as(1, 400_000, 3_000).send();
    let asks: Vec<_> = crowd.iter().map(join).collect();
    for answer in asks {
        taken(answer.await);
    }
    let late = world.actor_here();
    refused(late.ask(&key("a")).join().send().await, ErrorKind::Unavailable);
    assert_eq!(taken(late.ask(&key("a")).send().await).1 as usize, PLACES_MAX);
    assert_eq!(world.inspect(&key("a")).await.waiting as usize, PLACES_MAX);
    // A waiter with a place can still refresh it.
    assert_eq!(taken(first.ask(&key("a")).join_as(2, 500_000, 3_000).send().await).1, 0);
    // A waiter in the middle leaves, and another one gets its room.
    released(crowd[PLACES_MAX / 2].release(&key("a")).await, Released::NotHeld);
    assert_eq!(taken(join(&first.another()).await).1 as usize, PLACES_MAX - 1);
    refused(late.ask(&key("a")).join().send().await, ErrorKind::Unavailable);
    world.pass(ms(400_000) + world.slack()).await;
    taken(late.ask(&key("a")).join().send().await);
    assert_eq!(world.inspect(&key("a")).await.waiting, 2);
    released(holder.release(&key("a")).await, Released::HandedOver);
    granted(first.ask(&key("a")).send().await);
}
