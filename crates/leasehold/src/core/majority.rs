//! Majorities of independent nodes.

/// How many of `nodes` nodes make a majority: more than half, so that two majorities always share a
/// node.
///
/// # Panics
///
/// If there are no nodes, since no majority could ever agree.
pub(crate) const fn majority(nodes: usize) -> usize {
    assert!(nodes > 0, "a majority needs nodes");
    nodes / 2 + 1
}

#[cfg(test)]
mod tests {
    use super::majority;

    #[test]
    fn a_majority_is_more_than_half_also_of_even_numbers() {
        for (nodes, expected) in [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (6, 4), (7, 4)] {
            assert_eq!(majority(nodes), expected, "{nodes} nodes");
        }
    }
}
