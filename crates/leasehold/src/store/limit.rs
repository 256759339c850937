//! A limit on how long an answer may take.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use crate::core::error::{Error, ErrorKind};
use crate::host::{Host, Sleep};

/// Waits for an answer for at most `limit`. After that, the outcome is *unknown*.
///
/// Starts a timer only if the answer is not there at the first poll.
pub(crate) async fn within<T>(
    host: Arc<dyn Host>,
    limit: Duration,
    answer: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let mut answer = pin!(answer);
    let mut timer: Option<Sleep> = None;
    poll_fn(|context| {
        if let Poll::Ready(answer) = answer.as_mut().poll(context) {
            return Poll::Ready(answer);
        }
        let timer = timer.get_or_insert_with(|| host.sleep_until(host.now() + limit));
        timer.as_mut().poll(context).map(|()| Err(unanswered(limit)))
    })
    .await
}

/// The error for a request without an answer in time.
pub(crate) fn unanswered(limit: Duration) -> Error {
    Error::new(
        ErrorKind::Unknown,
        format!("the store did not answer within {limit:?}; the request may still take effect"),
    )
}
