//! Readers and writers wait in one line, and nobody passes a waiter that has waited longer.

use leasehold::core::line::RUN_MAX;
use leasehold::store::{Capabilities, Claim, Hint, Released};

use crate::actor::Actor;
use crate::check::{fence, granted, lost, released, renewed, rises, taken};
use crate::world::{World, key, ms};

pub(crate) const PROMISE: &str = "readers and writers pass nobody that waits longer";
pub(crate) const CONTRACT: &str = "`Capabilities::shared`, `Claim::Shared` and `Line::Join`";

pub(crate) fn needs(capabilities: &Capabilities) -> bool {
    capabilities.shared && capabilities.line
}

/// This holds whether it waits or only tries. Readers without end must not starve a writer.
pub(crate) async fn a_reader_does_not_pass_a_waiting_writer(world: &World) {
    let [anna, bert, carl, dora] = actors(world);
    granted(anna.ask(&key("a")).shared().send().await);
    taken(bert.ask(&key("a")).join().send().await);
    taken(carl.ask(&key("a")).shared().send().await);
    let (_, ahead) = taken(dora.ask(&key("a")).shared().join().send().await);
    assert_eq!(ahead, 1);
    taken(carl.ask(&key("a")).shared().send().await);
}

/// The run goes from the front of the line up to the next writer.
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
        reader.expect_hint(|hint| is_grant_for(hint, reader)).await;
        renewed(reader.renew_as(&key("a"), Claim::Shared, 5_000).await);
    }
    lost(erik.renew_as(&key("a"), Claim::Shared, 5_000).await);
    assert_eq!(world.inspect(&key("a")).await.holders.len(), 2);
    assert_eq!(world.inspect(&key("a")).await.waiting, 2);
}

/// It does so in one step, like any release.
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

/// The writer can then give up a lease that it does not use. Both clients use one handle, as in
/// `a_holder_is_told_that_another_waits`.
pub(crate) async fn a_writer_is_told_that_a_reader_waits(world: &World) {
    let (anna, bert) = (world.actor_here(), world.actor_here());
    granted(anna.ask(&key("a")).send().await);
    taken(bert.ask(&key("a")).shared().join().send().await);
    anna.expect_hint(|hint| *hint == Hint::Wanted { key: key("a") }).await;
    assert!(renewed(anna.renew(&key("a"), 10_000).await).1, "a renewal says so too");
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
        reader.expect_hint(|hint| is_grant_for(hint, reader)).await;
        renewed(reader.renew_as(&key("a"), Claim::Shared, 5_000).await);
    }
}

/// They get in at once, since nothing keeps them out any more.
pub(crate) async fn readers_behind_a_writer_that_goes_away_are_let_in(world: &World) {
    let [anna, bert, carl, dora] = actors(world);
    granted(anna.ask(&key("a")).shared().send().await);
    taken(bert.ask(&key("a")).join().send().await);
    taken(carl.ask(&key("a")).shared().join().send().await);
    taken(dora.ask(&key("a")).shared().join().send().await);
    world.settle().await;
    released(bert.release(&key("a")).await, Released::NotHeld);
    for reader in [&carl, &dora] {
        reader.expect_hint(|hint| is_grant_for(hint, reader)).await;
        renewed(reader.renew_as(&key("a"), Claim::Shared, 5_000).await);
    }
}

/// This is as when any other waiter dies.
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

/// It lets them in up to the next writer.
pub(crate) async fn a_downgrade_lets_in_those_that_wait_to_share(world: &World) {
    let [anna, heir, bert, carl] = actors(world);
    granted(anna.ask(&key("a")).send().await);
    taken(bert.ask(&key("a")).shared().join().send().await);
    world.settle().await;
    released(anna.downgrade_to(&heir, &key("a"), 5_000).await, Released::Kept { fencing: None });
    bert.expect_hint(|hint| is_grant_for(hint, &bert)).await;
    renewed(bert.renew_as(&key("a"), Claim::Shared, 5_000).await);
    granted(carl.ask(&key("a")).shared().send().await);
}

/// The lease ended on the way, so the downgrade is a release like any other.
pub(crate) async fn a_downgrade_that_comes_too_late_lets_in_those_that_wait(world: &World) {
    let (anna, heir, bert) = (world.actor(), world.actor(), world.actor());
    granted(anna.ask(&key("a")).ttl(1_000).send().await);
    taken(bert.ask(&key("a")).shared().join_as(1, 5_000, 3_000).send().await);
    world.settle().await;
    world.pass(ms(1_000) + world.slack()).await;
    released(anna.downgrade_to(&heir, &key("a"), 5_000).await, Released::NotHeld);
    bert.expect_hint(|hint| is_grant_for(hint, &bert)).await;
    renewed(bert.renew_as(&key("a"), Claim::Shared, 5_000).await);
}

/// Readers without tokens change nothing about that.
pub(crate) async fn tokens_of_writers_rise_over_readers(world: &World) {
    if !world.capabilities().fencing {
        return;
    }
    let (anna, bert, carl) = (world.actor(), world.actor(), world.actor());
    let before = fence(anna.ask(&key("a")).send().await);
    taken(bert.ask(&key("a")).shared().join().send().await);
    released(anna.release(&key("a")).await, Released::HandedOver);
    assert_eq!(granted(bert.ask(&key("a")).shared().send().await), None);
    released(bert.release_as(&key("a"), Claim::Shared).await, Released::Freed);
    rises(fence(carl.ask(&key("a")).send().await), before);
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
    next.expect_hint(|hint| matches!(hint, Hint::MaybeFree { .. })).await;
    granted(next.ask(&key("a")).shared().join_as(2, 60_000, 60_000).send().await);
    for reader in &readers {
        granted(reader.ask(&key("a")).shared().join_as(3, 60_000, 60_000).send().await);
    }
}

fn actors(world: &World) -> [Actor; 4] {
    std::array::from_fn(|_| world.actor())
}

fn is_grant_for(hint: &Hint, actor: &Actor) -> bool {
    matches!(hint, Hint::Granted { owner, .. } if owner == actor.owner())
}
