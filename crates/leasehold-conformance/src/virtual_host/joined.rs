//! The output of a task.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// The output of a task of a [`VirtualHost`](super::VirtualHost). If it is dropped, the task goes
/// on.
#[must_use = "the output of the task is in it"]
pub struct Joined<T>(Arc<Mutex<Slot<T>>>);

struct Slot<T> {
    output: Option<T>,
    waker: Option<Waker>,
    ended: bool,
}

impl<T> Joined<T> {
    /// Whether the task has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        slot(&self.0).ended
    }
}

pub(super) fn join<T>(task: impl Future<Output = T>) -> (Joined<T>, impl Future<Output = ()>) {
    let shared = Arc::new(Mutex::new(Slot { output: None, waker: None, ended: false }));
    let joined = Joined(Arc::clone(&shared));
    let task = async move {
        let output = task.await;
        let mut slot = slot(&shared);
        slot.output = Some(output);
        slot.ended = true;
        let waker = slot.waker.take();
        drop(slot);
        if let Some(waker) = waker {
            waker.wake();
        }
    };
    (joined, task)
}

fn slot<T>(shared: &Mutex<Slot<T>>) -> MutexGuard<'_, Slot<T>> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T> Future for Joined<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let mut slot = slot(&self.0);
        match slot.output.take() {
            Some(output) => Poll::Ready(output),
            None => {
                slot.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl<T> fmt::Debug for Joined<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Joined(finished: {})", self.is_finished())
    }
}
