//! One renewal at all nodes.

use std::sync::Arc;

use super::ballot::{Ballot, Verdict, last_of};
use super::leaving::Leaving;
use super::node::Standing;
use super::side_by_side::{Heard, SideBySide};
use super::{Shared, error};
use crate::core::error::Error;
use crate::core::moment::Moment;
use crate::core::token::{FencingBlock, FencingToken};
use crate::store::{Renewal, Renewed, Revocation, Store};

/// The answer of a node.
enum Answer {
    /// No answer: the first trial of the node is over, or took too long. Until then, it was not
    /// asked.
    Tried,
    Renewed(Renewed),
    /// The answer to a renewal that raises the counter.
    Raised(Renewed),
}

/// A renewal that was submitted to all nodes.
pub(super) struct Renewing<S: Store> {
    shared: Arc<Shared<S>>,
    renewal: Renewal,
    sent: Moment,
    ballot: Ballot,
    /// All fencing tokens that the nodes report, from the highest first to the highest last.
    seen: Option<FencingBlock>,
    wanted: bool,
    /// The request to let go that the first of the nodes reports.
    revoked: Option<Arc<Revocation>>,
    /// The nodes that lost the lease.
    lost: Vec<usize>,
    answers: SideBySide<S, Answer>,
}

impl<S: Store> Renewing<S> {
    pub(super) fn submit(shared: &Arc<Shared<S>>, renewal: Renewal) -> Self {
        let answers = SideBySide::new(shared);
        let sent = shared.host.now();
        let ballot = Ballot::new(shared.nodes.len(), renewal.reserve > 0);
        let (shared, seen, lost) = (Arc::clone(shared), None, Vec::new());
        let (wanted, revoked) = (false, None);
        let mut renewing =
            Self { shared, renewal, sent, ballot, seen, wanted, revoked, lost, answers };
        for number in 0..renewing.shared.nodes.len() {
            match renewing.shared.nodes[number].first_trial() {
                Some(trial) => {
                    let ttl = renewing.renewal.ttl;
                    renewing.answers.push_trial(number, ttl, trial, Answer::Tried);
                }
                None => renewing.ask(number),
            }
        }
        renewing
    }

    /// Asks a node, if it may vote. That may be after its first trial.
    fn ask(&mut self, number: usize) {
        let node = &self.shared.nodes[number];
        match node.standing() {
            Standing::Admitted { unseen } => {
                self.ballot.may_be_same(number, &unseen);
                let answer = node.store.renew(self.renewal.clone());
                let answer = async move { answer.await.map(Answer::Renewed) };
                self.answers.push(number, self.renewal.ttl, Box::pin(answer));
            }
            Standing::Candidate(error) | Standing::Refused(error) => {
                self.ballot.failed(number, error);
            }
        }
    }

    /// Waits until a majority has renewed the lease, or no longer can.
    pub(super) async fn decided(mut self) -> Result<Renewed, Error> {
        loop {
            match self.ballot.verdict() {
                Verdict::Open => {}
                Verdict::Granted(reserved) => return Ok(self.renewed(reserved)),
                // Too few nodes still have the lease, whatever the others answer.
                _ if self.lost.len() > self.shared.nodes.len() - self.ballot.majority() => {
                    // The nodes that still keep the lease would block the next owner.
                    drop(Leaving::submit(&self.shared, self.renewal.lease.clone()));
                    return Ok(Renewed::Lost);
                }
                // Nodes that failed may still have the lease, and may answer next time.
                Verdict::Taken { .. }
                | Verdict::Split
                | Verdict::Quarantined(_)
                | Verdict::Failed => {}
            }
            let Some((node, heard)) = self.answers.next().await else { break };
            // Also waits for late nodes, because the lease may still be renewed.
            if let Heard::Answer(answer) = heard {
                self.hear(node, answer);
            }
        }
        let key = self.renewal.lease.key.as_str();
        Err(error::not_renewed(&self.shared, &self.ballot).with_name(key))
    }

    fn hear(&mut self, node: usize, answer: Result<Answer, Error>) {
        match answer {
            Ok(Answer::Renewed(Renewed::Renewed { fencing, wanted, revoked, .. })) => {
                self.wanted |= wanted;
                self.revoked = self.revoked.take().or(revoked);
                self.ballot.granted(node, fencing);
                self.seen = both(self.seen, fencing);
                self.raise_behind();
            }
            Ok(Answer::Renewed(Renewed::Lost)) => {
                self.ballot.taken(node, None, 0);
                self.lost.push(node);
            }
            Ok(Answer::Raised(Renewed::Renewed { fencing, raised_from, .. })) => {
                self.ballot.raised(node, fencing, raised_from);
                self.raise_behind();
            }
            Ok(Answer::Raised(Renewed::Lost)) => self.ballot.taken(node, None, 0),
            Ok(Answer::Tried) => self.ask(node),
            Err(error) => self.ballot.failed(node, error),
        }
    }

    /// Notes the renewal. Nodes that lost the lease are asked for it again in the background.
    /// Asking them earlier could bring a lease back that somebody had ended.
    fn renewed(mut self, reserved: Option<FencingBlock>) -> Renewed {
        let owner = &self.renewal.lease.owner;
        self.shared.leases.extend(owner, self.sent, self.renewal.ttl);
        let before = self.shared.leases.known(owner).and_then(|known| known.fencing);
        let is_raised = |last| self.renewal.at_least.is_some_and(|at_least| at_least.get() > last);
        let raised_from = before.filter(|before| is_raised(last_of(*before)));
        if self.renewal.reserve > 0 || self.renewal.at_least.is_some() {
            self.shared.leases.count(owner, reserved.or(self.seen));
        }
        // If this client did not acquire the lease, it takes the tokens that the nodes report.
        let known = self.shared.leases.known(owner);
        let fencing = known.map_or_else(|| reserved.or(self.seen), |known| known.fencing);
        let (wanted, revoked) = (self.wanted, self.revoked.take());
        let renewed = Renewed::Renewed { fencing, raised_from, wanted, revoked };
        for node in std::mem::take(&mut self.lost) {
            self.shared.fill(&self.renewal.lease, node, None);
        }
        if !self.answers.is_empty() {
            let host = Arc::clone(&self.shared.host);
            host.spawn_io(Box::pin(self.aftermath()));
        }
        renewed
    }

    /// Raises the counters of the nodes that are behind, if they still grant the key to us.
    fn raise_behind(&mut self) {
        let (behind, last) = self.ballot.behind();
        if self.renewal.reserve > 0 {
            behind.into_iter().for_each(|node| self.raise(node, last));
        }
    }

    fn raise(&mut self, node: usize, counter: u64) {
        let at_least = FencingToken::new(counter);
        let renewal = Renewal { at_least, reserve: 0, ..self.renewal.clone() };
        let answer = self.shared.nodes[node].store.renew(renewal);
        let answer = async move { answer.await.map(Answer::Raised) };
        self.answers.push(node, self.renewal.ttl, Box::pin(answer));
    }

    /// Asks late nodes that lost the lease for it again.
    async fn aftermath(mut self) {
        let owner = self.renewal.lease.owner.clone();
        while let Some((node, heard)) = self.answers.next_of(&owner).await {
            if let Heard::Answer(Ok(Answer::Renewed(Renewed::Lost))) = heard {
                self.shared.fill(&self.renewal.lease, node, None);
            }
        }
    }
}

/// The block from the higher first to the higher last token.
fn both(one: Option<FencingBlock>, other: Option<FencingBlock>) -> Option<FencingBlock> {
    let (Some(one), Some(other)) = (one, other) else { return one.or(other) };
    let first = one.first.max(other.first);
    let last = last_of(one).max(last_of(other));
    let count = u32::try_from(last - first.get() + 1).unwrap_or(1);
    Some(FencingBlock { first, count })
}
