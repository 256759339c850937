//! Whether a node is a store of its own.
//!
//! Two URLs of one server, or of a primary and its replica, would make a majority of one. So before
//! a node may vote, it takes a lease that nobody else has, and all others are looked at: whoever
//! shows it too is the same store. A node that could not be asked is asked again, in the
//! background.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::{Either, join_all, select};
use futures_util::stream::FuturesUnordered;

use super::Shared;
use super::node::Standing;
use crate::core::error::{Error, ErrorKind};
use crate::core::key::Key;
use crate::core::moment::Moment;
use crate::core::token::{ClientId, OwnerToken};
use crate::core::ttl::Ttl;
use crate::store::{Acquired, Ask, Claim, LeaseId, Line, Otherwise, Snapshot, Store};

/// For how long a node keeps what it is tried by, if it cannot be told to let go.
const PROBE_TTL: Duration = Duration::from_secs(5);

/// How often a node is tried that could not be asked.
const TRIED_EVERY: Duration = Duration::from_secs(1);

/// For how long slower nodes are waited for, whose answer is good to have, where others answer
/// within `round_trip`.
fn patience(round_trip: Duration) -> Duration {
    round_trip.saturating_mul(4).clamp(Duration::from_millis(50), Duration::from_secs(1))
}

impl<S: Store> Shared<S> {
    /// Tries all nodes side by side. Once a majority may vote, the others are waited for a little
    /// longer, and then are tried to the end in the background.
    pub(super) async fn admit_first(self: &Arc<Self>) {
        let trying = Trying::begin(self).expect("nobody else has it yet");
        let mut tries: FuturesUnordered<_> =
            self.candidates().map(|node| Arc::clone(self).admit(node)).collect();
        let votes = || self.nodes.iter().filter(|node| node.is_admitted()).count();
        while votes() < self.majority() {
            if tries.next().await.is_none() {
                return;
            }
        }
        let late_at = self.host.now() + patience(self.round_trip());
        let mut late = self.host.sleep_until(late_at);
        loop {
            match select(tries.next(), &mut late).await {
                Either::Left((Some(()), _)) => {}
                Either::Left((None, _)) => return,
                Either::Right(_) => break,
            }
        }
        self.host.spawn_io(Box::pin(async move {
            tries.collect::<()>().await;
            drop(trying);
        }));
    }

    /// Tries those that may not vote yet, in the background, if it is time.
    pub(super) fn admit_if_due(self: &Arc<Self>) {
        if self.candidates().next().is_none() {
            return;
        }
        let now = self.host.now();
        let due = Moment::from_nanos(self.tried_at.load(Ordering::Relaxed)) + TRIED_EVERY;
        if now < due {
            return;
        }
        // Made here: a task that is dropped before it has begun ends, too.
        let Some(trying) = Trying::begin(self) else { return };
        self.host.spawn_io(Box::pin(async move {
            let shared = &trying.0;
            join_all(shared.candidates().map(|node| Arc::clone(shared).admit(node))).await;
        }));
    }

    fn candidates(&self) -> impl Iterator<Item = usize> {
        (0..self.nodes.len())
            .filter(|node| matches!(self.nodes[*node].standing(), Standing::Candidate(_)))
    }

    /// Tries a node. One task at a time tries any, so that between the last look at who may vote
    /// and the vote that follows from it nobody else is given one.
    async fn admit(self: Arc<Self>, node: usize) {
        let standing = match self.is_same_as_another(node).await {
            Ok(None) => Standing::Admitted,
            Ok(Some(other)) => Standing::Refused(same_store(&self.nodes[other].label)),
            Err(error) => Standing::Candidate(error),
        };
        if let Standing::Refused(error) = &standing {
            tracing::error!(node = self.nodes[node].label, cause = %error, "it may not vote");
        }
        self.nodes[node].stand(standing);
    }

    /// Which other node is the same store as this one.
    async fn is_same_as_another(&self, node: usize) -> Result<Option<usize>, Error> {
        let lease = self.probe();
        let ask = Ask {
            key: lease.key.clone(),
            owner: lease.owner.clone(),
            claim: lease.claim,
            ttl: Ttl::new(PROBE_TTL).expect("within bounds"),
            line: Line::Stand,
            note: None,
            reserve: 0,
        };
        let store = &self.nodes[node].store;
        let asked = self.host.now();
        match store.acquire(ask).await? {
            Acquired::Granted { .. } => {}
            Acquired::Quarantined(quarantine) => {
                return Err(Error::new(ErrorKind::Unavailable, quarantine.to_string()));
            }
            Acquired::Taken { .. } | Acquired::Split { .. } => {
                return Err(Error::new(
                    ErrorKind::Unavailable,
                    "it says that another has a name that was made up just now",
                ));
            }
        }
        let span = self.host.now().since(asked);
        self.nodes[node].answered_after(span);
        let seen = self.look_everywhere(&lease, node, patience(span)).await;
        // Nobody waits for the answer: it would run out by itself.
        drop(store.release(lease.clone(), Otherwise::Free));
        for (other, seen) in seen.into_iter().enumerate() {
            match seen {
                Some(Ok(true)) if other != node => return Ok(Some(other)),
                // Without the right to look, say, it would not be seen to be another one.
                Some(Err(error)) if other == node => return Err(error),
                // Who may not vote yet looks at this one before it may. Who votes does not.
                Some(Err(error)) if self.nodes[other].is_admitted() => {
                    return Err(not_compared(&self.nodes[other].label, &error));
                }
                Some(Ok(_) | Err(_)) | None => {}
            }
        }
        Ok(None)
    }

    /// Whether each node has the lease that `asker` granted. Those that may not vote are waited for
    /// as long as is said; `None` if they took longer.
    async fn look_everywhere(
        &self,
        lease: &LeaseId,
        asker: usize,
        patience: Duration,
    ) -> Vec<Option<Result<bool, Error>>> {
        let owner = lease.owner.as_str().as_bytes();
        let is_there = |seen: Snapshot| seen.holders.iter().any(|holder| holder.token == owner);
        let look = async |node: usize| {
            let seen = self.nodes[node].store.inspect(lease.key.clone()).await;
            (node, seen.map(is_there))
        };
        let mut looks: FuturesUnordered<_> = (0..self.nodes.len()).map(look).collect();
        let mut seen: Vec<_> = self.nodes.iter().map(|_| None).collect();
        let mut late = pin!(self.host.sleep_until(self.host.now() + patience));
        while let Either::Left((look, _)) = select(looks.next(), &mut late).await {
            let Some((node, there)) = look else { return seen };
            seen[node] = Some(there);
        }
        let is_due = |node: usize| node == asker || self.nodes[node].is_admitted();
        while (0..seen.len()).any(|node| seen[node].is_none() && is_due(node)) {
            let Some((node, there)) = looks.next().await else { break };
            seen[node] = Some(there);
        }
        seen
    }

    fn probe(&self) -> LeaseId {
        let mut random = [0; OwnerToken::RANDOM_BYTES];
        self.host.random(&mut random);
        let owner = OwnerToken::from_random(random, &ClientId::from_random([0; ClientId::CHARS]));
        let key = Key::probe(&owner.as_str()[..OwnerToken::RANDOM_BYTES]);
        self.host.random(&mut random);
        let owner = OwnerToken::from_random(random, &ClientId::from_random([0; ClientId::CHARS]));
        LeaseId { key, owner, claim: Claim::Exclusive }
    }
}

/// That nodes are being tried, by one task at a time.
struct Trying<S>(Arc<Shared<S>>);

impl<S> Trying<S> {
    fn begin(shared: &Arc<Shared<S>>) -> Option<Self> {
        let is_trying = shared.is_trying.swap(true, Ordering::AcqRel);
        (!is_trying).then(|| Self(Arc::clone(shared)))
    }
}

impl<S> Drop for Trying<S> {
    fn drop(&mut self) {
        let now = self.0.host.now().as_nanos();
        self.0.tried_at.store(now, Ordering::Relaxed);
        self.0.is_trying.store(false, Ordering::Release);
    }
}

/// What a node is told that has not been tried yet.
pub(super) fn not_tried() -> Error {
    Error::new(ErrorKind::Unavailable, "it was not reached yet; nothing was asked")
}

fn not_compared(other: &str, error: &Error) -> Error {
    Error::new(
        ErrorKind::Unavailable,
        format!(
            "whether it is the same store as {other} could not be seen; it has no vote yet and is \
             tried again every second: {}",
            error.message()
        ),
    )
}

fn same_store(other: &str) -> Error {
    Error::new(
        ErrorKind::Config,
        format!(
            "it is the same store as {other}, or a replica of it, and would vote twice; it has no \
             vote, name servers that are independent of one another"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_without_a_vote_is_said_to_have_none_and_how_it_comes_by_one() {
        let cause = Error::new(ErrorKind::Denied, "no right");
        let error = not_compared("memory:a", &cause);
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        let text = "whether it is the same store as memory:a could not be seen; it has no vote yet \
                    and is tried again every second: no right";
        assert_eq!(error.to_string(), text);
        assert_eq!(TRIED_EVERY, Duration::from_secs(1), "as it says");
        let error = same_store("memory:a");
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().contains("it has no vote, name servers"), "{error}");
    }
}
