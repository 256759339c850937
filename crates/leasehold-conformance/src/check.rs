//! Checks of answers. A failed check reports the place of its caller.

use std::time::Duration;

use leasehold::core::FencingBlock;
use leasehold::store::{Acquired, Hint, Quarantine, Refusal, Released, Renewed, Snapshot, Why};
use leasehold::{Error, ErrorKind};

use crate::actor::key;
use crate::failure::FinalFailure;

/// Expects a grant. Returns its fencing tokens.
#[track_caller]
pub fn granted(answer: Result<Acquired, Error>) -> Option<FencingBlock> {
    match answer {
        Ok(Acquired::Granted { fencing }) => fencing,
        other => panic!("not granted: {other:?}"),
    }
}

/// Expects a grant with fencing tokens. Returns the first one.
#[track_caller]
pub fn fence(answer: Result<Acquired, Error>) -> u64 {
    first(granted(answer))
}

/// Expects a block of fencing tokens. Returns its first number.
#[track_caller]
pub fn first(block: Option<FencingBlock>) -> u64 {
    block.expect("there are fencing tokens").first.get()
}

/// Expects a block of at least one number and at most `asked` numbers. Returns its last number.
#[track_caller]
pub fn last_of(block: Option<FencingBlock>, asked: u32) -> u64 {
    let block = block.expect("there are fencing tokens");
    assert!((1..=asked).contains(&block.count), "{block:?}, {asked} were asked for");
    block.first.get() + u64::from(block.count) - 1
}

/// Whether a hint says that the key `a` may be free.
#[must_use]
pub(crate) fn may_be_free(hint: &Hint) -> bool {
    *hint == Hint::MaybeFree { key: key("a") }
}

/// Expects *taken*. Returns when to ask again, and how many waiters are ahead.
#[track_caller]
pub fn taken(answer: Result<Acquired, Error>) -> (Option<Duration>, u32) {
    match answer {
        Ok(Acquired::Refused(refusal)) if refusal.is_taken() => (refusal.retry_in, refusal.ahead),
        other => panic!("not taken: {other:?}"),
    }
}

/// Expects a refusal for any reason.
#[track_caller]
pub fn refusal(answer: Result<Acquired, Error>) -> Refusal {
    match answer {
        Ok(Acquired::Refused(refusal)) => refusal,
        other => panic!("not refused: {other:?}"),
    }
}

/// Expects that the store is quarantined.
#[track_caller]
pub fn quarantined(answer: Result<Acquired, Error>) -> Quarantine {
    match refusal(answer).why {
        Why::Quarantined(quarantine) => quarantine,
        other => panic!("not quarantined: {other:?}"),
    }
}

/// Expects a refusal because there were too few copies. Returns the store's error.
#[track_caller]
pub fn too_few_copies(answer: Result<Acquired, Error>) -> Error {
    match refusal(answer).why {
        Why::TooFewCopies(error) => error,
        other => panic!("not because of too few copies: {other:?}"),
    }
}

/// Expects that the key was refused because of other clients: they have it, or split the votes.
#[track_caller]
pub fn contended(refusal: Refusal) {
    assert!(matches!(refusal.why, Why::Taken | Why::Split), "not contended: {refusal:?}");
}

/// Expects a renewal. Returns its fencing tokens, and whether another waits.
#[track_caller]
pub fn renewed(answer: Result<Renewed, Error>) -> (Option<FencingBlock>, bool) {
    match answer {
        Ok(Renewed::Renewed { fencing, wanted, .. }) => (fencing, wanted),
        other => panic!("not renewed: {other:?}"),
    }
}

/// Expects a renewal. Returns its fencing tokens, and the tokens before it raised them.
#[track_caller]
pub fn raised(answer: Result<Renewed, Error>) -> (Option<FencingBlock>, Option<FencingBlock>) {
    match answer {
        Ok(Renewed::Renewed { fencing, raised_from, .. }) => (fencing, raised_from),
        other => panic!("not renewed: {other:?}"),
    }
}

/// Expects a renewal to find the lease lost.
#[track_caller]
pub fn lost(answer: Result<Renewed, Error>) {
    assert!(matches!(answer, Ok(Renewed::Lost)), "not lost: {answer:?}");
}

/// Expects this answer to a release.
#[track_caller]
pub fn released(answer: Result<Released, Error>, expected: Released) {
    match answer {
        Ok(answer) => assert_eq!(answer, expected),
        Err(error) => panic!("a release was not answered: {error:?}"),
    }
}

/// Expects the lease to be kept. Returns its fresh fencing tokens.
#[track_caller]
pub fn kept(answer: Result<Released, Error>) -> Option<FencingBlock> {
    match answer {
        Ok(Released::Kept { fencing }) => fencing,
        other => panic!("not kept: {other:?}"),
    }
}

/// Expects an error of that kind.
#[track_caller]
pub fn refused<T: std::fmt::Debug>(answer: Result<T, Error>, kind: ErrorKind) {
    match answer {
        Err(error) => assert_eq!(error.kind(), kind, "{error}"),
        Ok(answer) => panic!("not refused: {answer:?}"),
    }
}

/// Reports that two clients hold a key at the same time, or that a fencing token did not rise.
#[track_caller]
pub(crate) fn fail_finally(what: String) -> ! {
    std::panic::panic_any(FinalFailure(what))
}

/// Expects a fencing token above an earlier one.
#[track_caller]
pub(crate) fn rises(token: u64, before: u64) {
    if token <= before {
        fail_finally(format!("the fencing token {token} came after {before}"));
    }
}

/// Expects a block of fencing tokens above an earlier block, which has at most `asked` tokens.
#[track_caller]
pub(crate) fn rises_past(block: Option<FencingBlock>, before: Option<FencingBlock>, asked: u32) {
    rises(first(block), last_of(before, asked));
}

/// Expects a span between two bounds, including both.
#[track_caller]
pub fn between(span: Duration, least: Duration, most: Duration) {
    assert!(span >= least && span <= most, "{span:?} is not within {least:?} and {most:?}");
}

/// A snapshot without the votes of a quorum's nodes, since nodes that know nothing appear there
/// too.
#[must_use]
pub fn whole(mut snapshot: Snapshot) -> Snapshot {
    snapshot.votes.clear();
    snapshot
}
