//! The exact errors when no majority answers.

use super::*;
use crate::host::SystemHost;
use crate::store::MemoryStore;
use crate::store::quorum::Quorum;
use crate::store::quorum::ballot::Verdict;

/// Three nodes, `memory:` each.
async fn three() -> Quorum<MemoryStore> {
    let node = || MemoryStore::new(SystemHost::shared());
    let nodes = [node(), node(), node()];
    Quorum::connect(nodes, SystemHost::shared()).await.expect("all are there")
}

/// Errors of these kinds, for the nodes from the second on.
fn failures(kinds: &[ErrorKind]) -> Vec<(usize, Error)> {
    let error = |kind: &ErrorKind| Error::new(*kind, format!("it is {kind}"));
    kinds.iter().map(error).enumerate().map(|(number, error)| (number + 1, error)).collect()
}

#[track_caller]
fn assert_says(error: &Error, kind: ErrorKind, text: &str) {
    assert_eq!(error.kind(), kind, "{error}");
    let (said, nodes) = error.message().split_once(SEE).expect("the nodes are named");
    assert_eq!(said, format!("{text}; "));
    assert!(nodes.contains("memory:: it is "), "{nodes}");
}

#[tokio::test]
async fn a_look_without_a_majority_is_unavailable_or_what_no_retry_mends() {
    use ErrorKind::{Denied, Unavailable, Unknown};
    let quorum = three().await;
    for (failed, kind) in [
        ([Unavailable, Unavailable], Unavailable),
        ([Unknown, Unknown], Unavailable),
        ([Unknown, Denied], Unavailable),
        ([Denied, Denied], Denied),
    ] {
        let error = not_seen(&quorum.shared, &failures(&failed));
        assert_says(&error, kind, "fewer than 2 of 3 nodes answered; nothing was changed");
    }
}

#[tokio::test]
async fn an_eviction_without_a_majority_says_whether_a_lease_may_have_ended() {
    use ErrorKind::{Denied, Unavailable, Unknown};
    const NOTHING: &str = "fewer than 2 of 3 nodes answered the eviction; nothing was changed";
    const MAYBE: &str = "fewer than 2 of 3 nodes answered the eviction; the lease may have been \
                         ended at some of them; inspect the lock and evict again";
    let quorum = three().await;
    for (is_ended_somewhere, failed, kind, text) in [
        (true, [Unavailable, Unavailable], Unknown, MAYBE),
        (true, [Denied, Denied], Unknown, MAYBE),
        (false, [Unknown, Denied], Unknown, MAYBE),
        (false, [Unavailable, Denied], Unavailable, NOTHING),
        (false, [Denied, Denied], Denied, NOTHING),
    ] {
        let error = not_evicted(&quorum.shared, is_ended_somewhere, &failures(&failed));
        assert_says(&error, kind, text);
    }
}

/// Each node is counted once, even if most nodes answered and neither bound is met.
#[tokio::test]
async fn a_release_without_a_majority_says_how_each_node_took_it() {
    use ErrorKind::{Denied, Unavailable, Unknown};
    const END: &str = "a failed node may keep the lease until its ttl ends; it is safe to release \
                       again";
    let quorum = three().await;
    for (freed, not_held, failed, kind, says) in [
        (1, 1, &[Unavailable][..], Unknown, "1 did not have it and 1 failed"),
        (1, 0, &[Unknown, Denied], Unknown, "0 did not have it and 2 failed"),
        (0, 1, &[Denied, Denied], Denied, "1 did not have it and 2 failed"),
    ] {
        let error = not_released(&quorum.shared, freed, not_held, &failures(failed));
        assert_says(&error, kind, &format!("{freed} of 3 nodes released the lease, {says}; {END}"));
    }
}

#[tokio::test]
async fn an_ask_without_a_majority_says_what_is_given_back() {
    use ErrorKind::{Denied, Unavailable, Unknown};
    let quorum = three().await;
    let needed = "of 3 nodes granted the lock and 2 are needed";
    for (granted, failed, kind, text) in [
        (1, [Unavailable; 2], Unknown, "the grants are released; try again"),
        (0, [Unknown; 2], Unknown, "any grant is released; try again"),
        (0, [Denied; 2], Denied, "nothing was acquired"),
        // An outage does not hide what somebody has to change.
        (0, [Unavailable, Denied], Denied, "nothing was acquired"),
    ] {
        let mut ballot = Ballot::new(3, false);
        match granted {
            0 => ballot.taken(0, None, 0),
            _ => ballot.granted(0, None),
        }
        failures(&failed).into_iter().for_each(|(node, error)| ballot.failed(node, error));
        let error = no_majority(&quorum.shared, &ballot);
        assert_says(&error, kind, &format!("{granted} {needed}; {text}"));
    }
}

/// Its grant has to be released, so the outcome is unknown.
#[tokio::test]
async fn an_ask_that_a_silent_node_may_still_grant_is_unknown() {
    let quorum = three().await;
    let mut ballot = Ballot::new(3, false);
    ballot.late(0);
    let failed = failures(&[ErrorKind::Unavailable; 2]);
    failed.into_iter().for_each(|(node, error)| ballot.failed(node, error));
    let error = no_majority(&quorum.shared, &ballot);
    let text = "0 of 3 nodes granted the lock and 2 are needed; any grant is released; try again";
    assert_says(&error, ErrorKind::Unknown, text);
    assert!(error.message().contains("memory: has not answered"), "{error}");
}

/// These nodes are as many as a majority, but may be only one store.
#[tokio::test]
async fn an_ask_that_two_nodes_granted_which_may_be_one_store_names_them() {
    let quorum = three().await;
    let mut ballot = Ballot::new(3, false);
    ballot.may_be_same(2, &[1]);
    ballot.granted(1, None);
    ballot.granted(2, None);
    ballot.failed(0, Error::new(ErrorKind::Unavailable, "it is down"));
    assert_eq!(ballot.verdict(), Verdict::Failed);
    let error = no_majority(&quorum.shared, &ballot);
    let text = "1 of 3 nodes granted the lock and 2 are needed; the grants are released; try again";
    assert_says(&error, ErrorKind::Unknown, text);
    let twins = "memory: granted it, and may be the same store as memory:: one of the two counts";
    assert!(error.message().ends_with(twins), "{error}");
}

#[tokio::test]
async fn a_renewal_without_a_majority_says_how_long_the_holder_may_act() {
    let quorum = three().await;
    let mut ballot = Ballot::new(3, false);
    ballot.granted(0, None);
    let failed = failures(&[ErrorKind::Unavailable; 2]);
    failed.into_iter().for_each(|(node, error)| ballot.failed(node, error));
    let text = "fewer than 2 of 3 nodes renewed the lease; the holder may act until its deadline, \
                and the client retries until then";
    assert_says(&not_renewed(&quorum.shared, &ballot), ErrorKind::Unknown, text);
}
