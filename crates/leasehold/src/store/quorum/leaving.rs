//! One release at all nodes.

use std::convert::identity;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;

use super::node::Node;
use super::side_by_side::{Heard, SideBySide};
use super::{Shared, error};
use crate::core::backoff::Backoff;
use crate::core::error::Error;
use crate::core::ttl::Ttl;
use crate::host::random_u32;
use crate::store::{LeaseId, OnRelease, Released, Store};

/// How long a release is retried at a node that failed. A longer lease expires there by itself.
const RETRY_FOR: Duration = Duration::from_secs(10);

/// The pauses between the retries.
const RETRY: Backoff =
    Backoff { first: Duration::from_millis(10), longest: Duration::from_secs(1) };

/// How often a release is retried at a node before the other nodes have decided. Without a
/// decision, the caller repeats it at all nodes.
const RETRIES_BEFORE_MAX: usize = 4;

/// How many retries after decisions run at a time, over all releases and nodes. Further leases
/// expire by themselves.
pub(super) const RETRYING_MAX: usize = 1_024;

/// A release that was submitted to all nodes, after all earlier requests. If it is dropped, it goes
/// on in the background.
pub(super) struct Leaving<S: Store>(Option<UnderWay<S>>);

/// A release under way. Dropping it ends its retries, but takes no request back.
struct UnderWay<S: Store> {
    shared: Arc<Shared<S>>,
    release: Release,
    answers: SideBySide<S, Released>,
    /// Retries at nodes that failed. They run while other nodes have not answered, so a silent node
    /// does not delay them.
    retries: FuturesUnordered<Retry>,
    /// The nodes that also failed at these retries.
    unheard: Vec<usize>,
}

/// The last answer of a node to its retries.
type Retry = Pin<Box<dyn Future<Output = (usize, Result<Released, Error>)> + Send>>;

/// The request that every node gets, and every retry repeats.
#[derive(Clone)]
struct Release {
    lease: LeaseId,
    on_release: OnRelease,
}

impl Release {
    fn send_to<S: Store>(
        &self,
        node: &Node<S>,
    ) -> impl Future<Output = Result<Released, Error>> + Send + 'static {
        node.store.release(self.lease.clone(), self.on_release.clone())
    }
}

impl<S: Store> Shared<S> {
    /// Frees a key at all nodes, in the background.
    pub(super) fn leave(self: &Arc<Self>, lease: LeaseId) {
        drop(Leaving::submit(self, lease, OnRelease::Free));
    }
}

impl<S: Store> Leaving<S> {
    /// Submits a release. From now on, no node is asked for the lease again.
    pub(super) fn submit(shared: &Arc<Shared<S>>, lease: LeaseId, on_release: OnRelease) -> Self {
        shared.leases.end(&lease.owner);
        let (answers, ready) = SideBySide::begin(shared, Ttl::DEFAULT);
        let (shared, release) = (Arc::clone(shared), Release { lease, on_release });
        let (retries, unheard) = (FuturesUnordered::new(), Vec::new());
        let mut under_way = UnderWay { shared, release, answers, retries, unheard };
        ready.into_iter().for_each(|node| under_way.ask(node));
        Self(Some(under_way))
    }

    /// Waits until a majority has released the lease, or until no majority can have had it.
    pub(super) async fn decided(mut self) -> Result<Released, Error> {
        let under_way = self.0.as_mut().expect("it is there until this is dropped");
        let decided = under_way.decided().await;
        if decided.is_err() {
            // The caller gets the error, and can repeat the release, as a session does. Then
            // retries here would repeat it twice.
            self.0 = None;
        }
        decided
    }
}

impl<S: Store> Drop for Leaving<S> {
    fn drop(&mut self) {
        if let Some(under_way) = self.0.take()
            && !under_way.is_over()
        {
            let host = Arc::clone(&under_way.shared.host);
            host.spawn_io(Box::pin(under_way.finish()));
        }
    }
}

impl<S: Store> UnderWay<S> {
    fn is_over(&self) -> bool {
        self.answers.is_empty() && self.retries.is_empty() && self.unheard.is_empty()
    }

    /// Releases at a node, if it may vote.
    fn ask(&mut self, node: usize) {
        let at = &self.shared.nodes[node];
        if at.is_admitted() {
            self.answers.push(node, self.release.send_to(at), identity);
        }
    }

    /// Releases at a node whose first trial has ended. If it has not ended, this is done in the
    /// background later.
    fn ask_after_trial(&mut self, node: usize) {
        match self.shared.nodes[node].first_trial() {
            None => self.ask(node),
            Some(trial) => {
                let (shared, release) = (Arc::downgrade(&self.shared), self.release.clone());
                let later = release_after(trial, shared, release, node);
                self.shared.host.spawn_io(Box::pin(later));
            }
        }
    }

    async fn decided(&mut self) -> Result<Released, Error> {
        let (nodes, majority) = (self.shared.nodes.len(), self.shared.majority());
        let mut failures: Vec<(usize, Error)> = Vec::new();
        let (mut freed, mut not_held) = (0, 0);
        while let Some((node, answer)) = self.next(false).await {
            let failed = failures.iter().position(|(failed, _)| *failed == node);
            match (answer, failed) {
                (Ok(Released::NotHeld), None) => not_held += 1,
                // The request that failed may have released it.
                (Ok(Released::NotHeld), Some(_)) => {}
                (Ok(Released::Freed | Released::HandedOver | Released::Kept { .. }), failed) => {
                    freed += 1;
                    failed.map(|failure| failures.swap_remove(failure));
                }
                (Err(error), None) => {
                    if error.is_retryable() {
                        self.retry_before_the_decision(node);
                    }
                    failures.push((node, error));
                }
                (Err(_), Some(_)) => self.unheard.push(node),
            }
            if freed >= majority {
                return Ok(Released::Freed);
            }
            // No majority had it, and the missing answers cannot change that.
            if not_held > nodes - majority {
                return Ok(Released::NotHeld);
            }
        }
        let error = error::not_released(&self.shared, freed, not_held, &failures);
        Err(error.with_name(self.release.lease.key.as_str()))
    }

    fn retry_before_the_decision(&self, node: usize) {
        let (shared, release) = (Arc::clone(&self.shared), self.release.clone());
        self.retries.push(Box::pin(async move {
            (node, repeat(&shared, &release, node, RETRIES_BEFORE_MAX).await)
        }));
    }

    /// The next answer of a node, to the first request or to a retry. `None` once all first answers
    /// have come, and all retries have ended if it `waits_for_retries`.
    async fn next(&mut self, waits_for_retries: bool) -> Option<(usize, Result<Released, Error>)> {
        while waits_for_retries || !self.answers.is_empty() {
            tokio::select! {
                biased;
                Some((node, heard)) = self.answers.next() => match heard {
                    Heard::Late => {}
                    Heard::Tried => self.ask_after_trial(node),
                    Heard::Answer(answer) => return Some((node, answer)),
                },
                Some(retried) = self.retries.next() => return Some(retried),
                else => return None,
            }
        }
        None
    }

    /// Reads the remaining answers and retries where needed. Each node is retried separately, so a
    /// silent node does not delay the others.
    async fn finish(mut self) {
        let (shared, release) = (Arc::clone(&self.shared), self.release.clone());
        let again = |node| retry(Arc::clone(&shared), release.clone(), node);
        let mut again_at: FuturesUnordered<_> = self.unheard.drain(..).map(again).collect();
        loop {
            tokio::select! {
                biased;
                Some((node, answer)) = self.next(true) => {
                    if has_to_be_tried_again(&answer) {
                        again_at.push(again(node));
                    }
                }
                Some(()) = again_at.next() => {}
                else => return,
            }
        }
    }
}

/// Releases at a node whose first trial takes long, once the trial has ended. An earlier process
/// may have got the lease there.
async fn release_after<S: Store>(
    trial: impl Future<Output = ()>,
    shared: Weak<Shared<S>>,
    release: Release,
    node: usize,
) {
    trial.await;
    let Some(shared) = shared.upgrade() else { return };
    if shared.nodes[node].is_admitted() {
        let answer = release.send_to(&shared.nodes[node]).await;
        if has_to_be_tried_again(&answer) {
            retry(shared, release, node).await;
        }
    }
}

/// Retries a release at one node until the node answers or [`RETRY_FOR`] is over.
async fn retry<S: Store>(shared: Arc<Shared<S>>, release: Release, node: usize) {
    let Ok(_slot) = shared.retry_slots.try_acquire() else { return };
    let _answer = repeat(&shared, &release, node, usize::MAX).await;
}

/// Sends a release to one node again, at most this often, and for [`RETRY_FOR`]. Returns the last
/// answer.
async fn repeat<S: Store>(
    shared: &Shared<S>,
    release: &Release,
    node: usize,
    mut times: usize,
) -> Result<Released, Error> {
    let host = &shared.host;
    let until = host.now() + RETRY_FOR;
    let mut pauses = RETRY.delays();
    loop {
        let pause = pauses.next(random_u32(&**host));
        host.sleep_until(host.now() + pause).await;
        let answer = release.send_to(&shared.nodes[node]).await;
        times -= 1;
        if !has_to_be_tried_again(&answer) || times == 0 || host.now() >= until {
            return answer;
        }
    }
}

fn has_to_be_tried_again(answer: &Result<Released, Error>) -> bool {
    answer.as_ref().is_err_and(Error::is_retryable)
}
