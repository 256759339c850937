//! The pause after a connection could not be made.

use crate::core::backoff::{Backoff, Delays};
use crate::core::error::Error;
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
