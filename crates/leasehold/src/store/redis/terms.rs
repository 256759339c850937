//! On which terms a server is used, beside where it is. Its URL says it:
//!
//! | option | what it means |
//! |---|---|
//! | `strict=yes` | a server that may have forgotten what it granted grants nothing for a while |
//! | `replicas=2`, `replicas=majority` | a grant that so many replicas do not confirm is given back |
//! | `fsync=yes` | so is one that is not on disk |
//! | `confirm=yes` | a message that hands a lock over is confirmed by a request |
//!
//! All clients have to agree on the first three. Whether to confirm is for each to decide.

use std::time::Duration;

use super::copies::Copies;
use crate::core::error::{Error, ErrorKind};
use crate::core::key::Key;
use crate::core::ttl::Ttl;

/// On which terms a server is used. All of its clients have to agree on them: a client with other
/// terms is outside of what they promise one another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Terms {
    /// Whether the server is quarantined when it has forgotten what it granted. Default: no.
    pub strict: Option<Strict>,
    /// How many copies of a grant there have to be. Default: none.
    pub copies: Copies,
    /// Whether a waiter asks the server before it believes a message that hands the lock over: for
    /// servers where others may read the keys of locks and publish messages. It costs one round
    /// trip for each lock that is handed over. Each client decides for itself. Default: no.
    pub confirm: bool,
}

impl From<Strict> for Terms {
    fn from(strict: Strict) -> Self {
        Self { strict: Some(strict), ..Self::default() }
    }
}

impl From<Copies> for Terms {
    fn from(copies: Copies) -> Self {
        Self { copies, ..Self::default() }
    }
}

/// The strict mode: a server that restarted, forgot its data, or took another one's place grants
/// nothing new for as long as anything that was granted before may last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strict {
    ttl_max: Duration,
    quarantine: Duration,
}

impl Strict {
    /// What `strict=yes` means: leases of at most 60 s, and a quarantine of 65 s. The 5 s more
    /// are for a clock of the server that is stepped forward meanwhile.
    pub const STANDARD: Self =
        Self { ttl_max: Duration::from_mins(1), quarantine: Duration::from_secs(65) };

    /// With other times, for tests that cannot wait for a minute. Clients with different ones do
    /// not exclude each other.
    ///
    /// # Panics
    ///
    /// If the quarantine is shorter than the longest ttl.
    #[doc(hidden)]
    #[must_use]
    pub fn new(ttl_max: Duration, quarantine: Duration) -> Self {
        assert!(ttl_max <= quarantine, "what was granted has to run out within the quarantine");
        Self { ttl_max, quarantine }
    }

    /// The longest ttl of a lease, lock delay included.
    #[must_use]
    pub const fn ttl_max(self) -> Duration {
        self.ttl_max
    }

    /// For how long nothing new is granted.
    #[must_use]
    pub const fn quarantine(self) -> Duration {
        self.quarantine
    }
}

impl Terms {
    /// Whether a release may grant the key to the next in line. It can see neither whether the
    /// server has forgotten, nor can it take the key back where there are not copies enough.
    pub(super) fn hand_over(&self) -> bool {
        self.strict.is_none() && !self.copies.is_any()
    }

    /// That a lease may last so long, lock delay included.
    pub(super) fn allow(&self, ttl: Ttl, key: &Key) -> Result<(), Error> {
        let Some(strict) = self.strict.filter(|strict| ttl.get() > strict.ttl_max) else {
            return Ok(());
        };
        let message = format!(
            "the ttl with its lock delay is {:?}, and a strict server takes {:?} at most; nothing \
             was asked, choose a shorter ttl: it is renewed for as long as you hold the lock",
            ttl.get(),
            strict.ttl_max
        );
        Err(Error::new(ErrorKind::Config, message).with_name(key.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The whole promise of the quarantine: nothing outlives it.
    #[test]
    fn no_lease_of_a_strict_server_outlives_its_quarantine() {
        let strict = Strict::STANDARD;
        assert!(strict.quarantine() >= strict.ttl_max() + Duration::from_secs(5));
        let terms = Terms::from(strict);
        let key = Key::new("a").expect("a name");
        let ttl = |ttl| Ttl::new(ttl).expect("within bounds");
        assert!(terms.allow(ttl(strict.ttl_max()), &key).is_ok());
        let longer = ttl(strict.ttl_max() + Duration::from_secs(1));
        let error = terms.allow(longer, &key).expect_err("too long");
        assert_eq!(error.kind(), ErrorKind::Config);
        let text = "`a`: the ttl with its lock delay is 61s, and a strict server takes 60s at \
                    most; nothing was asked, choose a shorter ttl: it is renewed for as long as \
                    you hold the lock";
        assert_eq!(error.to_string(), text);
        let longer = ttl(strict.ttl_max() + Duration::from_nanos(1));
        assert!(terms.allow(longer, &key).is_err(), "to the nanosecond");
        assert!(Terms::default().allow(longer, &key).is_ok());
    }
}
