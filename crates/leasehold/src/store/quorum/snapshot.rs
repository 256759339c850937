//! Merges the snapshots of all nodes.

use std::cmp::Reverse;
use std::time::Duration;

use super::ballot::merge_quarantines;
use crate::core::majority::majority;
use crate::store::{Holder, Snapshot, Vote};

/// The name of a node, and its snapshot or the reason why there is none.
pub(super) type Seen = (String, Result<Snapshot, String>);

/// Merges the snapshots. The holder is the owner that a majority shows. Its lease ends when fewer
/// than a majority of nodes still have it.
pub(super) fn merge(seen: Vec<Seen>) -> Snapshot {
    let majority = majority(seen.len());
    let votes = seen.iter().map(vote).collect();
    let shown: Vec<Snapshot> = seen.into_iter().filter_map(|(_, shown)| shown.ok()).collect();
    let fencing = shown.iter().filter_map(|snapshot| snapshot.fencing).max();
    let holders = holder(&shown, majority).into_iter().collect();
    let quarantine = merge_quarantines(shown.iter().map(|snapshot| snapshot.quarantine), majority);
    let waiting = shown.iter().map(|snapshot| snapshot.waiting).max().unwrap_or_default();
    // The order of the node that shows most waiters.
    let longest = shown.into_iter().max_by_key(|snapshot| snapshot.waiters.len());
    let waiters = longest.map(|snapshot| snapshot.waiters).unwrap_or_default();
    // A quorum shares no keys.
    let permits = None;
    Snapshot { holders, waiters, waiting, fencing, votes, quarantine, permits }
}

fn vote((node, shown): &Seen) -> Vote {
    let holder = match shown {
        Ok(snapshot) => match (snapshot.holders.first(), &snapshot.quarantine) {
            (Some(holder), _) => Ok(Some(holder.token.clone())),
            // A quarantined node cannot know that nobody holds the key.
            (None, Some(quarantine)) => Err(quarantine.to_string()),
            (None, None) => Ok(None),
        },
        Err(why) => Err(why.clone()),
    };
    Vote { node: node.clone(), holder }
}

fn holder(shown: &[Snapshot], majority: usize) -> Option<Holder> {
    let holders = || shown.iter().filter_map(|snapshot| snapshot.holders.first());
    let of = |token: &[u8]| holders().filter(|holder| holder.token == token).collect::<Vec<_>>();
    let votes = holders().map(|holder| of(&holder.token)).find(|votes| votes.len() >= majority)?;
    let mut left: Vec<Option<Duration>> = votes.iter().map(|holder| holder.ttl_left).collect();
    // The longest first. Leases without an end come before all others.
    left.sort_unstable_by_key(|left| Reverse(left.unwrap_or(Duration::MAX)));
    // The node that knows most about its holder.
    let best = votes.iter().max_by_key(|holder| (holder.client.is_some(), holder.fencing_last()));
    // Any node that keeps a request to let go shows it to the holder.
    let revoked = votes.iter().find_map(|holder| holder.revoked.clone());
    let ttl_left = left[majority - 1];
    best.map(|holder| Holder { ttl_left, revoked, ..Holder::clone(holder) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::token::{ClientId, FencingToken};
    use crate::store::{ClientRecord, Quarantine, Waiter};

    fn held(token: &str, left_ms: u64) -> Snapshot {
        let ttl_left = Some(Duration::from_millis(left_ms));
        let holder = Holder { ttl_left, ..Holder::new(token) };
        Snapshot { holders: vec![holder], ..Snapshot::default() }
    }

    fn merged(shown: Vec<Result<Snapshot, String>>) -> Snapshot {
        merge(shown.into_iter().enumerate().map(|(n, s)| (format!("n{n}"), s)).collect())
    }

    #[test]
    fn an_owner_with_a_majority_holds_the_key_as_long_as_the_majority_does() {
        let seen = merged(vec![
            Ok(held("a", 900)),
            Ok(held("b", 5_000)),
            Ok(held("a", 700)),
            Err("down".to_owned()),
            Ok(held("a", 800)),
        ]);
        assert_eq!(seen.holders.len(), 1);
        assert_eq!(seen.holders[0].token, b"a");
        assert_eq!(seen.holders[0].ttl_left, Some(Duration::from_millis(700)));
        assert_eq!(seen.votes[1].holder, Ok(Some(b"b".to_vec())));
        assert_eq!(seen.votes[3].holder, Err("down".to_owned()));
    }

    #[test]
    fn a_quorum_is_quarantined_until_a_majority_of_its_nodes_grants_again() {
        let quarantined = |left| {
            let left = Duration::from_secs(left);
            let quarantine = Some(Quarantine { since: Some(Duration::ZERO), left });
            Snapshot { quarantine, ..Snapshot::default() }
        };
        let left = |shown: Vec<Snapshot>| {
            let seen = merged(shown.into_iter().map(Ok).collect());
            seen.quarantine.map(|quarantine| quarantine.left.as_secs())
        };
        let free = Snapshot::default;
        assert_eq!(left(vec![free(), quarantined(9), free()]), None);
        assert_eq!(left(vec![quarantined(7), free(), quarantined(9)]), Some(7));
        assert_eq!(left(vec![quarantined(7), quarantined(5), quarantined(9)]), Some(7));
        // With too many nodes down, the quarantine is not the reason.
        let down = merged(vec![Ok(quarantined(7)), Err("down".into()), Err("down".into())]);
        assert_eq!(down.quarantine, None);
        let why = down.votes[0].holder.as_ref().expect_err("quarantined");
        assert!(why.contains("no new locks for 7 s"), "{why}");
        let held = Snapshot { quarantine: quarantined(7).quarantine, ..held("a", 900) };
        assert_eq!(merged(vec![Ok(held)]).votes[0].holder, Ok(Some(b"a".to_vec())));
    }

    #[test]
    fn nobody_holds_what_no_majority_says() {
        let split = merged(vec![Ok(held("a", 9)), Ok(held("b", 9)), Ok(Snapshot::default())]);
        assert_eq!(split.holders, []);
        assert_eq!(split.votes.len(), 3);
        let down = merged(vec![Ok(held("a", 9)), Err("down".into()), Err("down".into())]);
        assert_eq!(down.holders, []);
    }

    /// Nodes count by themselves, and a waiter may be in the line of one node only.
    #[test]
    fn the_line_and_the_counter_of_one_node_alone_are_shown() {
        let waiter = |byte| Waiter::new(Some(ClientId::from_random([byte; ClientId::CHARS])));
        let waiters = vec![waiter(1), waiter(2)];
        let shows = |fence, waiting, waiters: &[Waiter]| Snapshot {
            fencing: FencingToken::new(fence),
            waiting,
            waiters: waiters.to_vec(),
            ..Snapshot::default()
        };
        for number in 0..3 {
            let mut shown = vec![shows(5, 1, &waiters[..1]); 2];
            shown.insert(number, shows(9, 7, &waiters));
            let seen = merged(shown.into_iter().map(Ok).collect());
            assert_eq!(seen.fencing, FencingToken::new(9), "node {number}");
            assert_eq!((seen.waiting, &seen.waiters), (7, &waiters), "node {number}");
        }
    }

    #[test]
    fn a_holder_is_shown_as_by_the_node_that_knows_its_client() {
        let client = ClientRecord::new(ClientId::from_random([1; ClientId::CHARS]));
        for number in 0..3 {
            let mut shown = vec![held("a", 900); 3];
            shown[number].holders[0].client = Some(client.clone());
            let seen = merged(shown.into_iter().map(Ok).collect());
            assert_eq!(seen.holders[0].client.as_ref(), Some(&client), "node {number}");
        }
    }
}
