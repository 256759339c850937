//! What an answer must be. Each check fails where it was called.

use std::time::Duration;

use leasehold::core::FencingBlock;
use leasehold::store::{Acquired, Released, Renewed, Snapshot};
use leasehold::{Error, ErrorKind};

/// It was granted, with these fencing tokens.
#[track_caller]
pub fn granted(answer: Result<Acquired, Error>) -> Option<FencingBlock> {
    match answer {
        Ok(Acquired::Granted { fencing }) => fencing,
        other => panic!("not granted: {other:?}"),
    }
}

/// It was granted with fencing tokens; the first of them.
#[track_caller]
pub fn fence(answer: Result<Acquired, Error>) -> u64 {
    first(granted(answer))
}

/// There is a block; its first number.
#[track_caller]
pub fn first(block: Option<FencingBlock>) -> u64 {
    block.expect("there are fencing tokens").first.get()
}

/// There is a block of at least one and at most as many numbers as were asked for; the first number
/// that is free after it.
#[track_caller]
pub fn free_after(block: Option<FencingBlock>, asked: u32) -> u64 {
    let block = block.expect("there are fencing tokens");
    assert!((1..=asked).contains(&block.count), "{block:?}, {asked} were asked for");
    block.first.get() + u64::from(block.count)
}

/// It was taken; when to ask again, and how many are ahead.
#[track_caller]
pub fn taken(answer: Result<Acquired, Error>) -> (Option<Duration>, u32) {
    match answer {
        Ok(Acquired::Taken { retry_in, ahead }) => (retry_in, ahead),
        other => panic!("not taken: {other:?}"),
    }
}

/// It was renewed; its fencing tokens, and whether somebody waits.
#[track_caller]
pub fn renewed(answer: Result<Renewed, Error>) -> (Option<FencingBlock>, bool) {
    match answer {
        Ok(Renewed::Renewed { fencing, wanted, .. }) => (fencing, wanted),
        other => panic!("not renewed: {other:?}"),
    }
}

/// It was renewed; its fencing tokens, and those from which it was raised.
#[track_caller]
pub fn raised(answer: Result<Renewed, Error>) -> (Option<FencingBlock>, Option<FencingBlock>) {
    match answer {
        Ok(Renewed::Renewed { fencing, raised_from, .. }) => (fencing, raised_from),
        other => panic!("not renewed: {other:?}"),
    }
}

/// A renewal found that the lease was lost.
#[track_caller]
pub fn lost(answer: Result<Renewed, Error>) {
    assert!(matches!(answer, Ok(Renewed::Lost)), "not lost: {answer:?}");
}

/// A release was answered so.
#[track_caller]
pub fn released(answer: Result<Released, Error>, expected: Released) {
    match answer {
        Ok(answer) => assert_eq!(answer, expected),
        Err(error) => panic!("a release was not answered: {error:?}"),
    }
}

/// The lease was kept; its fresh fencing tokens.
#[track_caller]
pub fn kept(answer: Result<Released, Error>) -> Option<FencingBlock> {
    match answer {
        Ok(Released::Kept { fencing }) => fencing,
        other => panic!("not kept: {other:?}"),
    }
}

/// It was refused with an error of that kind.
#[track_caller]
pub fn refused<T: std::fmt::Debug>(answer: Result<T, Error>, kind: ErrorKind) {
    match answer {
        Err(error) => assert_eq!(error.kind(), kind, "{error}"),
        Ok(answer) => panic!("not refused: {answer:?}"),
    }
}

/// A span is within those bounds, both included.
#[track_caller]
pub fn between(span: Duration, least: Duration, most: Duration) {
    assert!(span >= least && span <= most, "{span:?} is not within {least:?} and {most:?}");
}

/// What a store knows of a key, without what the nodes of a quorum show apart: they show that they
/// know nothing too.
#[must_use]
pub fn whole(mut snapshot: Snapshot) -> Snapshot {
    snapshot.votes.clear();
    snapshot
}
