//! One acquire request to all nodes.

use std::sync::Arc;
use std::time::Duration;

use super::ballot::{Ballot, Verdict};
use super::leases::Known;
use super::node::not_tried;
use super::side_by_side::{Heard, SideBySide};
use super::{Shared, error};
use crate::core::error::{Error, ErrorKind};
use crate::core::moment::Moment;
use crate::core::token::FencingBlock;
use crate::store::{Acquired, Afterwards, Ask, Line, Refusal, Renewal, Renewed, Store, Why};

/// The answer of a node.
enum Answer {
    Acquired(Acquired),
    /// The answer to a renewal that reserves fencing tokens.
    Reserved(Renewed),
    /// The answer to a renewal that raises the counter.
    Raised(Renewed),
}

/// An acquire request that was submitted to all nodes.
pub(super) struct Asking<S: Store> {
    shared: Arc<Shared<S>>,
    ask: Ask,
    sent: Moment,
    ballot: Ballot,
    answers: SideBySide<S, Answer>,
    /// Whether the token is spent at a node. That node releases the grant of this token itself.
    is_spent: bool,
    /// Whether a node refused without a request to its server, since the token was spent there.
    asked_in_vain: bool,
}

impl<S: Store> Asking<S> {
    /// Submits the request.
    pub(super) fn submit(shared: &Arc<Shared<S>>, ask: Ask) -> Self {
        let ballot = Ballot::new(shared.nodes.len(), ask.reserve > 0);
        let sent = shared.host.now();
        let (answers, ready) = SideBySide::begin(shared, ask.ttl);
        let (is_spent, asked_in_vain) = (false, false);
        let shared = Arc::clone(shared);
        let mut asking = Self { shared, ask, sent, ballot, answers, is_spent, asked_in_vain };
        ready.into_iter().for_each(|node| asking.ask(node));
        asking
    }

    /// Asks a node, if it may vote.
    fn ask(&mut self, node: usize) {
        if let Some(store) = self.shared.voter(node, &mut self.ballot) {
            self.answers.push(node, store.acquire(self.ask.clone()), Answer::Acquired);
        }
    }

    /// Waits until the votes decide.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future releases nothing, so the caller must release the token.
    pub(super) async fn decided(mut self) -> Result<Acquired, Error> {
        loop {
            match self.ballot.verdict() {
                Verdict::Open => {}
                Verdict::Granted(fencing) => return Ok(self.granted(fencing)),
                // A waiter asks again with the same token, so it keeps the grants of the other
                // nodes. A node that was not asked yet has granted nothing.
                Verdict::Taken { .. } if self.waits() && self.waits_for_asked_node() => {}
                Verdict::Taken { retry_in, ahead } => {
                    let taken = Refusal::taken(retry_in, ahead);
                    if self.is_spent {
                        return Ok(self.given_up(taken));
                    }
                    if self.waits() {
                        return Ok(taken.into());
                    }
                    self.hear_out();
                    return Ok(taken.with_token(Afterwards::Spent).into());
                }
                Verdict::Split => {
                    let split = Refusal::split(self.shared.round_trip());
                    return Ok(self.given_up(split));
                }
                // The remaining answers tell whether any node granted the key.
                Verdict::Quarantined(_) | Verdict::Failed if self.ballot.is_waited_for() => {}
                Verdict::Quarantined(quarantine) => {
                    if self.ballot.may_be_known() {
                        self.shared.leave(self.ask.lease());
                    }
                    return Ok(Refusal::quarantined(quarantine).into());
                }
                Verdict::Failed if self.is_spent => {
                    let refusal = Refusal::too_few_copies(self.failed());
                    let refusal = if self.asked_in_vain { refusal.at_once() } else { refusal };
                    return Ok(refusal.with_token(Afterwards::Leave).into());
                }
                Verdict::Failed => {
                    let error = self.failed();
                    if self.waits() && self.ballot.is_granted_somewhere() {
                        // Each repetition with this token would keep those votes from a holder.
                        return Ok(self.given_up(Refusal::too_few_copies(error)));
                    }
                    let has_place = self.waits() && self.ballot.may_be_known();
                    if has_place && error.kind() != ErrorKind::Unknown {
                        // An error would mean that no node knows the token. The client would not
                        // release its place then.
                        let refusal = Refusal::too_few_copies(error);
                        return Ok(refusal.with_token(Afterwards::Keep).into());
                    }
                    return Err(error);
                }
            }
            let Some((node, heard)) = self.answers.next().await else {
                return Err(self.failed());
            };
            match heard {
                Heard::Tried => self.ask(node),
                heard => self.hear(node, heard),
            }
        }
    }

    /// Releases what the nodes granted, or may still grant. The token is spent then.
    fn given_up(self, refusal: Refusal) -> Acquired {
        // Sent after the request, so it reaches every node that may have granted the key.
        self.shared.leave(self.ask.lease());
        refusal.with_token(Afterwards::Spent).into()
    }

    /// Whether a node that was asked has not answered yet and is not late.
    fn waits_for_asked_node(&self) -> bool {
        let mut nodes = self.shared.nodes.iter().enumerate();
        nodes.any(|(number, node)| node.is_tried() && self.ballot.is_waited_for_at(number))
    }

    fn waits(&self) -> bool {
        self.ask.line != Line::None
    }

    /// Releases the grants of all nodes, also late ones, for a client that does not wait for the
    /// key.
    fn hear_out(mut self) {
        if self.answers.is_empty() && !self.ballot.may_be_granted() {
            return;
        }
        let host = Arc::clone(&self.shared.host);
        host.spawn_io(Box::pin(async move {
            while !self.ballot.may_be_granted() {
                let Some((node, heard)) = self.answers.next().await else { return };
                self.hear(node, heard);
            }
            // The release is sent after the request, so it also ends the grants of nodes that
            // answer later.
            self.shared.leave(self.ask.lease());
        }));
    }

    fn hear(&mut self, node: usize, heard: Heard<Answer>) {
        match heard {
            Heard::Late => self.ballot.late(node),
            // The votes have decided without this node. A request now could arrive after the
            // release.
            Heard::Tried => self.ballot.failed(node, not_tried()),
            Heard::Answer(Ok(Answer::Acquired(Acquired::Granted { fencing }))) => {
                if self.ask.reserve > 0 && fencing.is_none() {
                    self.reserve(node);
                } else {
                    self.ballot.granted(node, fencing);
                }
            }
            Heard::Answer(Ok(Answer::Acquired(Acquired::Refused(refusal)))) => {
                self.refused(node, refusal);
            }
            Heard::Answer(Ok(Answer::Reserved(Renewed::Renewed { fencing, .. }))) => {
                match fencing {
                    Some(_) => self.ballot.granted(node, fencing),
                    None => self.ballot.failed(node, no_fencing_tokens()),
                }
            }
            Heard::Answer(Ok(Answer::Raised(Renewed::Renewed {
                fencing, raised_from, ..
            }))) => {
                self.ballot.raised(node, fencing, raised_from);
            }
            Heard::Answer(Ok(Answer::Reserved(Renewed::Lost) | Answer::Raised(Renewed::Lost))) => {
                self.ballot.failed(node, lost_meanwhile());
            }
            Heard::Answer(Err(error)) => self.ballot.failed(node, error),
        }
        let renewal = || Renewal::new(self.ask.lease(), self.ask.ttl);
        self.answers.raise(&mut self.ballot, renewal, Answer::Raised);
    }

    /// Reserves fencing tokens at a node that granted the key without any. Such a node got the
    /// lease after an earlier grant (see `filling.rs`), by a request that takes no token.
    fn reserve(&mut self, node: usize) {
        let renewal =
            Renewal { reserve: self.ask.reserve, ..Renewal::new(self.ask.lease(), self.ask.ttl) };
        let answer = self.shared.nodes[node].store.renew(renewal);
        self.answers.push(node, answer, Answer::Reserved);
    }

    fn refused(&mut self, node: usize, Refusal { why, retry_in, ahead, token }: Refusal) {
        self.is_spent |= token == Afterwards::Spent;
        match why {
            Why::Taken => self.ballot.taken(node, retry_in, ahead),
            Why::Split => self.ballot.taken(node, retry_in, 0),
            Why::Quarantined(quarantine) => self.ballot.quarantined(node, quarantine),
            Why::TooFewCopies(error) => {
                self.is_spent = true;
                self.asked_in_vain |= retry_in == Some(Duration::ZERO);
                self.ballot.failed(node, error);
            }
        }
    }

    fn failed(&self) -> Error {
        error::no_majority(&self.shared, &self.ballot).with_name(self.ask.key.as_str())
    }

    /// Notes the grant. Nodes that voted for another client are asked again when that vote ends.
    /// Later grants are handled in the background.
    fn granted(self, fencing: Option<FencingBlock>) -> Acquired {
        let known = Known::new(fencing, self.sent, self.ask.ttl);
        let now = self.shared.host.now();
        self.shared.leases.begin(self.ask.owner.clone(), known, now);
        (0..self.shared.nodes.len()).for_each(|node| self.fill(node));
        self.fill_after_trials();
        if !self.answers.is_empty() {
            let host = Arc::clone(&self.shared.host);
            host.spawn_io(Box::pin(self.aftermath()));
        }
        Acquired::Granted { fencing }
    }

    /// Asks a node again if it voted for another client.
    fn fill(&self, node: usize) {
        if let Some(free_in) = self.ballot.free_in(node) {
            self.shared.fill(&self.ask.lease(), node, Some(free_in));
        }
    }

    /// Asks the nodes that are still tried, in the background, once their first trials are over.
    fn fill_after_trials(&self) {
        for node in 0..self.shared.nodes.len() {
            let Some(trial) = self.shared.nodes[node].first_trial() else { continue };
            let (shared, lease) = (Arc::downgrade(&self.shared), self.ask.lease());
            self.shared.host.spawn_io(Box::pin(async move {
                trial.await;
                if let Some(shared) = shared.upgrade().filter(|it| it.nodes[node].is_admitted()) {
                    shared.fill(&lease, node, None);
                }
            }));
        }
    }

    /// Raises the counters of late nodes while the lease is valid.
    async fn aftermath(mut self) {
        let owner = self.ask.owner.clone();
        while let Some((node, heard)) = self.answers.next_of(&owner).await {
            if self.shared.leases.valid(&self.ask.owner, self.shared.host.now()).is_some() {
                self.hear(node, heard);
                self.fill(node);
            }
        }
    }
}

fn no_fencing_tokens() -> Error {
    // `Unknown`, because the grant must be released.
    Error::new(ErrorKind::Unknown, "it granted the key without a fencing token")
}

fn lost_meanwhile() -> Error {
    Error::new(ErrorKind::Unavailable, "the node lost the key before it gave fencing tokens")
}
