//! The errors that all stores have in common. A store that uses them says the same as the others.

use super::{Claim, PERMITS_MAX, Usage};
use crate::core::error::{Error, ErrorKind};
use crate::core::key::Key;

/// [`Config`](ErrorKind::Config): a claim of no permits, or of more than there are. `None` if the
/// claim is possible.
#[must_use]
pub fn impossible_claim(claim: Claim, key: &Key) -> Option<Error> {
    let Claim::Permits { want, of } = claim else { return None };
    (!claim.is_possible()).then(|| {
        let message = if (1..=PERMITS_MAX).contains(&of) {
            format!(
                "{want} of {of} permits cannot be taken; no request was sent; ask for 1 to {of}"
            )
        } else {
            format!(
                "a semaphore must have 1 to {PERMITS_MAX} permits, not {of}; no request was sent; \
                 use such a number"
            )
        };
        Error::new(ErrorKind::Config, message).with_name(key.as_str())
    })
}

/// [`Config`](ErrorKind::Config): a claim that does not fit the use of the key by others, such as a
/// lock where others take permits.
#[must_use]
pub fn other_usage(key: &Key, used: Usage, claim: Claim) -> Error {
    let (wanted, since) = (claim.usage(), if used == Usage::Lock { "" } else { ", or was lately" });
    let advice = match (used, wanted) {
        (Usage::Permits { .. }, Usage::Permits { .. }) => {
            "use the same number everywhere; `resize` changes that of a semaphore"
        }
        _ => "use another name",
    };
    let message = format!(
        "this name is in use for {used}{since}, and this request uses it for {wanted}; nothing was \
         acquired or changed; {advice}"
    );
    Error::new(ErrorKind::Config, message).with_name(key.as_str()).with_usage(used)
}

/// The error of a step of several requests, if one had changed the lock before another one failed.
/// [`Unavailable`](ErrorKind::Unavailable) would say that nothing was changed, so it becomes
/// [`Unknown`](ErrorKind::Unknown).
#[cfg(feature = "_members")]
pub(crate) fn after_a_change(error: Error) -> Error {
    if error.kind() != ErrorKind::Unavailable {
        return error;
    }
    let message = "the servers did not confirm the whole request; a part of it has taken effect, \
                   or will take effect later; try again";
    Error::new(ErrorKind::Unknown, message).with_source(error)
}

/// [`Unsupported`](ErrorKind::Unsupported): a claim that the store does not promise.
#[must_use]
pub fn unsupported_claim(claim: Claim, key: &Key) -> Error {
    let what = match claim {
        Claim::Exclusive => "exclusive locks",
        Claim::Plain => "locks without a line",
        Claim::Shared => "shared locks",
        Claim::Permits { .. } => "permits",
    };
    let why = if claim.is_alone() {
        "use a store that promises them"
    } else {
        "use one server without strict mode, `replicas` and `fsync`; some engines never grant \
         shared locks or permits"
    };
    let message = format!("this store does not grant {what}; no request was sent; {why}");
    Error::new(ErrorKind::Unsupported, message).with_name(key.as_str())
}

/// [`Unavailable`](ErrorKind::Unavailable): an ask that needs a place in a full line.
#[must_use]
pub fn line_is_full(key: &Key) -> Error {
    let places = crate::core::line::PLACES_MAX;
    Error::new(
        ErrorKind::Unavailable,
        format!(
            "{places} clients already wait in line, which is the limit; nothing was acquired; try \
             again later"
        ),
    )
    .with_name(key.as_str())
}

/// [`Unsupported`](ErrorKind::Unsupported): a request to let go at a store that keeps none.
#[must_use]
pub fn unsupported_revoke() -> Error {
    Error::new(
        ErrorKind::Unsupported,
        "this store cannot ask a holder to let go; no request was sent; ask its owner by other \
         means",
    )
}

/// [`Unsupported`](ErrorKind::Unsupported): a request to let go to a holder of another library,
/// whose record cannot store it.
#[cfg(feature = "_members")]
pub(crate) fn holder_cannot_be_asked() -> Error {
    let message = "the holder uses another library, and may not learn of a request to let go; \
                   nothing was changed; ask its owner by other means";
    Error::new(ErrorKind::Unsupported, message)
}

/// [`Unavailable`](ErrorKind::Unavailable): a request to let go that a renewal overtook each time.
#[cfg(feature = "_members")]
pub(crate) fn holder_writes_again_and_again() -> Error {
    let message = "the holder changes this lock again and again; the request to let go was not \
                   stored; try again";
    Error::new(ErrorKind::Unavailable, message)
}

/// [`Unsupported`](ErrorKind::Unsupported): an ask for a place in line at a store without one.
#[must_use]
pub fn unsupported_line(key: &Key) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        "this store has no line to wait in; no request was sent; poll it",
    )
    .with_name(key.as_str())
}
