//! The terms on which a server is used. Its URL sets them:
//!
//! | option | what it means |
//! |---|---|
//! | `strict=yes`, `strict=no` | whether a server that may have forgotten its leases grants nothing for a while; without the option, as the database says |
//! | `replicas=2`, `replicas=majority` | a grant is released if fewer replicas confirm it |
//! | `fsync=yes` | a grant is released if it is not on disk |
//! | `confirm=yes` | a message that hands a lock over is confirmed by a request |
//!
//! All clients must use the same `replicas` and `fsync`. The record of the database says whether it
//! is strict. Each client chooses `confirm` for itself.

pub(super) mod copies;
pub(super) mod quarantine;
pub(crate) mod record;
pub(super) mod settled;

use std::time::Duration;

use crate::core::error::{Error, ErrorKind};
use crate::core::key::Key;
use crate::core::ttl::Ttl;

/// Why strict mode is not for a cluster.
macro_rules! why_not_in_a_cluster {
    () => {
        "each server notes for itself that it may have forgotten leases, and slots move"
    };
}
pub(super) use why_not_in_a_cluster;

/// The terms on which a server is used. All of its clients must agree on whether they are strict,
/// and on [`copies`](Self::copies), or the promises of these terms do not hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Terms {
    /// Whether the server is quarantined after it has forgotten its leases. Default: no.
    pub strict: Strictness,
    /// How many copies a grant needs. Default: none.
    pub copies: Copies,
    /// Whether a waiter asks the server before it believes a message that hands the lock over. Use
    /// it if others may read the keys of locks and publish messages. It costs one round trip for
    /// each hand-over. Each client chooses for itself. Default: no.
    pub confirm: bool,
}

impl Terms {
    /// Why a cluster cannot keep these terms. `None` if it can.
    pub(super) fn not_for_a_cluster(&self) -> Option<&'static str> {
        if self.strict.strict().is_some() {
            return Some(concat!(
                "`strict` is not for a cluster: ",
                why_not_in_a_cluster!(),
                "; use `redis+sentinel://` or a quorum"
            ));
        }
        self.copies.is_any().then_some(
            "`replicas` and `fsync` are not for a cluster yet: a request may be served by another \
             node than the one that is asked for copies; leave them out",
        )
    }
}

impl From<Strict> for Terms {
    fn from(strict: Strict) -> Self {
        Self { strict: Strictness::Yes(strict), ..Self::default() }
    }
}

impl From<Copies> for Terms {
    fn from(copies: Copies) -> Self {
        Self { copies, ..Self::default() }
    }
}

/// The strict mode that a client expects. Only the act of an operator switches a database to it,
/// see [`strict`](crate::strict).
///
/// | | the database is not in strict mode | the database is in strict mode |
/// |---|---|---|
/// | `No` | not strict | refused: `Config` |
/// | `AsDatabase` | not strict | strict |
/// | `Yes` | strict, and keeps nobody else out | strict |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strictness {
    /// `strict=no` in a URL: the client is not strict.
    #[default]
    No,
    /// Nothing in a URL: the client is strict if the database says so when the store connects for
    /// the first time. That stays so for the life of the store.
    AsDatabase,
    /// `strict=yes` in a URL: the client is strict, even if the database is not.
    Yes(Strict),
}

impl Strictness {
    /// The terms of a strict client. `None` for a client that is not strict, or does not know it
    /// yet.
    #[must_use]
    pub const fn strict(self) -> Option<Strict> {
        match self {
            Self::Yes(strict) => Some(strict),
            Self::No | Self::AsDatabase => None,
        }
    }
}

/// The strict mode: a server that restarted, lost its data, or replaced another server grants
/// nothing new until every earlier lease must have expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strict {
    ttl_max: Duration,
    quarantine: Duration,
}

impl Strict {
    /// The values for `strict=yes`: leases of at most 60 s, and a quarantine of 65 s. The other 5 s
    /// cover forward jumps of the server's clock.
    pub const STANDARD: Self =
        Self { ttl_max: Duration::from_mins(1), quarantine: Duration::from_secs(65) };

    /// Other times: for simulations, and for tests that cannot wait for a minute. Never use them
    /// where locks matter, because clients with different times do not exclude each other.
    ///
    /// # Panics
    ///
    /// If the quarantine is shorter than the longest ttl.
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

    /// How long nothing new is granted.
    #[must_use]
    pub const fn quarantine(self) -> Duration {
        self.quarantine
    }
}

/// How many copies a grant or a renewal needs before it counts. By default it needs none, and
/// counts as soon as it is in the memory of the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Copies {
    /// How many replicas must confirm the grant or renewal. Default: none.
    pub replicas: Replicas,
    /// Whether it must be on the disk of the server, and on the disks of that many replicas.
    /// Default: no.
    pub fsync: bool,
}

/// How many replicas must confirm a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Replicas {
    /// This many.
    Count(u8),
    /// Enough for a majority of the server and its replicas together, but at least one. The
    /// replicas are counted when a connection is made, so a replica that is away then does not
    /// count.
    Majority,
}

impl Default for Replicas {
    fn default() -> Self {
        Self::Count(0)
    }
}

impl Copies {
    /// Copies on this many replicas, on disk or not.
    #[must_use]
    pub const fn new(replicas: Replicas, fsync: bool) -> Self {
        Self { replicas, fsync }
    }

    /// Whether the memory of the server alone is not enough.
    #[must_use]
    pub fn is_any(self) -> bool {
        self != Self::default()
    }

    /// Whether a release may grant the key to the next waiter, unless the server is strict. It may
    /// not if copies are needed, because it cannot take the key back if there are too few.
    pub(super) fn hand_over(self) -> bool {
        !self.is_any()
    }
}

impl Terms {
    /// The terms of a URL without options.
    pub(crate) const AS_DATABASE: Self = Self {
        strict: Strictness::AsDatabase,
        copies: Copies::new(Replicas::Count(0), false),
        confirm: false,
    };

    /// Whether it is certain that a release may grant the key to the next waiter. A hand-over
    /// cannot check whether the server has forgotten its leases.
    pub(super) fn hand_over(&self) -> bool {
        self.strict == Strictness::No && self.copies.hand_over()
    }

    /// Checks that a lease may last this long, lock delay included.
    pub(super) fn allow(&self, ttl: Ttl, key: &Key) -> Result<(), Error> {
        self.strict.strict().map_or(Ok(()), |strict| strict.allow(ttl, key))
    }
}

impl Strict {
    /// Checks that a lease may last this long, lock delay included.
    pub(super) fn allow(self, ttl: Ttl, key: &Key) -> Result<(), Error> {
        if ttl.get() <= self.ttl_max {
            return Ok(());
        }
        let message = format!(
            "the ttl with its lock delay is {:?}, and a strict server takes {:?} at most; no \
             request was sent; choose a shorter ttl, and renew it",
            ttl.get(),
            self.ttl_max
        );
        Err(Error::new(ErrorKind::Config, message).with_name(key.as_str()))
    }
}

/// The error for a place in line where a hand-over is not allowed, see [`Terms::hand_over`].
pub(super) fn no_line(key: &Key) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        "in strict mode, and with `replicas` or `fsync` in its URL, a server does not hand locks \
         over; no request was sent; watch the lock instead",
    )
    .with_name(key.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The core promise of the quarantine: no lease outlives it.
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
                    most; no request was sent; choose a shorter ttl, and renew it";
        assert_eq!(error.to_string(), text);
        let longer = ttl(strict.ttl_max() + Duration::from_nanos(1));
        assert!(terms.allow(longer, &key).is_err(), "to the nanosecond");
        assert!(Terms::default().allow(longer, &key).is_ok());
    }

    #[test]
    fn a_release_may_hand_over_only_if_it_is_certain_that_a_grant_needs_no_check() {
        let copies = |replicas, fsync| Terms::from(Copies::new(replicas, fsync));
        for (terms, may_hand_over) in [
            (Terms::default(), true),
            (Terms { confirm: true, ..Terms::default() }, true),
            // The database has not been asked yet.
            (Terms::AS_DATABASE, false),
            (Terms::from(Strict::STANDARD), false),
            (copies(Replicas::Count(1), false), false),
            (copies(Replicas::Majority, false), false),
            (copies(Replicas::Count(0), true), false),
        ] {
            assert_eq!(terms.hand_over(), may_hand_over, "{terms:?}");
        }
    }
}
