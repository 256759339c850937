//! Futures that are dropped half way.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

/// Polls `future` as often as it is woken, `polls` times at most, and then drops it: its output, or
/// `None` if it was dropped before its end.
///
/// With 0, 1, 2, … this drops it at its every await.
pub async fn cut_after<T>(polls: usize, future: impl Future<Output = T>) -> Option<T> {
    let future = pin!(future);
    Cut { future, left: polls, sees_last: true }.await
}

/// Polls `future` as often as it is woken, `polls` times at most, and drops it when woken once
/// more: what it was woken for has come, and it has not seen it.
pub async fn cut_when_woken<T>(polls: usize, future: impl Future<Output = T>) -> Option<T> {
    let future = pin!(future);
    Cut { future, left: polls, sees_last: false }.await
}

struct Cut<'f, F> {
    future: Pin<&'f mut F>,
    left: usize,
    /// Whether it is cut right after the last poll.
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
            // Cut at once, while nothing else has run since the await.
            Poll::Pending if self.left == 0 && self.sees_last => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    }
}
