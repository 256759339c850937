//! One acquisition at the store, from its first ask to the lease, or until it gives up.

mod resized;

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use super::Session;
use super::errors::{UNANSWERED, quarantined, too_slow, wait_elapsed};
use super::held::Held;
use super::registry::Counted;
use super::rooms::{Group, Permit};
use super::spec::Spec;
use super::story::{TARGET, millis};
use super::wake::Wake;
use crate::core::acquire::{Acquisition, NextAsk};
use crate::core::error::{Error, ErrorKind};
use crate::core::lease::{LeaseLife, Turn};
use crate::core::moment::Moment;
use crate::core::passing::TURN_BLOCK;
use crate::core::token::OwnerToken;
use crate::host::random_u32;
use crate::store::{
    Acquired, Afterwards, Ask, BoxAnswer, LeaseId, Line, Note, Refusal, Store, Why, within,
};

/// The requests of one acquisition. They share one owner token, until an answer demands a fresh
/// one. An attempt that is dropped without a lease releases its token. This also removes its place
/// in line, and ends a grant that is still on its way.
pub(super) struct Attempt {
    session: Arc<Session>,
    spec: Arc<Spec>,
    owner: OwnerToken,
    pub(super) decisions: Acquisition,
    /// Wakes the acquisition. `None` if it does not wait.
    wake: Option<Arc<Wake>>,
    /// When the first ask leaves at the earliest.
    not_before: Option<Moment>,
    standing: Standing,
    /// Whether the outcome of some ask is unknown, with this token or an earlier one. The client
    /// releases an earlier token, but the release may fail in the same outage.
    is_in_doubt: bool,
    /// Why the store did not answer the last ask, or grants nothing at all.
    outage: Option<Error>,
    /// Dropped last, so that a shutdown waits for the new lease or the release.
    _counted: Counted,
}

/// How well the store may know the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Standing {
    /// The store does not know it.
    Fresh,
    /// The store may know it by a place, or by a lease.
    Known,
    /// An ask has an unknown outcome. It may arrive even after the answer to a later ask.
    AtLarge,
}

impl Attempt {
    /// Begins an acquisition. It takes a place in the line if it `waits` and the key is taken.
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
        // Checked after it was counted, so that it sees a shutdown or the shutdown sees it.
        session.check_open()?;
        let owner = session.fresh_token();
        let wake = waits.then(Arc::default);
        let outage = session.lines.with(&spec.key, |line| {
            let Some(wake) = &wake else {
                line.tries += 1;
                return None;
            };
            line.ask_as(owner.clone(), Arc::clone(wake));
            line.outage.clone().filter(|_| !spec.asks_alone())
        });
        let mut decisions = Acquisition::new(spec.ttl, waits);
        if session.calls_up {
            decisions = decisions.called_up();
        }
        if spec.half_validity {
            decisions = decisions.accepting_half_validity();
        }
        let mut not_before = None;
        if spec.unqueued {
            decisions = decisions.polling();
        } else if spec.gives_way() && waits {
            decisions = decisions.giving_way();
            not_before = session.rests.end_of(&spec.key, session.now());
        }
        if not_before.is_some() {
            // This client had the key just now, so the store has answered.
            decisions.take_as_answered();
        }
        Ok(Self {
            session: Arc::clone(session),
            spec: Arc::clone(spec),
            owner,
            decisions,
            wake,
            not_before,
            standing: Standing::Fresh,
            is_in_doubt: false,
            outage,
            _counted: counted,
        })
    }

    /// Makes the acquisition wait until an outage ends, even at its first ask. The store has
    /// answered another task of this client.
    pub(super) fn after_an_answer(mut self) -> Self {
        self.decisions.take_as_answered();
        if let Some(pause) = self.decisions.pause(|| random_u32(&*self.session.host)) {
            self.not_before = Some(self.session.now() + pause);
        }
        self
    }

    /// Asks until the client has the lease, or gives up. Returns `None` if this acquisition does
    /// not wait and another client has the key.
    ///
    /// # Cancel safety
    ///
    /// A call after a dropped future, or after an error, continues with the same token and place.
    pub(super) async fn run(&mut self) -> Result<Option<(Arc<Held>, Turn)>, Error> {
        if let Some(at) = self.not_before {
            self.session.host.sleep_until(at).await;
        }
        self.note_unanswered();
        let mut left_over = self.session.end_left_over(&self.spec.key).await;
        let would_count_twice = self.would_count_twice();
        loop {
            if would_count_twice {
                left_over.clone()?;
            }
            let permit = tokio::select! {
                biased;
                permit = self.permit() => permit,
                (life, turn) = self.handed_over() => return Ok(Some(self.hold(life, turn))),
            };
            let sent = self.session.now();
            let ask = self.ask(sent);
            // This state lasts until the answer comes, and this future may be dropped before that.
            let before = (self.standing, self.is_in_doubt);
            (self.standing, self.is_in_doubt) = (Standing::AtLarge, true);
            tracing::trace!(key = %self.spec.key, "asks");
            let answer = self.submit(ask);
            let answer = tokio::select! {
                biased;
                answer = answer => answer,
                (life, turn) = self.handed_over() => return Ok(Some(self.hold(life, turn))),
            };
            drop(permit);
            let answer = answer.map(|answer| self.spec.as_wanted(answer));
            tracing::trace!(key = %self.spec.key, ?answer, "the store answered");
            if !matches!(&answer, Err(error) if error.kind() == ErrorKind::Unknown) {
                (self.standing, self.is_in_doubt) = before;
            }
            if would_count_twice && answer.is_err() {
                left_over = self.session.end_left_over(&self.spec.key).await;
            }
            let now = self.session.now();
            self.session.registry.settle(&self.session, self.session.store.shard(&self.spec.key));
            match (self.conclude(now, sent, &answer), answer) {
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
                (NextAsk::GiveUp, Ok(Acquired::Granted { .. })) => {
                    return Err(too_slow(self.spec.ttl));
                }
                (NextAsk::GiveUp, Ok(Acquired::Refused(refusal))) => match refusal.why {
                    // A lease that this client left, perhaps just now, may take the key. The store
                    // answers again, so that lease can be released now.
                    Why::Taken | Why::Split
                        if left_over.is_err() || self.session.has_left_over(&self.spec.key) =>
                    {
                        self.session.end_left_over(&self.spec.key).await?;
                        left_over = Ok(());
                    }
                    Why::Taken | Why::Split => return Ok(None),
                    // Nobody knows whether another client has the key. A caller that is told
                    // *taken* would conclude that another client does the work.
                    Why::Quarantined(quarantine) => {
                        return Err(self.in_doubt(quarantined(ErrorKind::Unavailable, &quarantine)));
                    }
                    Why::TooFewCopies(error) => return Err(self.in_doubt(error)),
                },
                (NextAsk::GiveUp, Err(error)) => return Err(self.in_doubt(error)),
            }
        }
    }

    /// Notes that the store has not answered yet, so another client may have the lock.
    fn note_unanswered(&mut self) {
        if self.wake.is_none() || self.outage.is_some() || self.decisions.has_asked() {
            return;
        }
        self.outage = Some(UNANSWERED.clone());
        if !self.decisions.is_answered() {
            // Nor does a task behind it, which came when nobody of this client had the lock.
            self.note_outage(Some(&UNANSWERED));
        }
    }

    /// Waits until a request may be sent.
    async fn permit(&self) -> Permit {
        let shard = self.session.store.shard(&self.spec.key);
        let is_answered = self.decisions.is_answered();
        self.session.rooms.enter(&self.session, Group { shard, is_answered }).await
    }

    /// Whether this try could add a share to one of an earlier try. A latch would count its party
    /// twice. A waiter may do so, since its client only has fewer permits for a moment.
    fn would_count_twice(&self) -> bool {
        self.wake.is_none() && !self.spec.claim().is_alone()
    }

    /// Releases any lease or place that the current token has, or may still get.
    fn give_up_token(&self) {
        let release = self.session.give_up(self.lease_id(), &self.spec);
        drop(if self.would_count_twice() { release.noted() } else { release });
    }

    /// The error of the last ask. If an earlier one got no answer, a grant may remain for a while.
    fn in_doubt(&self, error: Error) -> Error {
        if !self.is_in_doubt || error.kind() != ErrorKind::Unavailable {
            return error;
        }
        error.in_doubt()
    }

    /// Decides what follows from an answer to the ask that left at `sent`.
    fn conclude(&mut self, now: Moment, sent: Moment, answer: &Result<Acquired, Error>) -> NextAsk {
        match answer {
            Ok(Acquired::Granted { .. }) => {
                self.standing = self.standing.max(Standing::Known);
                self.note_outage(None);
                self.decisions.on_granted(now, sent)
            }
            Ok(Acquired::Refused(refusal)) => self.refused(now, refusal),
            Err(error) => self.failed(now, error),
        }
    }

    fn refused(&mut self, now: Moment, refusal: &Refusal) -> NextAsk {
        let known_before = self.standing != Standing::Fresh;
        match refusal.token {
            // At most, the store knows a place of the token, or a late ask with the token.
            Afterwards::Keep => {
                let has_place = self.wake.is_some() && !self.spec.unqueued;
                if self.standing != Standing::AtLarge {
                    self.standing = if has_place { Standing::Known } else { Standing::Fresh };
                }
            }
            Afterwards::Leave => {
                // Some nodes of a quorum may have granted the lease, and others could not copy it.
                if known_before || matches!(refusal.why, Why::TooFewCopies(_)) {
                    self.give_up_token();
                }
                self.take_fresh_token();
            }
            Afterwards::Spent => {
                // The store ended the last ask with it, and knows nothing of an earlier one.
                if self.standing == Standing::AtLarge {
                    self.give_up_token();
                }
                self.take_fresh_token();
            }
        }
        let &Refusal { retry_in, ahead, .. } = refusal;
        let host = Arc::clone(&self.session.host);
        let random = || random_u32(&*host);
        match &refusal.why {
            Why::Taken => {
                self.note_outage(None);
                if self.wake.is_some() && self.spec.unqueued {
                    self.session.store.tell_when_free(&self.spec.key, &self.session.id);
                }
                self.decisions.on_taken(now, retry_in, ahead, random)
            }
            Why::Split => {
                self.note_outage(None);
                self.decisions.on_split(now, retry_in.unwrap_or_default(), random)
            }
            Why::Quarantined(quarantine) => {
                self.note_outage(Some(&quarantined(ErrorKind::WaitElapsed, quarantine)));
                self.decisions.on_taken(now, retry_in, ahead, random)
            }
            // If the token was fresh, this is a failure like any other.
            Why::TooFewCopies(_) if retry_in == Some(Duration::ZERO) && known_before => {
                NextAsk::Now
            }
            Why::TooFewCopies(error) => {
                self.is_in_doubt |= error.kind() == ErrorKind::Unknown;
                self.failed(now, error)
            }
        }
    }

    /// Decides what follows when the store did not answer, or its grant did not count.
    fn failed(&mut self, now: Moment, error: &Error) -> NextAsk {
        self.note_outage(Some(&self.in_doubt(error.clone())));
        let next = self.decisions.on_failed(now, error.kind(), random_u32(&*self.session.host));
        if let NextAsk::At(at) = next {
            let (key, retry_in_ms) = (&self.spec.key, millis(at.since(now)));
            tracing::warn!(
                target: TARGET, %key, %error, retry_in_ms, "a request failed; the client retries"
            );
        }
        next
    }

    /// Continues with a fresh token.
    fn take_fresh_token(&mut self) {
        self.standing = Standing::Fresh;
        let spent = std::mem::replace(&mut self.owner, self.session.fresh_token());
        if let Some(wake) = &self.wake {
            self.session.lines.with(&self.spec.key, |line| {
                line.stop_asking(&spent);
                line.ask_as(self.owner.clone(), Arc::clone(wake));
            });
        }
    }

    /// Whether this attempt asks on behalf of all tasks of a local line.
    fn is_of_line(&self) -> bool {
        self.wake.is_some() && !self.spec.asks_alone()
    }

    /// Notes an outage, also for the tasks behind this one, whose time to wait may end meanwhile.
    fn note_outage(&mut self, outage: Option<&Error>) {
        if self.is_of_line() && (self.outage.is_some() || outage.is_some()) {
            self.session.lines.with(&self.spec.key, |line| line.outage = outage.cloned());
        }
        self.outage = outage.cloned();
    }

    /// The error for a wait that ended. It tells *taken* from *not answered*. An ask may still be
    /// under way.
    pub(super) fn elapsed(&self) -> Error {
        self.outage.clone().map_or_else(wait_elapsed, |outage| self.in_doubt(outage))
    }

    fn ask(&mut self, now: Moment) -> Ask {
        let ask_no = self.decisions.ask(now);
        let Spec { key, ttl, lock_delay, why, fencing, unqueued, .. } = &*self.spec;
        let line = match self.wake.as_ref().filter(|_| !*unqueued) {
            None => Line::None,
            Some(_) if !self.session.has_line => {
                let (waiter_ttl, inbox) = (ttl.waiter_ttl(), self.session.id.clone());
                Line::Watch { waiter_ttl, ask_no, inbox }
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

    /// Submits an ask. A waiter does not wait for its answer longer than its place lives.
    fn submit(&self, ask: Ask) -> BoxAnswer<Acquired> {
        let answer = self.session.store.acquire(ask);
        match self.spec.ask_limit().filter(|_| self.wake.is_some()) {
            Some(limit) => Box::pin(within(Arc::clone(&self.session.host), limit, answer)),
            None => answer,
        }
    }

    /// How many fencing tokens the grant will need, as far as the client can tell.
    fn tokens_needed(&self) -> u32 {
        let is_passed_on = !self.spec.asks_alone()
            && (!self.spec.keep_idle.is_zero()
                || self.wake.is_some()
                    && self.session.lines.with(&self.spec.key, |line| line.tasks.has_tasks()));
        if is_passed_on { TURN_BLOCK } else { 1 }
    }

    /// Waits until the next ask is due: at `at`, or at the first hint. Returns the lease if the key
    /// is handed over meanwhile.
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
        // Another hint would tell nothing new. But the store may still hand the key over when the
        // next client finds it free.
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

    /// Waits until the key is handed over, with a lease that the client may act on at once.
    async fn handed_over(&self) -> (LeaseLife, Turn) {
        let Some(wake) = &self.wake else { return pending().await };
        loop {
            let handed_over = wake.handed_over().await;
            let now = self.session.now();
            let (ttl, handed_ttl) = (self.spec.ttl, self.spec.ttl.waiter_ttl());
            let sent = self.decisions.on_handed_over(now, handed_over.ask_no, handed_ttl);
            // No store hands a key over to a client without a place, or to a place that only wakes.
            let joins = self.session.has_line && !self.spec.unqueued;
            // The hand-over may come late, after this acquisition took another token.
            let is_for_us = joins && handed_over.owner == self.owner;
            match (sent.filter(|_| is_for_us), handed_over.fencing) {
                (Some(sent), fencing) if fencing.is_some() == self.spec.fencing => {
                    return LeaseLife::handed_over(now, sent, ttl, handed_ttl, fencing);
                }
                // This is only a hint, so ask the store.
                _ => wake.wake(),
            }
        }
    }

    /// Hands the granted lease to the driver, which takes care of it from now on.
    fn hold(&mut self, mut life: LeaseLife, turn: Turn) -> (Arc<Held>, Turn) {
        let now = self.session.now();
        if self.spec.opens() {
            life.end_passing(now);
        }
        if self.spec.others_wait_unseen() {
            // The store does not see waiters that poll, so it never says that the key is wanted.
            life.want(now);
        }
        let held = Held::new(self.lease_id(), Arc::clone(&self.spec), life);
        if self.decisions.has_waited() {
            // Most likely another client waits by now. If not, the next renewal says so.
            held.want(now);
        }
        self.session.take_over(&held);
        self.standing = Standing::Fresh;
        (held, turn)
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
                if self.is_of_line() {
                    line.outage = None;
                }
            } else {
                line.tries -= 1;
            }
        });
        if self.standing != Standing::Fresh {
            self.give_up_token();
        }
    }
}
