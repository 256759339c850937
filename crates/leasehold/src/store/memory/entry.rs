//! One key: its holders, its line and its counter. Every change is one atomic step.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::Step;
use crate::core::claim::{Claim, Taken, Usage};
use crate::core::error::Error;
use crate::core::key::Key;
use crate::core::line::{
    AskDecision, Asker, Front, GIVES_WAY_FOR, Head, Holding, PLACES_MAX, REAPED_MAX, RUN_MAX,
    ReleaseDecision, Stance, decide_ask, decide_release, front, wakes_next,
};
use crate::core::moment::{Moment, WallTime};
use crate::core::token::{ClientId, FencingBlock, FencingToken, OwnerToken};
use crate::core::ttl::Ttl;
use crate::store::{
    Acquired, Ask, Evicted, Hint, Holder, Keep, LeaseId, OnRelease, PermitsTaken, PlaceTerms,
    Refusal, Released, Renewal, Renewed, Revocation, Revoked, Snapshot, Waiter, line_is_full,
    other_usage,
};

/// One key.
pub(super) struct Entry {
    counter: u64,
    /// How many permits there are, if the key is a semaphore.
    limit: Option<u32>,
    /// The holders, even if their leases have ended.
    held: Vec<Held>,
    line: VecDeque<Place>,
    /// Until when newcomers give way to a head that a release has woken.
    awaits_until: Moment,
    touched: Moment,
}

struct Held {
    owner: OwnerToken,
    claim: Claim,
    expires: Moment,
    fencing: Option<FencingBlock>,
    since: WallTime,
    why: Option<Arc<str>>,
    idle: bool,
    revoked: Option<Arc<Revocation>>,
}

struct Place {
    owner: OwnerToken,
    claim: Claim,
    expires: Moment,
    stance: Stance,
    handed_ttl: Ttl,
    ask_no: u32,
    inbox: ClientId,
    reserve: u32,
    since: WallTime,
    why: Option<Arc<str>>,
}

impl Entry {
    pub(super) fn new(counter: u64) -> Self {
        let (awaits_until, touched) = (Moment::default(), Moment::default());
        let (held, line) = (Vec::new(), VecDeque::new());
        Self { counter, limit: None, held, line, awaits_until, touched }
    }

    /// The living holders.
    fn holders(&self, now: Moment) -> impl Iterator<Item = &Held> {
        self.held.iter().filter(move |held| held.expires > now)
    }

    /// The owners of the key now.
    pub(super) fn owners(&self, now: Moment) -> impl Iterator<Item = &OwnerToken> {
        self.holders(now).map(|held| &held.owner)
    }

    fn holder(&mut self, now: Moment, owner: &OwnerToken) -> Option<&mut Held> {
        self.held.iter_mut().find(|held| held.owner == *owner && held.expires > now)
    }

    /// The part of the key that the living holders have.
    fn taken(&self, now: Moment) -> Taken {
        Taken::by(self.holders(now).map(|held| held.claim))
    }

    /// How long it takes until the first of the leases ends.
    fn time_left(&self, now: Moment) -> Duration {
        self.holders(now).map(|held| held.expires.since(now)).min().unwrap_or_default()
    }

    pub(super) fn counter(&self) -> u64 {
        self.counter
    }

    pub(super) fn touched(&self) -> Moment {
        self.touched
    }

    /// Whether the key has a living holder or waiter.
    pub(super) fn is_in_use(&self, now: Moment) -> bool {
        self.holders(now).next().is_some() || self.line.iter().any(|place| place.expires > now)
    }

    /// The clients of all tokens of this key.
    pub(super) fn clients(&self) -> impl Iterator<Item = ClientId> {
        let owners = self
            .held
            .iter()
            .map(|held| &held.owner)
            .chain(self.line.iter().map(|place| &place.owner));
        owners.filter_map(OwnerToken::client)
    }

    pub(super) fn acquire(&mut self, step: &mut Step, ask: &Ask) -> Result<Acquired, Error> {
        let now = step.now;
        self.use_as(now, ask)?;
        self.touched = now;
        let is_mine = self.holder(now, &ask.owner).is_some();
        let is_new = if is_mine { None } else { self.enter(step, ask)? };
        for _ in 0..=RUN_MAX {
            let front = self.drop_dead(now);
            let is_head = self.line.front().is_some_and(|place| place.owner == ask.owner);
            let asker = Asker::of(is_head, is_new, self.awaits_until > now);
            let holding = if is_mine { Holding::Mine } else { Holding::Others(self.taken(now)) };
            let retry_in = match decide_ask(holding, ask.claim, front, asker) {
                AskDecision::GrantAgain => return Ok(self.grant_again(now, ask)),
                AskDecision::Grant => {
                    let granted = self.grant_ask(step, ask);
                    // The waiters behind this one may share the key too.
                    self.hand_over_run(step, &ask.key);
                    return Ok(granted);
                }
                AskDecision::HandOver => {
                    self.hand_over(step, &ask.key);
                    continue;
                }
                AskDecision::Wait => self.time_left(now),
                AskDecision::GiveWay => GIVES_WAY_FOR,
                AskDecision::WaitAndRetry => Duration::ZERO,
            };
            return Ok(self.refuse(ask, retry_in));
        }
        Ok(self.refuse(ask, Duration::ZERO))
    }

    /// Refuses a claim that does not fit the use of the key. A first claim decides how many permits
    /// there are.
    fn use_as(&mut self, now: Moment, ask: &Ask) -> Result<(), Error> {
        let is_in_use = self.is_in_use(now);
        let used = match (self.limit, ask.claim.usage()) {
            (None, Usage::Lock) => return Ok(()),
            (Some(of), Usage::Permits { of: wanted }) if of == wanted => return Ok(()),
            (Some(of), Usage::Permits { .. }) => Usage::Permits { of },
            (Some(of), Usage::Lock) if is_in_use => Usage::Permits { of },
            (None, Usage::Permits { .. }) if is_in_use => Usage::Lock,
            (Some(_), Usage::Lock) => {
                self.limit = None;
                return Ok(());
            }
            (None, Usage::Permits { of }) => {
                self.limit = Some(of);
                return Ok(());
            }
        };
        Err(other_usage(&ask.key, used, ask.claim))
    }

    fn refuse(&self, ask: &Ask, retry_in: Duration) -> Acquired {
        let ahead = self.position(&ask.owner).unwrap_or(self.line.len());
        Refusal::taken(Some(retry_in), count(ahead)).into()
    }

    /// Takes or refreshes the asker's place, if it wants one. Returns whether the place is new.
    fn enter(&mut self, step: &Step, ask: &Ask) -> Result<Option<bool>, Error> {
        let Some(terms) = ask.line.place() else { return Ok(None) };
        let PlaceTerms { waiter_ttl, handed_ttl, ask_no, inbox, stance } = terms;
        let why = ask.note.as_ref().and_then(|note| note.why.clone());
        let since = match self.position(&ask.owner) {
            Some(at) => self.line[at].since,
            None if self.line.len() >= PLACES_MAX => {
                // Dead places do not count, because a line of them must not lock living waiters
                // out.
                self.line.retain(|place| place.expires > step.now);
                if self.line.len() >= PLACES_MAX {
                    return Err(line_is_full(&ask.key));
                }
                step.wall
            }
            None => step.wall,
        };
        let expires = step.now + waiter_ttl.get();
        let place = Place {
            owner: ask.owner.clone(),
            claim: ask.claim,
            expires,
            stance,
            handed_ttl,
            ask_no,
            inbox: inbox.clone(),
            reserve: ask.reserve,
            since,
            why,
        };
        let at = self.position(&ask.owner);
        match at {
            Some(at) => {
                let before = &self.line[at];
                let ask_no = before.ask_no.max(place.ask_no);
                self.line[at] = Place { expires: before.expires.max(expires), ask_no, ..place };
            }
            None => self.line.push_back(place),
        }
        Ok(Some(at.is_none()))
    }

    fn position(&self, owner: &OwnerToken) -> Option<usize> {
        self.line.iter().position(|place| place.owner == *owner)
    }

    fn leave(&mut self, owner: &OwnerToken) {
        self.line.retain(|place| place.owner != *owner);
    }

    fn front(&self, now: Moment) -> Front {
        let first = self.line.iter().take(REAPED_MAX + 1);
        front(now, first.map(|place| (place.expires, place.stance, place.claim)))
    }

    /// Whether the first living place is that of `owner`.
    fn is_head(&self, now: Moment, owner: &OwnerToken) -> bool {
        let front = self.front(now);
        let first = self.line.get(front.dead);
        matches!(front.head, Head::Alive { .. }) && first.is_some_and(|place| place.owner == *owner)
    }

    fn drop_dead(&mut self, now: Moment) -> Front {
        let front = self.front(now);
        self.line.drain(..front.dead);
        Front { dead: 0, ..front }
    }

    /// Adds a holder, with `reserve` fresh fencing tokens.
    fn grant(
        &mut self,
        step: &Step,
        (owner, claim, ttl): (OwnerToken, Claim, Ttl),
        why: Option<Arc<str>>,
        reserve: u32,
    ) -> Option<FencingBlock> {
        let (fencing, expires, since) = (self.reserve(reserve), step.now + ttl.get(), step.wall);
        self.held.retain(|held| held.expires > step.now);
        let (idle, revoked) = (false, None);
        self.held.push(Held { owner, claim, expires, fencing, since, why, idle, revoked });
        self.awaits_until = Moment::default();
        fencing
    }

    fn grant_ask(&mut self, step: &Step, ask: &Ask) -> Acquired {
        self.leave(&ask.owner);
        let why = ask.note.as_ref().and_then(|note| note.why.clone());
        let of = (ask.owner.clone(), ask.claim, ask.ttl);
        Acquired::Granted { fencing: self.grant(step, of, why, ask.reserve) }
    }

    fn reserve(&mut self, reserve: u32) -> Option<FencingBlock> {
        let (block, counter) = FencingBlock::after(self.counter, reserve)?;
        self.counter = counter;
        Some(block)
    }

    fn grant_again(&mut self, now: Moment, ask: &Ask) -> Acquired {
        let held = self.holder(now, &ask.owner).expect("an owner granted again holds it");
        held.expires = held.expires.max(now + ask.ttl.get());
        Acquired::Granted { fencing: held.fencing }
    }

    /// Makes the head an owner.
    fn hand_over(&mut self, step: &mut Step, key: &Key) {
        let head = self.line.pop_front().expect("the head was seen alive");
        let of = (head.owner.clone(), head.claim, head.handed_ttl);
        let fencing = self.grant(step, of, head.why, head.reserve);
        let hint =
            Hint::Granted { key: key.clone(), owner: head.owner, fencing, ask_no: head.ask_no };
        step.mail.push((head.inbox, hint));
    }

    /// Hands the key to all waiters at the front of the line whose turn it is. If there are too
    /// many for one step, tells the next of them to ask.
    fn hand_over_run(&mut self, step: &mut Step, key: &Key) {
        for _ in 0..RUN_MAX {
            let front = self.drop_dead(step.now);
            if !front.is_due(self.taken(step.now)) {
                return;
            }
            self.hand_over(step, key);
        }
        if self.front(step.now).is_due(self.taken(step.now)) {
            self.tell_head(step, key);
        }
    }

    fn tell_head(&self, step: &mut Step, key: &Key) {
        if let Some(head) = self.line.front() {
            step.mail.push((head.inbox.clone(), Hint::MaybeFree { key: key.clone() }));
        }
    }

    pub(super) fn renew(&mut self, now: Moment, renewal: &Renewal) -> Renewed {
        self.touched = now;
        if self.holder(now, &renewal.lease.owner).is_none() {
            return Renewed::Lost;
        }
        let raised = renewal.at_least.filter(|at_least| at_least.get() > self.counter);
        if let Some(at_least) = raised {
            self.counter = at_least.get();
        }
        let reserved = self.reserve(renewal.reserve);
        let wanted = self.line.iter().any(|place| place.expires > now);
        let held = self.holder(now, &renewal.lease.owner).expect("the owner was just seen");
        held.expires = held.expires.max(now + renewal.ttl.get());
        held.idle = renewal.idle;
        let raised_from = held.fencing.filter(|_| raised.is_some());
        held.fencing = reserved
            .or_else(|| raised.map(|first| FencingBlock { first, count: 1 }))
            .or(held.fencing);
        let revoked = held.revoked.clone();
        Renewed::Renewed { fencing: held.fencing, raised_from, wanted, revoked }
    }

    pub(super) fn release(
        &mut self,
        step: &mut Step,
        lease: &LeaseId,
        on_release: &OnRelease,
    ) -> Released {
        let now = step.now;
        self.touched = now;
        let was_head = self.is_head(now, &lease.owner);
        self.leave(&lease.owner);
        let is_held = self.holder(now, &lease.owner).is_some();
        self.held.retain(|held| held.expires > now);
        if !is_held {
            // Others may have waited behind the place that left, although there is room for them.
            if *on_release != OnRelease::FreeAndWake {
                self.hand_over_run(step, &lease.key);
            }
            let front = self.drop_dead(now);
            if wakes_next(was_head, self.taken(now), front) {
                self.tell_head(step, &lease.key);
                self.awaits_until = now + GIVES_WAY_FOR;
            }
            return Released::NotHeld;
        }
        if let OnRelease::Downgrade { owner, ttl } = on_release {
            let held = self.holder(now, &lease.owner).expect("the owner was just seen");
            held.expires = held.expires.max(now + ttl.get());
            (held.owner, held.claim) = (owner.clone(), Claim::Shared);
            (held.fencing, held.idle, held.revoked) = (None, false, None);
            self.hand_over_run(step, &lease.key);
            return Released::Kept { fencing: None };
        }
        let front = self.drop_dead(now);
        let others = self.holders(now).filter(|held| held.owner != lease.owner);
        let taken = Taken::by(others.map(|held| held.claim));
        match decide_release(taken, front, on_release.wish()) {
            ReleaseDecision::HandOver => {
                self.held.retain(|held| held.owner != lease.owner);
                self.hand_over_run(step, &lease.key);
                Released::HandedOver
            }
            ReleaseDecision::Keep(Keep { owner, ttl, reserve }) => {
                let fencing = self.reserve(reserve);
                let held = self.holder(now, &lease.owner).expect("the owner was just seen");
                held.expires = held.expires.max(now + ttl.get());
                held.owner = owner.clone();
                held.fencing = fencing;
                (held.idle, held.revoked) = (false, None);
                Released::Kept { fencing }
            }
            ReleaseDecision::Free => {
                self.held.retain(|held| held.owner != lease.owner);
                if taken == Taken::Nothing {
                    self.tell_head(step, &lease.key);
                    if matches!(front.head, Head::Alive { .. }) {
                        self.awaits_until = now + GIVES_WAY_FOR;
                    }
                }
                Released::Freed
            }
        }
    }

    /// Changes how many permits there are. Returns how many there were.
    pub(super) fn resize(
        &mut self,
        step: &mut Step,
        key: &Key,
        of: u32,
    ) -> Result<Option<u32>, Error> {
        self.touched = step.now;
        if self.limit.is_none() && self.is_in_use(step.now) {
            return Err(other_usage(key, Usage::Lock, Claim::Permits { want: 1, of }));
        }
        let before = self.limit.replace(of);
        for place in &mut self.line {
            if let Claim::Permits { of: wanted, .. } = &mut place.claim {
                *wanted = of;
            }
        }
        self.hand_over_run(step, key);
        // The next waiter may want more permits than there are now. Let it ask, so that it learns
        // this.
        self.tell_head(step, key);
        Ok(before)
    }

    pub(super) fn evict(&mut self, step: &mut Step, key: &Key, seen: &[u8]) -> Evicted {
        let seen = self.holders(step.now).find(|held| held.owner.as_str().as_bytes() == seen);
        let Some((owner, claim)) = seen.map(|held| (held.owner.clone(), held.claim)) else {
            return Evicted::Changed;
        };
        // Raise the counter now. The next fencing token must be above those of the evicted holder,
        // even if this step grants none.
        self.counter = self.counter.saturating_add(1).min(FencingToken::MAX);
        let lease = LeaseId { key: key.clone(), owner, claim };
        self.release(step, &lease, &OnRelease::Free);
        Evicted::Evicted
    }

    /// Asks the holder that was seen to let go.
    pub(super) fn revoke(&mut self, now: Moment, seen: &[u8], request: Revocation) -> Revoked {
        let is_meant = |held: &&mut Held| held.owner.as_str().as_bytes() == seen;
        let mut living = self.held.iter_mut().filter(|held| held.expires > now);
        let Some(held) = living.find(is_meant) else { return Revoked::Changed };
        held.revoked.get_or_insert_with(|| Arc::new(request));
        Revoked::Asked
    }

    /// The state of the key, without the records of the clients.
    pub(super) fn snapshot(&self, now: Moment) -> Snapshot {
        let living = || self.line.iter().filter(|place| place.expires > now);
        let holder = |held: &Held| Holder {
            token: held.owner.as_str().as_bytes().to_vec(),
            client: None,
            why: held.why.as_deref().map(str::to_owned),
            since: Some(held.since),
            ttl: None,
            ttl_left: Some(held.expires.since(now)),
            fencing: held.fencing,
            idle: held.idle,
            claim: held.claim,
            revoked: held.revoked.clone(),
        };
        let waiter = |place: &Place| Waiter {
            id: place.owner.client(),
            client: None,
            since: Some(place.since),
            claim: place.claim,
        };
        let taken = if let Taken::Permits(taken) = self.taken(now) { taken } else { 0 };
        Snapshot {
            holders: self.holders(now).take(Snapshot::HOLDERS_SHOWN_MAX).map(holder).collect(),
            waiters: living().take(Snapshot::WAITERS_SHOWN_MAX).map(waiter).collect(),
            waiting: count(living().count()),
            fencing: FencingToken::new(self.counter),
            votes: Vec::new(),
            quarantine: None,
            permits: self.limit.map(|of| PermitsTaken::new(taken, of)),
        }
    }
}

fn count(places: usize) -> u32 {
    u32::try_from(places).expect("a line has at most PLACES_MAX places")
}
