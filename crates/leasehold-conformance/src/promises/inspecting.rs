//! Inspections show the true state.

use leasehold::Key;
use leasehold::store::{Capabilities, Released, Snapshot};

use crate::actor::Actor;
use crate::check::{between, granted, released, renewed, taken, whole};
use crate::world::{World, key, ms};

pub(crate) const PROMISE: &str = "a snapshot shows the true state of a key";
pub(crate) const CONTRACT: &str = "`Store::inspect` and `Snapshot`";

pub(crate) fn needs(_: &Capabilities) -> bool {
    true
}

/// The store invents nothing.
pub(crate) async fn a_key_that_nobody_used_shows_nothing(world: &World) {
    assert_eq!(whole(world.inspect(&key("a")).await), Snapshot::default());
}

/// People see the client, the reason, the beginning, and the time left.
pub(crate) async fn a_holder_is_shown_with_all_that_is_known_of_it(world: &World) {
    let anna = world.actor();
    let wall = world.wall();
    let block = granted(anna.ask(&key("a")).named().why("nightly report").send().await);
    world.pass(ms(2_000)).await;
    let snapshot = world.inspect(&key("a")).await;
    assert_eq!(snapshot.holders.len(), 1);
    let holder = &snapshot.holders[0];
    assert_eq!(holder.token, anna.owner().as_str().as_bytes());
    assert_eq!(holder.client.as_ref(), Some(&anna.record()));
    assert_eq!(holder.why.as_deref(), Some("nightly report"));
    between(holder.ttl_left.expect("it has an end"), ms(7_900), ms(8_000) + world.slack());
    // Not every store knows the ttl.
    if let Some(ttl) = holder.ttl {
        between(ttl, ms(10_000), ms(11_000));
    }
    assert_eq!(holder.fencing, block);
    assert!(!holder.idle);
    let since = holder.since.expect("it is known").as_unix_millis();
    assert!(since.abs_diff(wall.as_unix_millis()) <= 100, "{since} is not about {wall:?}");
    assert_eq!((snapshot.waiting, snapshot.waiters.len()), (0, 0));
    assert_eq!(snapshot.fencing, block.map(|block| block.first));
}

/// A long lease may outlive its client. People must still see who took it.
pub(crate) async fn a_holder_is_known_until_its_lease_ends(world: &World) {
    const HOUR_MS: u64 = 3_600_000;
    if world.capabilities().strict == Some(true) {
        return;
    }
    let (anna, bert) = (world.actor(), world.actor());
    granted(anna.ask(&key("a")).ttl(HOUR_MS).named().send().await);
    granted(bert.ask(&key("b")).named().send().await);
    renewed(bert.renew_idle(&key("b"), 2 * HOUR_MS).await);
    let seen = async |name, span, actor: &Actor| {
        world.pass(span).await;
        let snapshot = world.inspect(&key(name)).await;
        let client = snapshot.holders.first().expect("its lease lives").client.clone();
        assert_eq!(client, Some(actor.record()), "{name} after {span:?} more");
    };
    seen("a", ms(HOUR_MS - 60_000), &anna).await;
    seen("b", ms(HOUR_MS - 60_000), &bert).await;
}

/// The store keeps the name of a client only if the client gave it.
pub(crate) async fn without_a_note_nothing_but_the_lock_and_its_counter_is_kept(world: &World) {
    let (anna, bert) = (world.actor(), world.actor());
    granted(anna.ask(&key("a")).send().await);
    let snapshot = world.inspect(&key("a")).await;
    assert_eq!((&snapshot.holders[0].client, &snapshot.holders[0].why), (&None, &None));
    if world.capabilities().line {
        taken(bert.ask(&key("a")).join().send().await);
        let snapshot = world.inspect(&key("a")).await;
        assert_eq!(snapshot.waiters[0].client, None);
    }
}

/// A reason belongs to one grant and ends with it.
pub(crate) async fn a_reason_ends_with_its_grant(world: &World) {
    let (anna, bert) = (world.actor(), world.actor());
    granted(anna.ask(&key("a")).why("migration").send().await);
    released(anna.release(&key("a")).await, Released::Freed);
    granted(bert.ask(&key("a")).send().await);
    assert_eq!(world.inspect(&key("a")).await.holders[0].why, None);
}

/// The waiter's reason becomes the holder's reason.
pub(crate) async fn a_reason_is_handed_over_with_the_key(world: &World) {
    if !world.capabilities().line {
        return;
    }
    let (anna, bert) = (world.actor(), world.actor());
    granted(anna.ask(&key("a")).named().why("hers").send().await);
    taken(bert.ask(&key("a")).named().why("his").join().send().await);
    released(anna.release(&key("a")).await, Released::HandedOver);
    let snapshot = world.inspect(&key("a")).await;
    assert_eq!(snapshot.holders[0].why.as_deref(), Some("his"));
    assert_eq!(snapshot.holders[0].client, Some(bert.record()));
}

/// An ended lease has no holder.
pub(crate) async fn a_lease_that_ended_is_not_shown(world: &World) {
    let anna = world.actor();
    granted(anna.ask(&key("a")).ttl(1_000).named().send().await);
    world.pass(ms(1_000) + world.slack()).await;
    let snapshot = world.inspect(&key("a")).await;
    assert_eq!(snapshot.holders, []);
    released(anna.release(&key("a")).await, Released::NotHeld);
}

/// The first hundred are shown in order, each with its client.
pub(crate) async fn waiters_are_shown_in_order_and_all_are_counted(world: &World) {
    if !world.capabilities().line {
        return;
    }
    granted(world.actor().ask(&key("a")).send().await);
    let many = Snapshot::WAITERS_SHOWN_MAX + 5;
    let mut ids = Vec::new();
    for _ in 0..many {
        let waiter = world.actor();
        taken(waiter.ask(&key("a")).named().join().send().await);
        ids.push(waiter.id().clone());
    }
    let snapshot = world.inspect(&key("a")).await;
    assert_eq!(snapshot.waiting as usize, many);
    assert_eq!(snapshot.waiters.len(), Snapshot::WAITERS_SHOWN_MAX);
    for (waiter, id) in snapshot.waiters.iter().zip(&ids) {
        assert_eq!(waiter.id.as_ref(), Some(id));
        assert_eq!(waiter.client.as_ref().map(|client| &client.id), Some(id));
        assert!(waiter.since.is_some());
    }
}

/// A waiter has waited since it came, not since it last asked.
pub(crate) async fn a_refresh_does_not_change_since_when_somebody_waits(world: &World) {
    if !world.capabilities().line {
        return;
    }
    let (anna, bert) = (world.actor(), world.actor());
    granted(anna.ask(&key("a")).send().await);
    let since = async |key: &Key| world.inspect(key).await.waiters[0].since;
    taken(bert.ask(&key("a")).join().send().await);
    let at_first = since(&key("a")).await;
    world.pass(ms(2_000)).await;
    taken(bert.ask(&key("a")).join_as(2, 3_000, 3_000).send().await);
    assert_eq!(since(&key("a")).await, at_first);
}

/// An inspection moves no expiry.
pub(crate) async fn looking_changes_nothing(world: &World) {
    let (anna, bert) = (world.actor(), world.actor());
    let block = granted(anna.ask(&key("a")).ttl(1_000).send().await);
    for _ in 0..10 {
        world.pass(ms(90)).await;
        world.inspect(&key("a")).await;
    }
    assert_eq!(world.inspect(&key("a")).await.holders[0].fencing, block);
    world.pass(ms(100) + world.slack()).await;
    world.inspect(&key("a")).await;
    granted(bert.ask(&key("a")).send().await);
}
