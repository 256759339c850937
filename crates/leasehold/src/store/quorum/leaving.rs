//! One release at all nodes.

use std::future::Future;
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
pub(super) struct Leaving<S: Store> {
    shared: Arc<Shared<S>>,
    release: Release,
    answers: SideBySide<S, Released>,
    /// The nodes where the release must be retried.
    unheard: Vec<usize>,
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
        Self { shared: Arc::clone(shared), release, answers, unheard: Vec::new() }
    }

    /// Waits until a majority has released the lease, or until no majority can have had it.
    pub(super) async fn decided(mut self) -> Result<Released, Error> {
        let mut tally = Tally::new(self.shared.nodes.len());
        let mut failures = Vec::new();
        let (mut freed, mut not_held) = (0, 0);
        while let Some((node, heard)) = self.answers.next().await {
            let Heard::Answer(answer) = heard else { continue };
            match &answer {
                Ok(Released::NotHeld) => not_held += 1,
                Ok(Released::Freed | Released::HandedOver | Released::Kept { .. }) => freed += 1,
                Err(error) => failures.push((node, error.clone())),
            }
            self.note(node, &answer);
            tally = tally.vote(answer.is_ok_and(|released| released != Released::NotHeld));
            if tally.verdict() == Verdict::Granted {
                return Ok(Released::Freed);
            }
            // No majority had it, and the missing answers cannot change that.
            if not_held > self.shared.nodes.len() - tally.majority() {
                return Ok(Released::NotHeld);
            }
        }
        // The caller gets the error and repeats the release. A retry here would be a second one.
        self.unheard.clear();
        let error = error::not_released(&self.shared, freed, not_held, &failures);
        Err(error.with_name(self.release.lease.key.as_str()))
    }

    fn note(&mut self, node: usize, answer: &Result<Released, Error>) {
        if has_to_be_tried_again(answer) {
            self.unheard.push(node);
        }
    }
}

impl<S: Store> Drop for Leaving<S> {
    fn drop(&mut self) {
        if self.answers.is_empty() && self.unheard.is_empty() {
            return;
        }
        let rest = Rest {
            shared: Arc::clone(&self.shared),
            release: self.release.clone(),
            answers: std::mem::replace(&mut self.answers, SideBySide::new(&self.shared)),
            unheard: std::mem::take(&mut self.unheard),
        };
        let host = Arc::clone(&self.shared.host);
        host.spawn_io(Box::pin(rest.finish()));
    }
}

/// The remaining part of a release that nobody waits for any more.
struct Rest<S: Store> {
    shared: Arc<Shared<S>>,
    release: Release,
    answers: SideBySide<S, Released>,
    unheard: Vec<usize>,
}

impl<S: Store> Rest<S> {
    /// Reads the remaining answers and retries where needed. Each node is retried separately, so a
    /// silent node does not delay the others.
    async fn finish(self) {
        let Self { shared, release, mut answers, unheard } = self;
        let again = |node| retry(Arc::clone(&shared), release.clone(), node);
        let mut retries: FuturesUnordered<_> = unheard.into_iter().map(again).collect();
        loop {
            tokio::select! {
                biased;
                Some((node, heard)) = answers.next() => {
                    if let Heard::Answer(answer) = heard
                        && has_to_be_tried_again(&answer)
                    {
                        retries.push(again(node));
                    }
                }
                Some(()) = retries.next() => {}
                else => return,
            }
        }
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
