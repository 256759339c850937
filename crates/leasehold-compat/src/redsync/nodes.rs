//! The stores of a mutex, and what each is asked.

use std::sync::Arc;

use leasehold::host::Host;
use leasehold::store::{
    Ask, BoxAnswer, Claim, LeaseId, Otherwise, Released, Renewal, Renewed, Snapshot, Store,
};
use leasehold::{Error, Key, OwnerToken, Ttl};

use crate::lock::{allows_reasking, is_granted};

/// What a node says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// It is done.
    Yes,
    /// Another has it, or, but for a release, nobody.
    Taken,
    /// Nobody has it.
    Expired,
}

/// A node that was asked, and its answer to come.
pub(super) type Asked = (usize, BoxAnswer<Said>);

/// The stores, and in which order they are asked.
pub(super) struct Nodes<S> {
    pools: Arc<[S]>,
    order: Vec<usize>,
}

impl<S: Store> Nodes<S> {
    pub(super) fn new(pools: Arc<[S]>) -> Self {
        let order = (0..pools.len()).collect();
        Self { pools, order }
    }

    /// Asks them in another order from now on, each as likely as another.
    pub(super) fn shuffle(&mut self, host: &dyn Host) {
        for at in (1..self.order.len()).rev() {
            let mut bytes = [0; 8];
            host.random(&mut bytes);
            // Of so many numbers, a remainder favours none that anybody could notice.
            let other = u64::from_le_bytes(bytes) % (at as u64 + 1);
            self.order.swap(at, usize::try_from(other).expect("it is at most as large as `at`"));
        }
    }

    /// Each of them once, in the order as given.
    pub(super) fn each(&self) -> impl Iterator<Item = usize> + use<S> {
        0..self.pools.len()
    }

    /// How many must say yes.
    pub(super) fn quorum(&self) -> usize {
        self.pools.len() / 2 + 1
    }

    /// Whether each of them may be asked by the value of a lock again and again.
    pub(super) fn allow_reasking(&self, key: &Key) -> Result<(), Error> {
        self.pools.iter().try_for_each(|pool| allows_reasking(pool, key))
    }

    /// Sets the key where it is free, or the owner's already. Submitted when this returns, as all
    /// of these.
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

    /// Deletes the key where it is the owner's, and looks whose it is where it is not.
    pub(super) fn release(&self, key: &Key, owner: &OwnerToken) -> Vec<Asked> {
        self.ask(|pool, node| {
            // Who else wants the key may stand in no line.
            let answer = pool.release(lease(key, owner), Otherwise::Wake);
            let (pools, key) = (Arc::clone(&self.pools), key.clone());
            Box::pin(async move {
                if answer.await? != Released::NotHeld {
                    return Ok(Said::Yes);
                }
                Ok(not_ours(&pools[node].inspect(key).await?))
            })
        })
    }

    /// Deletes the key where it is the owner's, and minds nothing else.
    pub(super) fn give_back(&self, key: &Key, owner: &OwnerToken) -> Vec<Asked> {
        self.ask(|pool, _| {
            let answer = pool.release(lease(key, owner), Otherwise::Wake);
            Box::pin(async move {
                let is_gone = answer.await? != Released::NotHeld;
                Ok(if is_gone { Said::Yes } else { Said::Taken })
            })
        })
    }

    /// Looks whose the key is, for one who has no value and so owns nothing.
    pub(super) fn look(&self, key: &Key) -> Vec<Asked> {
        self.ask(|pool, _| {
            let answer = pool.inspect(key.clone());
            Box::pin(async move { Ok(not_ours(&answer.await?)) })
        })
    }

    /// Looks whether the key is the owner's.
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

    /// Every node is one that another has.
    pub(super) fn refuse(&self) -> Vec<Asked> {
        self.ask(|_, _| Box::pin(std::future::ready(Ok(Said::Taken))))
    }

    fn ask(&self, ask: impl Fn(&S, usize) -> BoxAnswer<Said>) -> Vec<Asked> {
        self.order.iter().map(|&node| (node, ask(&self.pools[node], node))).collect()
    }
}

/// With nothing beside the key, as the namesake does.
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
        // That an order is missing after so many is less likely than one in 10^15.
        for _ in 0..200 {
            nodes.shuffle(&SystemHost);
            seen.insert(asked(&nodes));
        }
        assert_eq!(seen.len(), 6, "{seen:?}");
        assert!(seen.iter().all(|order| order.iter().sum::<usize>() == 3));
    }
}
