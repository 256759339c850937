//! The stores of a mutex, and the requests to them.

use std::sync::Arc;

use leasehold::host::Host;
use leasehold::store::{Ask, BoxAnswer, Claim, LeaseId, Renewal, Renewed, Snapshot, Store};
use leasehold::{Error, Key, OwnerToken, Ttl};

use crate::lock::{allows_reasking, is_granted, release};

/// The answer of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// It did what was asked.
    Yes,
    /// Another client has the key. For requests other than a release, perhaps nobody has it.
    Taken,
    /// Nobody has the key.
    Expired,
}

/// A node that was asked, and its future answer.
pub(super) type Asked = (usize, BoxAnswer<Said>);

/// The stores, and the order of asking them.
pub(super) struct Nodes<S> {
    pools: Arc<[S]>,
    order: Vec<usize>,
}

impl<S: Store> Nodes<S> {
    pub(super) fn new(pools: Arc<[S]>) -> Self {
        let order = (0..pools.len()).collect();
        Self { pools, order }
    }

    /// Changes the order of asking at random, all orders equally likely.
    pub(super) fn shuffle(&mut self, host: &dyn Host) {
        for at in (1..self.order.len()).rev() {
            let mut bytes = [0; 8];
            host.random(&mut bytes);
            // With numbers this large, the remainder favours no order noticeably.
            let other = u64::from_le_bytes(bytes) % (at as u64 + 1);
            self.order.swap(at, usize::try_from(other).expect("it is at most as large as `at`"));
        }
    }

    /// Each node once, in the given order.
    pub(super) fn each(&self) -> impl Iterator<Item = usize> + use<S> {
        0..self.pools.len()
    }

    /// How many nodes must say yes.
    pub(super) fn quorum(&self) -> usize {
        self.pools.len() / 2 + 1
    }

    /// Checks that each store accepts repeated asks with one value.
    pub(super) fn allow_reasking(&self, key: &Key) -> Result<(), Error> {
        self.pools.iter().try_for_each(|pool| allows_reasking(pool, key))
    }

    /// Sets the key where it is free or already the owner's. Like all of these methods, it sends
    /// the requests before it returns.
    pub(super) fn acquire(&self, key: &Key, owner: &OwnerToken, ttl: Ttl) -> Vec<Asked> {
        self.ask(|pool, _| {
            let LeaseId { key, owner, claim } = lease(key, owner);
            let name = key.clone();
            let answer = pool.acquire(Ask::new(key, owner, claim, ttl));
            Box::pin(async move {
                let is_ours = is_granted(answer.await?);
                let is_ours = is_ours.map_err(|error| error.with_name(name.as_str()))?;
                Ok(if is_ours { Said::Yes } else { Said::Taken })
            })
        })
    }

    /// Restarts the ttl where the key is the owner's.
    pub(super) fn renew(&self, key: &Key, owner: &OwnerToken, ttl: Ttl) -> Vec<Asked> {
        self.ask(|pool, _| {
            let answer = pool.renew(Renewal::new(lease(key, owner), ttl));
            Box::pin(async move {
                let is_ours = matches!(answer.await?, Renewed::Renewed { .. });
                Ok(if is_ours { Said::Yes } else { Said::Taken })
            })
        })
    }

    /// Deletes the key where it is the owner's. Elsewhere checks who has it.
    pub(super) fn release(&self, key: &Key, owner: &OwnerToken) -> Vec<Asked> {
        self.ask(|pool, node| {
            let answer = release(pool, lease(key, owner));
            let (pools, key) = (Arc::clone(&self.pools), key.clone());
            Box::pin(async move {
                if answer.await? {
                    return Ok(Said::Yes);
                }
                Ok(not_ours(&pools[node].inspect(key).await?))
            })
        })
    }

    /// Deletes the key where it is the owner's, without further checks.
    pub(super) fn give_back(&self, key: &Key, owner: &OwnerToken) -> Vec<Asked> {
        self.ask(|pool, _| {
            let answer = release(pool, lease(key, owner));
            Box::pin(async move { Ok(if answer.await? { Said::Yes } else { Said::Taken }) })
        })
    }

    /// Checks who has the key, for a mutex without a value, which owns nothing.
    pub(super) fn look(&self, key: &Key) -> Vec<Asked> {
        self.ask(|pool, _| {
            let answer = pool.inspect(key.clone());
            Box::pin(async move { Ok(not_ours(&answer.await?)) })
        })
    }

    /// Checks whether the key is the owner's.
    pub(super) fn compare(&self, key: &Key, owner: &OwnerToken) -> Vec<Asked> {
        self.ask(|pool, _| {
            let (answer, owner) = (pool.inspect(key.clone()), owner.clone());
            Box::pin(async move {
                let holders = answer.await?.holders;
                let is_owner = |token: &[u8]| token == owner.as_str().as_bytes();
                let is_ours = holders.iter().any(|holder| is_owner(&holder.token));
                Ok(if is_ours { Said::Yes } else { Said::Taken })
            })
        })
    }

    /// Answers for every node that another client has the key.
    pub(super) fn refuse(&self) -> Vec<Asked> {
        self.ask(|_, _| Box::pin(std::future::ready(Ok(Said::Taken))))
    }

    fn ask(&self, ask: impl Fn(&S, usize) -> BoxAnswer<Said>) -> Vec<Asked> {
        self.order.iter().map(|&node| (node, ask(&self.pools[node], node))).collect()
    }
}

/// The lease of an owner, without companion keys, like the original.
fn lease(key: &Key, owner: &OwnerToken) -> LeaseId {
    LeaseId { key: key.clone(), owner: owner.clone(), claim: Claim::Plain }
}

fn not_ours(seen: &Snapshot) -> Said {
    if seen.holders.is_empty() { Said::Expired } else { Said::Taken }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use leasehold::host::SystemHost;
    use leasehold::store::MemoryStore;

    use super::*;

    #[test]
    fn shuffled_nodes_are_asked_in_any_order_each_once() {
        let pools: Arc<[_]> = (0..3).map(|_| MemoryStore::new(SystemHost::shared())).collect();
        let mut nodes = Nodes::new(pools);
        let asked = |nodes: &Nodes<MemoryStore>| -> Vec<usize> {
            nodes.refuse().into_iter().map(|(node, _)| node).collect()
        };
        assert_eq!(asked(&nodes), [0, 1, 2]);
        let mut seen = HashSet::new();
        // One of the six orders is missing after this many draws with a probability below 10^-15.
        for _ in 0..200 {
            nodes.shuffle(&SystemHost);
            seen.insert(asked(&nodes));
        }
        assert_eq!(seen.len(), 6, "{seen:?}");
        assert!(seen.iter().all(|order| order.iter().sum::<usize>() == 3));
    }
}
