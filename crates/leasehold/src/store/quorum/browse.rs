//! Lists and evicts locks over all nodes.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::future::join_all;

use super::{Quorum, Shared, error};
use crate::core::error::Error;
use crate::core::key::Key;
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
            // With the nodes that gave no answer, the owner may have had a majority. It has none
            // now.
            let unheard = shared.nodes.len() - said.len();
            let may_have_held = evicted > 0 && evicted + unheard >= shared.majority();
            let is_over = may_have_held || evicted > shared.nodes.len() - shared.majority();
            Ok(if is_over { Evicted::Evicted } else { Evicted::Changed })
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
            if asked >= shared.majority() {
                return Ok(Revoked::Asked);
            }
            // With the nodes that gave no answer, the owner may have a majority.
            let unheard = shared.nodes.len() - said.len();
            if asked + unheard >= shared.majority() {
                return Err(error::not_revoked(&shared, asked > 0, &failures));
            }
            Ok(Revoked::Changed)
        })
    }
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
}
