//! A release gives the key to the head of the line, in one step.

use leasehold::store::{Acquired, Capabilities, Hint, Reach, Released, Renewed};

use crate::actor::Actor;
use crate::check::{
    between, contended, fail_finally, fence, granted, kept, last_of, lost, released, renewed,
    rises, rises_past, taken,
};
use crate::world::{World, key, ms};

pub(crate) const PROMISE: &str = "a release gives the key to the head of the line, in one step";
pub(crate) const CONTRACT: &str = "`Store::release` and `Released::HandedOver`";

pub(crate) fn needs(capabilities: &Capabilities) -> bool {
    capabilities.line
}

/// No client can come in between.
pub(crate) async fn a_released_key_is_the_heads_before_anybody_can_ask(world: &World) {
    let (anna, bert, carl) = (world.actor(), world.actor(), world.actor());
    granted(anna.ask(&key("a")).send().await);
    taken(bert.ask(&key("a")).join().send().await);
    released(anna.release(&key("a")).await, Released::HandedOver);
    taken(carl.ask(&key("a")).send().await);
    taken(anna.another().ask(&key("a")).send().await);
    lost(anna.renew(&key("a"), 1_000).await);
    granted(bert.ask(&key("a")).send().await);
}

/// It is first come, first served, in whatever order the waiters ask again.
pub(crate) async fn waiters_are_served_in_the_order_in_which_they_came(world: &World) {
    let mut holder = world.actor();
    let waiters: Vec<Actor> = (0..5).map(|_| world.actor()).collect();
    granted(holder.ask(&key("a")).send().await);
    for waiter in &waiters {
        taken(waiter.ask(&key("a")).join().send().await);
    }
    for (turn, waiter) in waiters.iter().enumerate() {
        for other in waiters[turn..].iter().rev() {
            taken(other.ask(&key("a")).join_as(2, 3_000, 3_000).send().await);
        }
        released(holder.release(&key("a")).await, Released::HandedOver);
        granted(waiter.ask(&key("a")).send().await);
        holder = waiter.clone();
    }
    released(holder.release(&key("a")).await, Released::Freed);
}

/// So a waiter that died just before costs no more than this ttl.
pub(crate) async fn a_handed_lease_lives_for_its_handed_ttl(world: &World) {
    let (anna, bert, carl) = (world.actor(), world.actor(), world.actor());
    granted(anna.ask(&key("a")).send().await);
    taken(bert.ask(&key("a")).ttl(20_000).join_as(1, 3_000, 500).send().await);
    let sent = world.now();
    released(anna.release(&key("a")).await, Released::HandedOver);
    taken(carl.ask(&key("a")).send().await);
    world.fine_only("such a store keeps a handed-over lease for longer than half a second").await;
    let left = world.inspect(&key("a")).await.holders[0].ttl_left.expect("it has an end");
    between(left, ms(400), ms(500));
    let early = world.early(ms(1));
    world.pass_until(sent + (ms(500) - early)).await;
    taken(carl.ask(&key("a")).send().await);
    world.pass(early + world.slack()).await;
    granted(carl.ask(&key("a")).send().await);
    lost(bert.renew(&key("a"), 1_000).await);
}

/// It does so by an ask or by a renewal. The fencing tokens stay.
pub(crate) async fn a_renewal_gives_a_handed_over_lease_its_full_ttl(world: &World) {
    let (anna, bert, carl) = (world.actor(), world.actor(), world.actor());
    for by_asking in [true, false] {
        granted(anna.ask(&key("a")).send().await);
        taken(bert.ask(&key("a")).join_as(1, 3_000, 500).send().await);
        released(anna.release(&key("a")).await, Released::HandedOver);
        let block = if by_asking {
            granted(bert.ask(&key("a")).join_as(2, 3_000, 500).send().await)
        } else {
            renewed(bert.renew(&key("a"), 10_000).await).0
        };
        assert_eq!(renewed(bert.renew(&key("a"), 1_000).await).0, block);
        world.pass(ms(9_900)).await;
        taken(carl.ask(&key("a")).send().await);
        released(bert.release(&key("a")).await, Released::Freed);
    }
}

/// A hand-over is a grant.
pub(crate) async fn tokens_rise_over_a_hand_over(world: &World) {
    if !world.capabilities().fencing {
        return;
    }
    let (anna, bert, carl) = (world.actor(), world.actor(), world.actor());
    let before = granted(anna.ask(&key("a")).reserve(4).send().await);
    taken(bert.ask(&key("a")).reserve(3).join().send().await);
    taken(carl.ask(&key("a")).reserve(0).join().send().await);
    released(anna.release(&key("a")).await, Released::HandedOver);
    let handed = granted(bert.ask(&key("a")).send().await);
    rises_past(handed, before, 4);
    let used = last_of(handed, 3);
    released(bert.release(&key("a")).await, Released::HandedOver);
    assert_eq!(granted(carl.ask(&key("a")).send().await), None, "it asked for none");
    released(carl.release(&key("a")).await, Released::Freed);
    rises(fence(world.actor().ask(&key("a")).send().await), used);
}

/// The lease of the dead holder expires. The next ask, by any client, hands the key to the head of
/// the line.
pub(crate) async fn after_a_crash_any_ask_hands_the_key_to_the_head(world: &World) {
    let (anna, bert, carl) = (world.actor(), world.actor(), world.actor());
    granted(anna.ask(&key("a")).ttl(1_000).send().await);
    taken(bert.ask(&key("a")).join().send().await);
    taken(carl.ask(&key("a")).join().send().await);
    world.pass(ms(1_000) + world.slack()).await;
    taken(carl.ask(&key("a")).join_as(2, 3_000, 3_000).send().await);
    let snapshot = world.inspect(&key("a")).await;
    assert_eq!(snapshot.holders[0].token, bert.owner().as_str().as_bytes());
    granted(bert.ask(&key("a")).send().await);
}

/// The head died right after it was handed the key.
pub(crate) async fn a_dead_new_owner_costs_its_handed_ttl_and_no_more(world: &World) {
    let (anna, bert, carl) = (world.actor(), world.actor(), world.actor());
    granted(anna.ask(&key("a")).send().await);
    taken(bert.ask(&key("a")).join_as(1, 1_000, 1_000).send().await);
    taken(carl.ask(&key("a")).join().send().await);
    released(anna.release(&key("a")).await, Released::HandedOver);
    world.pass(ms(1_000) + world.slack()).await;
    granted(carl.ask(&key("a")).join_as(2, 3_000, 3_000).send().await);
}

/// With a waiter, `Keep` hands the key over.
pub(crate) async fn a_lease_is_handed_over_rather_than_kept(world: &World) {
    let (anna, bert, heir) = (world.actor(), world.actor(), world.actor());
    granted(anna.ask(&key("a")).send().await);
    taken(bert.ask(&key("a")).join().send().await);
    released(anna.keep_for(&heir, &key("a"), 10_000, 8).await, Released::HandedOver);
    released(heir.release(&key("a")).await, Released::NotHeld);
    granted(bert.ask(&key("a")).send().await);
}

/// The lease is renewed, with fresh fencing tokens.
pub(crate) async fn a_lease_is_kept_if_nobody_waits(world: &World) {
    let (anna, bert, heir) = (world.actor(), world.actor(), world.actor());
    let before = granted(anna.ask(&key("a")).ttl(1_000).send().await);
    let block = kept(anna.keep_for(&heir, &key("a"), 5_000, 8).await);
    if world.capabilities().fencing {
        rises_past(block, before, 1);
        last_of(block, 8);
    }
    world.pass(ms(4_900)).await;
    taken(bert.ask(&key("a")).send().await);
    assert_eq!(renewed(heir.renew(&key("a"), 1_000).await).0, block);
    released(heir.release(&key("a")).await, Released::Freed);
    granted(bert.ask(&key("a")).send().await);
}

/// The request may arrive twice, or so late that the lease has long been passed on.
pub(crate) async fn a_token_whose_lease_was_kept_is_spent(world: &World) {
    let (anna, bert, heir) = (world.actor(), world.actor(), world.actor());
    granted(anna.ask(&key("a")).send().await);
    let block = kept(anna.keep_for(&heir, &key("a"), 10_000, 8).await);
    taken(bert.ask(&key("a")).join().send().await);
    released(anna.keep_for(&heir, &key("a"), 10_000, 8).await, Released::NotHeld);
    released(anna.release(&key("a")).await, Released::NotHeld);
    assert_eq!(anna.renew(&key("a"), 10_000).await.expect("an answer"), Renewed::Lost);
    assert_eq!(granted(heir.ask(&key("a")).send().await), block, "same owner, same answer");
    taken(bert.ask(&key("a")).join().send().await);
}

/// It tells people that the owner keeps the lease although none of its tasks uses it.
pub(crate) async fn a_lease_is_shown_as_idle_while_its_renewals_say_so(world: &World) {
    let anna = world.actor();
    let heir = anna.another();
    granted(anna.ask(&key("a")).ttl(1_000).send().await);
    let is_idle = async || world.inspect(&key("a")).await.holders[0].idle;
    assert!(!is_idle().await);
    let block = renewed(anna.renew_idle(&key("a"), 2_000).await).0;
    assert!(is_idle().await);
    world.pass(ms(1_500)).await;
    assert!(is_idle().await, "for as long as the lease");
    assert_eq!(renewed(anna.renew(&key("a"), 2_000).await).0, block, "the same fencing tokens");
    assert!(!is_idle().await);
    renewed(anna.renew_idle(&key("a"), 2_000).await);
    kept(anna.keep_for(&heir, &key("a"), 2_000, 1).await);
    assert!(!is_idle().await, "the client that keeps it uses it");
    renewed(heir.renew_idle(&key("a"), 2_000).await);
    released(heir.release(&key("a")).await, Released::Freed);
    granted(anna.ask(&key("a")).send().await);
    assert!(!is_idle().await, "a lease begins in use");
}

/// Keeping a lease also renews it.
pub(crate) async fn keeping_never_shortens_a_lease(world: &World) {
    let (anna, bert, heir) = (world.actor(), world.actor(), world.actor());
    granted(anna.ask(&key("a")).ttl(10_000).send().await);
    kept(anna.keep_for(&heir, &key("a"), 100, 1).await);
    world.pass(ms(9_900)).await;
    taken(bert.ask(&key("a")).send().await);
}

/// A waiter that comes while the lease is idle is served like any other.
pub(crate) async fn a_kept_lease_is_handed_over_when_it_is_given_up(world: &World) {
    let (anna, bert, heir) = (world.actor(), world.actor(), world.actor());
    granted(anna.ask(&key("a")).send().await);
    let block = kept(anna.keep_for(&heir, &key("a"), 10_000, 2).await);
    taken(bert.ask(&key("a")).join().send().await);
    released(heir.release(&key("a")).await, Released::HandedOver);
    let handed = granted(bert.ask(&key("a")).send().await);
    if world.capabilities().fencing {
        rises_past(handed, block, 2); // A reserved token is never given again.
    }
}

/// From `ask_no`, the waiter knows that the hand-over came after that ask.
pub(crate) async fn a_hand_over_repeats_the_number_of_the_last_ask(world: &World) {
    if world.capabilities().hints == Reach::Nobody {
        return;
    }
    let (anna, bert) = (world.actor(), world.actor());
    granted(anna.ask(&key("a")).send().await);
    for ask_no in [1, 2, 5] {
        taken(bert.ask(&key("a")).reserve(2).join_as(ask_no, 3_000, 3_000).send().await);
    }
    world.settle().await;
    released(anna.release(&key("a")).await, Released::HandedOver);
    let (owner, fencing, ask_no) = bert.hint(granted_hint).await;
    assert_eq!((&owner, ask_no), (bert.owner(), 5));
    assert_eq!(granted(bert.ask(&key("a")).send().await), fencing, "of this very grant");
}

/// This holds for a thousand asks and releases at the same time.
pub(crate) async fn the_key_is_never_held_twice_and_nobody_is_forgotten(world: &World) {
    let actors: Vec<Actor> = (0..8).map(|_| world.actor()).collect();
    let inside = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
    let tasks: Vec<_> = actors
        .into_iter()
        .map(|actor| {
            let (time, inside) = (world.time().clone(), inside.clone());
            world.task(async move { rounds(&time, &actor, &inside).await })
        })
        .collect();
    for task in tasks {
        task.await;
    }
    assert!(world.inspect(&key("a")).await.holders.is_empty());
}

async fn rounds(time: &crate::time::Time, client: &Actor, inside: &std::sync::atomic::AtomicU32) {
    use std::sync::atomic::Ordering::SeqCst;
    for _ in 0..10 {
        let actor = client.another();
        let mut ask_no = 0;
        loop {
            ask_no += 1;
            let ask = actor.ask(&key("a")).join_as(ask_no, 3_000, 3_000);
            match ask.send().await.expect("answered") {
                Acquired::Granted { .. } => break,
                Acquired::Refused(refusal) => {
                    contended(refusal);
                    time.pass(ms(5)).await;
                }
            }
        }
        let others = inside.fetch_add(1, SeqCst);
        time.pass(ms(3)).await;
        if inside.fetch_sub(1, SeqCst) != 1 || others != 0 {
            fail_finally("two are inside".to_owned());
        }
        let answer = actor.release(&key("a")).await.expect("answered");
        assert!(matches!(answer, Released::Freed | Released::HandedOver), "{answer:?}");
    }
}

fn granted_hint(
    hint: &Hint,
) -> Option<(leasehold::OwnerToken, Option<leasehold::core::FencingBlock>, u32)> {
    match hint {
        Hint::Granted { owner, fencing, ask_no, .. } => Some((owner.clone(), *fencing, *ask_no)),
        _ => None,
    }
}
