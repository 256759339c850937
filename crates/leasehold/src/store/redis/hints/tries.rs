//! The pauses between tries to listen for messages, and when more tries cannot succeed.

use std::time::Duration;

use crate::core::backoff::{Backoff, Delays};
use crate::core::error::{Error, ErrorKind};

/// The pauses between failed attempts. Meanwhile, waiters poll.
const RECONNECT: Backoff =
    Backoff { first: Duration::from_millis(50), longest: Duration::from_secs(5) };

/// How many connections in a row may end after the login and before the first subscription. A
/// server that restarts ends one or two.
const VAIN_MAX: u32 = 4;

/// The tries of one task.
pub(super) struct Tries {
    pauses: Delays,
    vain: u32,
}

impl Default for Tries {
    fn default() -> Self {
        Self { pauses: RECONNECT.delays(), vain: 0 }
    }
}

impl Tries {
    /// A channel was subscribed to.
    pub(super) fn worked(&mut self) {
        self.pauses.reset();
        self.vain = 0;
    }

    /// A connection ended after its login. Returns whether more tries cannot succeed for now.
    pub(super) fn is_vain(&mut self) -> bool {
        self.vain += 1;
        self.vain >= VAIN_MAX
    }

    /// The pause before the next try.
    pub(super) fn pause(&mut self, random: u32) -> Duration {
        self.pauses.next(random)
    }
}

/// The error that says why tries cannot succeed.
pub(super) fn no_messages() -> Error {
    Error::new(
        ErrorKind::Unsupported,
        "the server ends each connection on which this client subscribes to messages; perhaps a \
         proxy is in between; waiters poll; connect to the server itself",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_ends_several_connections_in_a_row_sends_no_messages() {
        let mut tries = Tries::default();
        let ended: Vec<_> = (0..VAIN_MAX).map(|_| tries.is_vain()).collect();
        assert_eq!(ended, [false, false, false, true]);
        let mut tries = Tries::default();
        for _ in 0..10 {
            assert!(!tries.is_vain() && !tries.is_vain(), "a restart now and then is no reason");
            tries.worked();
        }
        let first = tries.pause(u32::MAX);
        assert!(tries.pause(u32::MAX) > first);
        tries.worked();
        assert_eq!(tries.pause(u32::MAX), first);
    }
}
