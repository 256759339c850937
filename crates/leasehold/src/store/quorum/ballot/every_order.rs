//! Tries every order in which two acquisitions can run over three nodes. The fencing tokens of one
//! must all be above those of the other. If one acquisition follows the other, its tokens must be
//! higher.
//!
//! A lock may vanish at any moment, one request of the first acquisition may arrive twice, and a
//! node reserves one or two tokens. A request may take any time to reach its node. Its answer
//! arrives at once. A delay would change nothing, because nothing is decided before it arrives. A
//! lock vanishes in the same step as the next request that would notice it. So a node that has a
//! holder may also have none.

use std::collections::HashSet;

use super::{Ballot, Granted, NodeAnswer, Verdict};
use crate::core::error::{Error, ErrorKind};
use crate::core::token::{FencingBlock, FencingToken};

const NODES: usize = 3;

#[derive(Clone)]
struct World {
    nodes: [Node; NODES],
    tries: [Try; 2],
    /// How many more requests of the first acquisition may arrive twice.
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

/// One acquisition, with its own owner token.
#[derive(Clone)]
struct Try {
    ballot: Ballot,
    /// The nodes that have answered its request.
    asked: [bool; NODES],
    /// The values to which it has asked nodes to raise their counters.
    raises: [Option<u64>; NODES],
    /// Its tokens must be above this one. `None` until it begins.
    above: Option<u64>,
    done: Option<(u64, u64)>,
}

/// A possible next step.
#[derive(Clone, Copy, Debug)]
enum Step {
    Begins,
    /// The request arrives. If `again`, it arrives a second time, and nobody reads that answer.
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
            self.done = Some((block.first.get(), block.last()));
        }
    }

    /// The part of the state at one node that influences later steps.
    fn at(&self, node: usize) -> [u64; 5] {
        let ballot = match &self.ballot.votes[node] {
            _ if self.done.is_some() => [0; 4],
            NodeAnswer::Granted(Granted { block, counter, raising }) => {
                let block = block.expect("it is fenced");
                [block.first.get(), block.last(), *counter, *raising]
            }
            vote => [0, 0, 0, u64::from(matches!(vote, NodeAnswer::Open { .. }))],
        };
        let [first, last, counter, raising] = ballot;
        let open = self.raises[node].unwrap_or(0) * 2 + u64::from(self.asked[node]);
        [first, last, counter, raising, open]
    }
}

impl World {
    /// Equal for worlds with the same future. The order of their nodes does not matter.
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

/// Tries all worlds that can follow from these counters. Returns how many of them have both
/// acquisitions done.
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
