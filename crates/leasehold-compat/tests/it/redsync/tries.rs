//! How often, how long and with which value a lock is tried.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex as StdMutex};
use std::time::Duration;

use leasehold::host::Host as _;
use leasehold::store::MemoryStore;
use leasehold_compat::redsync::{Error, Mutex, Redsync};
use leasehold_testkit::VirtualHost;
use leasehold_testkit::faults::{Fault, Faults, FaultyStore, Request};

use super::world::{NAME, play, said, taken};
use crate::world::ms;

type Store = FaultyStore<MemoryStore>;

struct Scene {
    host: Arc<VirtualHost>,
    faults: Faults,
    redsync: Redsync<Store>,
}

impl Scene {
    fn mutex(&self) -> Mutex<Store> {
        self.redsync.new_mutex(NAME)
    }

    /// The duration and the result of the call.
    async fn timed<T>(&self, call: impl Future<Output = T>) -> (Duration, T) {
        let began = self.host.now();
        let output = call.await;
        (self.host.now().since(began), output)
    }
}

/// Runs a scene on three stores in memory that share the faults.
fn play_in_memory(scene: impl AsyncFnOnce(&Scene)) {
    let host = VirtualHost::new(3);
    let faults = Faults::new(host.clone());
    let stores = [(); 3].map(|()| faults.decorate(MemoryStore::new(host.clone())));
    let redsync = Redsync::new_on(stores, host.clone());
    let played = Scene { host: host.clone(), faults, redsync };
    host.run(scene(&played));
}

#[test]
fn a_pause_between_tries_is_any_of_50_to_249_milliseconds() {
    play_in_memory(async |scene| {
        let first = scene.mutex().with_expiry(ms(86_400_000));
        first.lock().await.expect("it is free");
        let second = scene.mutex().with_tries(2);
        let mut seen = HashSet::new();
        for _ in 0..4_000 {
            let (took, locked) = scene.timed(second.lock()).await;
            assert_eq!(taken(&locked.expect_err("it is held")), [0, 1, 2]);
            seen.insert(took);
        }
        assert_eq!(seen, (50..250).map(ms).collect());
    });
}

#[test]
fn the_pause_is_as_asked_for_and_follows_every_try_but_the_last() {
    play_in_memory(async |scene| {
        let first = scene.mutex();
        first.lock().await.expect("it is free");
        for tries in 0..4_u32 {
            let asked = Arc::new(StdMutex::new(Vec::new()));
            let noted = Arc::clone(&asked);
            let second = scene.mutex().with_tries(tries).with_retry_delay_func(move |tried| {
                noted.lock().expect("nobody panics").push(tried);
                ms(10) * tried
            });
            let before = scene.faults.count(Request::Acquire);
            let (took, locked) = scene.timed(second.lock()).await;
            let error = locked.expect_err("it is held");
            if tries == 0 {
                assert!(matches!(error, Error::Failed), "{error:?}");
            } else {
                assert_eq!(taken(&error), [0, 1, 2]);
            }
            let pauses: Vec<_> = (1..tries).collect();
            assert_eq!(took, ms(10) * pauses.iter().sum());
            assert_eq!(*asked.lock().expect("nobody panics"), pauses);
            let asked = scene.faults.count(Request::Acquire) - before;
            assert_eq!(asked, 3 * usize::try_from(tries).expect("few"));
        }
        let third = scene.mutex().with_tries(5).with_retry_delay(ms(7));
        assert_eq!(scene.timed(third.lock()).await.0, ms(28));
        assert_eq!(scene.timed(third.try_lock()).await.0, ms(0), "once, whatever the tries are");
    });
}

#[test]
fn the_next_try_gets_a_lock_that_was_freed_meanwhile() {
    play_in_memory(async |scene| {
        let first = scene.mutex();
        first.lock().await.expect("it is free");
        let second = scene.mutex().with_retry_delay(ms(100));
        let waiting = scene.host.task(async move {
            second.lock().await.expect("it is freed");
            second
        });
        scene.host.advance(ms(250)).await;
        assert!(first.unlock().await.expect("it is ours"));
        scene.host.advance(ms(49)).await;
        assert!(!waiting.is_finished(), "nobody tells it");
        scene.host.advance(ms(1)).await;
        let second = waiting.await;
        assert_eq!(second.until(), Some(scene.host.now() + ms(7_920)));
    });
}

#[test]
fn the_errors_of_the_last_try_are_returned() {
    play_in_memory(async |scene| {
        for _ in 0..3 {
            scene.faults.next(Request::Acquire, Fault::Refuse);
        }
        let mutex = scene.mutex().with_tries(2).with_retry_delay(ms(10));
        mutex.lock().await.expect("the second time");
        let second = scene.mutex().with_tries(2).with_retry_delay(ms(10));
        for _ in 0..3 {
            scene.faults.next(Request::Acquire, Fault::Refuse);
        }
        assert_eq!(taken(&second.lock().await.expect_err("it is held")), [0, 1, 2]);
        let broken = scene.mutex().with_tries(1);
        for _ in 0..2 {
            scene.faults.next(Request::Acquire, Fault::Refuse);
        }
        let error = broken.lock().await.expect_err("it is held");
        assert_eq!(said(&error), [(Some(0), "redis"), (Some(1), "redis"), (Some(2), "taken")]);
    });
}

/// A context that ends corresponds to a timeout that elapses.
#[test]
fn a_timeout_ends_all_tries() {
    play_in_memory(async |scene| {
        let first = scene.mutex();
        first.lock().await.expect("it is free");
        let second = scene.mutex().with_retry_delay(ms(100));
        for limit in [50, 100, 250] {
            let (took, locked) = scene.timed(second.lock_within(ms(limit))).await;
            assert!(matches!(locked, Err(Error::Elapsed)), "{locked:?}");
            assert_eq!(took, ms(limit));
        }
        assert!(first.unlock().await.expect("it is ours"));
        // The timeout ends during a try, which is still undone.
        scene.faults.from_now_on(Request::Acquire, Fault::Late(ms(300)));
        let (took, locked) = scene.timed(second.try_lock_within(ms(200))).await;
        let error = locked.expect_err("no answer");
        assert_eq!(said(&error), [0, 1, 2].map(|node| (Some(node), "redis")));
        assert_eq!(took, ms(200));
        scene.faults.heal();
        scene.host.settle().await;
        first.try_lock().await.expect("it was given back");
    });
}

#[test]
fn a_timeout_that_has_elapsed_asks_nothing() {
    play_in_memory(async |scene| {
        let mutex = scene.mutex().with_value("ours");
        let calls = [
            mutex.try_lock_within(Duration::ZERO).await.map(|()| true),
            mutex.unlock_within(Duration::ZERO).await,
            mutex.extend_within(Duration::ZERO).await,
            mutex.valid_within(Duration::ZERO).await,
            scene.mutex().with_timeout_factor(0.0).try_lock().await.map(|()| true),
        ];
        for error in calls.map(|called| called.expect_err("no time")) {
            assert_eq!(said(&error), [0, 1, 2].map(|node| (Some(node), "redis")));
        }
        assert!(matches!(mutex.lock_within(Duration::ZERO).await, Err(Error::Elapsed)));
        assert_eq!(Request::ALL.map(|request| scene.faults.count(request)), [0; 4]);
    });
}

#[test]
fn a_custom_value_is_made_once_for_each_lock() {
    play(3, async |nodes| {
        let made = Arc::new(AtomicU32::new(0));
        let making = Arc::clone(&made);
        let mutex =
            nodes.mutex().await.with_value("old").with_tries(3).with_gen_value_func(move || {
                Ok::<_, std::fmt::Error>(format!("v{}", making.fetch_add(1, Ordering::SeqCst)))
            });
        assert_eq!(mutex.value().as_deref(), Some("old"));
        assert!(nodes.takes(0, "theirs", 60) && nodes.takes(1, "theirs", 60));
        mutex.lock().await.expect("it is free soon");
        assert_eq!((mutex.value().as_deref(), nodes.holding("v0")), (Some("v0"), 3));
        assert!(mutex.unlock().await.expect("it is ours"));
        mutex.lock().await.expect("it is free");
        assert_eq!(nodes.holding("v1"), 3);
        let bad =
            nodes.mutex().await.with_gen_value_func(|| Ok::<_, std::fmt::Error>("a b".into()));
        assert!(matches!(bad.lock().await, Err(Error::Config { .. })));
        let none = nodes.mutex().await.with_tries(0).with_gen_value_func(|| Err("no entropy"));
        let error = none.lock().await.expect_err("no value");
        assert!(matches!(error, Error::GenValue { .. }), "{error:?}");
        assert_eq!(error.to_string(), "no entropy");
        assert_eq!(nodes.holding("v1"), 3);
    });
}

#[test]
fn without_a_value_nothing_is_ours() {
    play(3, async |nodes| {
        let mutex = nodes.mutex().await.with_value("").with_set_nx_on_extend();
        assert_eq!(mutex.value(), None);
        assert_eq!(said(&mutex.unlock().await.expect_err("free")), [(None, "expired"); 3]);
        assert_eq!(taken(&mutex.extend().await.expect_err("not ours")), [0, 1, 2]);
        assert_eq!(taken(&mutex.valid().await.expect_err("not ours")), [0, 1, 2]);
        assert_eq!(nodes.values(), [None, None, None]);
        assert!(nodes.takes(0, "theirs", 5_000) && nodes.takes(2, "theirs", 5_000));
        assert_eq!(taken(&mutex.unlock().await.expect_err("not ours")), [0, 2]);
    });
}

#[test]
fn without_nodes_nothing_is_locked() {
    let host = VirtualHost::new(1);
    host.run(async {
        let mutex = Redsync::<MemoryStore>::new_on([], host.clone()).new_mutex(NAME);
        assert!(matches!(mutex.lock().await, Err(Error::Failed)));
        for answer in [mutex.unlock().await, mutex.extend().await, mutex.valid().await] {
            assert!(!answer.expect("nobody says otherwise"));
        }
    });
}

/// In redsync, the number would be the place in the shuffled order.
#[test]
fn shuffled_nodes_are_told_apart_by_the_place_in_which_they_were_given() {
    play(4, async |nodes| {
        assert!(nodes.takes(1, "theirs", 60_000) && nodes.takes(2, "theirs", 60_000));
        for _ in 0..8 {
            let mutex = nodes.mutex().await.with_shuffle_pools(true);
            let error = mutex.try_lock().await.expect_err("two of four");
            assert_eq!(said(&error), [(Some(1), "taken"), (Some(2), "taken")]);
        }
        assert!(nodes.releases(1, "theirs"));
        let mutex = nodes.mutex().await.with_shuffle_pools(true);
        mutex.lock().await.expect("three of four");
        assert_eq!(nodes.holding(&mutex.value().expect("it is held")), 3);
        assert!(mutex.unlock().await.expect("three of four"));
    });
}

#[test]
fn its_value_is_not_shown() {
    play_in_memory(async |scene| {
        let mutex = scene.mutex();
        mutex.lock().await.expect("it is free");
        let (shown, value) = (format!("{mutex:?}"), mutex.value().expect("it is held"));
        assert!(shown.contains(NAME) && !shown.contains(&value), "{shown}");
    });
}
