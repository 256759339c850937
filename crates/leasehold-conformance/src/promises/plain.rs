//! A lock of a single key: no line, no note, no fencing tokens.

use leasehold::store::{Acquired, Capabilities, Claim, Released};
use leasehold::{Error, Key};

use crate::actor::Actor;
use crate::check::{granted, lost, released, renewed, taken};
use crate::world::{World, key, ms};

pub(crate) const PROMISE: &str = "a plain lock is as exclusive as any";
pub(crate) const CONTRACT: &str = "`Claim::Plain`";

pub(crate) fn needs(_: &Capabilities) -> bool {
    true
}

async fn ask(actor: &Actor, key: &Key, ttl_ms: u64) -> Result<Acquired, Error> {
    actor.ask(key).claim(Claim::Plain).reserve(0).ttl(ttl_ms).send().await
}

async fn release(actor: &Actor, key: &Key) -> Result<Released, Error> {
    actor.release_as(key, Claim::Plain).await
}

/// A client whose store has already seen such locks.
async fn acquainted(world: &World) -> Actor {
    let actor = world.actor();
    for _ in 0..2 {
        assert_eq!(granted(ask(&actor.another(), &key("met"), 1_000).await), None);
        world.pass(ms(1_000) + world.slack()).await;
    }
    actor
}

/// Only the owner can free it.
pub(crate) async fn a_plain_lock_has_one_owner(world: &World) {
    let (anna, bert) = (acquainted(world).await, world.actor());
    for _ in 0..3 {
        let anna = anna.another();
        assert_eq!(granted(ask(&anna, &key("a"), 10_000).await), None);
        taken(ask(&bert, &key("a"), 10_000).await);
        released(release(&bert, &key("a")).await, Released::NotHeld);
        taken(ask(&anna.another(), &key("a"), 10_000).await);
        released(release(&anna, &key("a")).await, Released::Freed);
        released(release(&anna, &key("a")).await, Released::NotHeld);
    }
}

/// A client repeats its request if the reply was lost.
pub(crate) async fn a_repeated_plain_ask_lengthens_a_lease_and_never_shortens_it(world: &World) {
    let (anna, bert) = (acquainted(world).await, world.actor());
    granted(ask(&anna, &key("a"), 1_000).await);
    world.pass(ms(500)).await;
    granted(ask(&anna, &key("a"), 2_000).await);
    granted(ask(&anna, &key("a"), 100).await);
    let early = world.early(ms(10));
    world.pass(ms(2_000) - early).await;
    taken(ask(&bert, &key("a"), 1_000).await);
    world.pass(early + world.slack()).await;
    granted(ask(&bert, &key("a"), 1_000).await);
}

/// The ttl starts over. After its end, nothing brings the lease back.
pub(crate) async fn a_plain_lease_is_renewed_as_any(world: &World) {
    let (anna, bert) = (acquainted(world).await, world.actor());
    granted(ask(&anna, &key("a"), 1_000).await);
    world.pass(ms(900)).await;
    let (fencing, _) = renewed(anna.renew(&key("a"), 1_000).await);
    assert_eq!(fencing, None);
    lost(bert.renew(&key("a"), 1_000).await);
    let early = world.early(ms(10));
    world.pass(ms(1_000) - early).await;
    taken(ask(&bert, &key("a"), 1_000).await);
    world.pass(early + world.slack()).await;
    lost(anna.renew(&key("a"), 1_000).await);
    granted(ask(&bert, &key("a"), 1_000).await);
}

/// Each kind of lock finds the other.
pub(crate) async fn a_plain_lock_and_a_usual_one_exclude_each_other(world: &World) {
    let (anna, bert) = (acquainted(world).await, world.actor());
    granted(ask(&anna, &key("a"), 10_000).await);
    taken(bert.ask(&key("a")).send().await);
    released(release(&anna, &key("a")).await, Released::Freed);
    granted(bert.ask(&key("a")).send().await);
    taken(ask(&anna.another(), &key("a"), 10_000).await);
    released(bert.release(&key("a")).await, Released::Freed);
    granted(ask(&anna.another(), &key("a"), 10_000).await);
}

/// This holds even if a lock with fencing left a counter on the same key.
pub(crate) async fn a_plain_lease_never_has_fencing_tokens(world: &World) {
    let client = acquainted(world).await;
    for _ in 0..3 {
        let (fenced, anna) = (client.another(), client.another());
        granted(fenced.ask(&key("a")).send().await);
        released(fenced.release(&key("a")).await, Released::Freed);
        assert_eq!(granted(ask(&anna, &key("a"), 1_000).await), None);
        assert_eq!(granted(ask(&anna, &key("a"), 1_000).await), None, "asked again");
        assert_eq!(renewed(anna.renew_as(&key("a"), Claim::Plain, 2_000).await).0, None);
        released(release(&anna, &key("a")).await, Released::Freed);
    }
}
