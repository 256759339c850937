//! Watches the time limits of many answers with few timers.
//!
//! An answer usually comes a thousand times sooner than its limit, so one timer each would cost
//! more than the rest of the request. Instead, only the earliest limit is watched, and each tick
//! checks it. When it has passed, all waiters check the clock. There are ticks only while somebody
//! waits.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use crate::core::moment::Moment;
use crate::host::Host;
use crate::host::shielded::Shielded;

/// The time between two ticks. A limit may be noticed that much later. It is as long as the
/// shortest limit of any command.
const TICK: Duration = Duration::from_millis(25);

pub(super) struct Ticks {
    host: Arc<dyn Host>,
    passed: Notify,
    /// The earliest limit of all waiters, in nanoseconds.
    earliest: AtomicU64,
    waiting: AtomicUsize,
    ticking: AtomicBool,
}

impl Ticks {
    pub(super) fn new(host: Arc<dyn Host>) -> Arc<Self> {
        Arc::new(Self {
            host,
            passed: Notify::new(),
            earliest: AtomicU64::new(u64::MAX),
            waiting: AtomicUsize::new(0),
            ticking: AtomicBool::new(false),
        })
    }

    /// The output of `future`, unless `deadline` passes first. The tasks of the wire wake the
    /// caller, and survive a panic of its waker.
    pub(super) async fn until<T>(
        self: &Arc<Self>,
        deadline: Moment,
        future: impl Future<Output = T>,
    ) -> Option<T> {
        let watching = pin!(self.watch(deadline, future));
        Shielded::new(watching).await
    }

    async fn watch<T>(
        self: &Arc<Self>,
        deadline: Moment,
        future: impl Future<Output = T>,
    ) -> Option<T> {
        let mut future = pin!(future);
        let waiting = Waiting::begin(self);
        loop {
            let mut passed = pin!(self.passed.notified());
            tokio::select! {
                biased;
                output = &mut future => return Some(output),
                () = poll_fn(|cx| {
                    let passed = passed.as_mut().poll(cx);
                    // Set the limit only after `passed` is registered. The tick that clears the
                    // limit wakes registered waiters only.
                    waiting.0.limit(deadline);
                    passed
                }) => {}
            }
            if self.host.now() >= deadline {
                return None;
            }
        }
    }

    /// Adds a limit to watch.
    fn limit(self: &Arc<Self>, deadline: Moment) {
        self.earliest.fetch_min(deadline.as_nanos(), Ordering::AcqRel);
        self.start();
    }

    /// Wakes all waiters if a limit has passed. The waiters set the next limit.
    fn tick(&self) {
        let earliest = Moment::from_nanos(self.earliest.load(Ordering::Acquire));
        if self.host.now() >= earliest {
            self.earliest.store(u64::MAX, Ordering::Release);
            self.passed.notify_waiters();
        }
    }

    /// Starts the ticks, unless they are running.
    fn start(self: &Arc<Self>) {
        if self.ticking.swap(true, Ordering::AcqRel) {
            return;
        }
        let ticks = Arc::clone(self);
        self.host.spawn(Box::pin(async move {
            loop {
                ticks.host.sleep_until(ticks.host.now() + TICK).await;
                ticks.tick();
                if ticks.waiting.load(Ordering::Acquire) > 0 {
                    continue;
                }
                // This is a swap because a store could take effect after the check below. A waiter
                // that found the ticks still running did so before the swap, so the check sees it.
                ticks.ticking.swap(false, Ordering::AcqRel);
                if ticks.waiting.load(Ordering::Acquire) == 0
                    || ticks.ticking.swap(true, Ordering::AcqRel)
                {
                    return;
                }
            }
        }));
    }
}

/// Counts a waiter.
struct Waiting<'a>(&'a Arc<Ticks>);

impl<'a> Waiting<'a> {
    fn begin(ticks: &'a Arc<Ticks>) -> Self {
        ticks.waiting.fetch_add(1, Ordering::AcqRel);
        Self(ticks)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::Mutex;
    use std::task::{Context, Poll, Wake, Waker};

    use super::*;
    use crate::core::error::Error;
    use crate::core::moment::WallTime;
    use crate::host::shielded::panicking_waker;
    use crate::host::{Sleep, Task};

    /// A host whose clock the test sets, and whose tasks the test polls.
    #[derive(Default)]
    struct ByHand {
        now: Arc<AtomicU64>,
        tasks: Mutex<Vec<Task>>,
    }

    impl ByHand {
        /// Lets the tasks do what is due at this moment.
        fn pass_to(&self, at: Moment) {
            self.now.store(at.as_nanos(), Ordering::SeqCst);
            let mut context = Context::from_waker(Waker::noop());
            let mut tasks = self.tasks.lock().expect("no panic");
            tasks.retain_mut(|task| task.as_mut().poll(&mut context).is_pending());
        }
    }

    impl Host for ByHand {
        fn now(&self) -> Moment {
            Moment::from_nanos(self.now.load(Ordering::SeqCst))
        }
        fn wall(&self) -> WallTime {
            WallTime::default()
        }
        fn sleep_until(&self, at: Moment) -> Sleep {
            let now = Arc::clone(&self.now);
            Box::pin(poll_fn(move |_| {
                let is_over = now.load(Ordering::SeqCst) >= at.as_nanos();
                if is_over { Poll::Ready(()) } else { Poll::Pending }
            }))
        }
        fn spawn(&self, task: Task) {
            self.tasks.lock().expect("no panic").push(task);
        }
        fn spawn_blocking(&self, _: &str, _: Task) -> Result<(), Error> {
            unreachable!("ticks have no thread");
        }
        fn random(&self, bytes: &mut [u8]) {
            bytes.fill(0);
        }
    }

    /// Whether a task was woken.
    #[derive(Default)]
    struct Woken(AtomicBool);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    fn ms(ms: u64) -> Moment {
        Moment::from_nanos(ms * 1_000_000)
    }

    /// Otherwise no request of the wire would have a limit any more.
    #[test]
    fn limits_hold_after_the_waker_of_a_caller_has_panicked() {
        let host = Arc::new(ByHand::default());
        let ticks = Ticks::new(host.clone());
        let until = |at| Box::pin(ticks.until(ms(at), pending::<()>()));
        let (panics, woken) = (panicking_waker(), Arc::new(Woken::default()));
        let (mut first, mut second, mut third) = (until(10), until(10), until(30));
        assert!(first.as_mut().poll(&mut Context::from_waker(&panics)).is_pending());
        let waker = Waker::from(Arc::clone(&woken));
        assert!(second.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        host.pass_to(ms(0));
        host.pass_to(ms(25));
        assert!(woken.0.load(Ordering::SeqCst), "another caller is woken by the same tick");
        let mut context = Context::from_waker(Waker::noop());
        assert_eq!(second.as_mut().poll(&mut context), Poll::Ready(None));
        assert!(third.as_mut().poll(&mut context).is_pending());
        host.pass_to(ms(50));
        assert_eq!(third.as_mut().poll(&mut context), Poll::Ready(None), "later ticks come, too");
    }
}
