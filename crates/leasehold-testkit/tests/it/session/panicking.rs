//! A panic in a waker or in a subscriber of `tracing` costs no lock. This code belongs to the
//! caller. Its panic passes through the library at moments when a key or a place in line changes
//! hands.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use leasehold::{Client, Mutex};

use super::{ms, play_on};
use crate::on_event::OnEvent;
use crate::stores;

/// Panics once when it is armed.
#[derive(Default)]
struct Trap(AtomicBool);

impl Trap {
    fn arm(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    fn step_on(&self) {
        assert!(!self.0.swap(false, Ordering::SeqCst), "a defect of the caller");
    }
}

impl Wake for Trap {
    fn wake(self: Arc<Self>) {
        self.step_on();
    }
}

/// A subscriber that sets off the trap at the event with the answer to a release.
fn stepping_on(trap: &Arc<Trap>) -> OnEvent<impl Fn(&tracing::Event<'_>) + use<>> {
    let trap = Arc::clone(trap);
    OnEvent::any(move |event| {
        if event.metadata().target() == "leasehold::session::release" {
            trap.step_on();
        }
    })
}

/// Polls a waiting future until it can make no more progress.
async fn waits<F: Future>(mut future: Pin<&mut F>, waker: &Waker) {
    for _ in 0..4 {
        let polled = future.as_mut().poll(&mut Context::from_waker(waker));
        assert!(polled.is_pending(), "another holds the lock");
        tokio::task::yield_now().await;
    }
}

/// Polls a future until it panics.
fn panics<F: Future>(mut future: Pin<&mut F>) {
    let mut context = Context::from_waker(Waker::noop());
    let polled = catch_unwind(AssertUnwindSafe(|| {
        for _ in 0..4 {
            let _pending = future.as_mut().poll(&mut context);
        }
    }));
    polled.expect_err("the panic reaches the caller");
}

/// Whether a client can get the lock once every lease that nobody renews has ended.
async fn can_be_locked(mutex: &Mutex) -> bool {
    mutex.lock_timeout(ms(10_000)).await.is_ok()
}

/// Two clients of one memory store, whose answers come at once.
fn play(scene: impl AsyncFn(Client, Client)) {
    play_on(stores::memory, 0, async |set| {
        let (one, other) = (set.calm_client().await, set.calm_client().await);
        scene(one, other).await;
    });
}

#[test]
fn an_asker_whose_successor_cannot_be_woken_leaves_no_lease() {
    play(async |holder, client| {
        let mutex = client.mutex("a");
        let others = client.mutex("a").ttl(ms(5_000));
        let held = holder.mutex("a").lock().await.expect("free");
        let trap = Arc::<Trap>::default();
        {
            let (mut asks, mut waits_behind) = (pin!(mutex.lock()), pin!(others.lock()));
            waits(asks.as_mut(), Waker::noop()).await;
            waits(waits_behind.as_mut(), &Waker::from(Arc::clone(&trap))).await;
            drop(held);
            trap.arm();
            panics(asks.as_mut());
        }
        assert!(can_be_locked(&holder.mutex("a")).await, "nobody has it");
        assert!(can_be_locked(&mutex).await, "nor is it lost for this client");
    });
}

/// The next task has the work to do, although its waker panicked.
#[test]
fn an_asker_whose_heir_cannot_be_woken_is_followed_by_that_one_alone() {
    play(async |holder, client| {
        let mutex = client.mutex("a");
        let held = holder.mutex("a").lock().await.expect("free");
        let trap = Arc::<Trap>::default();
        let mut asks = Box::pin(mutex.lock());
        let (mut heir, mut third) = (pin!(mutex.lock()), pin!(mutex.lock()));
        waits(asks.as_mut(), Waker::noop()).await;
        waits(heir.as_mut(), &Waker::from(Arc::clone(&trap))).await;
        waits(third.as_mut(), Waker::noop()).await;
        trap.arm();
        let dropped = catch_unwind(AssertUnwindSafe(|| drop(asks)));
        dropped.expect_err("the panic reaches the caller");
        waits(third.as_mut(), Waker::noop()).await;
        waits(heir.as_mut(), Waker::noop()).await;
        assert_eq!(holder.inspect("a").await.expect("asked").waiting, 1, "one of them asks");
        drop(held);
        drop(heir.await.expect("its turn"));
        drop(third.await.expect("its turn"));
    });
}

#[test]
fn an_asker_whose_release_panics_when_it_is_told_lets_its_client_ask_again() {
    let trap = Arc::<Trap>::default();
    tracing::subscriber::with_default(stepping_on(&trap), || {
        play(async |holder, client| {
            let mutex = client.mutex("a");
            let held = holder.mutex("a").lock().await.expect("free");
            let mut asks = Box::pin(mutex.lock());
            waits(asks.as_mut(), Waker::noop()).await;
            trap.arm();
            let dropped = catch_unwind(AssertUnwindSafe(|| drop(asks)));
            dropped.expect_err("the panic reaches the caller");
            drop(held);
            assert!(can_be_locked(&mutex).await);
            assert!(can_be_locked(&holder.mutex("a")).await);
        });
    });
}

#[test]
fn a_task_that_panics_while_it_ends_an_idle_lease_does_not_stay_the_asker() {
    let trap = Arc::<Trap>::default();
    tracing::subscriber::with_default(stepping_on(&trap), || {
        play(async |_, client| {
            let mutex = client.mutex("a").keep_idle(Duration::from_secs(60));
            let others = client.mutex("a").ttl(ms(5_000));
            drop(mutex.lock().await.expect("free"));
            trap.arm();
            panics(pin!(others.lock()));
            assert!(can_be_locked(&mutex).await);
            assert!(can_be_locked(&others).await);
        });
    });
}
