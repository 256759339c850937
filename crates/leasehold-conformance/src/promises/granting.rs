//! One owner at a time, and the same owner gets the same answer.

use leasehold::ErrorKind;
use leasehold::store::{Acquired, Afterwards, Capabilities, Released};

use crate::check::{
    between, contended, fail_finally, fence, granted, refusal, refused, released, rises, taken,
};
use crate::world::{World, key, ms};

pub(crate) const PROMISE: &str = "one owner at a time, and the same owner gets the same answer";
pub(crate) const CONTRACT: &str =
    "`Store`, section \"Same owner, same answer\", and `Store::acquire`";

pub(crate) fn needs(_: &Capabilities) -> bool {
    true
}

/// A client that asks for a free key gets it.
pub(crate) async fn a_free_key_is_granted(world: &World) {
    granted(world.actor().ask(&key("a")).send().await);
}

/// It is taken through any handle.
pub(crate) async fn a_key_held_by_another_is_taken(world: &World) {
    let (anna, bert, carl) = (world.actor(), world.actor(), world.actor());
    granted(anna.ask(&key("a")).send().await);
    taken(bert.ask(&key("a")).send().await);
    taken(carl.ask(&key("a")).send().await);
    taken(anna.another().ask(&key("a")).send().await);
}

/// If the refusal allows this, no earlier ask ends the new lease.
pub(crate) async fn a_token_that_was_told_taken_may_ask_again(world: &World) {
    let (anna, bert, carl) = (world.actor(), world.actor(), world.actor());
    granted(anna.ask(&key("a")).send().await);
    for _ in 0..3 {
        let refusal = refusal(bert.ask(&key("a")).send().await);
        assert!(refusal.is_taken(), "{refusal:?}");
        if refusal.token != Afterwards::Keep {
            assert!(!world.capabilities().reask, "the store promises it");
            return;
        }
    }
    released(anna.release(&key("a")).await, Released::Freed);
    granted(bert.ask(&key("a")).ttl(20_000).send().await);
    world.pass(ms(15_000)).await;
    taken(carl.ask(&key("a")).send().await);
    released(bert.release(&key("a")).await, Released::Freed);
}

/// `retry_in` is the time left of the holder's lease.
pub(crate) async fn taken_tells_when_the_lease_of_the_holder_ends(world: &World) {
    let (anna, bert) = (world.actor(), world.actor());
    granted(anna.ask(&key("a")).ttl(8_000).send().await);
    world.pass(ms(3_000)).await;
    let (retry_in, ahead) = taken(bert.ask(&key("a")).send().await);
    between(retry_in.expect("the lease has an end"), ms(4_900), ms(5_000) + world.slack());
    assert_eq!(ahead, 0);
}

/// A lost reply is repaired by repeating the request.
pub(crate) async fn a_repeated_ask_is_granted_again_with_the_same_fencing(world: &World) {
    let anna = world.actor();
    let first = granted(anna.ask(&key("a")).reserve(3).send().await);
    for _ in 0..3 {
        world.pass(ms(500)).await;
        assert_eq!(granted(anna.ask(&key("a")).reserve(3).send().await), first);
        let elsewhere = anna.through(world.other_store());
        let again = elsewhere.ask(&key("a")).reserve(1).send().await;
        if world.capabilities().detached {
            assert_eq!(granted(again), first);
        } else {
            refused(again, ErrorKind::Unsupported);
        }
    }
}

/// The new time left is the larger of the time left and the ttl.
pub(crate) async fn a_repeated_ask_never_shortens_a_lease(world: &World) {
    let (anna, bert) = (world.actor(), world.actor());
    granted(anna.ask(&key("a")).ttl(10_000).send().await);
    granted(anna.ask(&key("a")).ttl(100).send().await);
    world.pass(ms(9_900)).await;
    taken(bert.ask(&key("a")).send().await);
}

/// The ttl starts over.
pub(crate) async fn a_repeated_ask_lengthens_a_lease(world: &World) {
    let (anna, bert) = (world.actor(), world.actor());
    granted(anna.ask(&key("a")).ttl(1_000).send().await);
    world.pass(ms(500)).await;
    granted(anna.ask(&key("a")).ttl(2_000).send().await);
    let early = world.early(ms(10));
    world.pass(ms(2_000) - early).await;
    taken(bert.ask(&key("a")).send().await);
    world.pass(early + world.slack()).await;
    granted(bert.ask(&key("a")).send().await);
}

/// A lease of one key says nothing about another.
pub(crate) async fn keys_are_independent(world: &World) {
    let (anna, bert) = (world.actor(), world.actor());
    granted(anna.ask(&key("a")).send().await);
    granted(bert.ask(&key("b")).send().await);
    granted(anna.ask(&key("c")).send().await);
    taken(anna.ask(&key("b")).send().await);
}

/// The asks may arrive in any order. Refused asks leave nothing, so the key is free after the
/// release.
pub(crate) async fn exactly_one_of_many_asks_at_once_is_granted(world: &World) {
    for round in 0..20 {
        let key = key(&format!("round {round}"));
        if round >= 18 {
            // The last lease has ended, and nobody has cleared it away.
            granted(world.actor().ask(&key).ttl(1_000).send().await);
            world.pass(ms(1_000) + world.slack()).await;
        }
        let actors: Vec<_> = (0..10).map(|_| world.actor()).collect();
        let answers: Vec<_> =
            actors.iter().map(|actor| world.task(actor.ask(&key).send())).collect();
        let mut holders = Vec::new();
        for (actor, answer) in actors.iter().zip(answers) {
            match answer.await.expect("answered") {
                Acquired::Granted { .. } => holders.push(actor),
                Acquired::Refused(refusal) => contended(refusal),
            }
        }
        if holders.len() > 1 {
            fail_finally(format!("{} grants in round {round}", holders.len()));
        }
        let [holder] = holders[..] else { panic!("no grant in round {round}") };
        released(holder.release(&key).await, Released::Freed);
        let mut is_free = false;
        for _ in 0..10 {
            let answer = world.actor().ask(&key).send().await.expect("answered");
            is_free = matches!(answer, Acquired::Granted { .. });
            if is_free {
                break;
            }
            // The votes of a quorum may be on their way back.
            world.pass(ms(50)).await;
        }
        assert!(is_free, "something is left in round {round}");
    }
}

/// The store accepts a token again after its lease ended. The new lease is another one.
pub(crate) async fn an_owner_whose_lease_has_ended_is_granted_anew(world: &World) {
    let anna = world.actor();
    let before = granted(anna.ask(&key("a")).ttl(1_000).send().await);
    world.pass(ms(1_000) + world.slack()).await;
    let after = anna.ask(&key("a")).ttl(1_000).send().await;
    if let Some(before) = before {
        rises(fence(after), before.first.get());
    } else {
        granted(after);
    }
}
