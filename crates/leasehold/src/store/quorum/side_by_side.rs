//! Reads the answers of several nodes side by side.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::Shared;
use super::ballot::Ballot;
use crate::core::error::Error;
use crate::core::moment::Moment;
use crate::core::token::{FencingToken, OwnerToken};
use crate::core::ttl::Ttl;
use crate::core::validity::command_limit;
use crate::host::Sleep;
use crate::store::{Renewal, Renewed, Store, within};

/// An event of one node.
pub(super) enum Heard<T> {
    Answer(Result<T, Error>),
    /// The node takes longer than usual. Its answer may still come.
    Late,
    /// The first trial of the node has ended, or took as long as a command may. The node can be
    /// asked now, and was not asked before.
    Tried,
}

/// The messages to the nodes for one request that have no answer yet.
pub(super) struct SideBySide<S, T> {
    shared: Arc<Shared<S>>,
    ttl: Ttl,
    pending: Vec<Pending<T>>,
    /// Set for the next node that becomes late. Armed only if no answer is there at once.
    timer: Option<(Moment, Sleep)>,
}

struct Pending<T> {
    node: usize,
    event: Pin<Box<dyn Future<Output = Heard<T>> + Send>>,
    since: Moment,
    /// When it becomes late; `None` once that was reported.
    late_at: Option<Moment>,
}

impl<S, T: 'static> SideBySide<S, T> {
    /// Begins a request to all nodes. Returns the nodes that the caller can ask at once. The others
    /// are in their first trials: [`Heard::Tried`] says when the caller can ask them.
    pub(super) fn begin(shared: &Arc<Shared<S>>, ttl: Ttl) -> (Self, Vec<usize>) {
        let pending = Vec::with_capacity(shared.nodes.len());
        let mut begun = Self { shared: Arc::clone(shared), ttl, pending, timer: None };
        let mut ready = Vec::with_capacity(shared.nodes.len());
        for (number, node) in shared.nodes.iter().enumerate() {
            let Some(trial) = node.first_trial() else {
                ready.push(number);
                continue;
            };
            let ended = async move {
                trial.await;
                Ok(())
            };
            let ended = within(Arc::clone(&shared.host), command_limit(ttl), ended);
            begun.add(number, async move {
                let _ended_or_not = ended.await;
                Heard::Tried
            });
        }
        (begun, ready)
    }

    /// Adds a message that was just sent to a node. `wrap`: says which answer this is.
    pub(super) fn push<A: 'static>(
        &mut self,
        node: usize,
        answer: impl Future<Output = Result<A, Error>> + Send + 'static,
        wrap: fn(A) -> T,
    ) {
        self.add(node, async move { Heard::Answer(answer.await.map(wrap)) });
    }

    fn add(&mut self, node: usize, event: impl Future<Output = Heard<T>> + Send + 'static) {
        let since = self.shared.host.now();
        let late_at = Some(since + self.shared.nodes[node].patience(self.ttl));
        self.pending.push(Pending { node, event: Box::pin(event), since, late_at });
        self.timer = None;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// The next event; `None` if none is due any more.
    ///
    /// # Cancel safety
    ///
    /// No event is lost.
    pub(super) async fn next(&mut self) -> Option<(usize, Heard<T>)> {
        poll_fn(|context| self.poll_next(context)).await
    }

    /// Like [`next`](Self::next), but only until the lease of `owner` ends. Polling an answer may
    /// send its request once more if the server forgot a script. That must not happen after the
    /// release.
    pub(super) async fn next_of(&mut self, owner: &OwnerToken) -> Option<(usize, Heard<T>)> {
        poll_fn(|context| match self.shared.leases.known(owner) {
            Some(_) => self.poll_next(context),
            None => Poll::Ready(None),
        })
        .await
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<(usize, Heard<T>)>> {
        if self.pending.is_empty() {
            return Poll::Ready(None);
        }
        loop {
            for index in 0..self.pending.len() {
                if let Poll::Ready(heard) = self.pending[index].event.as_mut().poll(context) {
                    let Pending { node, since, .. } = self.pending.remove(index);
                    if matches!(heard, Heard::Answer(Ok(_))) {
                        let span = self.shared.host.now().since(since);
                        self.shared.nodes[node].answered_after(span);
                    }
                    return Poll::Ready(Some((node, heard)));
                }
            }
            let first = self.pending.iter().filter_map(|pending| pending.late_at).min();
            let Some(first) = first else { return Poll::Pending };
            if first <= self.shared.host.now() {
                let is_late = |pending: &&mut Pending<T>| pending.late_at == Some(first);
                let late = self.pending.iter_mut().find(is_late).expect("it was just found");
                late.late_at = None;
                self.timer = None;
                return Poll::Ready(Some((late.node, Heard::Late)));
            }
            if self.timer.as_ref().is_none_or(|(at, _)| *at != first) {
                self.timer = Some((first, self.shared.host.sleep_until(first)));
            }
            let (_, timer) = self.timer.as_mut().expect("it was just armed");
            std::task::ready!(timer.as_mut().poll(context));
        }
    }
}

impl<S: Store, T: 'static> SideBySide<S, T> {
    /// Raises the counters of the nodes that are behind, if they still grant the key to us.
    /// `renewal`: makes a plain renewal of the lease.
    pub(super) fn raise(
        &mut self,
        ballot: &mut Ballot,
        renewal: impl Fn() -> Renewal,
        wrap: fn(Renewed) -> T,
    ) {
        let (behind, last) = ballot.behind();
        for node in behind {
            let renewal = Renewal { at_least: FencingToken::new(last), ..renewal() };
            let answer = self.shared.nodes[node].store.renew(renewal);
            self.push(node, answer, wrap);
        }
    }
}
