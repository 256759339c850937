//! Tests of a virtual host with tasks that do real input and output.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use leasehold::core::Moment;
use leasehold::host::Host;

use super::{Outside, VirtualHost};

/// An outside that never sends anything, and the moments that it was told.
#[derive(Default)]
struct Quiet {
    told: Mutex<Vec<Moment>>,
    went_out: AtomicU64,
}

impl Outside for Quiet {
    fn settle(&self) {}

    fn went_out(&self) -> u64 {
        self.went_out.load(Ordering::Acquire)
    }

    fn time_is(&self, now: Moment) {
        self.told.lock().expect("no panic").push(now);
    }
}

fn host() -> (Arc<VirtualHost>, Arc<Quiet>) {
    let (host, quiet) = (VirtualHost::new(1), Arc::<Quiet>::default());
    host.attach(quiet.clone());
    (host, quiet)
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[test]
fn the_outside_is_told_the_time_before_anybody_acts_at_it() {
    let (host, quiet) = host();
    let start = host.now();
    host.run(async {
        host.advance(ms(5)).await;
        assert_eq!(quiet.told.lock().expect("no panic").last(), Some(&(start + ms(5))));
    });
    host.suspend(ms(7));
    assert_eq!(*quiet.told.lock().expect("no panic"), [start, start + ms(5), start + ms(12)]);
}

#[test]
fn io_tasks_run_on_a_thread_of_their_own_and_go_by_virtual_time() {
    let (host, _) = host();
    let here = std::thread::current().id();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (inner, into) = (Arc::clone(&host), Arc::clone(&seen));
    let start = host.now();
    host.spawn_io(Box::pin(async move {
        for _ in 0..1_000 {
            inner.sleep_until(inner.now() + ms(1)).await;
            let elsewhere = std::thread::current().id() != here;
            into.lock().expect("no panic").push((inner.now(), elsewhere));
        }
    }));
    host.run(host.advance(ms(1_000)));
    let expected: Vec<_> = (1..=1_000).map(|passed| (start + ms(passed), true)).collect();
    assert_eq!(*seen.lock().expect("no panic"), expected);
}

#[test]
fn time_stands_still_while_an_io_task_goes_on() {
    let (host, _) = host();
    let (inner, moments) = (Arc::clone(&host), Arc::new(Mutex::new(Vec::new())));
    let into = Arc::clone(&moments);
    let mut turns = 0;
    host.spawn_io(Box::pin(std::future::poll_fn(move |context| {
        into.lock().expect("no panic").push(inner.now());
        turns += 1;
        if turns == 1_000 {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })));
    let start = host.now();
    host.run(host.advance(ms(1)));
    assert_eq!(*moments.lock().expect("no panic"), vec![start; 1_000]);
}

/// A value whose drop takes a while.
struct Slow(Option<tokio::sync::oneshot::Sender<()>>);

impl Drop for Slow {
    fn drop(&mut self) {
        (0..10_000).for_each(|_| std::thread::yield_now());
        drop(self.0.take());
    }
}

#[test]
fn a_task_that_waits_for_an_io_task_is_woken_before_time_goes_on() {
    let (host, _) = host();
    let (sender, ended) = tokio::sync::oneshot::channel();
    let slow = Slow(Some(sender));
    // The end of the task drops `slow`. The task itself does not.
    host.spawn_io(Box::pin(std::future::poll_fn(move |_| {
        let _kept = &slow;
        Poll::Ready(())
    })));
    let start = host.now();
    let woken = host.run(async { host.within(ms(1), ended).await });
    assert!(woken.is_some(), "time went on first");
    assert_eq!(host.now(), start);
}

#[test]
fn io_tasks_are_dropped_with_the_others() {
    let (host, _) = host();
    let held = Arc::new(());
    let (inner, moved) = (Arc::clone(&host), Arc::clone(&held));
    host.spawn_io(Box::pin(async move {
        let _moved = (inner, moved);
        std::future::pending::<()>().await;
    }));
    host.run(host.settle());
    assert_eq!(Arc::strong_count(&held), 2);
    host.drop_tasks();
    assert_eq!((Arc::strong_count(&held), Arc::strong_count(&host)), (1, 1));
}

#[test]
#[should_panic(expected = "an I/O task fails")]
fn the_panic_of_an_io_task_is_the_panic_of_the_run() {
    let (host, _) = host();
    host.spawn_io(Box::pin(async { panic!("an I/O task fails") }));
    host.run(host.advance(ms(1)));
}

#[test]
fn without_an_outside_io_tasks_are_tasks_like_others() {
    let host = VirtualHost::new(1);
    let here = std::thread::current().id();
    let (sender, seen) = tokio::sync::oneshot::channel();
    host.spawn_io(Box::pin(async move {
        let _ = sender.send(std::thread::current().id());
    }));
    assert_eq!(host.run(seen), Ok(here));
}
