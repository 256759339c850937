//! Whether a node is a store of its own.
//!
//! Two URLs of one server, or of a primary and its replica, would make a majority of one. So before
//! a node may vote, it takes a lease that nobody else has, and all others are looked at: whoever
//! shows it too is the same store. A node that could not be asked is asked again, in the
//! background.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::join_all;

use super::Shared;
use super::node::Standing;
use crate::core::error::{Error, ErrorKind};
use crate::core::key::Key;
use crate::core::moment::Moment;
use crate::core::token::{ClientId, OwnerToken};
use crate::core::ttl::Ttl;
use crate::core::validity::valid_until;
use crate::store::{Acquired, Ask, Claim, LeaseId, Line, Otherwise, Snapshot, Store};

/// For how long a node keeps what it is tried by, if it cannot be told to let go.
const PROBE_TTL: Duration = Duration::from_secs(5);

/// How often a node is tried that could not be asked.
const TRIED_EVERY: Duration = Duration::from_secs(1);

impl<S: Store> Shared<S> {
    /// Tries all nodes that may not vote yet, side by side.
    pub(super) async fn admit_all(&self) {
        let candidates = (0..self.nodes.len())
            .filter(|node| matches!(self.nodes[*node].standing(), Standing::Candidate(_)));
        join_all(candidates.map(|node| self.admit(node))).await;
    }

    /// Tries those that may not vote yet, in the background, if it is time.
    pub(super) fn admit_if_due(self: &Arc<Self>) {
        if self.nodes.iter().all(|node| !matches!(node.standing(), Standing::Candidate(_))) {
            return;
        }
        let now = self.host.now();
        let due = Moment::from_nanos(self.tried_at.load(Ordering::Relaxed)) + TRIED_EVERY;
        if now < due || self.is_trying.swap(true, Ordering::AcqRel) {
            return;
        }
        // Made here: a task that is dropped before it has begun ends, too.
        let trying = Trying(Arc::clone(self));
        self.host.spawn_io(Box::pin(async move {
            trying.0.admit_all().await;
        }));
    }

    async fn admit(&self, node: usize) {
        let standing = match self.is_same_as_another(node).await {
            Ok(None) => Standing::Admitted,
            Ok(Some(other)) => Standing::Refused(same_store(&self.nodes[other].label)),
            Err(error) => Standing::Candidate(error),
        };
        // Once: it is tried again every second.
        let is_known = self.nodes[node].standing().final_error().is_some();
        if let (false, Some(error)) = (is_known, standing.final_error()) {
            tracing::error!(node = self.nodes[node].label, cause = %error, "it may not vote");
        }
        self.nodes[node].stand(standing);
    }

    /// Which other node is the same store as this one.
    async fn is_same_as_another(&self, node: usize) -> Result<Option<usize>, Error> {
        let lease = self.probe();
        let ttl = Ttl::new(PROBE_TTL).expect("within bounds");
        let ask = Ask {
            key: lease.key.clone(),
            owner: lease.owner.clone(),
            claim: lease.claim,
            ttl,
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
        self.nodes[node].answered_after(self.host.now().since(asked));
        let looks = self.nodes.iter().map(|other| other.store.inspect(lease.key.clone()));
        let looks = join_all(looks).await;
        // Nobody waits for the answer: it would run out by itself.
        drop(store.release(lease.clone(), Otherwise::Free));
        let owner = lease.owner.as_str().as_bytes();
        let is_there = |seen: Snapshot| seen.holders.iter().any(|holder| holder.token == owner);
        for (other, seen) in looks.into_iter().enumerate() {
            match seen.map(is_there) {
                Ok(true) if other != node => return Ok(Some(other)),
                // Without the right to look, say, it would not be seen to be another one.
                Err(error) if other == node => return Err(error),
                Ok(false) if other == node => return Err(nothing_seen()),
                // Who may not vote yet looks at this one before it may. Who votes does not.
                Err(error) if self.nodes[other].is_admitted() => {
                    return Err(not_compared(&self.nodes[other].label, &error));
                }
                Ok(_) | Err(_) => {}
            }
        }
        // What has run out meanwhile is seen nowhere, also where it was granted.
        let is_there = self.host.now() < valid_until(asked, ttl);
        if is_there { Ok(None) } else { Err(nothing_seen()) }
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

/// That nodes are being tried.
struct Trying<S>(Arc<Shared<S>>);

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

/// It was slow, or this process was stopped for a while.
fn nothing_seen() -> Error {
    Error::new(
        ErrorKind::Unavailable,
        "what it granted to be told apart from the other nodes was gone before all of these were \
         looked at; it has no vote yet and is tried again every second",
    )
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
