//! Lists and evicts locks over all nodes.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::future::join_all;

use super::{Quorum, Shared, error};
use crate::core::error::Error;
use crate::core::key::Key;
use crate::core::majority::majority;
use crate::store::{
    BoxAnswer, Browse, Evicted, LISTING_KEYS_MAX, PAGE_KEYS_MAX, Page, Revoked, Stopped, Store,
};

impl<S: Store> Browse for Quorum<S> {
    /// Lists the keys that any node knows. A majority must answer, or a held key could be missing.
    fn list(&self, pattern: &str, cursor: Option<Key>) -> BoxAnswer<Page> {
        let shared = Arc::clone(&self.shared);
        let pattern = pattern.to_owned();
        Box::pin(async move {
            let list = |browse: &dyn Browse| browse.list(&pattern, cursor.clone());
            let (pages, failures) = ask_all(&shared, list).await?;
            if pages.len() < shared.majority() {
                return Err(error::not_seen(&shared, &failures));
            }
            Ok(merge(pages))
        })
    }

    fn evict(&self, key: Key, seen: Vec<u8>, reason: String) -> BoxAnswer<Evicted> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            let evict =
                |browse: &dyn Browse| browse.evict(key.clone(), seen.clone(), reason.clone());
            let (said, failures) = ask_all(&shared, evict).await?;
            let evicted = said.iter().filter(|said| **said == Evicted::Evicted).count();
            if said.len() < shared.majority() {
                return Err(error::not_evicted(&shared, evicted > 0, &failures));
            }
            Ok(evicted_by(evicted, said.len(), shared.nodes.len()))
        })
    }

    /// Asks the holder at every node. This counts once a majority keeps the request. Each later
    /// renewal needs a majority too, so it reaches a node that has the request.
    fn revoke(&self, key: Key, seen: Vec<u8>, by: String, reason: String) -> BoxAnswer<Revoked> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            let revoke = |browse: &dyn Browse| {
                browse.revoke(key.clone(), seen.clone(), by.clone(), reason.clone())
            };
            let (said, failures) = ask_all(&shared, revoke).await?;
            let asked = said.iter().filter(|said| **said == Revoked::Asked).count();
            let revoked = revoked_by(asked, said.len(), shared.nodes.len());
            revoked.ok_or_else(|| error::not_revoked(&shared, asked > 0, &failures))
        })
    }
}

/// The result of an eviction if `evicted` nodes ended the lease, of `said` nodes that answered.
fn evicted_by(evicted: usize, said: usize, nodes: usize) -> Evicted {
    let majority = majority(nodes);
    // With the nodes that gave no answer, the owner may have had a majority. It has none now.
    let unheard = nodes - said;
    let may_have_held = evicted > 0 && evicted + unheard >= majority;
    let is_over = may_have_held || evicted > nodes - majority;
    if is_over { Evicted::Evicted } else { Evicted::Changed }
}

/// The result of a request to let go if `asked` nodes keep it, of `said` nodes that answered.
/// `None` if that is unknown.
fn revoked_by(asked: usize, said: usize, nodes: usize) -> Option<Revoked> {
    let majority = majority(nodes);
    if asked >= majority {
        return Some(Revoked::Asked);
    }
    // With the nodes that gave no answer, the owner may have a majority.
    let unheard = nodes - said;
    (asked + unheard < majority).then_some(Revoked::Changed)
}

/// Asks all nodes that may vote. Returns the answers, and the errors with their nodes.
async fn ask_all<S: Store, T>(
    shared: &Shared<S>,
    ask: impl Fn(&dyn Browse) -> BoxAnswer<T>,
) -> Result<(Vec<T>, Vec<(usize, Error)>), Error> {
    shared.first_trials().await?;
    let nodes = shared.nodes.iter().enumerate().filter(|(_, node)| node.is_admitted());
    let asked: Vec<_> = nodes
        .filter_map(|(number, node)| Some((number, ask(node.store.browse()?))))
        .map(|(number, answer)| async move { (number, answer.await) })
        .collect();
    let (mut said, mut failures) = (Vec::new(), Vec::new());
    for (node, answer) in join_all(asked).await {
        match answer {
            Ok(answer) => said.push(answer),
            Err(error) => failures.push((node, error)),
        }
    }
    Ok((said, failures))
}

/// Merges the pages. The result ends where the first unfinished page ends.
fn merge(pages: Vec<Page>) -> Page {
    let stopped = pages.iter().find_map(|page| page.stopped);
    let end = pages.iter().filter_map(|page| page.next.clone()).min();
    let keys: BTreeSet<Key> = pages.into_iter().flat_map(|page| page.keys).collect();
    let is_within = |key: &Key| end.as_ref().is_none_or(|end| key <= end);
    let mut keys: Vec<Key> = keys.into_iter().filter(is_within).collect();
    let mut next = end;
    // Some nodes read all of their keys for one page. A larger page saves them a second read.
    let most = if next.is_some() { PAGE_KEYS_MAX } else { LISTING_KEYS_MAX };
    let is_cut = keys.len() > most;
    if is_cut {
        keys.truncate(most);
        next = keys.last().filter(|_| next.is_some()).cloned();
    }
    let stopped = match stopped {
        None if is_cut && next.is_none() => Some(Stopped::Names(most)),
        stopped => stopped,
    };
    Page { keys, next, stopped }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::*;

    fn page(names: &[&str], next: Option<&str>) -> Page {
        let key = |name: &str| Key::new(name).expect("a good name");
        Page::new(names.iter().map(|name| key(name)).collect(), next.map(key))
    }

    #[test]
    fn a_page_of_all_ends_where_the_first_node_goes_on() {
        let merged = merge(vec![page(&["a", "c"], Some("c")), page(&["b", "c", "d"], None)]);
        assert_eq!(merged, page(&["a", "b", "c"], Some("c")));
        let merged = merge(vec![page(&["a"], None), page(&["a", "z"], None)]);
        assert_eq!(merged, page(&["a", "z"], None));
        let stopped = Some(Stopped::Keys(5));
        let merged = merge(vec![page(&["a"], None), Page { stopped, ..page(&["b"], None) }]);
        assert_eq!(merged, Page { stopped, ..page(&["a", "b"], None) });
    }

    fn numbered(numbers: Range<usize>) -> Vec<Key> {
        numbers.map(|number| Key::new(format!("k{number:06}")).expect("a good name")).collect()
    }

    /// A name that is cut must come with the next page, or a held lock is missing.
    #[test]
    fn a_merged_page_that_is_cut_goes_on_behind_its_last_name() {
        let all = numbered(0..2 * PAGE_KEYS_MAX);
        let every_second = |first: usize| {
            let keys: Vec<Key> = all.iter().skip(first).step_by(2).cloned().collect();
            let next = keys.last().cloned();
            Page::new(keys, next)
        };
        let merged = merge(vec![every_second(0), every_second(1)]);
        assert_eq!(merged.keys, all[..PAGE_KEYS_MAX]);
        assert_eq!(merged.next.as_ref(), all.get(PAGE_KEYS_MAX - 1));
        assert_eq!(merged.stopped, None);
    }

    #[test]
    fn a_merged_listing_that_is_too_long_says_where_it_stopped() {
        let half = LISTING_KEYS_MAX / 2;
        let pages = [numbered(0..half), numbered(half..LISTING_KEYS_MAX + 1)];
        let merged = merge(pages.map(|keys| Page::new(keys, None)).into());
        assert_eq!(merged.keys.len(), LISTING_KEYS_MAX);
        let stopped = Some(Stopped::Names(LISTING_KEYS_MAX));
        assert_eq!((merged.next, merged.stopped), (None, stopped));
    }

    #[test]
    fn an_eviction_has_ended_a_lease_if_its_owner_may_have_had_a_majority() {
        // nodes that ended it, nodes that answered, all nodes, whether the lease has ended
        for (evicted, said, nodes, has_ended) in [
            (1, 1, 1, true),
            (0, 1, 1, false),
            (1, 2, 2, true),
            (1, 3, 3, false),
            (2, 3, 3, true),
            (1, 2, 3, true),
            (0, 2, 3, false),
            // With two of four nodes left, the owner has no majority.
            (2, 4, 4, true),
            (1, 4, 4, false),
            (2, 3, 4, true),
            (1, 3, 4, false),
            (1, 3, 5, true),
            (2, 5, 5, false),
            (2, 4, 5, true),
        ] {
            let expected = if has_ended { Evicted::Evicted } else { Evicted::Changed };
            assert_eq!(evicted_by(evicted, said, nodes), expected, "{evicted} {said} {nodes}");
        }
    }

    #[test]
    fn a_request_to_let_go_counts_by_a_majority_and_reached_nobody_if_none_is_possible() {
        // nodes that keep it, nodes that answered, all nodes, the answer
        for (asked, said, nodes, expected) in [
            (1, 1, 1, Some(Revoked::Asked)),
            (0, 1, 1, Some(Revoked::Changed)),
            (2, 3, 3, Some(Revoked::Asked)),
            (2, 2, 3, Some(Revoked::Asked)),
            (1, 3, 3, Some(Revoked::Changed)),
            (1, 2, 3, None),
            (0, 2, 3, Some(Revoked::Changed)),
            (0, 1, 3, None),
            (2, 4, 4, Some(Revoked::Changed)),
            (2, 3, 4, None),
            (1, 3, 4, Some(Revoked::Changed)),
            (2, 4, 5, None),
        ] {
            assert_eq!(revoked_by(asked, said, nodes), expected, "{asked} {said} {nodes}");
        }
    }
}
