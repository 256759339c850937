//! Asking the store for a key by one token, from the first ask to the lease, or to the place left.

use std::future::pending;
use std::sync::Arc;

use super::Session;
use super::held::{Held, Hold};
use super::spec::Spec;
use super::wake::Wake;
use crate::core::acquire::{Acquisition, NextAsk};
use crate::core::error::{Error, ErrorKind};
use crate::core::lease::{LeaseLife, Turn};
use crate::core::moment::Moment;
use crate::core::passing::TURN_BLOCK;
use crate::core::token::OwnerToken;
use crate::core::ttl::Ttl;
use crate::host::random_u32;
use crate::store::{Acquired, Ask, LeaseId, Line, Note, Quarantine, Store};

/// One token's asks. Dropped before it has its lease, it releases its token: whatever the store
/// granted, or will grant to an ask that is on its way, is given back, and the place in line is
/// left.
pub(super) struct Attempt {
    session: Arc<Session>,
    spec: Arc<Spec>,
    owner: OwnerToken,
    decisions: Acquisition,
    /// Wakes one who waits; none if it does not.
    wake: Option<Arc<Wake>>,
    /// The first ask does not leave earlier.
    not_before: Option<Moment>,
    /// Whether the store may know the token.
    known: bool,
    /// Whether an ask is not answered yet.
    is_asking: bool,
    /// Why the store could not be asked the last time, or grants nothing, if that is so.
    outage: Option<Error>,
    /// Goes last: what this leaves behind is a lease or a release by then.
    _counted: Counted,
}

/// Counts an acquisition as under way for as long as it is there.
pub(super) struct Counted(Arc<Session>);

impl Counted {
    pub(super) fn new(session: &Arc<Session>) -> Self {
        session.registry.asking_began();
        Self(Arc::clone(session))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.registry.asking_ended();
    }
}

impl Attempt {
    /// An attempt that takes a place in line if it has to, or none.
    ///
    /// # Errors
    ///
    /// If the session was closed.
    pub(super) fn begin(
        session: &Arc<Session>,
        spec: &Arc<Spec>,
        waits: bool,
    ) -> Result<Self, Error> {
        let counted = Counted::new(session);
        // Now that this counts as under way: either it sees a shutdown, or the shutdown sees it.
        session.check_open()?;
        let owner = session.fresh_token();
        let wake = waits.then(Arc::default);
        session.lines.with(&spec.key, |line| match &wake {
            Some(wake) => line.ask_as(owner.clone(), Arc::clone(wake)),
            None => line.tries += 1,
        });
        let now = session.now();
        let mut decisions = Acquisition::new(spec.ttl, waits);
        if session.calls_up {
            decisions = decisions.called_up();
        }
        let mut not_before = None;
        if spec.unqueued {
            decisions = decisions.polling();
        } else if spec.coexist && waits {
            decisions = decisions.giving_way();
            not_before = session.rests.end_of(&spec.key, now);
        }
        if not_before.is_some() {
            // This client had the key just now.
            decisions.take_as_answered();
        }
        Ok(Self {
            session: Arc::clone(session),
            spec: Arc::clone(spec),
            owner,
            decisions,
            wake,
            not_before,
            known: false,
            is_asking: false,
            outage: None,
            _counted: counted,
        })
    }

    /// Has an outage waited out from the beginning: this one waited for another task of its client,
    /// which had the key, so that the store has answered before.
    pub(super) fn after_others(mut self) -> Self {
        self.decisions.take_as_answered();
        let pause = self.decisions.pause(|| random_u32(&*self.session.host));
        if let Some(pause) = pause {
            self.not_before = Some(self.session.now() + pause);
        }
        self
    }

    /// Asks until there is a lease, or an end. `None` only without waiting: another has it.
    ///
    /// # Cancel safety
    ///
    /// Called again after its future was dropped, it goes on with the same token and place, unless
    /// the store may have given back by itself what was asked for.
    pub(super) async fn run(&mut self) -> Result<Option<Hold>, Error> {
        if let Some(at) = self.not_before {
            self.session.host.sleep_until(at).await;
        }
        if std::mem::take(&mut self.is_asking) && self.session.gives_back {
            self.leave_token();
        }
        loop {
            let sent = self.session.now();
            let ask = self.ask(sent);
            let known_before = std::mem::replace(&mut self.known, true);
            self.is_asking = true;
            tracing::trace!(key = %self.spec.key, "asks");
            let answer = self.session.store.acquire(ask);
            let answer = tokio::select! {
                biased;
                answer = answer => answer,
                (life, turn) = self.handed_over() => return Ok(Some(self.hold(life, turn))),
            };
            self.is_asking = false;
            let answer = answer.map(|answer| as_wanted(answer, &self.spec));
            tracing::trace!(key = %self.spec.key, ?answer, "the store answered");
            let now = self.session.now();
            self.session.registry.settle(&self.session);
            match (self.conclude(now, sent, known_before, &answer), answer) {
                (NextAsk::Hold, Ok(Acquired::Granted { fencing })) => {
                    let (life, turn) = LeaseLife::granted(sent, self.spec.ttl, fencing);
                    return Ok(Some(self.hold(life, turn)));
                }
                (NextAsk::Hold, _) => unreachable!("only a grant is held"),
                (NextAsk::Now, _) => {}
                (NextAsk::At(at), _) => {
                    if let Some((life, turn)) = self.handed_over_before(at).await {
                        return Ok(Some(self.hold(life, turn)));
                    }
                }
                (NextAsk::GiveUp, Ok(Acquired::Quarantined(quarantine))) => {
                    // Whether another has it nobody knows, and whoever is told that it is taken
                    // concludes that another does the work.
                    let message =
                        format!("{quarantine}; nothing was taken, wait or come back later");
                    return Err(Error::new(ErrorKind::Unavailable, message));
                }
                (NextAsk::GiveUp, Ok(Acquired::Taken { .. } | Acquired::Split { .. })) => {
                    tracing::debug!(key = %self.spec.key, "taken");
                    return Ok(None);
                }
                (NextAsk::GiveUp, Ok(Acquired::Granted { .. })) => {
                    return Err(too_slow(self.spec.ttl));
                }
                (NextAsk::GiveUp, Err(error)) => return Err(error),
            }
        }
    }

    /// Draws the conclusions from an answer to the ask that left at `sent`.
    fn conclude(
        &mut self,
        now: Moment,
        sent: Moment,
        known_before: bool,
        answer: &Result<Acquired, Error>,
    ) -> NextAsk {
        match answer {
            Ok(Acquired::Quarantined(quarantine)) => {
                self.note_outage(Some(&quarantined(quarantine)));
            }
            answer => self.note_outage(answer.as_ref().err()),
        }
        match answer {
            Ok(Acquired::Granted { .. }) => self.decisions.on_granted(now, sent),
            Ok(Acquired::Taken { retry_in, ahead }) => {
                // Who takes no place has nothing to give back.
                self.known = self.wake.is_some() && !self.spec.unqueued;
                if !self.known && !self.session.has_line {
                    // Nodes of a quorum that have not answered yet give back what they may grant.
                    self.take_fresh_token();
                }
                let random = || random_u32(&*self.session.host);
                self.decisions.on_taken(now, *retry_in, *ahead, random)
            }
            // Another may have had it when the store forgot: it comes to the same.
            Ok(Acquired::Quarantined(Quarantine { left, .. })) => {
                if known_before {
                    // A store that forgot only some of it may remember the place.
                    self.session.release_in_background(self.lease_id(), &self.spec);
                }
                self.take_fresh_token();
                self.decisions.on_taken(now, Some(*left), 0, || random_u32(&*self.session.host))
            }
            Ok(Acquired::Split { round_trip }) => {
                self.take_fresh_token();
                self.decisions.on_split(now, *round_trip, || random_u32(&*self.session.host))
            }
            Err(error) => {
                if error.kind() != ErrorKind::Unknown {
                    self.known = known_before;
                }
                if self.session.gives_back {
                    self.leave_token();
                }
                let next =
                    self.decisions.on_failed(now, error.kind(), random_u32(&*self.session.host));
                if let NextAsk::At(at) = next {
                    let retry_in = at.since(now);
                    let key = &self.spec.key;
                    tracing::warn!(%key, %error, ?retry_in, "the store could not be asked");
                }
                next
            }
        }
    }

    /// Goes on by another token, and gives back whatever there may be of the one so far.
    fn leave_token(&mut self) {
        if self.known {
            self.session.release_in_background(self.lease_id(), &self.spec);
        }
        self.take_fresh_token();
    }

    /// Goes on by another token: the one so far is spent.
    fn take_fresh_token(&mut self) {
        self.known = false;
        let spent = std::mem::replace(&mut self.owner, self.session.fresh_token());
        if let Some(wake) = &self.wake {
            self.session.lines.with(&self.spec.key, |line| {
                line.stop_asking(&spent);
                line.ask_as(self.owner.clone(), Arc::clone(wake));
            });
        }
    }

    /// Who waits behind this one is told the same if its time is over meanwhile.
    fn note_outage(&mut self, outage: Option<&Error>) {
        if self.wake.is_some() && (self.outage.is_some() || outage.is_some()) {
            self.session.lines.with(&self.spec.key, |line| line.outage = outage.cloned());
        }
        self.outage = outage.cloned();
    }

    /// The time to wait is over: taken is one thing, a store that cannot be asked another.
    pub(super) fn elapsed(&self) -> Error {
        match &self.outage {
            // It stays: the next task may go on with this attempt.
            Some(outage) => outage.clone(),
            None if self.decisions.is_answered() => wait_elapsed(),
            None => Error::new(
                ErrorKind::Unknown,
                "the store did not answer in the whole time to wait; whatever it may still grant \
                 is given back, look whether it is there",
            ),
        }
    }

    fn ask(&mut self, now: Moment) -> Ask {
        let ask_no = self.decisions.ask(now);
        let Spec { key, ttl, lock_delay, why, fencing, unqueued, .. } = &*self.spec;
        let line = match &self.wake {
            None => Line::Stand,
            Some(_) if *unqueued => Line::Stand,
            Some(_) if !self.session.has_line => {
                Line::Watch { waiter_ttl: ttl.waiter_ttl(), inbox: self.session.id.clone() }
            }
            Some(_) => Line::Join {
                waiter_ttl: ttl.waiter_ttl(),
                handed_ttl: ttl.waiter_ttl().with_delay(*lock_delay),
                ask_no,
                inbox: self.session.id.clone(),
            },
        };
        let client = self.session.record.clone();
        let note = (client.is_some() || why.is_some()).then(|| Note { client, why: why.clone() });
        Ask {
            key: key.clone(),
            owner: self.owner.clone(),
            claim: self.spec.claim(),
            ttl: self.spec.kept_ttl(),
            line,
            note,
            reserve: if *fencing { self.tokens_needed() } else { 0 },
        }
    }

    /// How many fencing tokens the grant is going to need, as far as can be seen.
    fn tokens_needed(&self) -> u32 {
        let is_passed_on = !self.spec.strict_fifo
            && (!self.spec.keep_idle.is_zero()
                || self.wake.is_some()
                    && self.session.lines.with(&self.spec.key, |line| line.has_tasks()));
        if is_passed_on { TURN_BLOCK } else { 1 }
    }

    /// Ends when it is time for the next ask, at `at` or at the first hint, or when the key was
    /// handed over, with its lease.
    async fn handed_over_before(&mut self, at: Moment) -> Option<(LeaseLife, Turn)> {
        let may_be_free = tokio::select! {
            biased;
            handed_over = self.handed_over() => return Some(handed_over),
            may_be_free = self.woken() => may_be_free,
            () = self.session.host.sleep_until(at) => return None,
        };
        if !may_be_free {
            return None;
        }
        let given_way = self.decisions.on_free(|| random_u32(&*self.session.host))?;
        let at = self.session.now() + given_way;
        // Another hint would say the same once more. Whoever finds the key free meanwhile may still
        // hand it over.
        tokio::select! {
            biased;
            handed_over = self.handed_over() => Some(handed_over),
            () = self.session.host.sleep_until(at) => None,
        }
    }

    async fn woken(&self) -> bool {
        match &self.wake {
            Some(wake) => wake.woken().await,
            None => pending().await,
        }
    }

    /// Ends when the key was handed over, with a lease that may be acted on at once.
    async fn handed_over(&self) -> (LeaseLife, Turn) {
        let Some(wake) = &self.wake else { return pending().await };
        loop {
            let handed_over = wake.handed_over().await;
            let now = self.session.now();
            let (ttl, handed_ttl) = (self.spec.ttl, self.spec.ttl.waiter_ttl());
            let sent = self.decisions.on_handed_over(now, handed_over.ask_no, handed_ttl);
            // To who takes no place, or one that is only woken, no store hands anything over.
            let joins = self.session.has_line && !self.spec.unqueued;
            match (sent.filter(|_| joins), handed_over.fencing) {
                (Some(sent), fencing) if fencing.is_some() == self.spec.fencing => {
                    return LeaseLife::handed_over(now, sent, ttl, handed_ttl, fencing);
                }
                // A hint and no more: what is true, the next answer says.
                _ => wake.wake(),
            }
        }
    }

    /// The lease is ours: the driver takes care of it from now on.
    fn hold(&mut self, mut life: LeaseLife, turn: Turn) -> Hold {
        let key = &self.spec.key;
        let now = self.session.now();
        if self.spec.others_wait_unseen() {
            // The store never knows.
            life.want(now);
        }
        let held = Held::new(self.lease_id(), Arc::clone(&self.spec), life);
        if self.decisions.has_waited() {
            // Most likely somebody came meanwhile. The store says so if nobody did.
            held.want(now);
        }
        self.session.registry.adopt(&self.session, Arc::clone(&held));
        self.known = false;
        if !self.spec.strict_fifo {
            self.session.enter_lease(&held);
        }
        tracing::debug!(%key, fence = turn.fencing.map(|token| token.get()), "granted");
        Hold::new(Arc::clone(&self.session), held, turn)
    }

    fn lease_id(&self) -> LeaseId {
        LeaseId { key: self.spec.key.clone(), owner: self.owner.clone(), claim: self.spec.claim() }
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        self.session.lines.with(&self.spec.key, |line| {
            if self.wake.is_some() {
                line.stop_asking(&self.owner);
                line.outage = None;
            } else {
                line.tries -= 1;
            }
        });
        if self.known {
            self.session.release_in_background(self.lease_id(), &self.spec);
        }
    }
}

pub(super) fn wait_elapsed() -> Error {
    Error::new(
        ErrorKind::WaitElapsed,
        "another held the lock for the whole time to wait; nothing was taken, \
         wait longer or come back later",
    )
}

/// What one hears whose time to wait is over during a quarantine.
fn quarantined(quarantine: &Quarantine) -> Error {
    let message = format!("{quarantine}; nothing was taken, wait longer or come back later");
    Error::new(ErrorKind::WaitElapsed, message)
}

/// A server that lost what it noted of a grant without fencing takes the last token of all for that
/// of this one, which another has.
fn as_wanted(answer: Acquired, spec: &Spec) -> Acquired {
    match answer {
        Acquired::Granted { .. } if !spec.fencing => Acquired::Granted { fencing: None },
        answer => answer,
    }
}

fn too_slow(ttl: Ttl) -> Error {
    Error::new(
        ErrorKind::Unavailable,
        format!(
            "the store answers too slowly for a ttl of {ttl:?}; nothing is held, use a longer ttl"
        ),
    )
}
