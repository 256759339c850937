//! Reads the answers of several nodes side by side.

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::{Context, Poll};

use super::Shared;
use crate::core::error::Error;
use crate::core::moment::Moment;
use crate::core::token::OwnerToken;
use crate::core::ttl::Ttl;
use crate::core::validity::command_limit;
use crate::host::Sleep;
use crate::store::{BoxAnswer, within};

/// An event of one node.
pub(super) enum Heard<T> {
    Answer(Result<T, Error>),
    /// The node takes longer than usual. Its answer may still come.
    Late,
}

/// Requests to nodes that have not been answered yet.
pub(super) struct SideBySide<S, T> {
    shared: Arc<Shared<S>>,
    pending: Vec<Pending<T>>,
    /// Set for the next node that becomes late. Armed only if no answer is there at once.
    timer: Option<(Moment, Sleep)>,
}

struct Pending<T> {
    node: usize,
    answer: BoxAnswer<T>,
    /// `None` if it is no answer of the node.
    sent: Option<Moment>,
    /// When it becomes late; `None` once that was reported.
    late_at: Option<Moment>,
}

impl<S, T> SideBySide<S, T> {
    pub(super) fn new(shared: &Arc<Shared<S>>) -> Self {
        let pending = Vec::with_capacity(shared.nodes.len());
        Self { shared: Arc::clone(shared), pending, timer: None }
    }

    /// Adds a request that was just submitted.
    pub(super) fn push(&mut self, node: usize, ttl: Ttl, answer: BoxAnswer<T>) {
        let sent = Some(self.shared.host.now());
        self.add(node, ttl, answer, sent);
    }

    /// Adds the first trial of a node, before which no request can be submitted. Its answer is
    /// `tried`, when the trial has ended or has taken as long as a command may. The standing of the
    /// node says which.
    pub(super) fn push_trial(
        &mut self,
        node: usize,
        ttl: Ttl,
        trial: impl Future<Output = ()> + Send + 'static,
        tried: T,
    ) where
        T: Send + 'static,
    {
        let ended = async move {
            trial.await;
            Ok(())
        };
        let ended = within(Arc::clone(&self.shared.host), command_limit(ttl), ended);
        let event = async move {
            let _ended_or_not = ended.await;
            Ok(tried)
        };
        self.add(node, ttl, Box::pin(event), None);
    }

    fn add(&mut self, node: usize, ttl: Ttl, answer: BoxAnswer<T>, sent: Option<Moment>) {
        let late_at = Some(self.shared.host.now() + self.shared.nodes[node].patience(ttl));
        self.pending.push(Pending { node, answer, sent, late_at });
        self.timer = None;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// The next answer or late node; `None` if no request is open.
    ///
    /// # Cancel safety
    ///
    /// No answer is lost.
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
                if let Poll::Ready(answer) = self.pending[index].answer.as_mut().poll(context) {
                    let Pending { node, sent, .. } = self.pending.remove(index);
                    if let (Ok(_), Some(sent)) = (&answer, sent) {
                        let span = self.shared.host.now().since(sent);
                        self.shared.nodes[node].answered_after(span);
                    }
                    return Poll::Ready(Some((node, Heard::Answer(answer))));
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
