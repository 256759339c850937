//! Counts the answers of the nodes to one request, and decides. Has no side effects. If two nodes
//! may be the same store, only one of their grants counts, see `surplus.rs`.
//!
//! | granted by | and | verdict |
//! |---|---|---|
//! | a majority, without fencing | – | granted |
//! | a majority | a majority counts up to the last token | granted: highest first to highest last |
//! | a majority | fewer nodes do | open: the nodes that are behind are raised |
//! | fewer, a majority is possible | the rest is in time, or no other client has it | open |
//! | none | a majority answered | taken |
//! | some, and a majority is impossible | a majority answered | split |
//! | the same | fewer answered, and the quarantined nodes would make a majority | quarantined |
//! | the same | fewer answered | failed |
//!
//! Fencing: a node counts up with each grant, and is raised only while it grants the key to us.
//! When we are done, a majority of the nodes counts up to our last token. The next owner also needs
//! the grants of a majority, so at least one node is in both. There, the next owner's grant comes
//! later and has a higher number. This needs no clock, and keys may vanish at any moment. Only a
//! counter that goes back breaks it, see GUARANTEES.md.

use std::time::Duration;

use super::surplus::surplus;
use crate::core::error::{Error, ErrorKind};
use crate::core::majority::majority;
use crate::core::token::FencingBlock;
use crate::store::Quarantine;

/// The answer of one node so far.
#[derive(Clone, Debug)]
pub(super) enum NodeAnswer {
    /// None yet. `late`: the ballot does not wait for this node if the other nodes can decide.
    Open { late: bool },
    /// The node granted the key to us.
    Granted(Granted),
    /// Another client has the key there.
    Taken { retry_in: Option<Duration>, ahead: u32 },
    /// The node grants nothing new, and cannot know whether another client has the key. Counts as
    /// no answer.
    Quarantined(Quarantine),
    /// The node gave no answer, or it lost the key after granting it.
    Failed(Error),
}

/// A grant by one node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Granted {
    block: Option<FencingBlock>,
    /// The lowest value that the node's counter can have now.
    counter: u64,
    /// The value that the node's counter is being raised to.
    raising: u64,
}

/// The result of the votes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Open,
    Granted(Option<FencingBlock>),
    Taken {
        retry_in: Option<Duration>,
        ahead: u32,
    },
    Split,
    /// Nothing can be granted until enough quarantined nodes grant again.
    Quarantined(Quarantine),
    Failed,
}

/// The votes on one ask.
#[derive(Clone, Debug)]
pub(super) struct Ballot {
    fenced: bool,
    votes: Vec<NodeAnswer>,
    /// Pairs of nodes that may be the same store. The second one got its vote later.
    pairs: Vec<(usize, usize)>,
}

/// When enough nodes for a majority can grant again. `nodes`: the quarantine of each node that
/// answers, if it has one.
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
        Self { fenced, votes: vec![NodeAnswer::Open { late: false }; nodes], pairs: Vec::new() }
    }

    pub(super) fn votes(&self) -> &[NodeAnswer] {
        &self.votes
    }

    /// How many nodes make a majority.
    pub(super) fn majority(&self) -> usize {
        majority(self.votes.len())
    }

    /// Notes that a node was not compared with these other nodes. Called before the node is asked.
    pub(super) fn may_be_same(&mut self, node: usize, unseen: &[usize]) {
        self.pairs.extend(unseen.iter().map(|other| (*other, node)));
    }

    pub(super) fn granted(&mut self, node: usize, block: Option<FencingBlock>) {
        let counter = block.map_or(0, FencingBlock::last);
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

    /// Notes that the counter of a node that granted us the key is now at least at the last of
    /// `block`. `raised_from`: the block we had there before, if this request raised the counter.
    /// The node granted the key again in between if that block begins above the last counter we
    /// know. Perhaps it granted the key to another client, and then to us because our request
    /// arrived twice. The later grant counts.
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
        granted.counter = granted.counter.max(block.map_or(0, FencingBlock::last));
    }

    /// Whether a node has not answered yet and is not late.
    pub(super) fn is_waited_for(&self) -> bool {
        (0..self.votes.len()).any(|node| self.is_waited_for_at(node))
    }

    /// Whether this node has not answered yet and is not late.
    pub(super) fn is_waited_for_at(&self, node: usize) -> bool {
        matches!(self.votes[node], NodeAnswer::Open { late: false })
    }

    /// How long until a node that voted for another client, or is quarantined, can vote again, at
    /// the latest. [`Duration::MAX`] if that vote has no end. `None` for any other node.
    pub(super) fn free_in(&self, node: usize) -> Option<Duration> {
        match &self.votes[node] {
            NodeAnswer::Taken { retry_in, .. } => Some(retry_in.unwrap_or(Duration::MAX)),
            NodeAnswer::Quarantined(quarantine) => Some(quarantine.left),
            NodeAnswer::Open { .. } | NodeAnswer::Granted(_) | NodeAnswer::Failed(_) => None,
        }
    }

    /// Whether a node has granted the key, or may have.
    pub(super) fn may_be_granted(&self) -> bool {
        self.votes.iter().any(|vote| match vote {
            NodeAnswer::Granted(_) => true,
            NodeAnswer::Failed(error) => error.kind() == ErrorKind::Unknown,
            _ => false,
        })
    }

    /// Whether a node has granted the key.
    pub(super) fn is_granted_somewhere(&self) -> bool {
        self.votes.iter().any(|vote| matches!(vote, NodeAnswer::Granted(_)))
    }

    /// Whether a node knows of the request, or may learn of it.
    pub(super) fn may_be_known(&self) -> bool {
        let is_open =
            |vote: &NodeAnswer| matches!(vote, NodeAnswer::Open { .. } | NodeAnswer::Taken { .. });
        self.may_be_granted() || self.votes.iter().any(is_open)
    }

    fn grant(&self, node: usize) -> Option<&Granted> {
        let NodeAnswer::Granted(granted) = &self.votes[node] else { return None };
        Some(granted)
    }

    /// How many grants count.
    pub(super) fn counted(&self) -> usize {
        self.counted_if(|_| true)
    }

    /// Counts the grants that fit. Of a pair of nodes, only one grant counts.
    fn counted_if(&self, fits: impl Fn(&Granted) -> bool) -> usize {
        let is_in = |node: &usize| self.grant(*node).is_some_and(&fits);
        let pairs = self.pairs.iter().filter(|(one, other)| is_in(one) && is_in(other));
        let surplus = surplus(&pairs.copied().collect::<Vec<_>>());
        (0..self.votes.len()).filter(is_in).count() - surplus
    }

    /// A node that granted the key too, and that may be the same store as this later one.
    pub(super) fn twin(&self, node: usize) -> Option<usize> {
        let others = self.pairs.iter().filter(|(_, later)| *later == node);
        others.map(|(other, _)| *other).find(|other| self.grant(*other).is_some())
    }

    /// The fencing tokens of all grants so far, merged.
    fn block(&self) -> Option<FencingBlock> {
        (0..self.votes.len()).filter_map(|node| self.grant(node)?.block).reduce(FencingBlock::join)
    }

    /// The nodes whose counters must be raised before the grant counts, and the value to raise them
    /// to. No nodes without a majority of grants.
    pub(super) fn behind(&mut self) -> (Vec<usize>, u64) {
        let block = self.block().filter(|_| self.fenced && self.counted() >= self.majority());
        let Some(last) = block.map(FencingBlock::last) else { return (Vec::new(), 0) };
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

    pub(super) fn verdict(&self) -> Verdict {
        let count = |is: fn(&NodeAnswer) -> bool| self.votes.iter().filter(|vote| is(vote)).count();
        let granted = self.counted();
        let in_time = count(|vote| matches!(vote, NodeAnswer::Open { late: false }));
        let late = count(|vote| matches!(vote, NodeAnswer::Open { late: true }));
        let taken = count(|vote| matches!(vote, NodeAnswer::Taken { .. }));
        // If another client has the key, late nodes do not count.
        let open = if taken == 0 { in_time + late } else { in_time };
        if granted >= self.majority() {
            self.granted_by_all_counters()
        } else if granted + open >= self.majority() {
            Verdict::Open
        } else if granted + taken < self.majority() {
            // Another client may have the key, and we cannot know.
            self.missing_quarantine().map_or(Verdict::Failed, Verdict::Quarantined)
        } else if granted > 0 {
            Verdict::Split
        } else {
            self.taken_by_most()
        }
    }

    /// The quarantine, if the quarantined nodes are the ones that are missing. A late node does not
    /// count.
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
        let counted = self.counted_if(|granted| granted.counter >= block.last());
        if counted >= self.majority() { Verdict::Granted(Some(block)) } else { Verdict::Open }
    }

    /// When a majority may be free again, and the length of the longest line.
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
mod each_answer;
#[cfg(test)]
mod every_order;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::token::FencingToken;

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

    fn is_taken(ms: Option<u64>) -> Verdict {
        Verdict::Taken { retry_in: ms.map(Duration::from_millis), ahead: 0 }
    }

    #[test]
    fn a_majority_decides_as_soon_as_it_can() {
        let endless = NodeAnswer::Taken { retry_in: None, ahead: 0 };
        let table: Vec<(Vec<NodeAnswer>, Verdict)> = vec![
            (vec![OPEN], Verdict::Open),
            (vec![free()], Verdict::Granted(None)),
            (vec![down()], Verdict::Failed),
            (vec![free(), OPEN], Verdict::Open),
            // With two nodes, both are needed.
            (vec![free(), down()], Verdict::Failed),
            (vec![free(), taken(5)], Verdict::Split),
            (vec![free(), free(), OPEN], Verdict::Granted(None)),
            (vec![taken(9), taken(5), OPEN], is_taken(Some(9))),
            (vec![taken(9), endless.clone(), OPEN], is_taken(None)),
            (vec![taken(9), endless, taken(5)], is_taken(Some(9))),
            (vec![down(), down(), OPEN], Verdict::Failed),
            (vec![free(), free(), OPEN, OPEN], Verdict::Open),
            // With four nodes, two refusals are enough.
            (vec![free(), taken(1), taken(2), OPEN], Verdict::Split),
            (vec![taken(1), taken(2), OPEN, OPEN], Verdict::Failed),
            (vec![taken(1), taken(2), taken(3), OPEN], is_taken(Some(3))),
            // The ballot waits for a late node unless another client has the key.
            (vec![free(), free(), LATE, LATE, LATE], Verdict::Open),
            (vec![free(), free(), taken(1), LATE, LATE], Verdict::Split),
            (vec![free(), free(), taken(1), OPEN, LATE], Verdict::Open),
            (vec![free(), taken(1), LATE, LATE, LATE], Verdict::Failed),
            (vec![free(), free(), taken(1), taken(2), down()], Verdict::Split),
            (vec![free(), taken(1), down(), down(), OPEN], Verdict::Failed),
        ];
        for (votes, verdict) in table {
            let ballot = Ballot { votes, ..Ballot::new(1, false) };
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
            // Too few nodes for a majority, however long we wait.
            (vec![quarantined(7), down(), down()], Verdict::Failed),
            // The other nodes are enough.
            (vec![quarantined(7), free(), free()], Verdict::Granted(None)),
            (vec![quarantined(7), free(), LATE], Verdict::Open),
            (vec![quarantined(7), free(), taken(5)], Verdict::Split),
            (vec![quarantined(7), taken(5), taken(9)], is_taken(Some(9))),
        ];
        for (votes, verdict) in table {
            let ballot = Ballot { votes, ..Ballot::new(1, false) };
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

        // A node lost the key before it raised its counter. The third node may still grant it.
        let mut ballot = Ballot::new(3, true);
        ballot.granted(0, block(4, 1));
        ballot.granted(2, block(9, 1));
        ballot.behind();
        ballot.failed(0, Error::new(ErrorKind::Lost, "lost"));
        assert_eq!(ballot.verdict(), Verdict::Open);
        ballot.granted(1, block(12, 1));
        assert_eq!(ballot.behind(), (vec![2], 12), "a node that joins is counted");
        ballot.raised(2, block(12, 1), block(9, 1));
        assert_eq!(ballot.verdict(), Verdict::Granted(block(12, 1)));
    }

    #[test]
    fn a_node_that_counts_further_than_it_was_raised_has_granted_once_more() {
        let mut ballot = Ballot::new(3, true);
        ballot.granted(0, block(1, 1));
        ballot.granted(2, block(2, 1));
        assert_eq!(ballot.behind(), (vec![0], 2));
        // The node lost the key and granted it to another client with 2. Then our request came
        // again.
        ballot.raised(0, block(3, 1), None);
        assert_eq!(ballot.verdict(), Verdict::Open, "2 is another's");
        assert_eq!(ballot.behind(), (vec![2], 3));
        ballot.raised(2, block(3, 1), block(2, 1));
        assert_eq!(ballot.verdict(), Verdict::Granted(block(3, 1)));
    }

    #[test]
    fn two_nodes_that_may_be_the_same_store_count_for_one_grant() {
        let mut ballot = Ballot::new(3, true);
        ballot.may_be_same(2, &[1]);
        (1..3).for_each(|node| ballot.granted(node, block(7, 1)));
        assert_eq!(ballot.verdict(), Verdict::Open);
        ballot.granted(0, block(7, 1));
        assert_eq!(ballot.verdict(), Verdict::Granted(block(7, 1)));
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
