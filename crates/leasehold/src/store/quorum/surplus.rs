//! Nodes that may be one store count once.

/// The smallest number of nodes that must not count, so that no pair counts twice. `pairs`: nodes
/// that may be one store.
pub(super) fn surplus(pairs: &[(usize, usize)]) -> usize {
    let Some(&(one, other)) = pairs.first() else { return 0 };
    let without = |node| {
        let is_left = |(one, other): &(usize, usize)| *one != node && *other != node;
        1 + surplus(&pairs.iter().copied().filter(is_left).collect::<Vec<_>>())
    };
    without(one).min(without(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_few_as_possible_of_the_nodes_that_may_be_one_store_do_not_count() {
        // pairs of nodes that may be one store, how many of the nodes do not count
        for (pairs, not_counted) in [
            (&[][..], 0),
            (&[(1, 2)], 1),
            (&[(1, 2), (3, 4)], 2),
            // Node 0 was away when the others came.
            (&[(0, 1), (0, 2), (0, 3)], 1),
            (&[(0, 1), (1, 2), (0, 2)], 2),
            (&[(0, 3), (3, 4)], 1),
            (&[(0, 2), (0, 3), (1, 2), (1, 3)], 2),
        ] {
            assert_eq!(surplus(pairs), not_counted, "{pairs:?}");
        }
    }
}
