//! Every order in which two acquisitions can go over three nodes. The fencing tokens of one are all
//! above those of the other, and those of the later one where they follow each other.
//!
//! A lock vanishes at any moment, the ask of one arrives once more, and a node reserves one token
//! or two. What is asked of a node takes as long as it likes; its answer is there at once, since
//! nothing is decided before it. That a lock vanished is seen by the next who comes, so it is done
//! by that one: a node that has somebody may have nobody as well.

use std::collections::HashSet;

use super::{Ballot, Granted, NodeAnswer, Verdict, last_of};
use crate::core::error::{Error, ErrorKind};
use crate::core::token::{FencingBlock, FencingToken};

const NODES: usize = 3;

#[derive(Clone)]
struct World {
    nodes: [Node; NODES],
    tries: [Try; 2],
    /// How often an ask of the first may still arrive once more.
    repeats: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Node {
    counter: u64,
    held: Option<Held>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Held {
    by: usize,
    first: u64,
    last: u64,
}

/// One acquisition, by an owner token of its own.
#[derive(Clone)]
struct Try {
    ballot: Ballot,
    /// Which nodes have answered its ask.
    asked: [bool; NODES],
    /// How far the nodes are to be raised whom it has asked to.
    raises: [Option<u64>; NODES],
    /// Above which token it has to be, once it has begun.
    above: Option<u64>,
    done: Option<(u64, u64)>,
}

/// What may happen next.
#[derive(Clone, Copy, Debug)]
enum Step {
    Begins,
    /// The ask arrives, or arrives `again`, which nobody hears of.
    Asks {
        node: usize,
        finds_it: bool,
        reserves: u64,
        again: bool,
    },
    Raises {
        node: usize,
        finds_it: bool,
    },
}

impl Try {
    fn new() -> Self {
        let (asked, raises) = ([false; NODES], [None; NODES]);
        Self { ballot: Ballot::new(NODES, true), asked, raises, above: None, done: None }
    }

    /// Draws the conclusions from an answer.
    fn heard(&mut self) {
        let (behind, last) = self.ballot.behind();
        for node in behind {
            self.raises[node] = Some(last);
        }
        if let Verdict::Granted(Some(block)) = self.ballot.verdict() {
            self.done = Some((block.first.get(), last_of(block)));
        }
    }

    /// What matters for what comes, at one node.
    fn at(&self, node: usize) -> [u64; 5] {
        let ballot = match &self.ballot.votes[node] {
            _ if self.done.is_some() => [0; 4],
            NodeAnswer::Granted(Granted { block, counter, raising }) => {
                let block = block.expect("it is fenced");
                [block.first.get(), last_of(block), *counter, *raising]
            }
            vote => [0, 0, 0, u64::from(matches!(vote, NodeAnswer::Open { .. }))],
        };
        let [first, last, counter, raising] = ballot;
        let open = self.raises[node].unwrap_or(0) * 2 + u64::from(self.asked[node]);
        [first, last, counter, raising, open]
    }
}

impl World {
    /// The same for worlds that have the same future, whatever their nodes are called.
    fn key(&self) -> Vec<u64> {
        let mut nodes: Vec<[u64; 14]> = Vec::with_capacity(NODES);
        for (number, node) in self.nodes.iter().enumerate() {
            let mut of_node = [0; 14];
            of_node[0] = node.counter;
            if let Some(Held { by, first, last }) = node.held {
                of_node[1..4].copy_from_slice(&[by as u64 + 1, first, last]);
            }
            of_node[4..9].copy_from_slice(&self.tries[0].at(number));
            of_node[9..14].copy_from_slice(&self.tries[1].at(number));
            nodes.push(of_node);
        }
        nodes.sort_unstable();
        let mut key = nodes.concat();
        for one in &self.tries {
            let (first, last) = one.done.unwrap_or((0, 0));
            key.extend([one.above.map_or(0, |above| above + 1), first, last]);
        }
        key.push(self.repeats);
        key
    }

    fn steps(&self) -> Vec<(usize, Step)> {
        let mut steps = Vec::new();
        for (by, one) in self.tries.iter().enumerate() {
            if one.above.is_none() {
                steps.push((by, Step::Begins));
                continue;
            }
            for node in 0..NODES {
                if one.raises[node].is_some() {
                    steps.push((by, Step::Raises { node, finds_it: false }));
                    steps.push((by, Step::Raises { node, finds_it: true }));
                }
                for again in [false, true] {
                    if if again { by == 0 && self.repeats > 0 } else { !one.asked[node] } {
                        let asks =
                            |finds_it, reserves| Step::Asks { node, finds_it, reserves, again };
                        steps.push((by, asks(false, 1)));
                        steps.push((by, asks(false, 2)));
                        if self.nodes[node].held.is_some() {
                            steps.push((by, asks(true, 0)));
                        }
                    }
                }
            }
        }
        steps
    }

    fn take(&mut self, by: usize, step: Step) {
        let done = self.tries.iter().filter_map(|one| Some(one.done?.1)).max();
        let one = &mut self.tries[by];
        match step {
            Step::Begins => one.above = Some(done.unwrap_or(0)),
            Step::Asks { node, finds_it, reserves, again } => {
                let at = &mut self.nodes[node];
                if !finds_it {
                    let first = at.counter + 1;
                    at.counter += reserves;
                    at.held = Some(Held { by, first, last: at.counter });
                }
                let held = at.held.expect("it is somebody's by now");
                if again {
                    self.repeats -= 1;
                    return;
                }
                one.asked[node] = true;
                if held.by == by {
                    one.ballot.granted(node, block(held.first, held.last));
                } else {
                    one.ballot.taken(node, None, 0);
                }
            }
            Step::Raises { node, finds_it } => {
                let at_least = one.raises[node].take().expect("it was asked to");
                let at = &mut self.nodes[node];
                let ours = at.held.as_mut().filter(|held| finds_it && held.by == by);
                if let Some(held) = ours {
                    let before = block(held.first, held.last);
                    let is_behind = at.counter < at_least;
                    if is_behind {
                        at.counter = at_least;
                        (held.first, held.last) = (at_least, at_least);
                    }
                    let now = block(held.first, held.last);
                    one.ballot.raised(node, now, before.filter(|_| is_behind));
                } else {
                    at.held = at.held.filter(|_| finds_it);
                    one.ballot.failed(node, Error::new(ErrorKind::Unavailable, "lost"));
                }
            }
        }
        if one.done.is_none() {
            one.heard();
        }
    }

    fn is_right(&self) -> bool {
        let [one, other] = &self.tries;
        let rises =
            |one: &Try| one.done.zip(one.above).is_none_or(|((first, _), above)| first > above);
        let is_apart = match (one.done, other.done) {
            (Some(one), Some(other)) => one.1 < other.0 || other.1 < one.0,
            _ => true,
        };
        rises(one) && rises(other) && is_apart
    }
}

fn block(first: u64, last: u64) -> Option<FencingBlock> {
    let count = u32::try_from(last - first + 1).expect("it is short");
    Some(FencingBlock { first: FencingToken::new(first)?, count })
}

/// Goes through all worlds that can come of these counters. Returns in how many of them both are
/// done.
fn go_through(counters: [u64; NODES]) -> usize {
    let nodes = counters.map(|counter| Node { counter, held: None });
    let begin = World { nodes, tries: [Try::new(), Try::new()], repeats: 1 };
    let mut seen = HashSet::from([begin.key()]);
    let mut open = vec![(begin, Vec::new())];
    let mut both_done = 0;
    while let Some((world, story)) = open.pop() {
        both_done += usize::from(world.tries.iter().all(|one| one.done.is_some()));
        for step in world.steps() {
            let mut next = world.clone();
            next.take(step.0, step.1);
            if seen.insert(next.key()) {
                let story: Vec<_> = story.iter().copied().chain([step]).collect();
                let tokens = next.tries.each_ref().map(|one| one.done);
                assert!(next.is_right(), "{tokens:?} from {counters:?} by {story:?}");
                open.push((next, story));
            }
        }
    }
    both_done
}

#[test]
fn fencing_tokens_rise_in_every_order() {
    for counters in [[0, 0, 0], [0, 1, 3]] {
        assert!(go_through(counters) > 1_000, "{counters:?}");
    }
}
