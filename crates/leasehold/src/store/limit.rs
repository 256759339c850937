//! A limit on how long an answer may take.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use crate::core::error::{Error, ErrorKind};
use crate::host::shielded::Shielded;
use crate::host::{Host, Sleep};

/// Waits for an answer for at most `limit`, which a store usually takes from
/// [`command_limit`](crate::core::validity::command_limit).
///
/// Starts a timer only if the answer is not there at the first poll. A panic of the caller's waker
/// does not reach the task that sends the answer.
///
/// # Errors
///
/// [`Unknown`](ErrorKind::Unknown) after the limit: the request may still take effect.
///
/// # Cancel safety
///
/// Dropping this future drops `answer`.
///
/// # Examples
///
/// ```
/// use std::future::pending;
/// use std::time::Duration;
/// use leasehold::ErrorKind;
/// use leasehold::host::SystemHost;
/// use leasehold::store::within;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let silent = pending::<Result<(), leasehold::Error>>();
/// let answer = within(SystemHost::shared(), Duration::from_millis(10), silent).await;
/// assert_eq!(answer.unwrap_err().kind(), ErrorKind::Unknown);
/// # }
/// ```
pub async fn within<T>(
    host: Arc<dyn Host>,
    limit: Duration,
    answer: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let mut answer = pin!(answer);
    let mut timer: Option<Sleep> = None;
    let ended = poll_fn(|context| {
        if let Poll::Ready(answer) = answer.as_mut().poll(context) {
            return Poll::Ready(answer);
        }
        let timer = timer.get_or_insert_with(|| host.sleep_until(host.now() + limit));
        timer.as_mut().poll(context).map(|()| Err(unanswered(limit)))
    });
    Shielded::new(ended).await
}

/// The error for a request without an answer in time.
pub(crate) fn unanswered(limit: Duration) -> Error {
    Error::new(
        ErrorKind::Unknown,
        format!("the store did not answer within {limit:?}; the request may still take effect"),
    )
}

#[cfg(test)]
mod tests {
    use std::task::Context;

    use super::*;
    use crate::host::SystemHost;
    use crate::host::shielded::panicking_waker;

    #[test]
    fn a_panic_of_a_callers_waker_does_not_reach_the_sender_of_its_answer() {
        let (tell, told) = tokio::sync::oneshot::channel();
        let answer = async { told.await.expect("it is sent") };
        let mut answer = pin!(within(SystemHost::shared(), Duration::from_secs(60), answer));
        let waker = panicking_waker();
        assert!(answer.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        tell.send(Ok(())).expect("its caller waits");
    }
}
