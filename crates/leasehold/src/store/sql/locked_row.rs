//! Asks again for a row that another transaction has locked for a moment.

use std::sync::Arc;
use std::time::Duration;

use super::errors::is_row_locked;
use crate::core::error::Error;
use crate::host::Host;

/// The pauses before a renewal asks again for a row that was locked. An ordinary step of another
/// client is over by then.
const PAUSES: [Duration; 4] = [
    Duration::from_millis(2),
    Duration::from_millis(5),
    Duration::from_millis(10),
    Duration::from_millis(20),
];

/// The pauses that fit into a quarter of the limit of a renewal.
fn pauses(limit: Duration) -> impl Iterator<Item = Duration> {
    let mut sum = Duration::ZERO;
    PAUSES.into_iter().take_while(move |pause| {
        sum += *pause;
        sum <= limit / 4
    })
}

/// Waits for `first`, and asks again up to four times, 37 ms in all, while another transaction has
/// locked the row. A row that stays locked is left to the connection that waits for locked rows one
/// after the other.
pub(super) async fn ask_while_locked<T, Asked>(
    host: &Arc<dyn Host>,
    limit: Duration,
    first: Asked,
    ask: impl Fn() -> Asked,
) -> Result<T, Error>
where
    Asked: Future<Output = Result<T, Error>>,
{
    let mut answer = first.await;
    for pause in pauses(limit) {
        if !answer.as_ref().is_err_and(is_row_locked) {
            break;
        }
        host.sleep_until(host.now() + pause).await;
        answer = ask().await;
    }
    answer
}

#[cfg(test)]
mod tests {
    use std::future::{Ready, ready};
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::core::error::ErrorKind;
    use crate::host::{SystemHost, block_on};
    use crate::store::sql::errors::row_locked;

    #[test]
    fn the_pauses_take_at_most_a_quarter_of_the_limit() {
        for (limit_ms, expected) in [(1_000, 4), (148, 4), (147, 3), (68, 3), (25, 1), (4, 0)] {
            let limit = Duration::from_millis(limit_ms);
            assert_eq!(pauses(limit).count(), expected, "{limit:?}");
        }
    }

    /// Asks for a row that is locked for some asks. Returns the answer, and how often it asked.
    fn asked(locked: usize, after: Result<(), ErrorKind>) -> (Result<(), Error>, usize) {
        let asks = AtomicUsize::new(0);
        let ask = || -> Ready<Result<(), Error>> {
            let is_locked = asks.fetch_add(1, Ordering::Relaxed) < locked;
            let after = after.map_err(|kind| Error::new(kind, "no"));
            ready(if is_locked { Err(row_locked()) } else { after })
        };
        let host: Arc<dyn Host> = SystemHost::shared();
        let limit = Duration::from_secs(1);
        let answer = block_on(ask_while_locked(&host, limit, ask(), ask)).expect("a runtime");
        (answer, asks.load(Ordering::Relaxed))
    }

    #[test]
    fn a_row_that_is_locked_for_a_moment_is_asked_for_again() {
        for (locked, expected) in [(0, 1), (1, 2), (4, 5)] {
            let (answer, asks) = asked(locked, Ok(()));
            assert!(answer.is_ok(), "{answer:?}");
            assert_eq!(asks, expected);
        }
    }

    #[test]
    fn a_row_that_stays_locked_is_reported_as_locked() {
        let (answer, asks) = asked(100, Ok(()));
        assert!(answer.is_err_and(|error| is_row_locked(&error)));
        assert_eq!(asks, 5);
    }

    #[test]
    fn another_failure_is_not_asked_for_again() {
        let (answer, asks) = asked(1, Err(ErrorKind::Unavailable));
        assert!(answer.is_err_and(|error| !is_row_locked(&error)));
        assert_eq!(asks, 2);
    }
}
