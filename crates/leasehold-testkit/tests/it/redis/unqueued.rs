//! Waiting without a place in line. The server announces the change of the key.

use leasehold::{Client, Guard, Mutex, Release};
use leasehold_testkit::virtual_host::Joined;

use super::clients::{SLACK, Scene, ms, play};

/// Unqueued locks, with and without companion keys.
const WAYS: [fn(&Client) -> Mutex; 2] =
    [|client| client.mutex("a").unqueued(), |client| client.mutex("a").unqueued().fencing(false)];

async fn wait(scene: &Scene, mutex: Mutex) -> Joined<Guard> {
    let waiting = scene.host.task(async move { mutex.lock().await.expect("in the end") });
    scene.host.settle().await;
    assert!(!waiting.is_finished());
    waiting
}

#[test]
fn a_release_wakes_a_waiter_without_a_line() {
    for way in WAYS {
        play(async |scene| {
            let (one, other) = (scene.client().await, scene.client().await);
            for paused_ms in [5_350, 7, 130] {
                let held = way(&one).lock().await.expect("free");
                let waiting = wait(scene, way(&other)).await;
                scene.pass(ms(paused_ms)).await;
                assert!(!waiting.is_finished());
                assert_eq!(held.release().await.expect("asked"), Release::Released);
                assert_eq!(scene.time_of(&waiting).await, ms(0));
                assert_eq!(waiting.await.release().await.expect("asked"), Release::Released);
            }
        });
    }
}

/// The limit of eight changes a second applies to clients that do not get the key.
#[test]
fn a_lock_that_changes_hands_all_the_time_wakes_each_time() {
    for way in WAYS {
        play(async |scene| {
            let clients = [scene.client().await, scene.client().await];
            let mut held = way(&clients[0]).lock().await.expect("free");
            for turn in 1..40 {
                let waiting = wait(scene, way(&clients[turn % 2])).await;
                scene.pass(ms(20)).await;
                drop(held);
                assert_eq!(scene.time_of(&waiting).await, ms(0));
                held = waiting.await;
            }
        });
    }
}

#[test]
fn a_release_of_another_library_wakes_a_waiter_without_a_line() {
    for way in WAYS {
        play(async |scene| {
            let client = scene.client().await;
            scene.tell(&["SET", "a", "foreign", "NX", "PX", "60000"]);
            let waiting = wait(scene, way(&client)).await;
            scene.pass(ms(5_350)).await;
            scene.tell(&["DEL", "a"]);
            assert_eq!(scene.time_of(&waiting).await, ms(0));
        });
    }
}

/// Only some clients are told of a change in time. For the others, the key is taken again by then.
#[test]
fn one_of_many_waiters_without_a_line_has_the_key_at_once() {
    for way in WAYS {
        play(async |scene| {
            let one = scene.client().await;
            let held = way(&one).lock().await.expect("free");
            let mut waiting = Vec::new();
            for _ in 0..5 {
                let client = scene.client().await;
                waiting.push((wait(scene, way(&client)).await, client));
            }
            drop(held);
            while !waiting.is_empty() {
                scene.pass(ms(0)).await;
                let next = waiting.iter().position(|(waiting, _)| waiting.is_finished());
                let (next, _client) = waiting.remove(next.expect("one of them has it"));
                assert_eq!(next.await.release().await.expect("asked"), Release::Released);
            }
        });
    }
}

#[test]
fn a_waiter_without_a_line_polls_a_server_that_announces_nothing() {
    for way in WAYS {
        play(async |scene| {
            let (one, other) = (scene.client().await, scene.client().await);
            let held = way(&one).lock().await.expect("free");
            scene.tell(&["ACL", "SETUSER", "default", "-client", "-subscribe"]);
            let waiting = wait(scene, way(&other)).await;
            scene.pass(ms(5_350)).await;
            drop(held);
            assert!(scene.time_of(&waiting).await <= ms(250) + SLACK);
        });
    }
}
