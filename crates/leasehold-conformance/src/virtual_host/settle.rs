//! Waits until no task can go on until time goes on.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use super::Shared;

/// A task that waits until all other tasks wait.
pub(super) struct Settling {
    settled: Arc<AtomicBool>,
    waker: Waker,
}

impl Settling {
    pub(super) fn tell(self) {
        self.settled.store(true, Ordering::Release);
        self.waker.wake();
    }
}

/// Ends once no task can go on at the current moment.
pub(super) struct Settle {
    shared: Arc<Shared>,
    settled: Option<Arc<AtomicBool>>,
}

impl Settle {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, settled: None }
    }
}

impl Future for Settle {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.settled.as_ref().is_some_and(|settled| settled.load(Ordering::Acquire)) {
            return Poll::Ready(());
        }
        // An early poll, for example by a select, leaves an old entry behind, which does no harm.
        let settled = Arc::new(AtomicBool::new(false));
        self.settled = Some(Arc::clone(&settled));
        let settling = Settling { settled, waker: context.waker().clone() };
        self.shared.state().settling.push(settling);
        Poll::Pending
    }
}
