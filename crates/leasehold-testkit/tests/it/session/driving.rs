//! The driver goes on after each kind of fault that stopped it.

use std::cell::RefCell;
use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

use futures_util::future::join_all;
use leasehold::core::{Moment, WallTime};
use leasehold::host::{Host, Sleep, SystemHost, Task};
use leasehold::store::{
    BoxAnswer, LeaseId, MemoryStore, OnRelease, Released, Renewal, Renewed, Store,
};
use leasehold::{Client, Error, ErrorKind, Guard};
use leasehold_testkit::VirtualHost;
use leasehold_testkit::faults::{Fault, Request};
use tokio::sync::mpsc;

use super::{ms, play, play_on};
use crate::on_event::OnEvent;
use crate::stores;

/// A virtual host that loses its first task, like a host whose runtime has ended.
struct Forgetful {
    host: Arc<VirtualHost>,
    has_lost_one: AtomicBool,
}

impl Host for Forgetful {
    fn now(&self) -> Moment {
        self.host.now()
    }
    fn wall(&self) -> WallTime {
        self.host.wall()
    }
    fn sleep_until(&self, at: Moment) -> Sleep {
        self.host.sleep_until(at)
    }
    fn spawn(&self, task: Task) {
        if self.has_lost_one.swap(true, Ordering::SeqCst) {
            self.host.spawn(task);
        }
    }
    fn spawn_blocking(&self, name: &str, task: Task) -> Result<(), Error> {
        self.host.spawn_blocking(name, task)
    }
    fn random(&self, bytes: &mut [u8]) {
        self.host.random(bytes);
    }
}

/// Otherwise no later lease would be renewed, and no loss would be reported.
#[test]
fn a_driver_that_its_host_lost_is_started_again_with_the_next_lease() {
    play(0..5, async |scene| {
        let host = Forgetful { host: scene.host.clone(), has_lost_one: AtomicBool::new(false) };
        let builder = Client::with_store(scene.store().await).host(Arc::new(host));
        let client = builder.ttl(ms(300)).connect().await.expect("connected");
        let first = client.mutex("a").lock().await.expect("free");
        let second = client.mutex("b").lock().await.expect("free");
        scene.pass(ms(2_000)).await;
        assert!(first.is_held() && second.is_held(), "both are renewed");
    });
}

/// A memory store that panics at the first renewal, and reports the later ones.
struct Panicking {
    store: MemoryStore,
    renewals: AtomicUsize,
    renewed: mpsc::UnboundedSender<usize>,
}

impl Store for Panicking {
    fn renew(&self, renewal: Renewal) -> BoxAnswer<Renewed> {
        let number = self.renewals.fetch_add(1, Ordering::SeqCst);
        assert!(number > 0, "a defect in a store");
        self.renewed.send(number).expect("the test listens");
        self.store.renew(renewal)
    }

    leasehold_testkit::forward!(store: acquire, release, inspect, watch, rest);
}

/// This test uses the system's host, where a panic drops only its own task.
#[tokio::test]
async fn a_driver_that_panicked_is_followed_by_another() {
    let (renewed, mut renewals) = mpsc::unbounded_channel();
    let store = MemoryStore::new(SystemHost::shared());
    let store = Panicking { store, renewals: AtomicUsize::new(0), renewed };
    let client = Client::with_store(store).ttl(ms(3_000)).connect().await.expect("connected");
    let first = client.mutex("a").lock().await.expect("free");
    let second = client.mutex("b").lock().await.expect("free");
    for _ in 0..4 {
        tokio::select! {
            renewal = renewals.recv() => assert!(renewal.is_some(), "leases are renewed again"),
            lost = first.lost() => panic!("the first lease is not renewed: {lost}"),
            lost = second.lost() => panic!("the second lease is not renewed: {lost}"),
        }
    }
}

/// A memory store that renews nothing, and panics at the first release.
struct Losing {
    store: MemoryStore,
    has_panicked: AtomicBool,
}

impl Store for Losing {
    fn renew(&self, _: Renewal) -> BoxAnswer<Renewed> {
        Box::pin(ready(Err(Error::new(ErrorKind::Unavailable, "an outage"))))
    }

    fn release(&self, lease: LeaseId, on_release: OnRelease) -> BoxAnswer<Released> {
        assert!(self.has_panicked.swap(true, Ordering::SeqCst), "a defect in a store");
        self.store.release(lease, on_release)
    }

    leasehold_testkit::forward!(store: acquire, inspect, watch, rest);
}

/// Otherwise, the tasks that wait for these locks would wait for leases that nobody looks after.
#[tokio::test]
async fn the_losses_that_a_driver_has_not_told_when_it_panics_are_told_by_the_next() {
    // The driver notices the loss of some of them at the same time.
    const LEASES: usize = 20;
    let store = MemoryStore::new(SystemHost::shared());
    let store = Losing { store, has_panicked: AtomicBool::new(false) };
    let client = Client::with_store(store).ttl(ms(300)).connect().await.expect("connected");
    let mutexes: Vec<_> = (0..LEASES).map(|number| client.mutex(format!("{number}"))).collect();
    let held = join_all(mutexes.iter().map(leasehold::Mutex::lock)).await;
    let next = join_all(mutexes.iter().map(|mutex| mutex.lock_timeout(ms(10_000)))).await;
    assert!(next.iter().all(Result::is_ok), "each waiting task asks");
    assert!(held.iter().flatten().all(|guard| !guard.is_held()), "the guards are still there");
}

thread_local! {
    static WATCHED: RefCell<Option<Guard>> = const { RefCell::new(None) };
}

/// If an internal mutex were locked during logging, this test would hang.
#[test]
fn a_log_that_says_whether_the_lock_is_held_hangs_nobody() {
    let looking = OnEvent::any(|_| {
        WATCHED.with_borrow(|guard| {
            let _held = guard.as_ref().is_some_and(Guard::is_held);
        });
    });
    tracing::subscriber::with_default(looking, || {
        play(0..3, async |scene| {
            let client = scene.client_of(ms(500)).await;
            let guard = client.mutex("a").lock().await.expect("free");
            WATCHED.set(Some(guard));
            scene.faults.next(Request::Renew, Fault::Refuse);
            scene.pass(ms(800)).await;
            assert!(WATCHED.with_borrow(|guard| guard.as_ref().is_some_and(Guard::is_held)));
            scene.faults.all_from_now_on(Fault::Refuse);
            scene.pass(ms(800)).await;
            assert!(WATCHED.take().is_some_and(|guard| !guard.is_held()));
        });
    });
}

/// The store may wait for as long as ttl and lock delay allow. The holder relies only on the ttl.
#[test]
fn one_lost_reply_loses_no_lease_with_a_lock_delay() {
    for delay in [ms(0), ms(10_000)] {
        play(0..5, async |scene| {
            let store = scene.faults.decorate(scene.store().await);
            let builder = Client::with_store(store).host(scene.host.clone());
            let builder = builder.ttl(ms(300)).lock_delay(delay);
            let client = builder.connect().await.expect("connected");
            let guard = client.mutex("a").lock().await.expect("free");
            scene.faults.next(Request::Renew, Fault::LoseReply);
            scene.pass(ms(1_000)).await;
            assert!(guard.is_held(), "lost with a lock delay of {delay:?}");
        });
    }
}

/// If all renewals were sent at the same time, most would exceed their limit. They would be sent
/// again, and be late again behind requests that nobody awaits any more.
#[test]
fn more_leases_than_a_store_renews_within_the_limit_of_one_are_kept() {
    const LEASES: u32 = 5_000;
    play_on(stores::memory, 0, async |scene| {
        let client = scene.client_of(ms(10_000)).await;
        let mut guards = Vec::new();
        for number in 0..LEASES {
            guards.push(client.mutex(format!("{number}")).lock().await.expect("free"));
        }
        let brief = client.mutex("brief").ttl(ms(3_000)).lock().await.expect("free");
        // All renewals together take 3 s, once in 3.3 s. Each may take 1 s, and the brief lease's
        // renewal 750 ms.
        scene.faults.in_turn(Request::Renew, Duration::from_micros(600));
        for _ in 0..6 {
            scene.pass(ms(10_000)).await;
            let lost = guards.iter().filter(|guard| !guard.is_held()).count();
            assert_eq!(lost, 0, "{} renewals", scene.faults.count(Request::Renew));
        }
        assert!(brief.is_held());
        assert_eq!(guards.len(), LEASES as usize);
    });
}

/// The driver wakes every 100 ms, and earlier if something is due.
#[test]
fn a_lease_that_is_shorter_than_a_tick_of_the_driver_is_renewed_in_time() {
    for after in 0..10 {
        play(after..after + 1, async |scene| {
            let client = scene.client_of(ms(30_000)).await;
            // The driver is at work, and nothing is due for a long time.
            let long = client.mutex("long").lock().await.expect("free");
            scene.pass(ms(200 + 10 * after)).await;
            let brief = client.mutex("brief").ttl(ms(40)).lock().await.expect("free");
            for _ in 0..40 {
                scene.pass(ms(5)).await;
                assert!(brief.is_held(), "its renewals are late");
            }
            scene.faults.all_from_now_on(Fault::LoseRequest);
            let lost = scene.host.within(ms(40), brief.lost()).await;
            assert!(lost.is_some(), "its loss is told late");
            assert!(long.is_held());
        });
    }
}

/// Every renewal takes one of a limited number of slots, and a failed one must give it back.
#[test]
fn leases_are_renewed_after_more_renewals_have_failed_than_are_under_way_at_a_time() {
    const LEASES: usize = 700;
    const FAILED: usize = 3 * 1_024;
    for fault in [Fault::Refuse, Fault::LoseRequest, Fault::LoseReply] {
        play_on(stores::memory, 0, async |scene| {
            let client = scene.client_of(ms(3_000)).await;
            let mut guards = Vec::new();
            for number in 0..LEASES {
                guards.push(client.mutex(format!("{number}")).lock().await.expect("free"));
            }
            let mut failed = 0;
            for _ in 0..8 {
                scene.faults.from_now_on(Request::Renew, fault);
                let before = scene.faults.count(Request::Renew);
                scene.pass(ms(1_500)).await;
                failed += scene.faults.count(Request::Renew) - before;
                scene.faults.heal();
                scene.pass(ms(3_000)).await;
                let lost = guards.iter().filter(|guard| !guard.is_held()).count();
                assert_eq!(lost, 0, "{fault:?}, {failed} failed");
            }
            assert!(failed >= FAILED, "{fault:?}, {failed} failed");
        });
    }
}

/// A renewal that is no longer needed when its turn comes takes no slot.
#[test]
fn leases_that_are_released_while_their_renewals_queue_leave_room_for_others() {
    const LEASES: usize = 3 * 1_024;
    const KEPT: usize = 500;
    play_on(stores::memory, 0, async |scene| {
        let client = scene.client_of(ms(10_000)).await;
        let mut guards = Vec::new();
        for number in 0..LEASES {
            guards.push(client.mutex(format!("{number}")).lock().await.expect("free"));
        }
        // All renewals together take 2 s, so most of them wait for their turn.
        scene.faults.in_turn(Request::Renew, Duration::from_micros(600));
        while scene.faults.count(Request::Renew) == 0 {
            scene.pass(ms(20)).await;
        }
        assert!(scene.faults.count(Request::Renew) < LEASES / 2, "not all leave at once");
        guards.truncate(KEPT);
        for _ in 0..6 {
            scene.pass(ms(10_000)).await;
            let lost = guards.iter().filter(|guard| !guard.is_held()).count();
            assert_eq!(lost, 0, "{} renewals", scene.faults.count(Request::Renew));
        }
    });
}

/// The slots of unanswered renewals become free in time.
#[test]
fn an_outage_costs_no_lease_if_all_can_be_renewed_in_the_time_that_is_left_after_it() {
    const LEASES: u64 = 5_000;
    for (fault, left) in [Fault::Refuse, Fault::LoseRequest, Fault::LoseReply]
        .into_iter()
        .flat_map(|fault| [600, 700, 800, 900, 1_000].map(|left| (fault, ms(left))))
    {
        play_on(stores::memory, 0, async |scene| {
            let client = scene.client_of(ms(10_000)).await;
            let mut guards = Vec::new();
            for number in 0..LEASES {
                guards.push(client.mutex(format!("{number}")).lock().await.expect("free"));
            }
            // All renewals together take 500 ms.
            scene.faults.in_turn(Request::Renew, Duration::from_micros(100));
            scene.pass(ms(20_000)).await;
            scene.faults.from_now_on(Request::Renew, fault);
            while guards.iter().all(|guard| guard.remaining() > left) {
                scene.pass(ms(20)).await;
            }
            scene.faults.end_outage();
            scene.pass(ms(3_000)).await;
            let lost = guards.iter().filter(|guard| !guard.is_held()).count();
            assert_eq!(lost, 0, "{fault:?} until the first had {left:?} left");
        });
    }
}

/// Otherwise they would delay the renewals of the remaining leases.
#[test]
fn the_releases_of_many_lost_leases_do_not_leave_all_at_once() {
    const LEASES: usize = 3_000;
    const AT_ONCE: usize = 1_024;
    play_on(stores::memory, 0, async |scene| {
        let client = scene.client_of(ms(10_000)).await;
        let mut guards = Vec::new();
        for number in 0..LEASES {
            guards.push(client.mutex(format!("{number}")).lock().await.expect("free"));
        }
        scene.faults.from_now_on(Request::Release, Fault::LoseRequest);
        scene.host.suspend(ms(20_000));
        scene.pass(ms(100)).await;
        assert!(guards.iter().all(|guard| !guard.is_held()));
        let released = scene.faults.count(Request::Release);
        assert!((1..=AT_ONCE).contains(&released), "{released} releases at once");
        scene.faults.heal();
        scene.pass(ms(3_000)).await;
        let released = scene.faults.count(Request::Release);
        assert!(released >= LEASES, "each is told in the end: {released}");
        let ended = client.shutdown(ms(1_000)).await;
        assert_eq!(ended.not_released, 0);
    });
}

/// Tries the lock of its client whenever it is woken.
struct Nosy(Client);

impl std::task::Wake for Nosy {
    fn wake(self: Arc<Self>) {
        let mutex = self.0.mutex("a");
        let tried =
            Box::pin(mutex.try_lock()).as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(tried.is_pending(), "it asks the store");
    }
}

/// If the mutex of the local line were locked during a wake-up, this test would hang.
#[test]
fn a_waker_that_reads_the_line_that_its_task_leaves_does_not_hang() {
    play(0..3, async |scene| {
        scene.faults.delay_up_to(ms(10));
        let client = scene.client().await;
        let held = client.mutex("a").lock().await.expect("free");
        let mutex = client.mutex("a");
        let mut waiting = Box::pin(mutex.lock());
        let waker = Arc::new(Nosy(client)).into();
        assert!(waiting.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        drop(waiting);
        assert!(held.is_held());
    });
}
