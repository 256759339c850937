//! One renewal at all nodes.

use std::sync::Arc;

use super::ballot::{Ballot, Verdict};
use super::side_by_side::{Heard, SideBySide};
use super::{Shared, error};
use crate::core::error::Error;
use crate::core::moment::Moment;
use crate::core::token::FencingBlock;
use crate::store::{Renewal, Renewed, Revocation, Store};

/// The answer of a node.
enum Answer {
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
        let sent = shared.host.now();
        let (answers, ready) = SideBySide::begin(shared, renewal.ttl);
        let ballot = Ballot::new(shared.nodes.len(), renewal.reserve > 0);
        let (shared, seen, lost) = (Arc::clone(shared), None, Vec::new());
        let (wanted, revoked) = (false, None);
        let mut renewing =
            Self { shared, renewal, sent, ballot, seen, wanted, revoked, lost, answers };
        ready.into_iter().for_each(|node| renewing.ask(node));
        renewing
    }

    /// Asks a node, if it may vote.
    fn ask(&mut self, node: usize) {
        if let Some(store) = self.shared.voter(node, &mut self.ballot) {
            self.answers.push(node, store.renew(self.renewal.clone()), Answer::Renewed);
        }
    }

    /// Waits until a majority has renewed the lease, or no longer can.
    pub(super) async fn decided(mut self) -> Result<Renewed, Error> {
        loop {
            match self.ballot.verdict() {
                Verdict::Open => {}
                Verdict::Granted(reserved) => return Ok(self.renewed(reserved)),
                // Too few nodes still have the lease. The other answers do not matter.
                _ if self.lost.len() > self.shared.nodes.len() - self.ballot.majority() => {
                    // The nodes that still keep the lease would block the next owner.
                    self.shared.leave(self.renewal.lease.clone());
                    return Ok(Renewed::Lost);
                }
                // Nodes that failed may still have the lease, and may answer next time.
                Verdict::Taken { .. }
                | Verdict::Split
                | Verdict::Quarantined(_)
                | Verdict::Failed => {}
            }
            let Some((node, heard)) = self.answers.next().await else { break };
            match heard {
                Heard::Answer(answer) => self.hear(node, answer),
                Heard::Tried => self.ask(node),
                // Wait for the node, because the lease may still be renewed.
                Heard::Late => {}
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
                self.seen = self.seen.into_iter().chain(fencing).reduce(FencingBlock::join);
            }
            Ok(Answer::Renewed(Renewed::Lost)) => {
                self.ballot.taken(node, None, 0);
                self.lost.push(node);
            }
            Ok(Answer::Raised(Renewed::Renewed { fencing, raised_from, .. })) => {
                self.ballot.raised(node, fencing, raised_from);
            }
            Ok(Answer::Raised(Renewed::Lost)) => self.ballot.taken(node, None, 0),
            Err(error) => self.ballot.failed(node, error),
        }
        let renewal = || Renewal { reserve: 0, ..self.renewal.clone() };
        self.answers.raise(&mut self.ballot, renewal, Answer::Raised);
    }

    /// Notes the renewal. Nodes that lost the lease are asked for it again in the background.
    /// Asking them earlier could bring a lease back that somebody had ended.
    fn renewed(mut self, reserved: Option<FencingBlock>) -> Renewed {
        let owner = &self.renewal.lease.owner;
        self.shared.leases.extend(owner, self.sent, self.renewal.ttl);
        let before = self.shared.leases.known(owner).and_then(|known| known.fencing);
        let is_raised = |last| self.renewal.at_least.is_some_and(|at_least| at_least.get() > last);
        let raised_from = before.filter(|before| is_raised(before.last()));
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
