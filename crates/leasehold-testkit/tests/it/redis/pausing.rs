//! The pauses of the wire between attempts to connect, on virtual time.

use std::time::Duration;

use leasehold::ErrorKind;
use leasehold::store::Released;

use super::fake::Door;
use super::wire::{connected, kind};

/// Otherwise the shortest outage would cost half a second, once there has been a long outage.
#[test]
fn after_a_connection_that_worked_the_pauses_begin_anew() {
    for seed in 0..3 {
        connected(seed, async |world| {
            world.fake.set_door(Door::Refusing);
            world.fake.break_connections();
            world.pass(Duration::ZERO).await;
            for _ in 0..2_000 {
                assert_eq!(kind(world.release("a").await), ErrorKind::Unavailable);
                world.pass(Duration::from_millis(1)).await;
            }
            world.fake.set_door(Door::Open);
            world.pass(Duration::from_millis(500)).await;
            assert_eq!(world.release("b").await.expect("answered"), Released::Freed);
            world.fake.set_door(Door::Refusing);
            world.fake.break_connections();
            world.pass(Duration::ZERO).await;
            assert_eq!(kind(world.release("c").await), ErrorKind::Unavailable);
            world.fake.set_door(Door::Open);
            world.pass(Duration::from_millis(10)).await;
            assert_eq!(world.release("d").await.expect("answered"), Released::Freed);
        });
    }
}
