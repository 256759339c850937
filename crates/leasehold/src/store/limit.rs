//! A limit on how long an answer may take.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use crate::core::error::{Error, ErrorKind};
use crate::host::{Host, Sleep};

/// Waits for an answer that somebody else works on, for `limit` at most; then its outcome is
/// *unknown*.
///
/// The timer is armed only when the answer is not there at the first look.
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

/// What a request is answered that had no answer in time.
pub(crate) fn unanswered(limit: Duration) -> Error {
    Error::new(
        ErrorKind::Unknown,
        format!("the store did not answer within {limit:?}; the request may still take effect"),
    )
}
