//! What the answers of the nodes to one ask amount to. Decides, and does nothing.
//!
//! | granted by | and | verdict |
//! |---|---|---|
//! | a majority, without fencing | – | granted |
//! | a majority | a majority of the nodes counts up to the last fencing token, while they are ours | granted, with the fencing tokens from the highest first to the highest last |
//! | a majority | fewer do | open: those behind are raised |
//! | fewer, and the rest could still make it a majority | they are not late, or nobody has it | open |
//! | none | a majority answered | taken |
//! | some, and no majority can come of it | a majority answered | split |
//! | the same | fewer answered, and those that are quarantined would make them a majority | quarantined |
//! | the same | fewer answered | failed |
//!
//! Fencing: a node counts one up with each grant, and is raised only while it is ours. The nodes
//! that count up to our last token when we are done, and the nodes whose grants the next owner
//! counts by, are majorities, so they have one in common: there the next owner's grant comes later,
//! and is higher. No clock is needed, and keys may vanish at any moment; a counter that goes back
//! breaks it, see GUARANTEES.md.

use std::time::Duration;

use crate::core::error::{Error, ErrorKind};
use crate::core::tally::{Tally, Verdict as Majority};
use crate::core::token::{FencingBlock, FencingToken};
use crate::store::Quarantine;

/// What one node has said so far.
#[derive(Clone, Debug)]
pub(super) enum NodeAnswer {
    /// Nothing. `late`: it is not waited for where the others decide.
    Open { late: bool },
    /// It is ours there.
    Granted(Granted),
    /// It is another's there.
    Taken { retry_in: Option<Duration>, ahead: u32 },
    /// It grants nothing new, and cannot know whether it is another's. Counts as no answer.
    Quarantined(Quarantine),
    /// It has no answer, or has lost what it granted.
    Failed(Error),
}

/// A grant by one node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Granted {
    block: Option<FencingBlock>,
    /// How far its counter has come at least.
    counter: u64,
    /// How far it is being raised.
    raising: u64,
}

/// What the votes amount to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Open,
    Granted(Option<FencingBlock>),
    Taken {
        retry_in: Option<Duration>,
        ahead: u32,
    },
    Split,
    /// Nothing is granted before so many nodes grant again.
    Quarantined(Quarantine),
    Failed,
}

/// The votes on one ask.
#[derive(Clone, Debug)]
pub(super) struct Ballot {
    fenced: bool,
    votes: Vec<NodeAnswer>,
}

/// The last token of a block. One of none, which no store may answer, counts as one of one.
pub(super) fn last_of(block: FencingBlock) -> u64 {
    block.first.get() + u64::from(block.count.max(1)) - 1
}

/// No majority grants anything before so many nodes do that are quarantined, if these are needed:
/// for each node that answers, whether it is.
pub(super) fn merge_quarantines(
    nodes: impl Iterator<Item = Option<Quarantine>>,
    majority: usize,
) -> Option<Quarantine> {
    let mut quarantines: Vec<_> = nodes.collect();
    quarantines.sort_unstable_by_key(|quarantine| quarantine.map(|quarantine| quarantine.left));
    *quarantines.get(majority - 1)?
}

impl Ballot {
    /// No votes yet. `fenced`: grants have to carry fencing tokens.
    pub(super) fn new(nodes: usize, fenced: bool) -> Self {
        Self { fenced, votes: vec![NodeAnswer::Open { late: false }; nodes] }
    }

    pub(super) fn votes(&self) -> &[NodeAnswer] {
        &self.votes
    }

    /// How many nodes a majority are.
    pub(super) fn majority(&self) -> usize {
        Tally::new(self.votes.len()).majority()
    }

    pub(super) fn granted(&mut self, node: usize, block: Option<FencingBlock>) {
        let counter = block.map_or(0, last_of);
        self.votes[node] = NodeAnswer::Granted(Granted { block, counter, raising: 0 });
    }

    pub(super) fn taken(&mut self, node: usize, retry_in: Option<Duration>, ahead: u32) {
        self.votes[node] = NodeAnswer::Taken { retry_in, ahead };
    }

    pub(super) fn quarantined(&mut self, node: usize, quarantine: Quarantine) {
        self.votes[node] = NodeAnswer::Quarantined(quarantine);
    }

    pub(super) fn failed(&mut self, node: usize, error: Error) {
        self.votes[node] = NodeAnswer::Failed(error);
    }

    pub(super) fn late(&mut self, node: usize) {
        if let NodeAnswer::Open { late } = &mut self.votes[node] {
            *late = true;
        }
    }

    /// A node whose key is ours counts up to the last of `block` now, at least; if that raised it,
    /// it had `raised_from` for us until then. What it had begins above whatever it counted when it
    /// was heard last only if it has granted the key since, perhaps to another and then to us
    /// again, by an ask that arrived twice: what counts is the later grant.
    pub(super) fn raised(
        &mut self,
        node: usize,
        block: Option<FencingBlock>,
        raised_from: Option<FencingBlock>,
    ) {
        let NodeAnswer::Granted(granted) = &mut self.votes[node] else { return };
        let before = raised_from.or(block);
        if before.is_some_and(|before| before.first.get() > granted.counter) {
            granted.block = before;
        }
        granted.counter = granted.counter.max(block.map_or(0, last_of));
    }

    /// Whether a node has yet to answer, and is not late.
    pub(super) fn is_waited_for(&self) -> bool {
        self.votes.iter().any(|vote| matches!(vote, NodeAnswer::Open { late: false }))
    }

    /// When a node can vote again that voted for another, or is quarantined: at the latest, and
    /// [`Duration::MAX`] if that vote has no end. `None` for any other node.
    pub(super) fn free_in(&self, node: usize) -> Option<Duration> {
        match &self.votes[node] {
            NodeAnswer::Taken { retry_in, .. } => Some(retry_in.unwrap_or(Duration::MAX)),
            NodeAnswer::Quarantined(quarantine) => Some(quarantine.left),
            NodeAnswer::Open { .. } | NodeAnswer::Granted(_) | NodeAnswer::Failed(_) => None,
        }
    }

    /// Whether a node has granted it, or may have.
    pub(super) fn may_be_granted(&self) -> bool {
        self.votes.iter().any(|vote| match vote {
            NodeAnswer::Granted(_) => true,
            NodeAnswer::Failed(error) => error.kind() == ErrorKind::Unknown,
            NodeAnswer::Open { .. } | NodeAnswer::Taken { .. } | NodeAnswer::Quarantined(_) => {
                false
            }
        })
    }

    /// Whether a node knows something of the ask, or may come to.
    pub(super) fn may_be_known(&self) -> bool {
        let is_open =
            |vote: &NodeAnswer| matches!(vote, NodeAnswer::Open { .. } | NodeAnswer::Taken { .. });
        self.may_be_granted() || self.votes.iter().any(is_open)
    }

    fn grants(&self) -> impl Iterator<Item = &Granted> {
        self.votes.iter().filter_map(|vote| match vote {
            NodeAnswer::Granted(granted) => Some(granted),
            _ => None,
        })
    }

    /// The fencing tokens that the grants so far amount to.
    fn block(&self) -> Option<FencingBlock> {
        let blocks = || self.grants().filter_map(|granted| granted.block);
        let first = blocks().map(|block| block.first.get()).max()?;
        let last = blocks().map(last_of).max()?;
        // No longer than the longest block among them.
        let count = u32::try_from(last - first + 1).ok()?;
        Some(FencingBlock { first: FencingToken::new(first)?, count })
    }

    /// The nodes that have to be raised before it is ours, and how far: once a majority granted.
    pub(super) fn behind(&mut self) -> (Vec<usize>, u64) {
        let block = self.block().filter(|_| self.grants().count() >= self.majority());
        let Some(last) = block.map(last_of) else { return (Vec::new(), 0) };
        let mut behind = Vec::new();
        for (node, vote) in self.votes.iter_mut().enumerate() {
            if let NodeAnswer::Granted(granted) = vote
                && granted.counter.max(granted.raising) < last
            {
                granted.raising = last;
                behind.push(node);
            }
        }
        (behind, last)
    }

    /// Whether nothing stands in the way of a grant by `ours` of the nodes, while `open` may follow
    /// and the others will not.
    fn majority_of(&self, ours: usize, open: usize) -> Majority {
        let nodes = self.votes.len();
        let tally = (0..ours).fold(Tally::new(nodes), |tally, _| tally.vote(true));
        (ours + open..nodes).fold(tally, |tally, _| tally.vote(false)).verdict()
    }

    pub(super) fn verdict(&self) -> Verdict {
        let count = |is: fn(&NodeAnswer) -> bool| self.votes.iter().filter(|vote| is(vote)).count();
        let granted = count(|vote| matches!(vote, NodeAnswer::Granted(_)));
        let in_time = count(|vote| matches!(vote, NodeAnswer::Open { late: false }));
        let late = count(|vote| matches!(vote, NodeAnswer::Open { late: true }));
        let taken = count(|vote| matches!(vote, NodeAnswer::Taken { .. }));
        match self.majority_of(granted, in_time + late) {
            Majority::Granted => return self.granted_by_all_counters(),
            Majority::Pending => {
                let others_decide =
                    taken > 0 && self.majority_of(granted, in_time) == Majority::Refused;
                if !others_decide {
                    return Verdict::Open;
                }
            }
            Majority::Refused => {}
        }
        if granted + taken < self.majority() {
            // Somebody may have it, and nobody can know.
            self.missing_quarantine().map_or(Verdict::Failed, Verdict::Quarantined)
        } else if granted > 0 {
            Verdict::Split
        } else {
            self.taken_by_most()
        }
    }

    /// Whether those that are quarantined are what is missing. One that is late is not waited for.
    fn missing_quarantine(&self) -> Option<Quarantine> {
        let node = |vote: &NodeAnswer| match vote {
            NodeAnswer::Granted(_)
            | NodeAnswer::Taken { .. }
            | NodeAnswer::Open { late: false } => Some(None),
            NodeAnswer::Quarantined(quarantine) => Some(Some(*quarantine)),
            NodeAnswer::Open { late: true } | NodeAnswer::Failed(_) => None,
        };
        merge_quarantines(self.votes.iter().filter_map(node), self.majority())
    }

    fn granted_by_all_counters(&self) -> Verdict {
        if !self.fenced {
            return Verdict::Granted(None);
        }
        let Some(block) = self.block() else { return Verdict::Open };
        let counted = self.grants().filter(|granted| granted.counter >= last_of(block)).count();
        if counted >= self.majority() { Verdict::Granted(Some(block)) } else { Verdict::Open }
    }

    /// When a majority may be free, and the longest line.
    fn taken_by_most(&self) -> Verdict {
        let taken = |vote: &NodeAnswer| match vote {
            NodeAnswer::Taken { retry_in, ahead } => {
                Some((retry_in.unwrap_or(Duration::MAX), *ahead))
            }
            _ => None,
        };
        let mut taken: Vec<_> = self.votes.iter().filter_map(taken).collect();
        taken.sort_unstable();
        let ahead = taken.iter().map(|(_, ahead)| *ahead).max().unwrap_or_default();
        taken.truncate(self.majority());
        let retry_in = taken.last().map(|(retry_in, _)| *retry_in);
        Verdict::Taken { retry_in: retry_in.filter(|retry_in| *retry_in < Duration::MAX), ahead }
    }
}

#[cfg(test)]
mod every_order;

#[cfg(test)]
mod tests {
    use super::*;

    const OPEN: NodeAnswer = NodeAnswer::Open { late: false };
    const LATE: NodeAnswer = NodeAnswer::Open { late: true };

    fn block(first: u64, count: u32) -> Option<FencingBlock> {
        Some(FencingBlock { first: FencingToken::new(first).expect("not zero"), count })
    }

    fn taken(ms: u64) -> NodeAnswer {
        NodeAnswer::Taken { retry_in: Some(Duration::from_millis(ms)), ahead: 0 }
    }

    fn free() -> NodeAnswer {
        NodeAnswer::Granted(Granted { block: None, counter: 0, raising: 0 })
    }

    fn down() -> NodeAnswer {
        NodeAnswer::Failed(Error::new(ErrorKind::Unavailable, "down"))
    }

    #[test]
    fn a_majority_decides_as_soon_as_it_can() {
        let is_taken =
            |ms: Option<u64>| Verdict::Taken { retry_in: ms.map(Duration::from_millis), ahead: 0 };
        let endless = NodeAnswer::Taken { retry_in: None, ahead: 0 };
        let table: Vec<(Vec<NodeAnswer>, Verdict)> = vec![
            (vec![OPEN], Verdict::Open),
            (vec![free()], Verdict::Granted(None)),
            (vec![down()], Verdict::Failed),
            (vec![free(), OPEN], Verdict::Open),
            // Of two, both are needed.
            (vec![free(), down()], Verdict::Failed),
            (vec![free(), taken(5)], Verdict::Split),
            (vec![free(), free(), OPEN], Verdict::Granted(None)),
            (vec![taken(9), taken(5), OPEN], is_taken(Some(9))),
            (vec![taken(9), endless.clone(), OPEN], is_taken(None)),
            (vec![taken(9), endless, taken(5)], is_taken(Some(9))),
            (vec![down(), down(), OPEN], Verdict::Failed),
            (vec![free(), free(), OPEN, OPEN], Verdict::Open),
            // Of four, two that say no are enough.
            (vec![free(), taken(1), taken(2), OPEN], Verdict::Split),
            (vec![taken(1), taken(2), OPEN, OPEN], Verdict::Failed),
            (vec![taken(1), taken(2), taken(3), OPEN], is_taken(Some(3))),
            // One that is late is waited for, unless somebody has the key.
            (vec![free(), free(), LATE, LATE, LATE], Verdict::Open),
            (vec![free(), free(), taken(1), LATE, LATE], Verdict::Split),
            (vec![free(), free(), taken(1), OPEN, LATE], Verdict::Open),
            (vec![free(), taken(1), LATE, LATE, LATE], Verdict::Failed),
            (vec![free(), free(), taken(1), taken(2), down()], Verdict::Split),
            (vec![free(), taken(1), down(), down(), OPEN], Verdict::Failed),
        ];
        for (votes, verdict) in table {
            let ballot = Ballot { fenced: false, votes };
            assert_eq!(ballot.verdict(), verdict, "{:?}", ballot.votes);
        }
    }

    fn quarantined(seconds: u64) -> NodeAnswer {
        NodeAnswer::Quarantined(quarantine_of(seconds))
    }

    fn quarantine_of(seconds: u64) -> Quarantine {
        Quarantine { since: None, left: Duration::from_secs(seconds) }
    }

    #[test]
    fn a_quarantined_node_has_no_vote_and_is_named_where_one_is_missing() {
        let for_seconds = |seconds| Verdict::Quarantined(quarantine_of(seconds));
        let table: Vec<(Vec<NodeAnswer>, Verdict)> = vec![
            (vec![quarantined(7)], for_seconds(7)),
            (vec![quarantined(7), OPEN, OPEN], Verdict::Open),
            (vec![quarantined(7), quarantined(9), OPEN], for_seconds(7)),
            (vec![quarantined(7), quarantined(9), LATE], for_seconds(9)),
            (vec![quarantined(7), quarantined(9), quarantined(5)], for_seconds(7)),
            (vec![quarantined(7), quarantined(9), down()], for_seconds(9)),
            (vec![quarantined(7), quarantined(9), free()], for_seconds(7)),
            (vec![quarantined(7), quarantined(9), taken(5)], for_seconds(7)),
            (vec![quarantined(7), down(), free()], for_seconds(7)),
            (vec![quarantined(7), down(), taken(5)], for_seconds(7)),
            // Too few for a majority, however long one waits.
            (vec![quarantined(7), down(), down()], Verdict::Failed),
            // The others are enough.
            (vec![quarantined(7), free(), free()], Verdict::Granted(None)),
            (vec![quarantined(7), free(), LATE], Verdict::Open),
            (vec![quarantined(7), free(), taken(5)], Verdict::Split),
            (
                vec![quarantined(7), taken(5), taken(9)],
                Verdict::Taken { retry_in: Some(Duration::from_millis(9)), ahead: 0 },
            ),
        ];
        for (votes, verdict) in table {
            let ballot = Ballot { fenced: false, votes };
            assert_eq!(ballot.verdict(), verdict, "{:?}", ballot.votes);
        }
    }

    #[test]
    fn counters_in_step_grant_at_once() {
        let mut ballot = Ballot::new(5, true);
        for node in 0..3 {
            assert_eq!(ballot.verdict(), Verdict::Open);
            ballot.granted(node, block(7, 1));
            assert_eq!(ballot.behind().0, []);
        }
        assert_eq!(ballot.verdict(), Verdict::Granted(block(7, 1)));
    }

    #[test]
    fn nodes_behind_are_raised_while_they_are_ours() {
        let mut ballot = Ballot::new(3, true);
        ballot.granted(0, block(4, 1));
        ballot.granted(2, block(9, 1));
        assert_eq!(ballot.verdict(), Verdict::Open, "one node alone counts up to nine");
        assert_eq!(ballot.behind(), (vec![0], 9));
        assert_eq!(ballot.behind(), (vec![], 9), "it is on its way");
        ballot.raised(0, block(9, 1), block(4, 1));
        assert_eq!(ballot.verdict(), Verdict::Granted(block(9, 1)));

        // Lost before it was raised: the third node may still come.
        let mut ballot = Ballot::new(3, true);
        ballot.granted(0, block(4, 1));
        ballot.granted(2, block(9, 1));
        ballot.behind();
        ballot.failed(0, Error::new(ErrorKind::Lost, "lost"));
        assert_eq!(ballot.verdict(), Verdict::Open);
        ballot.granted(1, block(12, 1));
        assert_eq!(ballot.behind(), (vec![2], 12), "whoever joins is counted");
        ballot.raised(2, block(12, 1), block(9, 1));
        assert_eq!(ballot.verdict(), Verdict::Granted(block(12, 1)));
    }

    #[test]
    fn a_node_that_counts_further_than_it_was_raised_has_granted_once_more() {
        let mut ballot = Ballot::new(3, true);
        ballot.granted(0, block(1, 1));
        ballot.granted(2, block(2, 1));
        assert_eq!(ballot.behind(), (vec![0], 2));
        // It was lost there, another was granted it with 2, and our ask came once more.
        ballot.raised(0, block(3, 1), None);
        assert_eq!(ballot.verdict(), Verdict::Open, "2 is another's");
        assert_eq!(ballot.behind(), (vec![2], 3));
        ballot.raised(2, block(3, 1), block(2, 1));
        assert_eq!(ballot.verdict(), Verdict::Granted(block(3, 1)));
    }

    #[test]
    fn blocks_of_several_nodes_make_one_that_begins_with_the_highest() {
        // blocks, the block of all
        for (blocks, whole) in [
            ([(1, 64), (1, 64), (1, 64)], (1, 64)),
            ([(1, 64), (3, 64), (1, 64)], (3, 64)),
            ([(1, 64), (60, 1), (2, 3)], (60, 5)),
            ([(1, 64), (900, 2), (2, 3)], (900, 2)),
        ] {
            let mut ballot = Ballot::new(3, true);
            for (node, (first, count)) in blocks.into_iter().enumerate() {
                ballot.granted(node, block(first, count));
            }
            let (behind, last) = ballot.behind();
            assert_eq!(last, whole.0 + u64::from(whole.1) - 1);
            for node in behind {
                let (first, count) = blocks[node];
                ballot.raised(node, block(last, 1), block(first, count));
            }
            assert_eq!(ballot.verdict(), Verdict::Granted(block(whole.0, whole.1)));
        }
    }
}
