//! Readers share a key, and a writer has it alone.

use leasehold::store::{Capabilities, Claim, Evicted, Released};

use crate::actor::Actor;
use crate::check::{granted, lost, released, renewed, taken};
use crate::world::{HOUR_MS, World, key, ms};

pub(crate) const PROMISE: &str = "readers share a key, and a writer has it alone";
pub(crate) const CONTRACT: &str = "`Capabilities::shared` and `Claim::Shared`";

pub(crate) fn needs(capabilities: &Capabilities) -> bool {
    capabilities.shared
}

/// They keep out exclusive owners of any kind.
pub(crate) async fn readers_share_a_key_and_keep_everybody_else_out(world: &World) {
    let (anna, bert, carl) = (world.actor(), world.actor(), world.actor());
    assert_eq!(granted(anna.ask(&key("a")).shared().send().await), None, "it asked for no token");
    granted(bert.ask(&key("a")).shared().send().await);
    taken(carl.ask(&key("a")).send().await);
    taken(carl.ask(&key("a")).claim(Claim::Plain).reserve(0).send().await);
    released(anna.release_as(&key("a"), Claim::Shared).await, Released::Freed);
    taken(carl.ask(&key("a")).send().await);
    released(bert.release_as(&key("a"), Claim::Shared).await, Released::Freed);
    granted(carl.ask(&key("a")).send().await);
}

/// This is the other way round.
pub(crate) async fn a_writer_keeps_readers_out(world: &World) {
    let (anna, bert) = (world.actor(), world.actor());
    granted(anna.ask(&key("a")).send().await);
    let (retry_in, ahead) = taken(bert.ask(&key("a")).shared().send().await);
    assert!(retry_in.is_some_and(|left| left <= ms(10_000)), "{retry_in:?}");
    assert_eq!(ahead, 0);
    released(anna.release(&key("a")).await, Released::Freed);
    granted(bert.ask(&key("a")).shared().send().await);
}

/// A lost reply is repaired by asking again. One release must then be enough.
pub(crate) async fn a_repeated_shared_ask_counts_once(world: &World) {
    let (anna, bert) = (world.actor(), world.actor());
    granted(anna.ask(&key("a")).shared().ttl(1_000).send().await);
    granted(anna.ask(&key("a")).shared().ttl(5_000).send().await);
    granted(anna.ask(&key("a")).shared().ttl(1_000).join_or_try().send().await);
    world.pass(ms(4_900)).await;
    taken(bert.ask(&key("a")).send().await);
    released(anna.release_as(&key("a"), Claim::Shared).await, Released::Freed);
    released(anna.release_as(&key("a"), Claim::Shared).await, Released::NotHeld);
    granted(bert.ask(&key("a")).send().await);
}

/// Each lease is renewed, ends and is lost alone.
pub(crate) async fn each_reader_has_a_lease_of_its_own(world: &World) {
    let (anna, bert, carl) = (world.actor(), world.actor(), world.actor());
    granted(anna.ask(&key("a")).shared().ttl(1_000).send().await);
    granted(bert.ask(&key("a")).shared().ttl(1_000).send().await);
    world.pass(ms(900)).await;
    renewed(bert.renew_as(&key("a"), Claim::Shared, 2_000).await);
    renewed(bert.renew_as(&key("a"), Claim::Shared, 500).await);
    world.pass(ms(100) + world.slack()).await;
    lost(anna.renew_as(&key("a"), Claim::Shared, 1_000).await);
    released(anna.release_as(&key("a"), Claim::Shared).await, Released::NotHeld);
    taken(carl.ask(&key("a")).send().await);
    world.pass(ms(1_700)).await;
    taken(carl.ask(&key("a")).send().await);
    world.pass(ms(200) + world.slack()).await;
    granted(carl.ask(&key("a")).send().await);
}

/// The key stays taken until the last of the others ends, and not the first.
pub(crate) async fn a_reader_that_leaves_shortens_no_other(world: &World) {
    let [anna, bert, carl, dora] = actors(world);
    for (reader, ttl) in [(&anna, 1_000), (&bert, 10_000), (&carl, 5_000)] {
        granted(reader.ask(&key("a")).shared().ttl(ttl).send().await);
    }
    released(carl.release_as(&key("a"), Claim::Shared).await, Released::Freed);
    world.pass(ms(1_000) + world.slack()).await;
    taken(dora.ask(&key("a")).send().await);
    renewed(bert.renew_as(&key("a"), Claim::Shared, 1_000).await);
}

/// People see each reader with all that is known of it.
pub(crate) async fn readers_are_shown_and_evicted_one_by_one(world: &World) {
    let (anna, bert) = (world.actor(), world.actor());
    granted(anna.ask(&key("a")).shared().named().why("a report").send().await);
    granted(bert.ask(&key("a")).shared().named().send().await);
    let snapshot = world.inspect(&key("a")).await;
    let shown = |actor: &Actor| {
        let token = actor.owner().as_str().as_bytes();
        snapshot.holders.iter().find(|holder| holder.token == token).expect("it is shown").clone()
    };
    assert_eq!(snapshot.holders.len(), 2);
    assert_eq!(shown(&anna).why.as_deref(), Some("a report"));
    assert_eq!(shown(&bert).why, None);
    assert_eq!(shown(&anna).client.expect("its record").id, *anna.id());
    assert!(shown(&bert).ttl_left.is_some_and(|left| left <= ms(10_000)));
    if !world.capabilities().browse {
        return;
    }
    let evict = async |token: Vec<u8>| {
        world.browse().evict(key("a"), token, "a test".to_owned()).await.expect("an answer")
    };
    assert_eq!(evict(anna.owner().as_str().into()).await, Evicted::Evicted);
    assert_eq!(evict(anna.owner().as_str().into()).await, Evicted::Changed);
    lost(anna.renew_as(&key("a"), Claim::Shared, 1_000).await);
    renewed(bert.renew_as(&key("a"), Claim::Shared, 1_000).await);
}

/// A writer that ignores a forgotten reader would be a second holder.
pub(crate) async fn a_reader_with_a_long_ttl_is_not_forgotten(world: &World) {
    let [anna, bert, carl, dora] = actors(world);
    granted(anna.ask(&key("a")).shared().ttl(HOUR_MS).send().await);
    // A reader that came later, for a shorter time, shortens nothing.
    granted(bert.ask(&key("a")).shared().send().await);
    granted(carl.ask(&key("b")).shared().send().await);
    renewed(carl.renew_as(&key("b"), Claim::Shared, HOUR_MS).await);
    world.leave_idle().await;
    for (reader, name) in [(&anna, "a"), (&carl, "b")] {
        taken(dora.ask(&key(name)).send().await);
        renewed(reader.renew_as(&key(name), Claim::Shared, HOUR_MS).await);
    }
    lost(bert.renew_as(&key("a"), Claim::Shared, HOUR_MS).await);
}

fn actors(world: &World) -> [Actor; 4] {
    std::array::from_fn(|_| world.actor())
}
