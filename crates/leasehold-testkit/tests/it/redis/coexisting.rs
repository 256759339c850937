//! Foreign clients on the same key, which poll and take no place in line.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use leasehold::{Client, Coexist, Mutex};
use leasehold_testkit::servers::Reply;

use super::clients::{Scene, ms, play};

/// The poll interval of a foreign client.
const POLLS_MS: u64 = 3;

/// A foreign client. It tries `SET NX PX` until it succeeds, and compares before it deletes.
struct Foreigner<'a> {
    scene: &'a Scene,
    token: &'static str,
}

impl Foreigner<'_> {
    fn tries(&self) -> bool {
        let words = ["SET", "a", self.token, "NX", "PX", "60000"];
        self.scene.server().command(&words) != Reply::Nil
    }

    /// Polls until it has the lock, or until our clients got more than `most` grants. Returns how
    /// many grants our clients got first.
    async fn waits(&self, ours: &AtomicUsize, most: usize) -> usize {
        let before = ours.load(Ordering::Relaxed);
        loop {
            let came_before = ours.load(Ordering::Relaxed) - before;
            if came_before > most || self.tries() {
                return came_before;
            }
            self.scene.pass(ms(POLLS_MS)).await;
        }
    }

    fn releases(&self) {
        let script = "if redis.call('GET', KEYS[1]) == ARGV[1] then \
                      return redis.call('DEL', KEYS[1]) end return 0";
        let words = ["EVAL", script, "1", "a", self.token];
        assert_eq!(self.scene.server().command(&words).int(), 1, "nobody took it from us");
    }
}

/// Starts clients of ours that want the key all the time. Each task locks the key again right after
/// its release. Returns the count of their grants.
async fn crowd(
    scene: &Scene,
    clients: usize,
    tasks: usize,
    mutex: fn(&Client) -> Mutex,
) -> Arc<AtomicUsize> {
    let grants = Arc::new(AtomicUsize::new(0));
    for _ in 0..clients {
        let client = scene.client().await;
        for _ in 0..tasks {
            let (host, mutex, grants) = (scene.host.clone(), mutex(&client), grants.clone());
            let _goes_on = scene.host.task(async move {
                loop {
                    let guard = mutex.lock().await.expect("in turn");
                    let is_even = grants.fetch_add(1, Ordering::Relaxed) % 2 == 0;
                    host.advance(ms(2)).await;
                    assert!(guard.is_held());
                    if is_even {
                        let _released = guard.release().await.expect("asked");
                    }
                }
            });
        }
    }
    scene.pass(ms(50)).await;
    assert!(grants.load(Ordering::Relaxed) > 0);
    grants
}

fn coexisting(client: &Client) -> Mutex {
    client.mutex("a").coexist(Coexist::On)
}

/// The limit is the number of our grants until a client must give up the key: one grant of a single
/// task, or the grants within 20 ms.
#[test]
fn a_client_that_polls_has_its_turn_though_our_line_never_empties() {
    // Columns: clients, tasks of each, how many of our grants may come before the foreigner's.
    for (clients, tasks, most) in [(3, 1, 1), (2, 4, 11), (1, 6, 11)] {
        play(async |scene| {
            let ours = crowd(scene, clients, tasks, coexisting).await;
            let foreigner = Foreigner { scene, token: "foreign" };
            for _ in 0..10 {
                let came_before = foreigner.waits(&ours, most).await;
                assert!(came_before <= most, "{came_before} grants of {clients} × {tasks} before");
                scene.pass(ms(7)).await;
                let before = ours.load(Ordering::Relaxed);
                foreigner.releases();
                while ours.load(Ordering::Relaxed) == before {
                    scene.pass(ms(1)).await;
                }
            }
        });
    }
}

/// Without openings, the key is never free, and even our asks hand it on. With openings, the key is
/// free about once a second.
#[test]
fn a_client_that_polls_has_its_turn_unless_our_line_never_opens() {
    for (coexist, is_served) in [(Coexist::Off, false), (Coexist::Auto, true)] {
        play(async |scene| {
            let mutex = match coexist {
                Coexist::Off => |client: &Client| client.mutex("a").coexist(Coexist::Off),
                _ => |client: &Client| client.mutex("a"),
            };
            let ours = crowd(scene, 3, 1, mutex).await;
            let foreigner = Foreigner { scene, token: "foreign" };
            for _ in 0..3 {
                // Each of our grants takes 2 ms.
                let came_before = foreigner.waits(&ours, 1_200).await;
                assert_eq!(came_before <= 1_200, is_served, "{coexist:?}: after {came_before}");
                if !is_served {
                    break;
                }
                scene.pass(ms(7)).await;
                foreigner.releases();
            }
        });
    }
}

/// The first of our waiters backs off once, for 10 ms at most. After that, it asks as fast as it
/// can.
#[test]
fn clients_that_poll_all_the_time_do_not_starve_our_line() {
    play(async |scene| {
        let ours = crowd(scene, 2, 2, coexisting).await;
        let foreigners = ["one", "two", "three"].map(|token| Foreigner { scene, token });
        let mut in_a_row = 0;
        for turn in 0..300 {
            let before = ours.load(Ordering::Relaxed);
            let foreigner = &foreigners[turn % 3];
            if foreigner.tries() {
                in_a_row += 1;
                assert!(in_a_row <= 8, "{in_a_row} turns of others in a row");
                scene.pass(ms(1)).await;
                foreigner.releases();
            }
            scene.pass(ms(1)).await;
            if ours.load(Ordering::Relaxed) > before {
                in_a_row = 0;
            }
        }
        assert!(ours.load(Ordering::Relaxed) > 20);
    });
}
