//! One release at all nodes.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;

use super::side_by_side::{Heard, SideBySide};
use super::{Shared, error};
use crate::core::backoff::Backoff;
use crate::core::error::Error;
use crate::core::tally::{Tally, Verdict};
use crate::core::ttl::Ttl;
use crate::host::random_u32;
use crate::store::{LeaseId, OnRelease, Released, Store};

/// How long a release is retried at a node that has not answered. A longer lease expires there by
/// itself.
const RETRY_FOR: Duration = Duration::from_secs(10);

/// The pauses between the retries.
const RETRY: Backoff =
    Backoff { first: Duration::from_millis(10), longest: Duration::from_secs(1) };

/// How many releases are retried at a time, over all nodes. Further leases expire by themselves.
const RETRYING_MAX: usize = 1_024;

/// How many releases are being tried again.
pub(super) type Retrying = AtomicUsize;

/// A release that was submitted to all nodes, after all earlier requests. If it is dropped, it goes
/// on in the background.
pub(super) struct Leaving<S: Store>(Option<Submitted<S>>);

/// What was submitted. If it is dropped, nothing is retried.
struct Submitted<S: Store> {
    shared: Arc<Shared<S>>,
    release: Release,
    answers: SideBySide<S, Released>,
    /// One for each node that failed. They run while other nodes have not answered, so a silent
    /// node does not delay the others.
    retries: FuturesUnordered<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

/// The request that every node gets, and every retry repeats.
#[derive(Clone)]
struct Release {
    lease: LeaseId,
    on_release: OnRelease,
}

impl<S: Store> Leaving<S> {
    /// Submits a release that frees the key.
    pub(super) fn submit(shared: &Arc<Shared<S>>, lease: LeaseId) -> Self {
        Self::submit_as(shared, lease, OnRelease::Free)
    }

    /// Submits a release. From now on, no node is asked for the lease again.
    pub(super) fn submit_as(
        shared: &Arc<Shared<S>>,
        lease: LeaseId,
        on_release: OnRelease,
    ) -> Self {
        shared.leases.end(&lease.owner);
        let mut answers = SideBySide::new(shared);
        for (number, node) in shared.nodes.iter().enumerate() {
            if node.is_admitted() {
                let answer = node.store.release(lease.clone(), on_release.clone());
                answers.push(number, Ttl::DEFAULT, Box::pin(answer));
            }
        }
        let release = Release { lease, on_release };
        for node in 0..shared.nodes.len() {
            if let Some(trial) = shared.nodes[node].first_trial() {
                let again = release_after(trial, Arc::downgrade(shared), release.clone(), node);
                shared.host.spawn_io(Box::pin(again));
            }
        }
        let (shared, retries) = (Arc::clone(shared), FuturesUnordered::new());
        Self(Some(Submitted { shared, release, answers, retries }))
    }

    /// Waits until a majority has released the lease, or until no majority can have had it.
    pub(super) async fn decided(mut self) -> Result<Released, Error> {
        let submitted = self.0.as_mut().expect("it is taken when this is dropped");
        let decided = submitted.decided().await;
        if decided.is_err() {
            // The caller gets the error and repeats the release. Further retries would be second
            // ones.
            self.0 = None;
        }
        decided
    }
}

impl<S: Store> Drop for Leaving<S> {
    fn drop(&mut self) {
        if let Some(submitted) = self.0.take()
            && !(submitted.answers.is_empty() && submitted.retries.is_empty())
        {
            let host = Arc::clone(&submitted.shared.host);
            host.spawn_io(Box::pin(submitted.finish()));
        }
    }
}

impl<S: Store> Submitted<S> {
    async fn decided(&mut self) -> Result<Released, Error> {
        let mut tally = Tally::new(self.shared.nodes.len());
        let mut failures = Vec::new();
        let (mut freed, mut not_held) = (0, 0);
        while let Some((node, answer)) = self.next_answer().await {
            match &answer {
                Ok(Released::NotHeld) => not_held += 1,
                Ok(Released::Freed | Released::HandedOver | Released::Kept { .. }) => freed += 1,
                Err(error) => failures.push((node, error.clone())),
            }
            tally = tally.vote(answer.is_ok_and(|released| released != Released::NotHeld));
            if tally.verdict() == Verdict::Granted {
                return Ok(Released::Freed);
            }
            // No majority had it, and the missing answers cannot change that.
            if not_held > self.shared.nodes.len() - tally.majority() {
                return Ok(Released::NotHeld);
            }
        }
        let error = error::not_released(&self.shared, freed, not_held, &failures);
        Err(error.with_name(self.release.lease.key.as_str()))
    }

    /// The next answer to the first requests; `None` if all are answered. The retries go on
    /// meanwhile.
    async fn next_answer(&mut self) -> Option<(usize, Result<Released, Error>)> {
        loop {
            let heard = tokio::select! {
                biased;
                heard = self.answers.next() => heard,
                Some(()) = self.retries.next() => continue,
            };
            match heard? {
                (_, Heard::Late) => {}
                (node, Heard::Answer(answer)) => {
                    if has_to_be_tried_again(&answer) {
                        let again = retry(Arc::clone(&self.shared), self.release.clone(), node);
                        self.retries.push(Box::pin(again));
                    }
                    return Some((node, answer));
                }
            }
        }
    }

    /// Reads the remaining answers and retries where needed.
    async fn finish(mut self) {
        while self.next_answer().await.is_some() {}
        while self.retries.next().await.is_some() {}
    }
}

/// Releases at a node whose first trial is under way, once that has ended. An earlier process may
/// have got the lease there.
async fn release_after<S: Store>(
    trial: impl Future<Output = ()>,
    shared: Weak<Shared<S>>,
    release: Release,
    node: usize,
) {
    trial.await;
    let Some(shared) = shared.upgrade() else { return };
    if shared.nodes[node].is_admitted() {
        let Release { lease, on_release } = release.clone();
        let answer = shared.nodes[node].store.release(lease, on_release).await;
        if has_to_be_tried_again(&answer) {
            retry(shared, release, node).await;
        }
    }
}

/// Retries a release at one node until the node answers or [`RETRY_FOR`] is over.
async fn retry<S: Store>(shared: Arc<Shared<S>>, release: Release, node: usize) {
    let Some(_retrying) = Retry::begin(&shared) else { return };
    let host = &shared.host;
    let until = host.now() + RETRY_FOR;
    let mut pauses = RETRY.delays();
    while host.now() < until {
        let pause = pauses.next(random_u32(&**host));
        host.sleep_until(host.now() + pause).await;
        let Release { lease, on_release } = release.clone();
        let answer = shared.nodes[node].store.release(lease, on_release);
        if !has_to_be_tried_again(&answer.await) {
            return;
        }
    }
}

fn has_to_be_tried_again(answer: &Result<Released, Error>) -> bool {
    answer.as_ref().is_err_and(Error::is_retryable)
}

/// Counts a release that is being retried at a node.
struct Retry<S>(Arc<Shared<S>>);

impl<S> Retry<S> {
    fn begin(shared: &Arc<Shared<S>>) -> Option<Self> {
        let retrying = Self(Arc::clone(shared));
        (shared.retrying.fetch_add(1, Ordering::Relaxed) < RETRYING_MAX).then_some(retrying)
    }
}

impl<S> Drop for Retry<S> {
    fn drop(&mut self) {
        self.0.retrying.fetch_sub(1, Ordering::Relaxed);
    }
}
