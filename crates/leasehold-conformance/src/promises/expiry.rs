//! A lease ends after its ttl, and not before.

use leasehold::Ttl;
use leasehold::store::{Capabilities, Reach, Released};

use crate::check::{granted, lost, released, taken};
use crate::world::{SLACK, World, key, ms};

pub(crate) const PROMISE: &str = "a lease ends after its ttl, and not before";
pub(crate) const CONTRACT: &str = "`Store::acquire` and `Ask::ttl`";

pub(crate) fn needs(_: &Capabilities) -> bool {
    true
}

/// It lives to the last millisecond.
pub(crate) async fn a_lease_lives_for_all_of_its_ttl(world: &World) {
    let (anna, bert) = (world.actor(), world.actor());
    let sent = world.now();
    granted(anna.ask(&key("a")).ttl(1_000).send().await);
    world.pass_until(sent + (ms(1_000) - world.early(ms(1)))).await;
    taken(bert.ask(&key("a")).send().await);
}

/// It is free for all clients.
pub(crate) async fn an_expired_lease_is_free(world: &World) {
    let (anna, bert) = (world.actor(), world.actor());
    granted(anna.ask(&key("a")).ttl(1_000).send().await);
    world.pass(ms(1_000) + world.slack()).await;
    granted(bert.ask(&key("a")).send().await);
}

/// This holds whether or not another client has the key now.
pub(crate) async fn an_expired_lease_is_neither_renewed_nor_released(world: &World) {
    let (anna, bert) = (world.actor(), world.actor());
    for asked_meanwhile in [false, true] {
        granted(anna.ask(&key("a")).ttl(1_000).send().await);
        world.pass(ms(1_000) + world.slack()).await;
        if asked_meanwhile {
            granted(bert.ask(&key("a")).send().await);
        }
        lost(anna.renew(&key("a"), 10_000).await);
        released(anna.release(&key("a")).await, Released::NotHeld);
        released(anna.keep_for(&world.actor(), &key("a"), 10_000, 1).await, Released::NotHeld);
    }
}

/// They are 10 ms, and 24 h with a lock delay of 24 h.
pub(crate) async fn the_shortest_and_the_longest_ttl_are_kept(world: &World) {
    world.fine_only("such a store keeps a lease for longer than the shortest ttl").await;
    let (anna, bert) = (world.actor(), world.actor());
    let early = world.early(ms(1));
    for ttl in [Ttl::MIN, Ttl::LONGEST_KEPT] {
        let key = key(&format!("{ttl:?}"));
        let sent = world.now();
        granted(anna.ask(&key).for_ttl(ttl).send().await);
        // On real time, the shortest lease may be over before anybody else can ask.
        if early < ttl.get() {
            world.pass_until(sent + (ttl.get() - early)).await;
            taken(bert.ask(&key).send().await);
        }
        world.pass_until(sent + ttl.get() + world.slack()).await;
        granted(bert.ask(&key).send().await);
    }
}

/// No lease depends on the time of day.
pub(crate) async fn a_step_of_the_time_of_day_ends_no_lease_and_keeps_none(world: &World) {
    let (anna, bert) = (world.actor(), world.actor());
    for (name, step_us) in [("forward", 86_400_000_000), ("back", -2 * 86_400_000_000)] {
        granted(anna.ask(&key(name)).ttl(1_000).send().await);
        world.step_wall(step_us).await;
        world.pass(ms(900)).await;
        taken(bert.ask(&key(name)).send().await);
        world.pass(ms(100) + world.slack()).await;
        granted(bert.ask(&key(name)).send().await);
    }
}

/// The clock of a store on this machine counts suspended time.
pub(crate) async fn a_lease_ends_while_the_machine_sleeps(world: &World) {
    if world.capabilities().reach > Reach::Machine {
        return;
    }
    let (anna, bert) = (world.actor(), world.actor());
    granted(anna.ask(&key("a")).ttl(10_000).send().await);
    world.suspend(ms(10_000)).await;
    world.pass(SLACK).await;
    lost(anna.renew(&key("a"), 10_000).await);
    granted(bert.ask(&key("a")).send().await);
}
