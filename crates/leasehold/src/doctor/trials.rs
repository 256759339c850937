//! Checks of what a store did when it was tried, for a file as for a database.

use std::time::Duration;

use super::check::{Check, Subject};
use super::texts::{cause_of, span};
use crate::core::error::Error;
use crate::core::ttl::Ttl;

const ROUND_TRIP: Subject = Subject {
    id: "round-trip",
    why: "A renewal that takes too long loses the lock, and a slow acquire shortens the lease.",
};

const RELEASE: Subject = Subject {
    id: "release",
    why: "A release must end the lease of its owner, and never that of the next holder.",
};

/// The check that failed with an error, which may have advice.
pub(super) fn failed(subject: Subject, error: &Error, advice: Option<String>) -> Check {
    subject.fail(cause_of(error), advice.unwrap_or_else(|| "see the message".to_owned()))
}

/// Checks that each request took at most the ttl divided by `parts`. `None` without requests.
pub(super) fn round_trip(trips: &[Duration], ttl: Ttl, parts: u32, remedy: &str) -> Option<Check> {
    let mut all = trips.to_vec();
    all.sort_unstable();
    let (median, slow) = (*all.get(all.len() / 2)?, *all.last()?);
    let evidence = format!("p50 {}, at most {}", span(median), span(slow));
    let longer = format!("use a ttl of at least {}, or {remedy}", span(slow * parts));
    let is_slow = slow > ttl.get() / parts;
    Some(if is_slow { ROUND_TRIP.warn(evidence, longer) } else { ROUND_TRIP.ok(evidence) })
}

/// Checks that a probe lease was released by its own token alone.
pub(super) fn release(
    lease: &Result<bool, Error>,
    remedy: impl FnOnce(&Error) -> Option<String>,
) -> Check {
    match lease {
        Ok(true) => RELEASE.ok("a wrong token ended nothing, and the right one ended its lease"),
        Ok(false) => RELEASE.fail(
            "a probe lease was not granted, or was not released by its own token alone",
            "run the command again; if it fails again, report it",
        ),
        Err(error) => failed(RELEASE, error, remedy(error)),
    }
}
