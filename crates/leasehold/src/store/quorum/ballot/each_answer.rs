//! Tests of `ballot.rs`: what one answer of a node means.

use std::time::Duration;

use super::{Ballot, Granted, NodeAnswer, Verdict};
use crate::core::error::{Error, ErrorKind};
use crate::store::Quarantine;

const MS: Duration = Duration::from_millis(1);

fn ballot(votes: Vec<NodeAnswer>) -> Ballot {
    Ballot { votes, ..Ballot::new(1, false) }
}

fn failed(kind: ErrorKind) -> NodeAnswer {
    NodeAnswer::Failed(Error::new(kind, "it failed"))
}

const fn taken(retry_in: Option<Duration>, ahead: u32) -> NodeAnswer {
    NodeAnswer::Taken { retry_in, ahead }
}

#[test]
fn an_answer_says_when_its_node_can_vote_again_and_whether_it_may_know_of_the_request() {
    let quarantine = Quarantine { since: None, left: MS };
    let granted = NodeAnswer::Granted(Granted { block: None, counter: 0, raising: 0 });
    // the answer, when the node can vote again, whether it may have granted, whether it may know
    for (answer, free_in, may_be_granted, may_be_known) in [
        (NodeAnswer::Open { late: false }, None, false, true),
        (NodeAnswer::Open { late: true }, None, false, true),
        (granted, None, true, true),
        (taken(Some(MS), 0), Some(MS), false, true),
        (taken(None, 0), Some(Duration::MAX), false, true),
        (NodeAnswer::Quarantined(quarantine), Some(MS), false, false),
        (failed(ErrorKind::Unknown), None, true, true),
        (failed(ErrorKind::Unavailable), None, false, false),
        (failed(ErrorKind::Denied), None, false, false),
    ] {
        let ballot = ballot(vec![answer.clone()]);
        assert_eq!(ballot.free_in(0), free_in, "{answer:?}");
        assert_eq!(ballot.may_be_granted(), may_be_granted, "{answer:?}");
        assert_eq!(ballot.may_be_known(), may_be_known, "{answer:?}");
    }
}

#[test]
fn the_longest_line_of_any_node_is_ahead() {
    for line in [[5, 0, 1], [0, 5, 1], [1, 0, 5]] {
        let votes = line.map(|ahead| taken(Some(MS), ahead)).into();
        let expected = Verdict::Taken { retry_in: Some(MS), ahead: 5 };
        assert_eq!(ballot(votes).verdict(), expected, "{line:?}");
    }
}
