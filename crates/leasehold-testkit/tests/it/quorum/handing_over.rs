//! A lock goes from one client to the next.

use std::sync::Arc;
use std::sync::Mutex;

use leasehold::core::Moment;
use leasehold::host::Host as _;

use super::{ms, play};

/// Every client is at most 5 ms from each node, one way.
#[test]
fn a_lock_goes_from_client_to_client_within_three_round_trips() {
    for ways in [[5, 5, 5, 5, 5], [5, 4, 5, 3, 5], [1, 5, 5, 5, 2]] {
        play(&[3, 4, 5], 0..3, async |scene| {
            let round_trip = ms(10);
            let released: Arc<Mutex<Option<Moment>>> = Arc::default();
            let took = Arc::new(Mutex::new(Vec::new()));
            let mut tasks = Vec::new();
            for _ in 0..2 {
                let client = scene.far_client(ways.map(ms)).await;
                let (host, released) = (scene.host.clone(), released.clone());
                let took = took.clone();
                tasks.push(scene.host.task(async move {
                    for _ in 0..25 {
                        let guard = client.mutex("a").lock().await.expect("it becomes free");
                        if let Some(at) = released.lock().expect("no panic").take() {
                            took.lock().expect("no panic").push(host.now().since(at));
                        }
                        host.sleep_until(host.now() + ms(40)).await;
                        *released.lock().expect("no panic") = Some(host.now());
                        drop(guard);
                    }
                }));
            }
            for task in tasks {
                scene.host.within(ms(60_000), task).await.expect("in time");
            }
            let mut took = took.lock().expect("no panic").clone();
            took.sort_unstable();
            let median = took[took.len() / 2];
            assert!(median <= round_trip * 3, "{median:?} of {took:?}");
            assert!(took[took.len() - 1] <= ms(1_100), "{took:?}");
        });
    }
}
