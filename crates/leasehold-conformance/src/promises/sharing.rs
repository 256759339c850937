//! Readers share a key. A writer has it alone, and nobody passes one that waits longer.

use leasehold::core::line::RUN_MAX;
use leasehold::store::{Capabilities, Claim, Evicted, Hint, Released};

use crate::actor::Actor;
use crate::check::{first, granted, lost, released, renewed, taken};
use crate::world::{World, key, ms};

pub(crate) const PROMISE: &str = "readers share a key, and nobody passes one that waits longer";
pub(crate) const CONTRACT: &str = "`Capabilities::shared` and `Claim::Shared`";

pub(crate) fn needs(capabilities: &Capabilities) -> bool {
    capabilities.shared
}

/// Of any kind.
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

/// The other way round.
pub(crate) async fn a_writer_keeps_readers_out(world: &World) {
    let (anna, bert) = (world.actor(), world.actor());
    granted(anna.ask(&key("a")).send().await);
    let (retry_in, ahead) = taken(bert.ask(&key("a")).shared().send().await);
    assert!(retry_in.is_some_and(|left| left <= ms(10_000)), "{retry_in:?}");
    assert_eq!(ahead, 0);
    released(anna.release(&key("a")).await, Released::Freed);
    granted(bert.ask(&key("a")).shared().send().await);
}

/// Whether it waits or only tries: readers without end must not starve a writer.
pub(crate) async fn a_reader_does_not_pass_a_waiting_writer(world: &World) {
    let [anna, bert, carl, dora] = actors(world);
    granted(anna.ask(&key("a")).shared().send().await);
    taken(bert.ask(&key("a")).join().send().await);
    taken(carl.ask(&key("a")).shared().send().await);
    let (_, ahead) = taken(dora.ask(&key("a")).shared().join().send().await);
    assert_eq!(ahead, 1);
    taken(carl.ask(&key("a")).shared().send().await);
}

/// From the front of the line up to the next writer.
pub(crate) async fn a_run_of_readers_is_granted_together(world: &World) {
    let [anna, bert, carl, dora] = actors(world);
    let erik = world.actor();
    granted(anna.ask(&key("a")).send().await);
    taken(bert.ask(&key("a")).shared().join().send().await);
    taken(carl.ask(&key("a")).shared().join().send().await);
    taken(dora.ask(&key("a")).join().send().await);
    taken(erik.ask(&key("a")).shared().join().send().await);
    world.settle().await;
    released(anna.release(&key("a")).await, Released::HandedOver);
    for reader in [&bert, &carl] {
        reader.hint(|hint| is_grant_for(hint, reader)).await;
        renewed(reader.renew_as(&key("a"), Claim::Shared, 5_000).await);
    }
    lost(erik.renew_as(&key("a"), Claim::Shared, 5_000).await);
    assert_eq!(world.inspect(&key("a")).await.holders.len(), 2);
    assert_eq!(world.inspect(&key("a")).await.waiting, 2);
}

/// In one step, as any release.
pub(crate) async fn the_last_reader_hands_over_to_the_writer(world: &World) {
    let [anna, bert, carl, dora] = actors(world);
    granted(anna.ask(&key("a")).shared().send().await);
    granted(bert.ask(&key("a")).shared().send().await);
    taken(carl.ask(&key("a")).join().send().await);
    released(anna.release_as(&key("a"), Claim::Shared).await, Released::Freed);
    released(bert.release_as(&key("a"), Claim::Shared).await, Released::HandedOver);
    taken(dora.ask(&key("a")).shared().send().await);
    granted(carl.ask(&key("a")).send().await);
}

/// A writer waits for the readers that came before it, and for no others.
pub(crate) async fn a_writer_is_handed_the_key_between_generations_of_readers(world: &World) {
    let [anna, bert, carl, dora] = actors(world);
    granted(anna.ask(&key("a")).shared().send().await);
    taken(bert.ask(&key("a")).join().send().await);
    taken(carl.ask(&key("a")).shared().join().send().await);
    taken(dora.ask(&key("a")).shared().join().send().await);
    released(anna.release_as(&key("a"), Claim::Shared).await, Released::HandedOver);
    renewed(bert.renew(&key("a"), 5_000).await);
    lost(carl.renew_as(&key("a"), Claim::Shared, 5_000).await);
    released(bert.release(&key("a")).await, Released::HandedOver);
    for reader in [&carl, &dora] {
        granted(reader.ask(&key("a")).shared().send().await);
        released(reader.release_as(&key("a"), Claim::Shared).await, Released::Freed);
    }
    granted(anna.another().ask(&key("a")).send().await);
}

/// A lost reply is repaired by asking again. One release must then be enough.
pub(crate) async fn a_repeated_shared_ask_counts_once(world: &World) {
    let (anna, bert) = (world.actor(), world.actor());
    granted(anna.ask(&key("a")).shared().ttl(1_000).send().await);
    granted(anna.ask(&key("a")).shared().ttl(5_000).send().await);
    granted(anna.ask(&key("a")).shared().ttl(1_000).join().send().await);
    world.pass(ms(4_900)).await;
    taken(bert.ask(&key("a")).send().await);
    released(anna.release_as(&key("a"), Claim::Shared).await, Released::Freed);
    released(anna.release_as(&key("a"), Claim::Shared).await, Released::NotHeld);
    granted(bert.ask(&key("a")).send().await);
}

/// It is renewed, ends and is lost alone.
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

/// The other readers keep theirs.
pub(crate) async fn the_crash_of_a_reader_frees_only_what_it_had(world: &World) {
    let [anna, bert, carl, _] = actors(world);
    granted(anna.ask(&key("a")).shared().ttl(1_000).send().await);
    granted(bert.ask(&key("a")).shared().ttl(10_000).send().await);
    taken(carl.ask(&key("a")).join().send().await);
    world.pass(ms(1_000) + world.slack()).await;
    taken(carl.ask(&key("a")).join_as(2, 3_000, 3_000).send().await);
    renewed(bert.renew_as(&key("a"), Claim::Shared, 1_000).await);
    released(bert.release_as(&key("a"), Claim::Shared).await, Released::HandedOver);
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

/// The key is free since the lease of a holder ended. The first reader that asks lets the others in
/// too.
pub(crate) async fn an_ask_that_is_granted_lets_those_behind_it_in(world: &World) {
    let [anna, bert, carl, dora] = actors(world);
    granted(anna.ask(&key("a")).ttl(1_000).send().await);
    for reader in [&bert, &carl, &dora] {
        taken(reader.ask(&key("a")).shared().join_as(1, 5_000, 3_000).send().await);
    }
    world.settle().await;
    world.pass(ms(1_000) + world.slack()).await;
    granted(carl.ask(&key("a")).shared().join_as(2, 5_000, 3_000).send().await);
    for reader in [&bert, &dora] {
        reader.hint(|hint| is_grant_for(hint, reader)).await;
        renewed(reader.renew_as(&key("a"), Claim::Shared, 5_000).await);
    }
}

/// At once, since nothing keeps them out any more.
pub(crate) async fn readers_behind_a_writer_that_goes_away_are_let_in(world: &World) {
    let [anna, bert, carl, dora] = actors(world);
    granted(anna.ask(&key("a")).shared().send().await);
    taken(bert.ask(&key("a")).join().send().await);
    taken(carl.ask(&key("a")).shared().join().send().await);
    taken(dora.ask(&key("a")).shared().join().send().await);
    world.settle().await;
    released(bert.release(&key("a")).await, Released::NotHeld);
    for reader in [&carl, &dora] {
        reader.hint(|hint| is_grant_for(hint, reader)).await;
        renewed(reader.renew_as(&key("a"), Claim::Shared, 5_000).await);
    }
}

/// As after any death in the line.
pub(crate) async fn readers_behind_a_writer_that_died_are_let_in_by_any_ask(world: &World) {
    let [anna, bert, carl, dora] = actors(world);
    granted(anna.ask(&key("a")).shared().ttl(20_000).send().await);
    taken(bert.ask(&key("a")).join_as(1, 1_000, 1_000).send().await);
    taken(carl.ask(&key("a")).shared().join_as(1, 5_000, 3_000).send().await);
    taken(dora.ask(&key("a")).shared().join_as(1, 5_000, 3_000).send().await);
    world.pass(ms(1_000) + world.slack()).await;
    granted(dora.ask(&key("a")).shared().join_as(2, 5_000, 3_000).send().await);
    renewed(carl.renew_as(&key("a"), Claim::Shared, 5_000).await);
}

/// No other writer can come in between.
pub(crate) async fn a_writer_that_shares_from_now_on_leaves_no_gap(world: &World) {
    let [anna, heir, bert, carl] = actors(world);
    granted(anna.ask(&key("a")).ttl(1_000).send().await);
    taken(bert.ask(&key("a")).join().send().await);
    released(anna.downgrade_to(&heir, &key("a"), 5_000).await, Released::Kept { fencing: None });
    lost(anna.renew(&key("a"), 1_000).await);
    released(anna.release(&key("a")).await, Released::NotHeld);
    released(anna.downgrade_to(&heir, &key("a"), 5_000).await, Released::NotHeld);
    renewed(heir.renew_as(&key("a"), Claim::Shared, 5_000).await);
    taken(carl.ask(&key("a")).send().await);
    taken(bert.ask(&key("a")).join_as(2, 3_000, 3_000).send().await);
    released(heir.release_as(&key("a"), Claim::Shared).await, Released::HandedOver);
    granted(bert.ask(&key("a")).send().await);
}

/// Up to the next writer.
pub(crate) async fn a_downgrade_lets_in_those_that_wait_to_share(world: &World) {
    let [anna, heir, bert, carl] = actors(world);
    granted(anna.ask(&key("a")).send().await);
    taken(bert.ask(&key("a")).shared().join().send().await);
    world.settle().await;
    released(anna.downgrade_to(&heir, &key("a"), 5_000).await, Released::Kept { fencing: None });
    bert.hint(|hint| is_grant_for(hint, &bert)).await;
    renewed(bert.renew_as(&key("a"), Claim::Shared, 5_000).await);
    granted(carl.ask(&key("a")).shared().send().await);
}

/// The lease ended on the way, so it is a release like any other.
pub(crate) async fn a_downgrade_that_comes_too_late_lets_in_those_that_wait(world: &World) {
    let (anna, heir, bert) = (world.actor(), world.actor(), world.actor());
    granted(anna.ask(&key("a")).ttl(1_000).send().await);
    taken(bert.ask(&key("a")).shared().join_as(1, 5_000, 3_000).send().await);
    world.settle().await;
    world.pass(ms(1_000) + world.slack()).await;
    released(anna.downgrade_to(&heir, &key("a"), 5_000).await, Released::NotHeld);
    bert.hint(|hint| is_grant_for(hint, &bert)).await;
    renewed(bert.renew_as(&key("a"), Claim::Shared, 5_000).await);
}

/// Readers without tokens change nothing about that.
pub(crate) async fn tokens_of_writers_rise_over_readers(world: &World) {
    if !world.capabilities().fencing {
        return;
    }
    let (anna, bert, carl) = (world.actor(), world.actor(), world.actor());
    let before = first(granted(anna.ask(&key("a")).send().await));
    taken(bert.ask(&key("a")).shared().join().send().await);
    released(anna.release(&key("a")).await, Released::HandedOver);
    assert_eq!(granted(bert.ask(&key("a")).shared().send().await), None);
    released(bert.release_as(&key("a"), Claim::Shared).await, Released::Freed);
    assert!(first(granted(carl.ask(&key("a")).send().await)) > before);
}

/// For people: each with what is known of it.
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

/// The step that reaches its limit tells the next one to ask.
pub(crate) async fn more_readers_than_one_step_grants_all_get_in(world: &World) {
    let holder = world.actor();
    let readers: Vec<Actor> = (0..RUN_MAX + 3).map(|_| world.actor()).collect();
    granted(holder.ask(&key("a")).send().await);
    for reader in &readers {
        taken(reader.ask(&key("a")).shared().join_as(1, 60_000, 60_000).send().await);
    }
    world.settle().await;
    released(holder.release(&key("a")).await, Released::HandedOver);
    let next = &readers[RUN_MAX];
    next.hint(|hint| matches!(hint, Hint::MaybeFree { .. }).then_some(())).await;
    granted(next.ask(&key("a")).shared().join_as(2, 60_000, 60_000).send().await);
    for reader in &readers {
        granted(reader.ask(&key("a")).shared().join_as(3, 60_000, 60_000).send().await);
    }
}

fn actors(world: &World) -> [Actor; 4] {
    std::array::from_fn(|_| world.actor())
}

fn is_grant_for(hint: &Hint, actor: &Actor) -> Option<()> {
    matches!(hint, Hint::Granted { owner, .. } if owner == actor.owner()).then_some(())
}
