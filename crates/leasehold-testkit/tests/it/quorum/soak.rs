//! All faults and calls together. There are never two holders, fencing tokens rise, and nothing is
//! left.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::host::Host as _;
use leasehold::store::AnyStore;
use leasehold::{Client, Guard};
use leasehold_testkit::VirtualHost;
use leasehold_testkit::virtual_host::SeededRandom;

use super::far::Far;
use super::{Scene, ms, play};

const ROUNDS: usize = 8;

/// The observations of all holders.
#[derive(Default)]
struct Seen {
    /// The latest holder, unless it has released the lock.
    holder: Option<usize>,
    /// Until when the holder believed to hold the lock, at its last check.
    until: Option<leasehold::core::Moment>,
    fence: u64,
    grants: usize,
}

struct Worker {
    number: usize,
    host: Arc<VirtualHost>,
    client: Client,
    random: SeededRandom,
    seen: Arc<Mutex<Seen>>,
}

impl Worker {
    async fn work(mut self) {
        for _ in 0..ROUNDS {
            let mutex = self.client.mutex("a");
            let mutex = match self.random.below(4) {
                0 => mutex.unqueued(),
                1 => mutex.keep_idle(ms(30)),
                _ => mutex,
            };
            let asked = match self.random.below(4) {
                0 => mutex.try_lock().await.ok().flatten(),
                // The future is dropped somewhere on its way.
                1 => {
                    let limit = self.below(ms(60));
                    self.host.within(limit, mutex.lock()).await.and_then(Result::ok)
                }
                _ => mutex.lock_timeout(ms(2_000)).await.ok(),
            };
            if let Some(guard) = asked {
                self.hold(guard).await;
            }
            self.pause(ms(40)).await;
        }
    }

    async fn hold(&mut self, guard: Guard) {
        let now = self.host.now();
        {
            let mut seen = self.seen.lock().expect("no panic");
            let is_held = seen.until.is_some_and(|until| until > now);
            assert!(seen.holder.is_none() || !is_held, "two hold it");
            let fence = guard.fencing_token().expect("it has one").get();
            assert!(fence > seen.fence, "{fence} after {}", seen.fence);
            seen.fence = fence;
            seen.grants += 1;
            seen.holder = Some(self.number);
            seen.until = Some(now + guard.remaining());
        }
        for _ in 0..self.random.below(20) {
            self.pause(ms(40)).await;
            if !guard.is_held() {
                break;
            }
            let mut seen = self.seen.lock().expect("no panic");
            assert_eq!(seen.holder, Some(self.number), "another has it meanwhile");
            seen.until = Some(self.host.now() + guard.remaining());
        }
        let mut seen = self.seen.lock().expect("no panic");
        if seen.holder == Some(self.number) {
            seen.holder = None;
        }
        drop(seen);
        drop(guard);
    }

    fn below(&mut self, most: Duration) -> Duration {
        let micros = usize::try_from(most.as_micros()).expect("small");
        Duration::from_micros(self.random.below(micros) as u64)
    }

    async fn pause(&mut self, most: Duration) {
        let span = self.below(most);
        self.host.sleep_until(self.host.now() + span).await;
    }
}

async fn worker(scene: &Scene, number: usize, seen: &Arc<Mutex<Seen>>) -> Worker {
    let mut random = SeededRandom::new(scene.host.seed() * 31 + number as u64);
    let nodes = scene.nodes.iter().zip(&scene.faults).map(|(node, faults)| {
        let way = ms(1 + random.below(15) as u64);
        AnyStore::new(faults.decorate(Far::new(&scene.host, node.clone(), way)))
    });
    let nodes = nodes.collect();
    let client = scene.client_of(scene.quorum(nodes).await, ms(300)).await;
    Worker { number, host: scene.host.clone(), client, random, seen: Arc::clone(seen) }
}

#[test]
fn faults_at_every_node_make_no_two_holders_and_leave_nothing() {
    play(&[3, 4, 5], 0..40, async |scene| {
        let seen: Arc<Mutex<Seen>> = Arc::default();
        let mut workers = Vec::new();
        for number in 0..5 {
            workers.push(worker(scene, number, &seen).await);
        }
        for (number, faults) in scene.faults.iter().enumerate() {
            faults.one_in(3 + number * 3);
            faults.delay_up_to(ms(5 * number as u64));
        }
        let workers: Vec<_> =
            workers.into_iter().map(|worker| scene.host.task(worker.work())).collect();
        for worker in workers {
            scene.host.within(ms(600_000), worker).await.expect("it comes to its end");
        }
        assert!(seen.lock().expect("no panic").grants > 0, "somebody had it");
        scene.faults.iter().for_each(|faults| faults.heal());
        scene.pass(ms(2_500)).await;
        scene.assert_nothing_is_left("a", "in the end").await;
    });
}
