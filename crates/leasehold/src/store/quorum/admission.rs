//! Checks that a node is a separate store.
//!
//! Two URLs of one server, or of a primary and its replica, would make a majority of one. So before
//! a node may vote, it must grant a lease under a unique name. Then the quorum inspects all other
//! nodes: a node that shows this lease too is the same store. A node that does not answer is tried
//! again in the background.

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
use crate::store::{Acquired, Ask, Claim, LeaseId, Line, OnRelease, Refusal, Snapshot, Store, Why};

/// How long a node keeps the probe lease if its release does not arrive.
const PROBE_TTL: Duration = Duration::from_secs(5);

/// How often the quorum tries a node that did not answer, at most. Requests set it off.
const TRIED_EVERY: Duration = Duration::from_secs(1);

impl<S: Store> Shared<S> {
    /// Tries all nodes that may not vote yet, side by side.
    pub(super) async fn admit_all(&self) {
        let candidates = (0..self.nodes.len())
            .filter(|node| matches!(self.nodes[*node].standing(), Standing::Candidate(_)));
        join_all(candidates.map(|node| self.admit(node))).await;
    }

    /// Tries the nodes that may not vote yet, in the background, if the last try is long enough
    /// ago.
    pub(super) fn admit_if_due(self: &Arc<Self>) {
        if self.nodes.iter().all(|node| !matches!(node.standing(), Standing::Candidate(_))) {
            return;
        }
        let now = self.host.now();
        let due = Moment::from_nanos(self.tried_at.load(Ordering::Relaxed)) + TRIED_EVERY;
        if now < due || self.is_trying.swap(true, Ordering::AcqRel) {
            return;
        }
        // Created before the task, so that its `drop` runs even if the task never starts.
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
        // Logged only once, because later requests try the node again.
        let is_known = self.nodes[node].standing().final_error().is_some();
        if let (false, Some(error)) = (is_known, standing.final_error()) {
            tracing::error!(node = self.nodes[node].label, cause = %error, "it may not vote");
        }
        self.nodes[node].stand(standing);
    }

    /// Returns another node that is the same store as this one, if there is one.
    async fn is_same_as_another(&self, node: usize) -> Result<Option<usize>, Error> {
        let lease = self.probe();
        let ttl = Ttl::new(PROBE_TTL).expect("within bounds");
        let ask = Ask {
            key: lease.key.clone(),
            owner: lease.owner.clone(),
            claim: lease.claim,
            ttl,
            line: Line::None,
            note: None,
            reserve: 0,
        };
        let store = &self.nodes[node].store;
        let asked = self.host.now();
        match store.acquire(ask).await? {
            Acquired::Granted { .. } => {}
            Acquired::Refused(Refusal { why: Why::Quarantined(quarantine), .. }) => {
                return Err(Error::new(ErrorKind::Unavailable, quarantine.to_string()));
            }
            Acquired::Refused(_) => {
                return Err(Error::new(
                    ErrorKind::Unavailable,
                    "it reports that another client holds a key that was invented just now",
                ));
            }
        }
        self.nodes[node].answered_after(self.host.now().since(asked));
        let looks = self.nodes.iter().map(|other| other.store.inspect(lease.key.clone()));
        let looks = join_all(looks).await;
        // Nobody waits for the answer: without the release, the lease expires.
        drop(store.release(lease.clone(), OnRelease::Free));
        let owner = lease.owner.as_str().as_bytes();
        let is_there = |seen: Snapshot| seen.holders.iter().any(|holder| holder.token == owner);
        for (other, seen) in looks.into_iter().enumerate() {
            match seen.map(is_there) {
                Ok(true) if other != node => return Ok(Some(other)),
                // Without the right to inspect, for example, a duplicate would go unnoticed.
                Err(error) if other == node => return Err(error),
                Ok(false) if other == node => return Err(nothing_seen()),
                // Before a node without a vote gets one, it is compared with this one. A node that
                // already votes is not compared again.
                Err(error) if self.nodes[other].is_admitted() => {
                    return Err(not_compared(&self.nodes[other].label, &error));
                }
                Ok(_) | Err(_) => {}
            }
        }
        // By now the probe lease may have expired everywhere, even on the node that granted it.
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

/// Marks that nodes are being tried, until it is dropped.
struct Trying<S>(Arc<Shared<S>>);

impl<S> Drop for Trying<S> {
    fn drop(&mut self) {
        let now = self.0.host.now().as_nanos();
        self.0.tried_at.store(now, Ordering::Relaxed);
        self.0.is_trying.store(false, Ordering::Release);
    }
}

/// The state of a node that has not been tried yet.
pub(super) fn not_tried() -> Error {
    Error::new(ErrorKind::Unavailable, "it was not reached yet; no request was sent")
}

/// The error if the probe lease is gone too early: the node was slow, or this process was stopped.
fn nothing_seen() -> Error {
    Error::new(
        ErrorKind::Unavailable,
        "its probe lease ended before all other nodes were checked, so it may be the same store as \
         one of them; it has no vote yet, and later requests try again, once a second at most",
    )
}

fn not_compared(other: &str, error: &Error) -> Error {
    Error::new(
        ErrorKind::Unavailable,
        format!(
            "it has no vote yet, since it may be the same store as {other}: looking there failed \
             ({}); later requests try again, once a second at most",
            error.message()
        ),
    )
}

fn same_store(other: &str) -> Error {
    Error::new(
        ErrorKind::Config,
        format!(
            "it is the same store as {other}, or a replica of it, and would vote twice; it has no \
             vote; name servers that are independent of one another"
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
        let text = "it has no vote yet, since it may be the same store as memory:a: looking there \
                    failed (no right); later requests try again, once a second at most";
        assert_eq!(error.to_string(), text);
        assert_eq!(TRIED_EVERY, Duration::from_secs(1), "as it says");
        let error = same_store("memory:a");
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().contains("it has no vote; name servers"), "{error}");
    }
}
