//! The pause after a connection could not be made.

use crate::core::backoff::{Backoff, Delays};
use crate::core::error::{Error, ErrorKind};
use crate::core::moment::Moment;
use crate::host::{Host, random_u32};

/// Refuses to connect for a while after a failure, with the error of that failure. Each further
/// failure makes the pause longer, up to a second.
pub(crate) struct ConnectPause {
    last: Option<(Moment, Error)>,
    delays: Delays,
}

impl Default for ConnectPause {
    fn default() -> Self {
        Self { last: None, delays: Backoff::DEFAULT.delays() }
    }
}

impl ConnectPause {
    /// Refuses to connect during a pause.
    ///
    /// # Errors
    ///
    /// The error of the last failure.
    pub(crate) fn check(&self, now: Moment) -> Result<(), Error> {
        match &self.last {
            Some((until, why)) if now < *until => Err(why.clone()),
            _ => Ok(()),
        }
    }

    /// Begins a pause.
    pub(crate) fn failed(&mut self, host: &dyn Host, why: &Error) {
        self.last = Some((self.next(host), why.clone()));
    }

    /// Ends the pause.
    pub(crate) fn connected(&mut self) {
        self.last = None;
    }

    /// Makes the next pause a short one again.
    pub(crate) fn reset(&mut self) {
        self.delays.reset();
    }

    /// When the next try is due after a connection that failed, or was of no use.
    pub(crate) fn next(&mut self, host: &dyn Host) -> Moment {
        host.now() + self.delays.next(random_u32(host))
    }
}

/// The error of a server that does not serve this client, although another one did. Waiters keep
/// waiting.
pub(crate) fn for_now(error: Error) -> Error {
    if error.is_retryable() {
        return error;
    }
    let message = format!("no server serves this client for now: {}", error.message());
    Error::new(ErrorKind::Unavailable, message).with_source(error)
}

/// The error of an attempt to connect. Once the URL has led to the store, it is right, so a server
/// that looks like none of this store ends no wait.
pub(crate) fn unless_right(was_right: bool, error: Error) -> Error {
    if was_right && error.kind() == ErrorKind::Config { for_now(error) } else { error }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::host::SystemHost;

    #[test]
    fn a_pause_refuses_for_the_reason_of_the_failure_until_it_is_over_or_a_connection_is_made() {
        let mut pause = ConnectPause::default();
        assert!(pause.check(Moment::from_nanos(0)).is_ok(), "nothing has failed");
        pause.failed(&SystemHost, &Error::new(ErrorKind::Denied, "the password is wrong"));
        let (until, _) = pause.last.clone().expect("it pauses");
        let refused = pause.check(until.minus(Duration::from_nanos(1))).expect_err("it pauses");
        assert_eq!(refused.kind(), ErrorKind::Denied, "{refused}");
        assert!(pause.check(until).is_ok());
        pause.connected();
        assert!(pause.check(Moment::from_nanos(0)).is_ok(), "it is connected");
    }

    /// A server may accept each connection, and end it at once.
    #[test]
    fn pauses_grow_until_a_connection_is_of_use() {
        let mut pause = ConnectPause::default();
        let why = Error::new(ErrorKind::Unavailable, "it ended");
        let next = |pause: &mut ConnectPause| {
            let before = SystemHost.now();
            pause.failed(&SystemHost, &why);
            pause.connected();
            pause.next(&SystemHost).since(before)
        };
        let long = Duration::from_millis(100);
        for _ in 0..4 {
            next(&mut pause);
        }
        assert!(next(&mut pause) >= long, "the tenth pause is at least half a second");
        pause.reset();
        pause.failed(&SystemHost, &why);
        let (until, _) = pause.last.clone().expect("it pauses");
        assert!(until.since(SystemHost.now()) <= Duration::from_millis(10), "the first one");
    }
}
