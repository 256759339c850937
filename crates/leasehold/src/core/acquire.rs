//! The decisions of one acquisition, from the client's side.
//!
//! | client | granted in time | granted too late | taken | unknown | unavailable |
//! |---|---|---|---|---|---|
//! | does not wait | hold | ask again, twice | give up, mostly | ask again, once | give up |
//! | waits, no answer yet | hold | ask again, 19 times | wait | ask again, once | give up |
//! | waits, had an answer | hold | ask again, 19 times | wait | wait (back-off) | wait (back-off) |
//!
//! After *taken*, a client that does not wait asks again if perhaps nobody holds the lock.
//!
//! The client repeats an ask with the same token, unless a refusal says that it needs a fresh one.
//!
//! Any other failure ends the acquisition. A hint ends a wait.
//!
//! The store may also hand the key over to a waiter, and tells it so with a message. The waiter
//! holds at once if enough validity is left. Validity counts from the departure of the last ask
//! that the store had processed. If too little is left, the message is only a hint.
//!
//! A waiter without a place in line *polls*: it asks again after a random pause that grows, or when
//! the holder's lease ends.
//!
//! Where clients that do not queue should get a chance, a waiter *gives way*: it pauses briefly
//! after the first hint that the key may be free.
//!
//! A grant comes too late if its remaining validity is less than [`Ttl::min_validity`]. The client
//! does not act on it, but keeps it, so that the acquisition keeps its turn. If only one more
//! request relies on the grant, half of that validity is enough.

#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::core::backoff::{Backoff, Delays};
use crate::core::error::ErrorKind;
use crate::core::line::{PLACES_MAX, REAPED_MAX, far_pause, is_far};
use crate::core::moment::Moment;
use crate::core::passing::given_way;
use crate::core::ttl::Ttl;
use crate::core::validity::valid_until;

/// The longest time between two asks of a waiter, and so the highest cost of a lost hint.
pub(crate) const POLL_EVERY: Duration = Duration::from_secs(1);

/// The pauses of a polling waiter. The longest is shorter than the opening of a line, 300 ms.
pub(crate) const POLLS: Backoff =
    Backoff { first: Duration::from_millis(10), longest: Duration::from_millis(250) };

/// The shortest time between two refreshes of a place, if the place lives long enough.
pub(crate) const REFRESH_EVERY_MIN: Duration = Duration::from_millis(50);

/// When a lease ends, each waiter asks this much later than the one before it in line. Only the
/// head can win, and its ask serves those behind it. The others ask in case the head is dead.
const ASK_STAGGER: Duration = Duration::from_millis(20);

/// How often a client that does not wait asks for a grant that arrives in time.
pub(crate) const LATE_GRANTS_MAX: u32 = 3;

/// How many late grants a waiting client takes before it gives up. *Taken* resets the count.
/// Each of these grants keeps the key from others.
pub(crate) const LATE_GRANTS_MAX_WAITING: u32 = 20;

/// After this many split votes, a client that does not wait treats the lock as taken. With fewer,
/// two clients that try at the same moment would more often both be refused.
pub(crate) const SPLITS_MAX: u32 = 6;

/// The longest pause after a split vote.
pub(crate) const SPLIT_PAUSE_MAX: Duration = Duration::from_millis(250);

/// How often in a row a client asks at once while dead places hide whose turn it is. Enough to
/// clear the longest line of dead places.
#[allow(clippy::cast_possible_truncation, reason = "a small number")]
pub(crate) const HIDDEN_ASKS_MAX: u32 = (PLACES_MAX / REAPED_MAX) as u32 + 1;

/// How many of its latest asks an acquisition remembers, each with the moment when it left. The
/// store answers about an older ask only if many asks got no answer.
const SENT_MAX: usize = 4;

/// The next step of an acquisition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextAsk {
    /// Act on the grant.
    Hold,
    /// Ask again at once with the same token.
    Now,
    /// Ask again at this moment, or at the first hint.
    At(Moment),
    /// Give up, with the error or because the lock is taken.
    GiveUp,
}

/// The decisions of one acquisition.
#[derive(Clone, Debug)]
pub(crate) struct Acquisition {
    ttl: Ttl,
    /// The least validity of a grant that is acted on.
    validity_min: Duration,
    waits: bool,
    asked: u32,
    /// When the latest asks left, by ask number.
    sent: [Moment; SENT_MAX],
    answered: bool,
    /// Whether the acquisition has asked again because the outcome of an ask was unknown.
    has_repeated: bool,
    /// Whether the answer was ever *taken*.
    has_waited: bool,
    late: u32,
    splits: u32,
    /// How often in a row *taken* came although perhaps nobody holds the key.
    hidden: u32,
    failures: Delays,
    /// The pauses of a polling waiter. `None` with a place in line.
    polls: Option<Delays>,
    /// Whether the acquisition gives way the next time the key may be free.
    gives_way: bool,
    /// Whether the store tells the client when it comes near the front of the line.
    is_called_up: bool,
}

impl Acquisition {
    /// Starts an acquisition of a lease of `ttl`. If `waits`, it waits for its turn.
    #[must_use]
    pub(crate) fn new(ttl: Ttl, waits: bool) -> Self {
        Self {
            ttl,
            validity_min: ttl.min_validity(),
            waits,
            asked: 0,
            sent: [Moment::default(); SENT_MAX],
            answered: false,
            has_repeated: false,
            has_waited: false,
            late: 0,
            splits: 0,
            hidden: 0,
            failures: Backoff::DEFAULT.delays(),
            polls: None,
            gives_way: false,
            is_called_up: false,
        }
    }

    /// For a store that tells waiters far back in the line when they come near.
    #[must_use]
    pub(crate) const fn called_up(mut self) -> Self {
        self.is_called_up = true;
        self
    }

    /// Acts on a grant that has half of the usual validity, since only one more request relies on
    /// it.
    #[must_use]
    pub(crate) fn accepting_half_validity(mut self) -> Self {
        self.validity_min /= 2;
        self
    }

    /// For an acquisition that takes no place in line.
    #[must_use]
    pub(crate) const fn polling(mut self) -> Self {
        self.polls = Some(POLLS.delays());
        self
    }

    /// For a key that clients without a queue lock too.
    #[must_use]
    pub(crate) const fn giving_way(mut self) -> Self {
        self.gives_way = true;
        self
    }

    /// Handles a hint that the key may be free. Returns how long to leave the key to others. This
    /// happens only once: others that come and go all the time must not starve this client.
    pub(crate) fn on_free(&mut self, random: impl FnOnce() -> u32) -> Option<Duration> {
        std::mem::take(&mut self.gives_way).then(|| given_way(random()))
    }

    /// The pause of a polling waiter before its first ask if its client just had the key. Others
    /// get a chance meanwhile.
    pub(crate) fn pause(&mut self, random: impl FnOnce() -> u32) -> Option<Duration> {
        self.polls.as_mut().map(|polls| polls.next(random()))
    }

    /// Treats the store as having answered, because this client had the key while the acquisition
    /// waited for another task.
    pub(crate) const fn take_as_answered(&mut self) {
        self.answered = true;
    }

    /// Whether the store has answered at all.
    #[must_use]
    pub(crate) const fn is_answered(&self) -> bool {
        self.answered
    }

    /// Whether an ask was sent.
    #[must_use]
    pub(crate) const fn has_asked(&self) -> bool {
        self.asked > 0
    }

    /// Whether another client held the key when the store was asked.
    #[must_use]
    pub(crate) const fn has_waited(&self) -> bool {
        self.has_waited
    }

    /// Counts an ask that leaves now and returns its number. Numbers start at 1.
    pub(crate) fn ask(&mut self, now: Moment) -> u32 {
        self.asked += 1;
        self.sent[self.asked as usize % SENT_MAX] = now;
        self.asked
    }

    /// Handles a hand-over of the key for `handed_ttl`. The client learnt of it at `now`. The store
    /// had processed ask `ask_no` before. Returns when that ask left, since the lease counts from
    /// then. `None` if too little validity is left, or if there was no such ask.
    #[must_use]
    pub(crate) fn on_handed_over(
        &self,
        now: Moment,
        ask_no: u32,
        handed_ttl: Ttl,
    ) -> Option<Moment> {
        let age = self.asked.checked_sub(ask_no).filter(|_| ask_no > 0)?;
        let sent = (age < SENT_MAX as u32).then(|| self.sent[ask_no as usize % SENT_MAX])?;
        (valid_until(sent, handed_ttl).since(now) >= self.validity_min).then_some(sent)
    }

    /// The store *granted* an ask that left at `sent`. The answer arrived at `now`.
    pub(crate) fn on_granted(&mut self, now: Moment, sent: Moment) -> NextAsk {
        self.answered = true;
        self.failures.reset();
        if valid_until(sent, self.ttl).since(now) >= self.validity_min {
            return NextAsk::Hold;
        }
        self.late += 1;
        let late_max = if self.waits { LATE_GRANTS_MAX_WAITING } else { LATE_GRANTS_MAX };
        if self.late >= late_max { NextAsk::GiveUp } else { NextAsk::Now }
    }

    /// The store answered *taken* at `now`. The line has `ahead` places before ours, and the
    /// holder's lease ends in `retry_in` unless it is renewed.
    pub(crate) fn on_taken(
        &mut self,
        now: Moment,
        retry_in: Option<Duration>,
        ahead: u32,
        random: impl FnOnce() -> u32,
    ) -> NextAsk {
        self.answered = true;
        self.late = 0;
        self.failures.reset();
        // Perhaps nobody holds the key, and dead places hide whose turn it is.
        self.hidden =
            if retry_in == Some(Duration::ZERO) { self.hidden.saturating_add(1) } else { 0 };
        let is_hidden = (1..HIDDEN_ASKS_MAX).contains(&self.hidden);
        if !self.waits {
            return if is_hidden { NextAsk::Now } else { NextAsk::GiveUp };
        }
        self.has_waited = true;
        if self.is_called_up && self.polls.is_none() && is_far(ahead) && !is_hidden {
            // Wait this long even if the holder's lease ends first. The waiters ahead handle that.
            return NextAsk::At(now + far_pause(ahead));
        }
        let behind = match self.polls {
            Some(_) => Duration::ZERO,
            None => ASK_STAGGER.saturating_mul(ahead),
        };
        let refresh = self.pause(random).unwrap_or_else(|| {
            let place = self.ttl.waiter_ttl().get();
            (place / 3).max(REFRESH_EVERY_MIN.min(place / 2)).min(POLL_EVERY)
        });
        match retry_in {
            Some(Duration::ZERO) if is_hidden => NextAsk::Now,
            // A store that repeats this answer must not make us ask without a pause.
            None | Some(Duration::ZERO) => NextAsk::At(now + refresh),
            // One millisecond more, so that the lease has surely ended when the ask arrives.
            Some(left) => {
                let until_free = left.saturating_add(Duration::from_millis(1) + behind);
                NextAsk::At(now + refresh.min(until_free))
            }
        }
    }

    /// The nodes of a quorum split their votes. The client asks again after a random pause, which
    /// grows with each split of this acquisition. So clients that take nodes from one another soon
    /// ask at different times. A *taken* in between says little, because a node that the holder
    /// does not have gives this answer to every first ask.
    pub(crate) fn on_split(
        &mut self,
        now: Moment,
        round_trip: Duration,
        random: impl FnOnce() -> u32,
    ) -> NextAsk {
        self.answered = true;
        self.failures.reset();
        self.has_waited |= self.waits;
        self.splits += 1;
        if !self.waits && self.splits >= SPLITS_MAX {
            return NextAsk::GiveUp;
        }
        let longest = round_trip.saturating_mul(1 << self.splits.min(30)).min(SPLIT_PAUSE_MAX);
        NextAsk::At(now + longest.mul_f64(f64::from(random()) / f64::from(u32::MAX)))
    }

    /// The store gave no answer, or refused without saying anything about the lock.
    ///
    /// The first ask reports its error. One repetition is allowed if the outcome is unknown,
    /// because asking again with the same token repairs a lost reply. Once the store has answered,
    /// a waiter waits until the outage ends.
    pub(crate) fn on_failed(&mut self, now: Moment, kind: ErrorKind, random: u32) -> NextAsk {
        match kind {
            ErrorKind::Unknown if !self.answered && !self.has_repeated => {
                self.has_repeated = true;
                NextAsk::Now
            }
            ErrorKind::Unavailable | ErrorKind::Unknown if self.waits && self.answered => {
                NextAsk::At(now + self.failures.next(random))
            }
            _ => NextAsk::GiveUp,
        }
    }
}
