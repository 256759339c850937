//! The decisions of one acquisition, from the client's side.
//!
//! | client | granted in time | granted too late | taken | unknown | unavailable |
//! |---|---|---|---|---|---|
//! | does not wait | hold | ask again, twice | give up, mostly | ask again, once | give up |
//! | waits, no answer yet | hold | ask again | wait | ask again, once | give up |
//! | waits, had an answer | hold | ask again | wait | wait (back-off) | wait (back-off) |
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
//! does not act on it, but keeps it, so that the acquisition keeps its turn.

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

/// The pauses of a polling waiter.
pub(crate) const POLLS: Backoff = Backoff { first: Duration::from_millis(10), longest: POLL_EVERY };

/// The shortest time between two refreshes of a place.
pub(crate) const REFRESH_EVERY_MIN: Duration = Duration::from_millis(50);

/// How often a client that does not wait asks for a grant that arrives in time.
pub(crate) const LATE_GRANTS_MAX: u32 = 3;

/// After this many split votes, a client that does not wait treats the lock as taken.
pub(crate) const SPLITS_MAX: u32 = 3;

/// The longest pause after a split vote.
pub(crate) const SPLIT_PAUSE_MAX: Duration = Duration::from_millis(250);

/// How often a client that does not wait asks while dead places hide whose turn it is. Enough to
/// clear the longest line of dead places.
#[allow(clippy::cast_possible_truncation, reason = "a small number")]
pub(crate) const HIDDEN_ASKS_MAX: u32 = (PLACES_MAX / REAPED_MAX) as u32 + 1;

/// How many of its latest asks an acquisition remembers the departure of. The store answers about
/// an older ask only if many asks got no answer.
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
    waits: bool,
    asked: u32,
    /// When the latest asks left, by ask number.
    sent: [Moment; SENT_MAX],
    answered: bool,
    /// Whether the answer was ever *taken*.
    has_waited: bool,
    late: u32,
    splits: u32,
    failures: Delays,
    /// The pauses of a polling waiter; none with a place in line.
    polls: Option<Delays>,
    /// Whether it gives way the next time the key may be free.
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
            waits,
            asked: 0,
            sent: [Moment::default(); SENT_MAX],
            answered: false,
            has_waited: false,
            late: 0,
            splits: 0,
            failures: Backoff::DEFAULT.delays(),
            polls: None,
            gives_way: false,
            is_called_up: false,
        }
    }

    /// The store tells waiters far back in the line when they come near.
    #[must_use]
    pub(crate) const fn called_up(mut self) -> Self {
        self.is_called_up = true;
        self
    }

    /// The acquisition takes no place in line.
    #[must_use]
    pub(crate) const fn polling(mut self) -> Self {
        self.polls = Some(POLLS.delays());
        self
    }

    /// Clients that do not queue lock the key too.
    #[must_use]
    pub(crate) const fn giving_way(mut self) -> Self {
        self.gives_way = true;
        self
    }

    /// A hint says that the key may be free. Returns how long to leave the key to others. This
    /// happens only once: others that come and go all the time must not starve this client.
    pub(crate) fn on_free(&mut self, random: impl FnOnce() -> u32) -> Option<Duration> {
        std::mem::take(&mut self.gives_way).then(|| given_way(random()))
    }

    /// The pause of a polling waiter before its first ask if its client just had the key. Others
    /// get a chance meanwhile.
    pub(crate) fn pause(&mut self, random: impl FnOnce() -> u32) -> Option<Duration> {
        self.polls.as_mut().map(|polls| polls.next(random()))
    }

    /// Treats the store as having answered: this client had the key while the acquisition waited
    /// for another task.
    pub(crate) const fn take_as_answered(&mut self) {
        self.answered = true;
    }

    /// Whether the store has answered at all.
    #[must_use]
    pub(crate) const fn is_answered(&self) -> bool {
        self.answered
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

    /// The key was *handed over* for `handed_ttl`. The client learnt it at `now`, after the store
    /// had processed ask `ask_no`. Returns when that ask left; the lease counts from then. `None`
    /// if too little validity is left, or if there was no such ask.
    #[must_use]
    pub(crate) fn on_handed_over(
        &self,
        now: Moment,
        ask_no: u32,
        handed_ttl: Ttl,
    ) -> Option<Moment> {
        let age = self.asked.checked_sub(ask_no).filter(|_| ask_no > 0)?;
        let sent = (age < SENT_MAX as u32).then(|| self.sent[ask_no as usize % SENT_MAX])?;
        (valid_until(sent, handed_ttl).since(now) >= self.ttl.min_validity()).then_some(sent)
    }

    /// The store *granted* an ask that left at `sent`. The answer arrived at `now`.
    pub(crate) fn on_granted(&mut self, now: Moment, sent: Moment) -> NextAsk {
        self.answered = true;
        self.failures.reset();
        if valid_until(sent, self.ttl).since(now) >= self.ttl.min_validity() {
            return NextAsk::Hold;
        }
        self.late += 1;
        if !self.waits && self.late >= LATE_GRANTS_MAX { NextAsk::GiveUp } else { NextAsk::Now }
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
        self.failures.reset();
        if !self.waits {
            // Perhaps nobody holds the key, and dead places hide whose turn it is.
            let is_hidden = retry_in == Some(Duration::ZERO) && self.asked < HIDDEN_ASKS_MAX;
            return if is_hidden { NextAsk::Now } else { NextAsk::GiveUp };
        }
        self.has_waited = true;
        if self.is_called_up && is_far(ahead) && retry_in != Some(Duration::ZERO) {
            // Wait this long even if the holder's lease ends first: the waiters ahead handle that.
            return NextAsk::At(now + far_pause(ahead));
        }
        let refresh = self.pause(random).unwrap_or_else(|| {
            (self.ttl.waiter_ttl().get() / 3).max(REFRESH_EVERY_MIN).min(POLL_EVERY)
        });
        match retry_in {
            Some(Duration::ZERO) => NextAsk::Now,
            // One millisecond more, so that the lease has surely ended when the ask arrives.
            Some(left) => NextAsk::At(now + refresh.min(left + Duration::from_millis(1))),
            None => NextAsk::At(now + refresh),
        }
    }

    /// The nodes of a quorum split their votes. The client asks again after a random pause, which
    /// grows with each split of this acquisition. So clients that take nodes from one another drift
    /// apart. A *taken* in between says little: a node that the holder does not have answers every
    /// first ask so.
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
    /// The first ask reports its error. One repetition is allowed if the outcome is unknown: asking
    /// again with the same token repairs a lost reply. Once the store has answered, a waiter waits
    /// until the outage ends.
    pub(crate) fn on_failed(&mut self, now: Moment, kind: ErrorKind, random: u32) -> NextAsk {
        match kind {
            ErrorKind::Unknown if !self.answered && self.asked == 1 => NextAsk::Now,
            ErrorKind::Unavailable | ErrorKind::Unknown if self.waits && self.answered => {
                NextAsk::At(now + self.failures.next(random))
            }
            _ => NextAsk::GiveUp,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Moment {
        Moment::from_nanos(ms * 1_000_000)
    }

    fn ttl(ms: u64) -> Ttl {
        Ttl::new(Duration::from_millis(ms)).expect("within bounds")
    }

    #[test]
    fn a_grant_is_acted_on_only_with_enough_validity_left() {
        // ttl, round trip, what follows; validity is ttl − 1 % − 2 ms, least is min(ttl/2, 1 s)
        let table = [
            (10_000, 0, NextAsk::Hold),
            (10_000, 8_898, NextAsk::Hold),
            (10_000, 8_899, NextAsk::Now),
            (10_000, 60_000, NextAsk::Now),
            (100, 47, NextAsk::Hold),
            (100, 48, NextAsk::Now),
        ];
        for (ttl_ms, round_trip, expected) in table {
            let mut acquisition = Acquisition::new(ttl(ttl_ms), true);
            acquisition.ask(at(0));
            assert_eq!(
                acquisition.on_granted(at(round_trip), at(0)),
                expected,
                "{ttl_ms} {round_trip}"
            );
        }
    }

    #[test]
    fn one_who_does_not_wait_asks_three_times_for_a_grant_in_time() {
        let mut acquisition = Acquisition::new(ttl(100), false);
        let answers = [(); 3].map(|()| acquisition.on_granted(at(99), at(0)));
        assert_eq!(answers, [NextAsk::Now, NextAsk::Now, NextAsk::GiveUp]);
    }

    #[test]
    fn votes_that_were_split_are_asked_for_again_after_longer_and_longer_pauses() {
        let round_trip = Duration::from_millis(1);
        let mut acquisition = Acquisition::new(ttl(10_000), true);
        for longest in [2, 4, 8, 16, 32, 64, 128, 250, 250] {
            let next = acquisition.clone().on_split(at(100), round_trip, || 0);
            assert_eq!(next, NextAsk::At(at(100)), "at once, if chance says so");
            let next = acquisition.on_split(at(100), round_trip, || u32::MAX);
            assert_eq!(next, NextAsk::At(at(100 + longest)));
        }
        assert!(acquisition.has_waited());
        acquisition.on_taken(at(100), None, 0, || 0);
        let next = acquisition.clone().on_split(at(100), round_trip, || u32::MAX);
        let why = "who gave way in between splits the votes all the same";
        assert_eq!(next, NextAsk::At(at(100) + SPLIT_PAUSE_MAX), "{why}");
        let slow = acquisition.on_split(at(0), Duration::from_secs(1), || u32::MAX);
        assert_eq!(slow, NextAsk::At(at(0) + SPLIT_PAUSE_MAX));

        let mut acquisition = Acquisition::new(ttl(10_000), false);
        let answers = [(); 3].map(|()| acquisition.on_split(at(0), round_trip, || 0));
        assert_eq!(answers, [NextAsk::At(at(0)), NextAsk::At(at(0)), NextAsk::GiveUp]);
    }

    #[test]
    fn who_is_far_back_pauses_where_it_is_called_up_and_minds_no_lease_that_ends() {
        let left = Some(Duration::from_millis(10));
        // is called up, how many are ahead, when it asks again in ms
        for (is_called_up, ahead, asks_at) in
            [(false, 400, 11), (true, 31, 11), (true, 32, 1_600), (true, 400, 20_000)]
        {
            let mut acquisition = Acquisition::new(ttl(10_000), true);
            if is_called_up {
                acquisition = acquisition.called_up();
            }
            let next = acquisition.on_taken(at(0), left, ahead, || 0);
            assert_eq!(next, NextAsk::At(at(asks_at)), "{is_called_up} {ahead}");
            let hidden = acquisition.on_taken(at(0), Some(Duration::ZERO), ahead, || 0);
            assert_eq!(hidden, NextAsk::Now, "nobody knows yet whose turn it is");
        }
    }

    #[test]
    fn a_hand_over_is_dated_from_the_ask_that_it_names() {
        let mut acquisition = Acquisition::new(ttl(10_000), true);
        for sent in [1_000, 2_000, 3_000, 4_000, 5_000, 6_000] {
            acquisition.ask(at(sent));
        }
        let handed_ttl = ttl(10_000).waiter_ttl();
        // learnt at, number of the ask, since when the lease counts: 3 s less 1 % and 2 ms are
        // valid, and 1 s must be left
        let table = [
            (6_001, 6, Some(6_000)),
            (6_001, 5, Some(5_000)),
            (6_968, 5, Some(5_000)),
            (6_969, 5, None),
            (4_001, 3, Some(3_000)),
            (4_001, 2, None),
            (6_001, 7, None),
            (6_001, 0, None),
            (6_001, u32::MAX, None),
        ];
        for (now, ask_no, sent) in table {
            let counted = acquisition.on_handed_over(at(now), ask_no, handed_ttl);
            assert_eq!(counted, sent.map(at), "{now} {ask_no}");
        }
        assert_eq!(Acquisition::new(ttl(100), true).on_handed_over(at(0), 0, ttl(100)), None);
    }

    #[test]
    fn a_waiter_asks_at_its_refresh_or_when_the_lease_ends() {
        // ttl, time left of the holder, when the next ask is due
        let table = [
            (10_000, Some(8_000), NextAsk::At(at(1_000))),
            (10_000, Some(400), NextAsk::At(at(401))),
            (10_000, Some(0), NextAsk::Now),
            (10_000, None, NextAsk::At(at(1_000))),
            (1_500, None, NextAsk::At(at(500))),
            (60, None, NextAsk::At(at(50))),
        ];
        for (ttl_ms, left, expected) in table {
            let left = left.map(Duration::from_millis);
            assert_eq!(
                Acquisition::new(ttl(ttl_ms), true).on_taken(at(0), left, 0, || 0),
                expected,
                "{ttl_ms} {left:?}"
            );
        }
        let mut tries = Acquisition::new(ttl(10_000), false);
        assert_eq!(tries.on_taken(at(0), None, 0, || 0), NextAsk::GiveUp);
    }

    #[test]
    fn one_without_a_place_asks_after_longer_and_longer_pauses_or_when_the_lease_ends() {
        let mut acquisition = Acquisition::new(ttl(10_000), true).polling();
        // time left of the holder, random number, when the next ask is due
        let table = [
            (None, 0, 5),
            (None, u32::MAX, 20),
            (Some(8_000), 0, 20),
            (Some(3), 0, 4),
            (None, 0, 80),
            (None, 0, 160),
            (None, 0, 320),
            (None, u32::MAX, 1_000),
            (None, u32::MAX, 1_000),
        ];
        for (left, random, expected) in table {
            let left = left.map(Duration::from_millis);
            let next = acquisition.on_taken(at(0), left, 0, || random);
            assert_eq!(next, NextAsk::At(at(expected)), "{left:?} {random}");
        }
        let mut tries = Acquisition::new(ttl(10_000), false).polling();
        assert_eq!(tries.on_taken(at(0), None, 0, || 0), NextAsk::GiveUp);
    }

    #[test]
    fn only_one_without_a_place_pauses_before_it_asks() {
        assert_eq!(Acquisition::new(ttl(10_000), true).pause(|| 0), None);
        let mut polls = Acquisition::new(ttl(10_000), true).polling();
        assert_eq!(polls.pause(|| 0), Some(Duration::from_millis(5)));
    }

    #[test]
    fn only_one_that_gives_way_does_and_only_once() {
        assert_eq!(Acquisition::new(ttl(10_000), true).on_free(|| 0), None);
        let mut gives_way = Acquisition::new(ttl(10_000), true).giving_way();
        assert_eq!(gives_way.on_free(|| 0), Some(Duration::from_millis(5)));
        assert_eq!(gives_way.on_free(|| 0), None);
    }

    #[test]
    fn one_who_does_not_wait_asks_on_while_it_is_hidden_whose_turn_it_is() {
        let mut acquisition = Acquisition::new(ttl(10_000), false);
        let asks = std::iter::repeat_with(|| {
            acquisition.ask(at(0));
            acquisition.on_taken(at(0), Some(Duration::ZERO), 0, || 0)
        });
        let asked_on = asks.take_while(|next| *next == NextAsk::Now).count();
        assert_eq!(asked_on, PLACES_MAX / REAPED_MAX, "as many as clear the longest line");
    }

    #[test]
    fn only_an_outage_after_an_answer_is_waited_out() {
        use ErrorKind::{Config, Denied, Unavailable, Unknown};
        let backoff = NextAsk::At(at(10));
        // waits, answered before, kind, what follows
        let table = [
            (true, false, Unavailable, NextAsk::GiveUp),
            (true, false, Unknown, NextAsk::Now),
            (true, true, Unavailable, backoff),
            (true, true, Unknown, backoff),
            (true, true, Denied, NextAsk::GiveUp),
            (true, true, Config, NextAsk::GiveUp),
            (false, false, Unavailable, NextAsk::GiveUp),
            (false, false, Unknown, NextAsk::Now),
            (false, false, Denied, NextAsk::GiveUp),
        ];
        for (waits, answered, kind, expected) in table {
            let mut acquisition = Acquisition::new(ttl(10_000), waits);
            if answered {
                acquisition.ask(at(0));
                acquisition.on_taken(at(0), None, 0, || 0);
            }
            acquisition.ask(at(0));
            assert_eq!(
                acquisition.on_failed(at(0), kind, u32::MAX),
                expected,
                "{waits} {answered} {kind}"
            );
        }
        let mut twice = Acquisition::new(ttl(10_000), false);
        assert_eq!(
            [(); 2].map(|()| {
                twice.ask(at(0));
                twice.on_failed(at(0), Unknown, 0)
            }),
            [NextAsk::Now, NextAsk::GiveUp]
        );
    }
}
