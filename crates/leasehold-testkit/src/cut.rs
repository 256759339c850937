//! Drops futures half way.

use std::pin::{Pin, pin};
use std::task::{Context, Poll};

/// Polls `future` whenever it is woken, at most `polls` times, and then drops it. Returns its
/// output, or `None` if it was dropped before its end.
///
/// With 0, 1, 2, … this drops the future at each of its awaits.
pub async fn cut_after<T>(polls: usize, future: impl Future<Output = T>) -> Option<T> {
    let future = pin!(future);
    Cut { future, left: polls, sees_last: true }.await
}

/// Polls `future` whenever it is woken, at most `polls` times, and drops it at the next wake-up. So
/// the future never sees the event that woke it.
pub async fn cut_when_woken<T>(polls: usize, future: impl Future<Output = T>) -> Option<T> {
    let future = pin!(future);
    Cut { future, left: polls, sees_last: false }.await
}

struct Cut<'f, F> {
    future: Pin<&'f mut F>,
    left: usize,
    /// Whether the future is dropped right after the last poll.
    sees_last: bool,
}

impl<F: Future> Future for Cut<'_, F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        self.left -= 1;
        match self.future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            // Return, so that the future is dropped before anything else can run.
            Poll::Pending if self.left == 0 && self.sees_last => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    }
}
