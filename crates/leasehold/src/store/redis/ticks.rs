//! Limits on many answers by few timers.
//!
//! An answer usually comes before its limit by a factor of a thousand, and a timer for each would
//! cost more than the rest of the request. So there is one limit, the earliest: when it has passed,
//! whoever waits looks at the clock. It is looked at with every tick, and there are ticks only
//! while somebody waits.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use crate::core::moment::Moment;
use crate::host::Host;

/// The time between two ticks, and how late a limit may be noticed. As long as the shortest limit
/// that a command has.
const TICK: Duration = Duration::from_millis(25);

pub(super) struct Ticks {
    host: Arc<dyn Host>,
    passed: Notify,
    /// The earliest limit of those who wait, in nanoseconds.
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
                    // Only now: whoever takes the limit away must find it waiting.
                    waiting.0.limit(deadline);
                    passed
                }) => {}
            }
            if self.host.now() >= deadline {
                return None;
            }
        }
    }

    /// Has the limit looked at.
    fn limit(self: &Arc<Self>, deadline: Moment) {
        self.earliest.fetch_min(deadline.as_nanos(), Ordering::AcqRel);
        self.start();
    }

    /// Wakes who waits, if a limit has passed. They set the next one.
    fn tick(&self) {
        let earliest = Moment::from_nanos(self.earliest.load(Ordering::Acquire));
        if self.host.now() >= earliest {
            self.earliest.store(u64::MAX, Ordering::Release);
            self.passed.notify_waiters();
        }
    }

    /// Starts the ticks, unless they go on already.
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
                // Swapped and not stored: whoever found the ticks still going did so before this,
                // and is seen to wait below. The look below could overtake a store.
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

/// Counts somebody who waits.
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
