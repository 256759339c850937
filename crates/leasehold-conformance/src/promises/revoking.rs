//! A holder is asked to let go. It learns that at its next renewal, and nobody else does.

use std::sync::Arc;

use leasehold::store::{Capabilities, Claim, Released, Renewed, Revocation, Revoked};
use leasehold::{Error, ErrorKind, OwnerToken};

use crate::actor::Actor;
use crate::check::{granted, kept, released, taken};
use crate::world::{World, key, ms};

pub(crate) const PROMISE: &str = "a request to let go reaches only the holder that was seen";
pub(crate) const CONTRACT: &str = "`Capabilities::revoke` and `Browse::revoke`";

pub(crate) fn needs(capabilities: &Capabilities) -> bool {
    capabilities.browse && capabilities.revoke
}

/// Asks the owner of that token.
async fn revoke(world: &World, seen: &[u8], reason: &str) -> Revoked {
    let (by, reason) = ("ada@machine-1".to_owned(), reason.to_owned());
    let answer = world.browse().revoke(key("a"), seen.to_vec(), by, reason).await;
    answer.expect("a request to let go is answered")
}

async fn ask(world: &World, holder: &Actor, reason: &str) {
    assert_eq!(revoke(world, holder.owner().as_str().as_bytes(), reason).await, Revoked::Asked);
}

/// The request in the answer to a renewal.
#[track_caller]
fn told(answer: Result<Renewed, Error>) -> Option<Arc<Revocation>> {
    match answer {
        Ok(Renewed::Renewed { revoked, .. }) => revoked,
        other => panic!("not renewed: {other:?}"),
    }
}

/// It learns who asked and why. The lease goes on.
pub(crate) async fn each_renewal_tells_a_holder_that_it_was_asked_to_let_go(world: &World) {
    let (anna, bert) = (world.actor(), world.actor());
    let fencing = granted(anna.ask(&key("a")).ttl(1_000).send().await);
    assert_eq!(told(anna.renew(&key("a"), 1_000).await), None);
    ask(world, &anna, "a | 'test' \u{1f512}\nand more").await;
    ask(world, &anna, "another reason").await;
    for _ in 0..5 {
        let answer = anna.renew(&key("a"), 1_000).await.expect("answered");
        let Renewed::Renewed { fencing: same, revoked, .. } = answer else { panic!("held") };
        let revoked = revoked.expect("it was asked");
        assert_eq!(revoked.by, "ada@machine-1");
        assert_eq!(revoked.reason, "a | 'test' \u{1f512}\nand more", "the first request stands");
        assert_eq!(same, fencing);
        assert_eq!(world.inspect(&key("a")).await.holders[0].revoked, Some(revoked));
        taken(bert.ask(&key("a")).send().await);
        world.pass(ms(600)).await;
    }
    released(anna.release(&key("a")).await, Released::Freed);
}

/// Renewals also raise the counter, reserve tokens, and say whether a guard uses the lease.
pub(crate) async fn a_request_to_let_go_outlasts_every_kind_of_renewal(world: &World) {
    let anna = world.actor();
    granted(anna.ask(&key("a")).why("work").send().await);
    ask(world, &anna, "x").await;
    for answer in [
        anna.renew_idle(&key("a"), 10_000).await,
        anna.renew(&key("a"), 10_000).await,
        anna.renew_at_least(&key("a"), 10_000, None, 2).await,
        anna.renew_at_least(&key("a"), 10_000, Some(1 << 52), 0).await,
        anna.renew(&key("a"), 10_000).await,
    ] {
        // A store that cannot be a node of a quorum may refuse to raise its counter.
        if answer.as_ref().is_err_and(|error| error.kind() == ErrorKind::Unsupported) {
            assert!(!world.may_be_a_node(), "a node of a quorum raises its counters");
            continue;
        }
        assert!(told(answer).is_some());
    }
    let shown = &world.inspect(&key("a")).await.holders[0];
    assert!(shown.revoked.is_some() && shown.why.as_deref() == Some("work"), "{shown:?}");
}

/// Its lease may end between the inspection and the request, or after the request.
pub(crate) async fn the_next_holder_never_sees_a_request_that_was_not_for_it(world: &World) {
    let (anna, bert) = (world.actor(), world.actor());
    let seen = anna.owner().as_str().as_bytes();
    assert_eq!(revoke(world, seen, "x").await, Revoked::Changed, "never held");
    granted(anna.ask(&key("a")).ttl(1_000).send().await);
    for other in [&seen[..10], b"", b"%", b"*", b"\xff\xfe"] {
        assert_eq!(revoke(world, other, "x").await, Revoked::Changed);
    }
    assert_eq!(told(anna.renew(&key("a"), 1_000).await), None);
    ask(world, &anna, "x").await;
    released(anna.release(&key("a")).await, Released::Freed);
    assert_eq!(revoke(world, seen, "x").await, Revoked::Changed, "free");
    granted(bert.ask(&key("a")).why("work").ttl(1_000).send().await);
    assert_eq!(told(bert.renew(&key("a"), 1_000).await), None);
    ask(world, &bert, "x").await;
    world.pass(ms(1_000) + world.slack()).await;
    assert_eq!(revoke(world, bert.owner().as_str().as_bytes(), "x").await, Revoked::Changed);
    let carl = world.actor();
    granted(carl.ask(&key("a")).why("work").send().await);
    assert_eq!(told(carl.renew(&key("a"), 1_000).await), None);
    assert_eq!(world.inspect(&key("a")).await.holders[0].revoked, None);
}

/// Neither a waiter that gets the key sees it, nor the same client with another token.
pub(crate) async fn a_request_to_let_go_is_not_handed_over(world: &World) {
    if !world.capabilities().line {
        return;
    }
    let (anna, bert) = (world.actor(), world.actor());
    granted(anna.ask(&key("a")).why("work").send().await);
    ask(world, &anna, "x").await;
    let heir = anna.another();
    kept(anna.keep_for(&heir, &key("a"), 10_000, 2).await);
    assert_eq!(told(heir.renew(&key("a"), 10_000).await), None);
    ask(world, &heir, "y").await;
    taken(bert.ask(&key("a")).why("work").join().send().await);
    released(heir.release(&key("a")).await, Released::HandedOver);
    assert_eq!(told(bert.renew(&key("a"), 10_000).await), None);
}

/// A plain lease has no note, and is asked anyway.
pub(crate) async fn the_holder_of_a_plain_lock_is_asked_too(world: &World) {
    let anna = world.actor();
    granted(anna.ask(&key("a")).claim(Claim::Plain).reserve(0).send().await);
    ask(world, &anna, "x").await;
    let revoked = told(anna.renew_as(&key("a"), Claim::Plain, 10_000).await);
    assert_eq!(revoked.expect("it was asked").reason, "x");
    released(anna.release_as(&key("a"), Claim::Plain).await, Released::Freed);
    // The next plain lease writes no note either, so the request may still be there.
    let cleo = world.actor();
    granted(cleo.ask(&key("a")).claim(Claim::Plain).reserve(0).send().await);
    assert_eq!(told(cleo.renew_as(&key("a"), Claim::Plain, 10_000).await), None);
    released(cleo.release_as(&key("a"), Claim::Plain).await, Released::Freed);
    let bert = world.actor();
    granted(bert.ask(&key("a")).send().await);
    assert_eq!(told(bert.renew(&key("a"), 10_000).await), None);
}

/// The holder does not learn of the request, and is shown as before.
pub(crate) async fn a_foreign_holder_stays_as_it_was(world: &World) {
    let anna = world.actor();
    let foreign = anna.with_token(OwnerToken::new("somebody-else").expect("a token"));
    granted(anna.ask(&key("a")).send().await);
    released(anna.release(&key("a")).await, Released::Freed);
    granted(foreign.ask(&key("a")).claim(Claim::Plain).reserve(0).send().await);
    let before = world.inspect(&key("a")).await.holders[0].fencing;
    ask(world, &foreign, "x").await;
    assert_eq!(world.inspect(&key("a")).await.holders[0].fencing, before);
    assert!(told(foreign.renew_as(&key("a"), Claim::Plain, 10_000).await).is_some());
    released(foreign.release_as(&key("a"), Claim::Plain).await, Released::Freed);
}

/// Each has a lease of its own.
pub(crate) async fn holders_that_share_a_key_are_asked_one_by_one(world: &World) {
    let promised = world.capabilities();
    let claims =
        [(Claim::Shared, promised.shared), (Claim::Permits { want: 2, of: 5 }, promised.permits)];
    for (claim, _) in claims.into_iter().filter(|(_, is_promised)| *is_promised) {
        let (anna, bert) = (world.actor(), world.actor());
        granted(anna.ask(&key("a")).claim(claim).reserve(0).send().await);
        granted(bert.ask(&key("a")).claim(claim).reserve(0).send().await);
        ask(world, &anna, "x").await;
        ask(world, &anna, "y").await;
        for _ in 0..2 {
            let revoked = told(anna.renew_as(&key("a"), claim, 10_000).await);
            assert_eq!(revoked.expect("it was asked").reason, "x");
            assert_eq!(told(bert.renew_as(&key("a"), claim, 10_000).await), None);
        }
        let shown = world.inspect(&key("a")).await;
        let asked = shown.holders.iter().filter(|holder| holder.revoked.is_some());
        assert_eq!(asked.count(), 1);
        released(anna.release_as(&key("a"), claim).await, Released::Freed);
        let again = revoke(world, anna.owner().as_str().as_bytes(), "x").await;
        assert_eq!(again, Revoked::Changed);
        granted(anna.ask(&key("a")).claim(claim).reserve(0).send().await);
        assert_eq!(told(anna.renew_as(&key("a"), claim, 10_000).await), None, "a new lease");
        for reader in [&anna, &bert] {
            released(reader.release_as(&key("a"), claim).await, Released::Freed);
        }
    }
}

/// Some libraries use one owner token for lock after lock. A repeated ask is for the same lease.
pub(crate) async fn a_request_to_let_go_is_not_for_the_next_lease_of_the_same_owner_token(
    world: &World,
) {
    if !world.capabilities().reask {
        return;
    }
    let anna = world.actor();
    let reason = async || {
        let request = told(anna.renew(&key("a"), 1_000).await);
        request.map(|request| request.reason.clone())
    };
    for has_note in [false, true] {
        let take = |ttl_ms| {
            let asking = anna.ask(&key("a")).ttl(ttl_ms);
            let asking = if has_note { asking.why("work").reserve(2) } else { asking };
            asking.send()
        };
        granted(take(10_000).await);
        ask(world, &anna, "one").await;
        granted(take(10_000).await);
        assert_eq!(reason().await.as_deref(), Some("one"), "it is still the same lease");
        released(anna.release(&key("a")).await, Released::Freed);
        granted(take(1_000).await);
        assert_eq!(world.inspect(&key("a")).await.holders[0].revoked, None);
        assert_eq!(reason().await, None, "the earlier lease was released");
        ask(world, &anna, "two").await;
        assert_eq!(reason().await.as_deref(), Some("two"));
        world.pass(ms(1_000) + world.slack()).await;
        granted(take(10_000).await);
        assert_eq!(reason().await, None, "the earlier lease has ended");
        released(anna.release(&key("a")).await, Released::Freed);
    }
}

/// The owner let go, and waits in line behind another holder, which shares the key or has it alone.
pub(crate) async fn a_request_to_let_go_is_not_for_a_lease_that_its_owner_token_is_handed(
    world: &World,
) {
    let promised = world.capabilities();
    if !promised.line || !promised.reask {
        return;
    }
    let claims = [(Claim::Exclusive, true), (Claim::Shared, promised.shared)];
    for (claim, _) in claims.into_iter().filter(|(_, is_promised)| *is_promised) {
        let (anna, bert) = (world.actor(), world.actor());
        granted(anna.ask(&key("a")).why("work").send().await);
        ask(world, &anna, "x").await;
        released(anna.release(&key("a")).await, Released::Freed);
        granted(bert.ask(&key("a")).claim(claim).reserve(0).why("work").send().await);
        taken(anna.ask(&key("a")).why("work").join().send().await);
        released(bert.release_as(&key("a"), claim).await, Released::HandedOver);
        assert_eq!(told(anna.renew(&key("a"), 10_000).await), None, "{claim:?}");
        released(anna.release(&key("a")).await, Released::Freed);
    }
}

/// The client passes its lease on under another token, and later under the first one again.
pub(crate) async fn a_request_to_let_go_is_not_for_a_lease_that_its_owner_token_keeps(
    world: &World,
) {
    let promised = world.capabilities();
    if !promised.line || !promised.reask {
        return;
    }
    let anna = world.actor();
    let heir = anna.another();
    granted(anna.ask(&key("a")).why("work").send().await);
    ask(world, &anna, "x").await;
    kept(anna.keep_for(&heir, &key("a"), 10_000, 2).await);
    kept(heir.keep_for(&anna, &key("a"), 10_000, 2).await);
    assert_eq!(told(anna.renew(&key("a"), 10_000).await), None);
    assert_eq!(world.inspect(&key("a")).await.holders[0].revoked, None);
    ask(world, &anna, "y").await;
    let revoked = told(anna.renew(&key("a"), 10_000).await);
    assert_eq!(revoked.expect("it was asked").reason, "y");
    released(anna.release(&key("a")).await, Released::Freed);
}
