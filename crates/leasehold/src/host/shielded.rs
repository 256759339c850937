//! Keeps a panic of the user's code, such as a waker, from ending a background task.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
#[cfg(feature = "redis")]
use std::time::Duration;

#[cfg(feature = "redis")]
use futures_util::FutureExt as _;

#[cfg(feature = "redis")]
use crate::host::{Host, Task};

/// A future that background tasks wake, such as a timer or an answer. A panic of the waker ends
/// none of these tasks.
pub(crate) struct Shielded<F> {
    future: F,
    /// The waker of the task, and the one that others call instead.
    waker: Option<(Waker, Waker)>,
}

impl<F> Shielded<F> {
    pub(crate) const fn new(future: F) -> Self {
        Self { future, waker: None }
    }
}

impl<F: Future + Unpin> Future for Shielded<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let Self { future, waker } = &mut *self;
        if !waker.as_ref().is_some_and(|(of_task, _)| of_task.will_wake(context.waker())) {
            let of_task = context.waker().clone();
            let shielded = Arc::new(ShieldedWaker(of_task.clone())).into();
            *waker = Some((of_task, shielded));
        }
        let (_, shielded) = waker.as_ref().expect("it was just set");
        Pin::new(future).poll(&mut Context::from_waker(shielded))
    }
}

/// A waker whose panic does not end the task that wakes. All timers of the process need one thread,
/// and all requests on a connection need one task.
struct ShieldedWaker(Waker);

impl Wake for ShieldedWaker {
    fn wake(self: Arc<Self>) {
        shield(move || {
            self.0.wake_by_ref();
            drop(self);
        });
    }
}

/// Runs code of the user in a background task, such as a waker. Its panic does not end the task.
pub(crate) fn shield(foreign: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(foreign)).is_err() {
        // A log subscriber that panicked may panic again.
        drop(catch_unwind(|| {
            tracing::error!("a waker or a log subscriber panicked; a waiting task may hang");
        }));
    }
}

/// How long a background task that panicked pauses.
#[cfg(feature = "redis")]
const AFTER_PANIC: Duration = Duration::from_secs(1);

/// Runs the task that `begin` makes until it ends. If the task panics, for example in a log
/// subscriber, `begin` makes another one after a pause.
#[cfg(feature = "redis")]
pub(crate) async fn run_again(host: Arc<dyn Host>, mut begin: impl FnMut() -> Task + Send) {
    while AssertUnwindSafe(begin()).catch_unwind().await.is_err() {
        shield(|| tracing::error!("a background task panicked; it begins again"));
        host.sleep_until(host.now() + AFTER_PANIC).await;
    }
}

/// A waker that panics, as that of an executor that is gone.
#[cfg(test)]
pub(crate) fn panicking_waker() -> Waker {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic_quietly();
        }
    }
    Arc::new(Panics).into()
}

/// Panics without a message on stderr.
#[cfg(test)]
pub(crate) fn panic_quietly() {
    std::panic::resume_unwind(Box::new("a defect of the user"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::on_event::OnEvent;

    #[test]
    fn a_panic_of_a_waker_ends_nothing_although_the_log_panics_too() {
        let broken = OnEvent(|_: &tracing::Event<'_>| panic_quietly());
        tracing::subscriber::with_default(broken, || shield(panic_quietly));
    }
}
