//! One key: its holder, its line and its counter. Every change is one atomic step.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::Mail;
use crate::core::error::Error;
use crate::core::key::Key;
use crate::core::line::{
    AskDecision, Asker, Front, GIVES_WAY_FOR, Head, Holding, PLACES_MAX, REAPED_MAX,
    ReleaseDecision, Stance, decide_ask, decide_release, front,
};
use crate::core::moment::{Moment, WallTime};
use crate::core::token::{ClientId, FencingBlock, FencingToken, OwnerToken};
use crate::core::ttl::Ttl;
use crate::store::{
    Acquired, Ask, Evicted, Hint, Holder, Keep, LeaseId, OnRelease, PlaceTerms, Refusal, Released,
    Renewal, Renewed, Snapshot, Waiter, line_is_full,
};

/// One key.
pub(super) struct Entry {
    counter: u64,
    held: Option<Held>,
    line: VecDeque<Place>,
    /// Until when newcomers give way to a head that a release has woken.
    awaits_until: Moment,
    touched: Moment,
}

struct Held {
    owner: OwnerToken,
    expires: Moment,
    fencing: Option<FencingBlock>,
    since: WallTime,
    why: Option<Arc<str>>,
    idle: bool,
}

impl Held {
    fn new(owner: OwnerToken, expires: Moment, since: WallTime, why: Option<Arc<str>>) -> Self {
        Self { owner, expires, fencing: None, since, why, idle: false }
    }
}

struct Place {
    owner: OwnerToken,
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
        Self { counter, held: None, line: VecDeque::new(), awaits_until, touched }
    }

    /// The owner of the key now.
    pub(super) fn owner(&self, now: Moment) -> Option<&OwnerToken> {
        self.held.as_ref().filter(|held| held.expires > now).map(|held| &held.owner)
    }

    pub(super) fn counter(&self) -> u64 {
        self.counter
    }

    pub(super) fn touched(&self) -> Moment {
        self.touched
    }

    /// Whether the key has a living holder or waiter.
    pub(super) fn is_in_use(&self, now: Moment) -> bool {
        self.owner(now).is_some() || self.line.iter().any(|place| place.expires > now)
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

    pub(super) fn acquire(
        &mut self,
        now: Moment,
        wall: WallTime,
        ask: &Ask,
        mail: &mut Vec<Mail>,
    ) -> Result<Acquired, Error> {
        self.touched = now;
        let holding = match self.owner(now) {
            None => Holding::Free,
            Some(owner) if *owner == ask.owner => Holding::Mine,
            Some(_) => Holding::Others,
        };
        let is_new = if holding == Holding::Mine { None } else { self.enter(now, wall, ask)? };
        let front = self.drop_dead(now);
        let is_head = self.line.front().is_some_and(|place| place.owner == ask.owner);
        let asker = Asker::of(is_head, is_new, self.awaits_until > now);
        let retry_in = match decide_ask(holding, front, asker) {
            AskDecision::GrantAgain => return Ok(self.grant_again(now, ask.ttl)),
            AskDecision::Grant => {
                self.leave(&ask.owner);
                let why = ask.note.as_ref().and_then(|note| note.why.clone());
                let held = Held::new(ask.owner.clone(), now + ask.ttl.get(), wall, why);
                let fencing = self.grant(held, ask.reserve);
                return Ok(Acquired::Granted { fencing });
            }
            AskDecision::HandOver => self.hand_over(now, wall, &ask.key, mail),
            AskDecision::Wait => {
                self.held.as_ref().map_or(Duration::ZERO, |held| held.expires.since(now))
            }
            AskDecision::GiveWay => GIVES_WAY_FOR,
            AskDecision::WaitAndRetry => Duration::ZERO,
        };
        let ahead = self.position(&ask.owner).unwrap_or(self.line.len());
        Ok(Refusal::taken(Some(retry_in), count(ahead)).into())
    }

    /// Takes or refreshes the asker's place, if it wants one. Returns whether the place is new.
    fn enter(&mut self, now: Moment, wall: WallTime, ask: &Ask) -> Result<Option<bool>, Error> {
        let Some(terms) = ask.line.place() else { return Ok(None) };
        let PlaceTerms { waiter_ttl, handed_ttl, ask_no, inbox, stance } = terms;
        let why = ask.note.as_ref().and_then(|note| note.why.clone());
        let since = match self.position(&ask.owner) {
            Some(at) => self.line[at].since,
            None if self.line.len() >= PLACES_MAX => {
                // Dead places do not count: a line of them must not lock living waiters out.
                self.line.retain(|place| place.expires > now);
                if self.line.len() >= PLACES_MAX {
                    return Err(line_is_full(&ask.key));
                }
                wall
            }
            None => wall,
        };
        let expires = now + waiter_ttl.get();
        let place = Place {
            owner: ask.owner.clone(),
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
        front(now, self.line.iter().take(REAPED_MAX + 1).map(|place| (place.expires, place.stance)))
    }

    fn drop_dead(&mut self, now: Moment) -> Front {
        let front = self.front(now);
        self.line.drain(..front.dead);
        Front { dead: 0, ..front }
    }

    /// Sets the owner, with `reserve` fresh fencing tokens.
    fn grant(&mut self, held: Held, reserve: u32) -> Option<FencingBlock> {
        let fencing = self.reserve(reserve);
        self.held = Some(Held { fencing, ..held });
        self.awaits_until = Moment::default();
        fencing
    }

    fn reserve(&mut self, reserve: u32) -> Option<FencingBlock> {
        let (block, counter) = FencingBlock::after(self.counter, reserve)?;
        self.counter = counter;
        Some(block)
    }

    fn grant_again(&mut self, now: Moment, ttl: Ttl) -> Acquired {
        let held = self.held.as_mut().expect("an owner that is granted again holds it");
        held.expires = held.expires.max(now + ttl.get());
        Acquired::Granted { fencing: held.fencing }
    }

    /// Makes the head the owner. Returns the ttl of its lease.
    fn hand_over(
        &mut self,
        now: Moment,
        wall: WallTime,
        key: &Key,
        mail: &mut Vec<Mail>,
    ) -> Duration {
        let head = self.line.pop_front().expect("the head was seen alive");
        let until = now + head.handed_ttl.get();
        let held = Held::new(head.owner.clone(), until, wall, head.why);
        let fencing = self.grant(held, head.reserve);
        let hint =
            Hint::Granted { key: key.clone(), owner: head.owner, fencing, ask_no: head.ask_no };
        mail.push(Mail { inbox: head.inbox, hint });
        head.handed_ttl.get()
    }

    pub(super) fn renew(&mut self, now: Moment, renewal: &Renewal) -> Renewed {
        self.touched = now;
        if self.owner(now) != Some(&renewal.lease.owner) {
            return Renewed::Lost;
        }
        let raised = renewal.at_least.filter(|at_least| at_least.get() > self.counter);
        if let Some(at_least) = raised {
            self.counter = at_least.get();
        }
        let reserved = self.reserve(renewal.reserve);
        let wanted = self.line.iter().any(|place| place.expires > now);
        let held = self.held.as_mut().expect("the owner was just seen");
        held.expires = held.expires.max(now + renewal.ttl.get());
        held.idle = renewal.idle;
        let raised_from = held.fencing.filter(|_| raised.is_some());
        held.fencing = reserved
            .or_else(|| raised.map(|first| FencingBlock { first, count: 1 }))
            .or(held.fencing);
        Renewed::Renewed { fencing: held.fencing, raised_from, wanted }
    }

    pub(super) fn release(
        &mut self,
        now: Moment,
        wall: WallTime,
        lease: &LeaseId,
        on_release: &OnRelease,
        mail: &mut Vec<Mail>,
    ) -> Released {
        self.touched = now;
        self.leave(&lease.owner);
        if self.owner(now) != Some(&lease.owner) {
            return Released::NotHeld;
        }
        let front = self.drop_dead(now);
        match decide_release(front, on_release.wish()) {
            ReleaseDecision::HandOver => {
                self.hand_over(now, wall, &lease.key, mail);
                Released::HandedOver
            }
            ReleaseDecision::Keep(Keep { owner, ttl, reserve }) => {
                let fencing = self.reserve(reserve);
                let held = self.held.as_mut().expect("the owner was just seen");
                held.expires = held.expires.max(now + ttl.get());
                held.owner = owner.clone();
                held.fencing = fencing;
                held.idle = false;
                Released::Kept { fencing }
            }
            ReleaseDecision::Free => {
                self.held = None;
                if let Some(head) = self.line.front() {
                    let hint = Hint::MaybeFree { key: lease.key.clone() };
                    mail.push(Mail { inbox: head.inbox.clone(), hint });
                }
                if matches!(front.head, Head::Alive(_)) {
                    self.awaits_until = now + GIVES_WAY_FOR;
                }
                Released::Freed
            }
        }
    }

    pub(super) fn evict(
        &mut self,
        now: Moment,
        wall: WallTime,
        key: &Key,
        seen: &[u8],
        mail: &mut Vec<Mail>,
    ) -> Evicted {
        let Some(owner) =
            self.owner(now).filter(|owner| owner.as_str().as_bytes() == seen).cloned()
        else {
            return Evicted::Changed;
        };
        // The next holder's number must be above the evicted one, even if nobody is granted a
        // number before that holder.
        self.counter = self.counter.saturating_add(1).min(FencingToken::MAX);
        let lease = LeaseId { key: key.clone(), owner, claim: crate::store::Claim::Exclusive };
        self.release(now, wall, &lease, &OnRelease::Free, mail);
        Evicted::Evicted
    }

    /// The state of the key, without the records of the clients.
    pub(super) fn snapshot(&self, now: Moment) -> Snapshot {
        let held = self.held.as_ref().filter(|held| held.expires > now);
        let living = || self.line.iter().filter(|place| place.expires > now);
        let holder = held.map(|held| Holder {
            token: held.owner.as_str().as_bytes().to_vec(),
            client: None,
            why: held.why.as_deref().map(str::to_owned),
            since: Some(held.since),
            ttl: None,
            ttl_left: Some(held.expires.since(now)),
            fencing: held.fencing,
            idle: held.idle,
        });
        let waiter = |place: &Place| Waiter {
            id: place.owner.client(),
            client: None,
            since: Some(place.since),
        };
        Snapshot {
            holders: holder.into_iter().collect(),
            waiters: living().take(Snapshot::WAITERS_SHOWN_MAX).map(waiter).collect(),
            waiting: count(living().count()),
            fencing: FencingToken::new(self.counter),
            votes: Vec::new(),
            quarantine: None,
        }
    }
}

fn count(places: usize) -> u32 {
    u32::try_from(places).expect("a line has at most PLACES_MAX places")
}
