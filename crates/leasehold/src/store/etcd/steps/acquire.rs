//! Acquire: grant, hand over to the front of the line, or wait.
//!
//! | the lock | the front of the line | what the step does |
//! |---|---|---|
//! | is the asker's | any | grants it again |
//! | is another's | any | takes or refreshes the asker's place |
//! | is free | nobody | grants it |
//! | is free | the asker | grants it, and removes the place |
//! | is free | another | takes the asker's place, then hands over |

use std::time::Duration;

use super::{Core, ROUNDS_MAX};
use crate::core::error::Error;
use crate::core::line::PLACES_MAX;
use crate::core::moment::Moment;
use crate::core::token::{ClientId, FencingBlock};
use crate::store::errors::{after_a_change, unsupported_line};
use crate::store::etcd::entry::{Entry, Seen, tokens};
use crate::store::etcd::error::Fault;
use crate::store::etcd::hints::Wait;
use crate::store::etcd::leases::{Lease, Taken, seconds};
use crate::store::etcd::rpc::{Do, If, Range, Txn, TxnDone};
use crate::store::etcd::state::{State, glance_for, look_for};
use crate::store::{Acquired, Ask, Hint, Line, Refusal, line_is_full, unsupported_claim};

/// With this many places ahead, a place is far back. Its refreshes do not read the line. If all
/// waiters read it, the work would grow with the square of their number.
const FAR: u32 = 16;

/// Once in this many asks, a place that is far back reads the line, to see which places have ended.
const LOOK_EVERY: u32 = 16;

/// One ask on its way.
struct Asking<'a> {
    core: &'a Core,
    ask: &'a Ask,
    /// The place that the ask may take: its seconds, and the number and the inbox of the ask.
    place: Option<(i64, u32, ClientId)>,
    /// The lease of etcd for the lock.
    taken: Option<Taken>,
    /// The lease behind the place in the line, if there is one.
    waits_by: Option<Lease>,
    /// Whether this ask certainly refreshed the place.
    is_fresh: bool,
    /// Whether this ask wrote the lock or a place.
    has_written: bool,
}

enum Next {
    Answer(Acquired),
    Again(Box<State>),
}

impl Next {
    fn again(state: State) -> Self {
        Self::Again(Box::new(state))
    }
}

impl Core {
    pub(in crate::store::etcd) async fn acquire(&self, ask: Ask) -> Result<Acquired, Error> {
        if !ask.claim.is_alone() {
            return Err(unsupported_claim(ask.claim, &ask.key));
        }
        let place = match &ask.line {
            Line::None => None,
            Line::Join { waiter_ttl, handed_ttl, ask_no, inbox } => {
                let lasts = seconds(*waiter_ttl).max(seconds(*handed_ttl));
                Some((lasts, *ask_no, inbox.clone()))
            }
            Line::Watch { .. } => return Err(unsupported_line(&ask.key)),
        };
        let known = self.mine.of(&ask.key, &ask.owner);
        let (core, ask, waits_by) = (self, &ask, known.place);
        let mut asking =
            Asking { core, ask, place, taken: None, waits_by, is_fresh: false, has_written: false };
        let answer = asking.run(known.held.is_some()).await;
        if let Some(unused) = asking.taken {
            self.give_back(unused.lease, Some(unused.since));
        }
        if asking.has_written { answer.map_err(after_a_change) } else { answer }
    }
}

impl Asking<'_> {
    async fn run(&mut self, has_lock: bool) -> Result<Acquired, Error> {
        let core = self.core;
        let has_spare = || core.leases.has(core.wire.host.now(), seconds(self.ask.ttl));
        let next = if let Some(lease) = self.waits_by {
            self.refresh(lease).await?
        } else if has_lock || self.place.is_none() && !has_spare() {
            // Look first, because a try that is refused should make no lease.
            Next::again(self.look().await?)
        } else {
            let line_is_empty = If::Absent(core.keys.line(&self.ask.key));
            self.take(vec![core.is_free(&self.ask.key), line_is_empty], None).await?
        };
        let mut state = match next {
            Next::Answer(answer) => return Ok(answer),
            Next::Again(state) => *state,
        };
        for _ in 0..ROUNDS_MAX {
            state = match self.go_on(state).await? {
                Next::Answer(answer) => return Ok(answer),
                Next::Again(state) => *state,
            };
        }
        Ok(Refusal::taken(None, state.ahead(&self.ask.owner)).at_once().into())
    }

    /// Reads the state, with the owner's place.
    async fn look(&self) -> Result<State, Error> {
        let Ask { key, owner, .. } = self.ask;
        self.core.read(look_for(&self.core.keys, key, owner)).await
    }

    /// Refreshes the place, and reads the state.
    ///
    /// A place that is far back is read without the line. From that, a step only answers *taken*,
    /// because it does not know whether the place is the first of the line.
    async fn refresh(&mut self, lease: Lease) -> Result<Next, Error> {
        let (core, Ask { key, owner, .. }) = (self.core, self.ask);
        let (is_far, sent) = (self.is_far(), core.wire.host.now());
        let read = if is_far { glance_for } else { look_for };
        let seen = core.read(read(&core.keys, key, owner));
        let (renewed, state) = tokio::join!(core.wire.keep_alive(lease.id), seen);
        let state = state?;
        let place = state.place_of(owner).map(|at| state.line[at].clone());
        let Some(place) = place.filter(|place| place.kv.lease == lease.id) else {
            // The place is gone, or has another lease, which is to be renewed instead.
            (self.waits_by, self.is_fresh) = (None, false);
            return if is_far {
                self.look().await.map(Next::again)
            } else {
                Ok(Next::again(state))
            };
        };
        self.is_fresh = renewed.is_ok_and(|it| it.is_confirmed_in(state.term));
        if self.is_fresh {
            self.wait_by(lease, Some(sent));
        }
        let lasts = self.place.as_ref().map_or(0, |(lasts, ..)| *lasts);
        if lasts > lease.seconds {
            return self.lengthen(&place, lasts).await.map(Next::again);
        }
        if !is_far {
            return Ok(Next::again(state));
        }
        match (&state.held, core.hints.ahead(key, owner)) {
            (Some(held), Some(ahead)) if !held.is_of(owner) => {
                self.refuse(Some(held), ahead, state.revision).await.map(Next::Answer)
            }
            _ => self.look().await.map(Next::again),
        }
    }

    /// Whether the place is so far back that this ask need not read the line.
    fn is_far(&self) -> bool {
        let ahead = self.core.hints.ahead(&self.ask.key, &self.ask.owner);
        let looks = self.place.as_ref().is_none_or(|(_, ask_no, _)| ask_no % LOOK_EVERY == 0);
        !looks && ahead.is_some_and(|ahead| ahead >= FAR)
    }

    /// Gives the place a lease of etcd that lasts longer.
    async fn lengthen(&mut self, place: &Seen, lasts: i64) -> Result<State, Error> {
        let (core, Ask { key, owner, .. }) = (self.core, self.ask);
        let Some(entry) = &place.entry else { return self.look().await };
        // The lease of the place is too short for a hand-over.
        self.is_fresh = false;
        let taken = core.leases.make(&core.wire, lasts).await?;
        let value = Entry { lasts: taken.lease.seconds, ..entry.clone() }.write();
        let (name, reads) = (place.kv.key.clone(), look_for(&core.keys, key, owner));
        let when = vec![If::Modified(name.clone(), place.kv.modified)];
        let put = Do::Put { key: name, value, lease: taken.lease.id };
        let then = [vec![put], reads.clone()].concat();
        match core.wire.txn(&Txn { when, then, or_else: reads }).await {
            Ok(done) if done.succeeded => {
                core.give_back_of(key, place);
                self.wait_by(taken.lease, Some(taken.since));
                Ok(State::of(done))
            }
            Ok(done) => {
                core.give_back(taken.lease, Some(taken.since));
                Ok(State::of(done))
            }
            Err(Fault::NoLease) => self.look().await,
            Err(Fault::Error(error)) => Err(self.doubted(taken, error)),
        }
    }

    async fn go_on(&mut self, state: State) -> Result<Next, Error> {
        let (core, ask) = (self.core, self.ask);
        if let Some(held) = state.held_by(&ask.owner).cloned() {
            return self.grant_again(held).await;
        }
        let at = state.place_of(&ask.owner);
        let mine = at.map(|at| state.line[at].clone());
        if state.held.is_none() {
            let free = core.is_free(&ask.key);
            match (&mine, state.line.is_empty(), at) {
                (None, true, _) => {
                    let empty = If::Absent(core.keys.line(&ask.key));
                    return self.take(vec![free, empty], None).await;
                }
                (Some(place), _, Some(0)) => {
                    let still = If::Modified(place.kv.key.clone(), place.kv.modified);
                    return self.take(vec![free, still], Some(place)).await;
                }
                _ => {}
            }
        }
        if self.place.is_some() && mine.is_none() {
            return self.join().await;
        }
        if let Some(place) = mine.as_ref().filter(|_| self.place.is_some())
            && self.waits_by.is_none_or(|lease| lease.id != place.kv.lease)
        {
            return self.refresh_found(place).await;
        }
        if state.held.is_some() {
            let ahead = state.ahead(&ask.owner);
            let refused = self.refuse(state.held.as_ref(), ahead, state.revision);
            return refused.await.map(Next::Answer);
        }
        core.hand_over(&ask.key, core.is_free(&ask.key), &state).await?;
        self.look().await.map(Next::again)
    }

    /// Takes the lock if all conditions hold, and removes the place.
    async fn take(&mut self, when: Vec<If>, place: Option<&Seen>) -> Result<Next, Error> {
        let (core, key) = (self.core, &self.ask.key);
        let mut taken = match self.taken {
            Some(taken) => taken,
            None => core.leases.take(&core.wire, seconds(self.ask.ttl)).await?,
        };
        for _ in 0..2 {
            self.taken = None;
            self.may_end(taken);
            let entry = Entry::of(self.ask, taken.lease.seconds, core.wire.host.wall());
            let (held, lease) = (core.keys.held(key), taken.lease.id);
            let mut then = vec![Do::Put { key: held, value: entry.write(), lease }];
            then.extend(place.map(|place| Do::Delete(place.kv.key.clone())));
            let or_else = look_for(&core.keys, key, &self.ask.owner);
            let txn = Txn { when: when.clone(), then, or_else };
            match core.write(taken, &txn).await {
                Ok((done, lasts)) if done.succeeded => {
                    self.has_written = true;
                    let block = entry.block(tokens(done.header.revision));
                    place.into_iter().for_each(|place| core.give_back_of(key, place));
                    let granted = self.granted(taken.lease, done.header.revision, block);
                    if lasts {
                        return Ok(Next::Answer(granted));
                    }
                    let still = core.prolong(key, &self.ask.owner, taken.lease.id).await;
                    return match still.map_err(after_a_change)? {
                        Some(_) => Ok(Next::Answer(granted)),
                        None => self.look().await.map(Next::again),
                    };
                }
                Ok((done, _)) => {
                    self.taken = Some(taken);
                    return Ok(Next::again(State::of(done)));
                }
                // A lease that was kept for later has ended meanwhile.
                Err(Fault::NoLease) => {
                    taken = core.leases.make(&core.wire, seconds(self.ask.ttl)).await?;
                }
                Err(Fault::Error(error)) => return Err(self.doubted(taken, error)),
            }
        }
        self.taken = Some(taken);
        self.look().await.map(Next::again)
    }

    /// Prepares for a write with this lease. A kept lease may end soon. So the news of that write
    /// grants nothing, because only the answer tells whether the lease lasts.
    fn may_end(&self, taken: Taken) {
        if !taken.is_new {
            self.core.hints.only_wake(&self.ask.key, &self.ask.owner);
        }
    }

    fn doubted(&self, taken: Taken, error: Error) -> Error {
        self.core.doubted((&self.ask.key, &self.ask.owner), taken, error)
    }

    fn granted(&mut self, lease: Lease, modified: i64, fencing: Option<FencingBlock>) -> Acquired {
        let (core, of) = (self.core, (&self.ask.key, &self.ask.owner));
        self.waits_by = None;
        let now = core.wire.host.now();
        core.mine.note(now, of, |known| {
            known.held = Some((lease, modified));
            (known.place, known.since) = (None, Some(now));
        });
        core.hints.done(of.0, of.1);
        Acquired::Granted { fencing }
    }

    /// Grants the lock to its owner again, for a repeated ask, or after a hand-over.
    async fn grant_again(&mut self, held: Seen) -> Result<Next, Error> {
        let (core, key, owner) = (self.core, &self.ask.key, &self.ask.owner);
        let Some(entry) = &held.entry else { return self.look().await.map(Next::again) };
        if seconds(self.ask.ttl) > entry.lasts {
            return self.lift(&held, entry).await;
        }
        match core.prolong(key, owner, held.kv.lease).await? {
            Some(state) => {
                let held = state.held_by(owner).unwrap_or(&held);
                let entry = held.entry.as_ref().unwrap_or(entry);
                let lease = Lease { id: held.kv.lease, seconds: entry.lasts };
                Ok(Next::Answer(self.granted(lease, held.kv.modified, held.block())))
            }
            None => self.look().await.map(Next::again),
        }
    }

    /// Gives the lock a lease of etcd that lasts as long as this ask wants.
    async fn lift(&mut self, held: &Seen, entry: &Entry) -> Result<Next, Error> {
        let (core, key) = (self.core, &self.ask.key);
        let asked = seconds(self.ask.ttl);
        let taken = match self.taken.take_if(|taken| taken.is_new) {
            Some(taken) => taken,
            None => core.lasting(key, asked).await?,
        };
        let entry =
            Entry { lasts: taken.lease.seconds, ..entry.clone().kept(tokens(held.kv.modified)) };
        match core.rewrite(key, (held, &entry), taken).await {
            Ok(Some(done)) => {
                core.give_back_of(key, held);
                let modified = done.header.revision;
                let fencing = entry.block(tokens(modified));
                Ok(Next::Answer(self.granted(taken.lease, modified, fencing)))
            }
            Ok(None) => {
                let earlier = self.taken.replace(taken);
                earlier.into_iter().for_each(|it| core.give_back(it.lease, Some(it.since)));
                self.look().await.map(Next::again)
            }
            Err(Fault::NoLease) => self.look().await.map(Next::again),
            Err(Fault::Error(error)) => Err(self.doubted(taken, error)),
        }
    }

    /// Takes a place at the end of the line. Returns the state with it.
    async fn join(&mut self) -> Result<Next, Error> {
        let (core, key, owner) = (self.core, &self.ask.key, &self.ask.owner);
        let lasts = self.place.as_ref().map_or(1, |(lasts, ..)| *lasts);
        let mut taken = core.leases.take(&core.wire, lasts).await?;
        for _ in 0..2 {
            self.may_end(taken);
            let entry = Entry::of(self.ask, taken.lease.seconds, core.wire.host.wall());
            let place = core.keys.place(key, owner.as_str());
            let put = Do::Put { key: place.clone(), value: entry.write(), lease: taken.lease.id };
            let reads = look_for(&core.keys, key, owner);
            let then = [vec![put], reads.clone()].concat();
            let txn = Txn { when: vec![If::Absent(Range::one(place))], then, or_else: reads };
            match core.write(taken, &txn).await {
                Ok((done, lasts)) => return self.joined(taken, done, lasts).await,
                Err(Fault::NoLease) => taken = core.leases.make(&core.wire, lasts).await?,
                Err(Fault::Error(error)) => return Err(self.doubted(taken, error)),
            }
        }
        core.give_back(taken.lease, Some(taken.since));
        self.look().await.map(Next::again)
    }

    async fn joined(&mut self, taken: Taken, done: TxnDone, lasts: bool) -> Result<Next, Error> {
        let (core, key, owner) = (self.core, &self.ask.key, &self.ask.owner);
        let Taken { lease, since, .. } = taken;
        let succeeded = done.succeeded;
        let state = State::of(done);
        if !succeeded {
            core.give_back(lease, Some(since));
            return match state.place_of(owner) {
                Some(at) => self.refresh_found(&state.line[at]).await,
                None => Ok(Next::again(state)),
            };
        }
        self.has_written = true;
        if state.count as usize > PLACES_MAX {
            let state = core.leave_in(key, owner, state).await?;
            if state.held_by(owner).is_some() {
                // The lock was handed to the place meanwhile.
                return Ok(Next::again(state));
            }
            self.has_written = false;
            return Err(line_is_full(key));
        }
        self.wait_by(lease, lasts.then_some(since));
        // If the lease was about to end, a refresh shows that the place is gone.
        if lasts { Ok(Next::again(state)) } else { self.refresh(lease).await }
    }

    /// Refreshes a place that this store does not know, or knows with another lease. The answer to
    /// the request for the place was lost.
    async fn refresh_found(&mut self, place: &Seen) -> Result<Next, Error> {
        let seconds = place.entry.as_ref().map_or(0, |entry| entry.lasts);
        let lease = Lease { id: place.kv.lease, seconds };
        self.wait_by(lease, None);
        self.refresh(lease).await
    }

    /// Notes that the owner has a place with this lease, which certainly had its whole time left at
    /// `since`.
    fn wait_by(&mut self, lease: Lease, since: Option<Moment>) {
        let of = (&self.ask.key, &self.ask.owner);
        (self.waits_by, self.is_fresh) = (Some(lease), since.is_some());
        self.core.mine.note(self.core.wire.host.now(), of, |known| {
            (known.place, known.since) = (Some(lease), since);
        });
    }

    /// Answers *taken*, to an ask that saw the change `seen` of the cluster.
    async fn refuse(&self, held: Option<&Seen>, ahead: u32, seen: i64) -> Result<Acquired, Error> {
        let (core, ask) = (self.core, self.ask);
        if let Some((lasts, ask_no, inbox)) = &self.place {
            let span = Duration::from_secs(lasts.unsigned_abs());
            let ask_no = if self.is_fresh { *ask_no } else { 0 };
            let until = core.wire.host.now() + 2 * span;
            let wait = Wait { inbox: inbox.clone(), ask_no, ahead, seen, until };
            core.hints.wait(&ask.key, &ask.owner, wait);
            let holder = held.and_then(|held| held.entry.as_ref()?.owner.client());
            if let Some(holder) = holder {
                // A holder in this process hears of it even if it does not listen yet.
                core.sinks.send(&holder, Hint::Wanted { key: ask.key.clone() });
            }
        }
        // A waiter does not need the time left: it asks again within a second, and its watch tells
        // it of the end of the lease. Only people and timers use it, so a failure does not matter.
        let lease = held.filter(|_| self.place.is_none()).map_or(0, |held| held.kv.lease);
        let left = if lease == 0 { None } else { core.wire.seconds_left(lease).await.ok() };
        // The leader is late to end a lease that is over. Asking at once would not help it.
        let left = left.flatten().filter(|left| *left > 0);
        let retry_in = left.map(|left| Duration::from_secs(left.unsigned_abs()));
        Ok(Refusal::taken(retry_in, ahead).into())
    }
}
