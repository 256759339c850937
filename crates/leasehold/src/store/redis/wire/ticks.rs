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

/// The time between two ticks. A limit may be noticed that much later. As long as the shortest
/// limit of any command.
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

    /// The output of `future`, unless `deadline` passes first.
    pub(super) async fn until<T>(
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
                    // Not earlier: the tick that takes the limit away must find this waiter
                    // registered.
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

    /// Wakes all waiters if a limit has passed. They set the next one.
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
                // A swap, not a store: if a waiter found the ticks still running, it did so before
                // the swap, and the check below sees it. A store could take effect after the check.
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
