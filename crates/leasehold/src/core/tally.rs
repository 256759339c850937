//! Counting the votes of independent nodes.

/// The result of the votes so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A majority agreed.
    Granted,
    /// A majority is no longer possible. The answers of the missing nodes do not matter.
    Refused,
    /// Both are still possible.
    Pending,
}

/// The votes of `nodes` nodes; each votes once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tally {
    nodes: usize,
    yes: usize,
    no: usize,
}

impl Tally {
    /// No votes yet.
    ///
    /// # Panics
    ///
    /// If there are no nodes, since no majority could ever agree.
    #[must_use]
    pub const fn new(nodes: usize) -> Self {
        assert!(nodes > 0, "a tally needs nodes");
        Self { nodes, yes: 0, no: 0 }
    }

    /// How many votes make a majority: more than half, so that two majorities always share a node.
    #[must_use]
    pub const fn majority(self) -> usize {
        self.nodes / 2 + 1
    }

    /// Counts one vote. A node that failed votes no.
    #[must_use]
    pub fn vote(mut self, yes: bool) -> Self {
        if yes {
            self.yes += 1;
        } else {
            self.no += 1;
        }
        debug_assert!(self.yes + self.no <= self.nodes, "a node voted twice");
        self
    }

    /// The result of the votes so far.
    #[must_use]
    pub const fn verdict(self) -> Verdict {
        if self.yes >= self.majority() {
            Verdict::Granted
        } else if self.nodes - self.no < self.majority() {
            Verdict::Refused
        } else {
            Verdict::Pending
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_majority_is_more_than_half_also_of_even_numbers() {
        use Verdict::{Granted, Pending, Refused};
        // nodes, yes, no, verdict
        for (nodes, yes, no, verdict) in [
            (1, 0, 0, Pending),
            (1, 1, 0, Granted),
            (1, 0, 1, Refused),
            (2, 1, 0, Pending),
            (2, 1, 1, Refused),
            (2, 2, 0, Granted),
            (3, 2, 0, Granted),
            (3, 1, 1, Pending),
            (3, 0, 2, Refused),
            (4, 2, 1, Pending),
            (4, 2, 2, Refused),
            (4, 3, 1, Granted),
            (5, 2, 2, Pending),
            (5, 3, 0, Granted),
            (5, 0, 3, Refused),
        ] {
            let votes = [true].repeat(yes).into_iter().chain([false].repeat(no));
            let tally = votes.fold(Tally::new(nodes), Tally::vote);
            assert_eq!(tally.verdict(), verdict, "{nodes} nodes, {yes} yes, {no} no");
        }
    }
}
