//! Checks that a node is a separate store.
//!
//! Two URLs of one server, or of a primary and its replica, would make a majority of one. So before
//! a node may vote, it must grant a lease under a unique name. Then the quorum inspects all nodes
//! that vote already. A node that shows this lease too is the same store. The decision and the
//! admission are one step, so of two nodes, one is always compared with the other.
//!
//! | the client reads | and finds | so the new node |
//! |---|---|---|
//! | another node | the lease | never votes: it is the same store |
//! | the new node | no lease, or nothing | has no vote yet |
//! | a node that votes | no lease | votes: both count |
//! | a node that votes | nothing: it is out of reach | votes; of the two, one vote counts |
//! | a node that votes, before a majority does | nothing: it is out of reach | has no vote yet |
//! | a node that votes | nothing, and a retry does not help | has no vote yet |
//!
//! Without the fourth row, a node that comes back would have no vote while another one is down, as
//! when one node after the other is restarted. A new node never reduces the votes, because a ballot
//! counts the largest number of grants of which no two may be from one store. Later requests try
//! the node again, until it is compared with all.
//!
//! A single node that forgets its grants puts the whole quorum at risk, so a node that is not
//! strict would undo the strictness of the others. A node that differs from those that vote never
//! votes.
//!
//! Connecting waits until a majority may vote, and no longer for nodes that are silent. Until the
//! first trial of a node ends, each request waits for it if its vote would decide. A node that does
//! not answer is tried again in the background.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::{FutureExt as _, join_all};
use futures_util::stream::{FuturesUnordered, StreamExt as _};

use super::node::{Node, Standing};
use super::{Shared, error};
use crate::core::error::{Error, ErrorKind};
use crate::core::key::Key;
use crate::core::moment::Moment;
use crate::core::token::{ClientId, OwnerToken};
use crate::core::ttl::Ttl;
use crate::core::validity::valid_until;
use crate::store::{
    Acquired, Ask, Claim, LeaseId, OnRelease, Refusal, Snapshot, Store, Why, within,
};

/// How long a node keeps the probe lease if its release does not arrive.
const PROBE_TTL: Duration = Duration::from_secs(5);

/// How long to wait for the first answer of a node once a majority may vote, in addition to a tenth
/// of the time that the majority took.
const GRACE: Duration = Duration::from_millis(4);

/// How often the quorum tries a node that did not answer, at most. Requests start these tries.
const TRIED_EVERY: Duration = Duration::from_secs(1);

impl<S: Store> Shared<S> {
    /// Tries all nodes for the first time, side by side. Returns as soon as a majority may vote and
    /// the others are silent. These are then tried in the background.
    pub(super) async fn admit_first(self: &Arc<Self>) {
        self.is_trying.store(true, Ordering::Release);
        let trying = Trying(Arc::clone(self));
        let trial = |node| {
            let shared = Arc::clone(self);
            async move { shared.admit(node).await }
        };
        let mut trials: FuturesUnordered<_> = (0..self.nodes.len()).map(trial).collect();
        let began = self.host.now();
        let votes = || self.nodes.iter().filter(|node| node.is_admitted()).count();
        while votes() < self.majority() {
            if trials.next().await.is_none() {
                return;
            }
        }
        let now = self.host.now();
        let mut grace = self.host.sleep_until(now + GRACE + now.since(began) / 10);
        let mut is_over = false;
        let is_in_trial = |node: &Node<S>| node.has_answered() && !node.is_tried();
        while !is_over || self.nodes.iter().any(is_in_trial) {
            tokio::select! {
                biased;
                ended = trials.next() => if ended.is_none() {
                    return;
                },
                () = &mut grace, if !is_over => is_over = true,
            }
        }
        self.host.spawn_io(Box::pin(async move {
            while trials.next().await.is_some() {}
            drop(trying);
        }));
    }

    /// Waits until all nodes were tried once. Requests that show all nodes need that.
    ///
    /// # Errors
    ///
    /// The errors of connecting, if a retry does not help at one of the nodes that it waited for.
    pub(super) async fn first_trials(&self) -> Result<(), Error> {
        let is_open = |node: &usize| !self.nodes[*node].is_tried();
        let open: Vec<usize> = (0..self.nodes.len()).filter(is_open).collect();
        let trials = join_all(open.iter().filter_map(|node| self.nodes[*node].first_trial()));
        let all_tried = async {
            trials.await;
            Ok(())
        };
        let _late = within(Arc::clone(&self.host), TRIED_EVERY, all_tried).await;
        let failures = self.without_vote(open);
        match failures.iter().find(|(_, error)| !error.is_retryable()) {
            Some((_, wrong)) => Err(error::not_connected(self, &failures, wrong.kind())),
            None => Ok(()),
        }
    }

    /// Whether a node has no vote yet, or was not compared with all others.
    fn is_to_be_tried(&self, node: &Node<S>) -> bool {
        match node.standing() {
            Standing::Admitted { unseen } => {
                unseen.iter().any(|other| self.nodes[*other].is_admitted())
            }
            Standing::Candidate(_) => true,
            Standing::Refused(_) => false,
        }
    }

    /// Tries all nodes that have no vote yet, or were not compared with all others, side by side.
    async fn admit_all(&self) {
        let open = (0..self.nodes.len()).filter(|node| self.is_to_be_tried(&self.nodes[*node]));
        join_all(open.map(|node| self.admit(node))).await;
    }

    /// Tries the nodes that have no vote yet, or were not compared with all others, in the
    /// background, if the last try is long enough ago.
    pub(super) fn admit_if_due(self: &Arc<Self>) {
        if !self.nodes.iter().any(|node| self.is_to_be_tried(node)) {
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
        let standing = match self.compared(node).await {
            Ok(Compared::Apart { unseen }) => match self.other_strictness(node) {
                Some(refused) => Standing::Refused(refused),
                None => Standing::Admitted { unseen },
            },
            Ok(Compared::SameAs(other)) => Standing::Refused(same_store(&self.nodes[other].label)),
            // The node keeps its vote, and was not compared with any more nodes.
            Err(_) if self.nodes[node].is_admitted() => return,
            Err(error) => Standing::Candidate(error),
        };
        let is_final = |error: &Error| !error.is_retryable();
        let before = self.nodes[node].no_vote().filter(is_final);
        self.nodes[node].stand(standing);
        // Logged only once, because later requests try the node again.
        if let (None, Some(error)) = (before, self.nodes[node].no_vote().filter(is_final)) {
            tracing::error!(node = self.nodes[node].label, cause = %error, "this node has no vote");
        }
    }

    /// The error if this node is strict and one that votes is not, or the other way round. Called
    /// after the node has answered, so it knows whether it is strict.
    fn other_strictness(&self, node: usize) -> Option<Error> {
        let strict = |node: &Node<S>| node.store.capabilities().strict;
        let ours = strict(&self.nodes[node])?;
        let mut voting = self.nodes.iter().filter(|other| other.is_admitted());
        let other = voting.find(|other| strict(other).is_some_and(|theirs| theirs != ours))?;
        Some(mixed_strictness(ours, &other.label))
    }

    /// Takes a lease on a node and compares it with the others. The answer is about this moment, so
    /// no `await` may come before its use.
    async fn compared(&self, node: usize) -> Result<Compared, Error> {
        let lease = self.probe();
        let ttl = Ttl::new(PROBE_TTL).expect("within bounds");
        let ask = Ask::new(lease.key.clone(), lease.owner.clone(), lease.claim, ttl);
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
        let looks = self.look_for(&lease, node).await;
        // Do not wait for the answer, because the lease expires even without the release.
        drop(store.release(lease, OnRelease::Free));
        let voting: Vec<usize> =
            (0..self.nodes.len()).filter(|other| self.nodes[*other].is_admitted()).collect();
        let is_enough = voting.len() >= self.majority();
        let others = self.nodes[node].standing().into_vote().unwrap_or(voting);
        let compared = compare(node, &others, &looks, is_enough).map_err(|(at, error)| {
            if at == node { error } else { not_compared(&self.nodes[at].label, &error) }
        })?;
        // By now the probe lease may have expired everywhere, even on the node that granted it.
        let is_there = self.host.now() < valid_until(asked, ttl);
        let is_found = matches!(compared, Compared::SameAs(_));
        if is_there || is_found { Ok(compared) } else { Err(nothing_seen()) }
    }

    /// Looks for the probe lease of a node at all nodes.
    ///
    /// Waits for this node and for those that vote. The others may be silent. Before they vote,
    /// they are compared with this node. A node that already votes is not compared again.
    async fn look_for(&self, lease: &LeaseId, node: usize) -> Looks {
        let owner = lease.owner.as_str().as_bytes();
        let is_there = |seen: Snapshot| seen.holders.iter().any(|holder| holder.token == owner);
        let mut looks: FuturesUnordered<_> = self
            .nodes
            .iter()
            .map(|other| other.store.inspect(lease.key.clone()))
            .enumerate()
            .map(async |(number, look)| (number, look.await.map(is_there)))
            .collect();
        let mut seen = Looks::new();
        loop {
            let is_missing = |number: usize| {
                (number == node || self.nodes[number].is_admitted()) && !seen.contains_key(&number)
            };
            let next = if (0..self.nodes.len()).any(is_missing) {
                looks.next().await
            } else {
                looks.next().now_or_never().flatten()
            };
            match next {
                Some((number, look)) => seen.insert(number, look),
                None => return seen,
            };
        }
    }

    /// A lease with a unique name.
    fn probe(&self) -> LeaseId {
        let token = || {
            let mut random = [0; OwnerToken::RANDOM_BYTES];
            self.host.random(&mut random);
            OwnerToken::from_random(random, &ClientId::from_random([0; ClientId::CHARS]))
        };
        let key = Key::probe(&token().as_str()[..OwnerToken::RANDOM_BYTES]);
        LeaseId { key, owner: token(), claim: Claim::Exclusive }
    }
}

/// Whether the probe lease is there, by node.
type Looks = BTreeMap<usize, Result<bool, Error>>;

/// The result of the search for the probe lease of a node.
#[derive(Debug, PartialEq, Eq)]
enum Compared {
    /// The node and the node of this number are the same store.
    SameAs(usize),
    /// No look shows the same store. The voting nodes in `unseen` could not be looked at.
    Apart { unseen: Vec<usize> },
}

/// Compares a node with `others`, which vote and were not compared with it. `is_enough`: a majority
/// votes. The table of this module is the whole decision. An error comes with the node that could
/// not be looked at.
fn compare(
    node: usize,
    others: &[usize],
    looks: &Looks,
    is_enough: bool,
) -> Result<Compared, (usize, Error)> {
    let found = looks.iter().find(|(at, seen)| **at != node && matches!(seen, Ok(true)));
    if let Some((other, _)) = found {
        return Ok(Compared::SameAs(*other));
    }
    match looks.get(&node) {
        Some(Ok(true)) => {}
        // Without the right to inspect, for example, a duplicate would go unnoticed.
        Some(Err(error)) => return Err((node, error.clone())),
        Some(Ok(false)) | None => return Err((node, nothing_seen())),
    }
    let mut unseen = Vec::new();
    for other in others {
        match looks.get(other) {
            Some(Ok(_)) => {}
            Some(Err(error)) if !is_enough || !error.is_retryable() => {
                return Err((*other, error.clone()));
            }
            Some(Err(_)) | None => unseen.push(*other),
        }
    }
    Ok(Compared::Apart { unseen })
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

/// The error if the probe lease is gone too early, because the node was slow or this process was
/// stopped.
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

fn mixed_strictness(is_strict: bool, other: &str) -> Error {
    let (ours, theirs) = if is_strict { ("is", "is not") } else { ("is not", "is") };
    Error::new(
        ErrorKind::Config,
        format!(
            "it {ours} strict, and {other} {theirs}, but all nodes of a quorum must agree; it has \
             no vote; run `leasehold strict on` or `leasehold strict off` with all URLs, write the \
             same `strict` into each URL, or into none, and start this program again"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::quorum::node::not_tried;

    #[test]
    fn a_node_is_admitted_as_the_table_says() {
        let apart = |unseen: &[usize]| Ok(Compared::Apart { unseen: unseen.to_vec() });
        let (down, denied) = (Err(ErrorKind::Unavailable), Err(ErrorKind::Denied));
        // Node 2 is new. Nodes 0 and 1 vote, and node 3 does not.
        // Columns: the findings at nodes 0 to 3, whether a majority votes, the expected result.
        for (found, is_enough, means) in [
            ([Ok(false), Ok(false), Ok(true), Ok(false)], true, apart(&[])),
            ([Ok(false), Ok(false), Ok(true), down], true, apart(&[])),
            ([Ok(false), Ok(false), Ok(true), down], false, apart(&[])),
            ([Ok(false), Ok(true), Ok(true), down], true, Ok(Compared::SameAs(1))),
            ([down, down, Ok(true), Ok(true)], true, Ok(Compared::SameAs(3))),
            ([Ok(false), Ok(false), Ok(false), down], true, Err(2)),
            ([Ok(false), Ok(false), down, down], true, Err(2)),
            ([Ok(false), down, Ok(true), down], true, apart(&[1])),
            ([Ok(false), Err(ErrorKind::Unknown), Ok(true), down], true, apart(&[1])),
            ([down, down, Ok(true), down], true, apart(&[0, 1])),
            ([Ok(false), down, Ok(true), down], false, Err(1)),
            ([Ok(false), denied, Ok(true), down], true, Err(1)),
            ([down, denied, Ok(true), down], true, Err(1)),
        ] {
            let looks: Looks = found
                .into_iter()
                .map(|seen| seen.map_err(|kind| Error::new(kind, "it was not looked at")))
                .enumerate()
                .collect();
            let compared = compare(2, &[0, 1], &looks, is_enough).map_err(|(at, _)| at);
            assert_eq!(compared, means, "{looks:?} {is_enough}");
        }
        // Node 2 is tried again. It was compared with node 0 before.
        let looks = Looks::from([(0, Err(not_tried())), (1, Ok(false)), (2, Ok(true))]);
        assert_eq!(compare(2, &[1], &looks, true).map_err(|(at, _)| at), apart(&[]));
    }

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
