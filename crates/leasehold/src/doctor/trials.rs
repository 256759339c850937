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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::error::ErrorKind;
    use crate::doctor::Verdict;

    #[test]
    fn a_store_is_as_slow_as_its_slowest_answer() {
        let judged = |slowest: u64| {
            let mut trips = vec![Duration::from_millis(1); 19];
            trips.insert(3, Duration::from_millis(slowest));
            round_trip(&trips, Ttl::DEFAULT, 20, "a closer server").expect("there are answers")
        };
        assert_eq!(judged(500).verdict, Verdict::Ok);
        let slow = judged(501);
        assert_eq!((slow.verdict, &*slow.evidence), (Verdict::Warn, "p50 1.0 ms, at most 501 ms"));
        let remedy = "use a ttl of at least 10 s, or a closer server";
        assert_eq!(slow.remedy.as_deref(), Some(remedy));
        assert_eq!(round_trip(&[], Ttl::DEFAULT, 20, "a closer server"), None);
    }

    #[test]
    fn a_probe_lease_that_ended_wrongly_or_not_at_all_is_a_fault() {
        let error = Error::new(ErrorKind::Unavailable, "it is gone");
        for (lease, verdict, remedy) in [
            (Ok(true), Verdict::Ok, None),
            (Ok(false), Verdict::Fail, Some("run the command again; if it fails again, report it")),
            (Err(error), Verdict::Fail, Some("start it")),
        ] {
            let check = release(&lease, |_| Some("start it".to_owned()));
            assert_eq!((check.verdict, check.remedy.as_deref()), (verdict, remedy), "{lease:?}");
        }
    }
}
