//! One acquisition, as the client that asks sees it.
//!
//! | who asks | granted in time | granted too late | taken | unknown | unavailable |
//! |---|---|---|---|---|---|
//! | who does not wait | hold | ask again, three times in all | give up; ask again if nobody may hold it | ask again, once | give up |
//! | who waits, before any answer | hold | ask again | wait | ask again, once | give up |
//! | who waits, after an answer | hold | ask again | wait | wait (back-off) | wait (back-off) |
//!
//! Whoever asks again does so by the same token. Any other failure ends the acquisition. A hint
//! ends a wait.
//!
//! A grant comes too late if what is left of it is less than [`Ttl::min_validity`]: it is not acted
//! on, but it is not given up either, so that the acquisition keeps its turn.

use std::time::Duration;

use crate::core::backoff::{Backoff, Delays};
use crate::core::error::ErrorKind;
use crate::core::line::{PLACES_MAX, REAPED_MAX};
use crate::core::moment::Moment;
use crate::core::ttl::Ttl;
use crate::core::validity::valid_until;

/// The longest time between two asks of one who waits: what a lost hint costs at most.
pub(crate) const POLL_EVERY: Duration = Duration::from_secs(1);

/// The shortest time between two refreshes of a place.
pub(crate) const REFRESH_EVERY_MIN: Duration = Duration::from_millis(50);

/// How often one who does not wait asks for a grant that arrives in time.
pub(crate) const LATE_GRANTS_MAX: u32 = 3;

/// How often one who does not wait asks for a key of which nobody says yet whose turn it is: as
/// many steps as clear the longest line of dead places.
#[allow(clippy::cast_possible_truncation, reason = "a small number")]
pub(crate) const HIDDEN_ASKS_MAX: u32 = (PLACES_MAX / REAPED_MAX) as u32 + 1;

/// What an acquisition does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextAsk {
    /// The grant is ours to act on.
    Hold,
    /// Ask again at once by the same token.
    Now,
    /// Ask again at this moment, or at the first hint.
    At(Moment),
    /// Give up with the error that came, or because it is taken.
    GiveUp,
}

/// The decisions of one acquisition.
#[derive(Clone, Debug)]
pub(crate) struct Acquisition {
    ttl: Ttl,
    waits: bool,
    asked: u32,
    answered: bool,
    late: u32,
    failures: Delays,
}

impl Acquisition {
    /// An acquisition of `ttl` that waits for its turn, or not.
    #[must_use]
    pub(crate) fn new(ttl: Ttl, waits: bool) -> Self {
        Self { ttl, waits, asked: 0, answered: false, late: 0, failures: Backoff::DEFAULT.delays() }
    }

    /// Whether the store has answered at all.
    #[must_use]
    pub(crate) const fn is_answered(&self) -> bool {
        self.answered
    }

    /// Counts an ask and returns its number, from 1.
    pub(crate) fn ask(&mut self) -> u32 {
        self.asked += 1;
        self.asked
    }

    /// *Granted*, at `now`, to an ask that left at `sent`.
    pub(crate) fn on_granted(&mut self, now: Moment, sent: Moment) -> NextAsk {
        self.answered = true;
        self.failures.reset();
        if valid_until(sent, self.ttl).since(now) >= self.ttl.min_validity() {
            return NextAsk::Hold;
        }
        self.late += 1;
        if !self.waits && self.late >= LATE_GRANTS_MAX { NextAsk::GiveUp } else { NextAsk::Now }
    }

    /// *Taken*, at `now`; the holder's lease ends in `retry_in` unless it is renewed.
    pub(crate) fn on_taken(&mut self, now: Moment, retry_in: Option<Duration>) -> NextAsk {
        self.answered = true;
        self.failures.reset();
        if !self.waits {
            // Perhaps nobody holds it, and whose turn it is hides behind dead places.
            let is_hidden = retry_in == Some(Duration::ZERO) && self.asked < HIDDEN_ASKS_MAX;
            return if is_hidden { NextAsk::Now } else { NextAsk::GiveUp };
        }
        let refresh = (self.ttl.waiter_ttl().get() / 3).max(REFRESH_EVERY_MIN).min(POLL_EVERY);
        match retry_in {
            Some(Duration::ZERO) => NextAsk::Now,
            // One millisecond more, so that the ask finds the lease ended and not just about to.
            Some(left) => NextAsk::At(now + refresh.min(left + Duration::from_millis(1))),
            None => NextAsk::At(now + refresh),
        }
    }

    /// No answer, or a refusal that says nothing about the lock.
    ///
    /// The first ask reports its error, but for one repetition where the outcome is unknown: the
    /// same token asks again, which repairs a lost reply. Once the store has answered, one who
    /// waits waits an outage out.
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
            acquisition.ask();
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
                Acquisition::new(ttl(ttl_ms), true).on_taken(at(0), left),
                expected,
                "{ttl_ms} {left:?}"
            );
        }
        assert_eq!(Acquisition::new(ttl(10_000), false).on_taken(at(0), None), NextAsk::GiveUp);
    }

    #[test]
    fn one_who_does_not_wait_asks_on_while_it_is_hidden_whose_turn_it_is() {
        let mut acquisition = Acquisition::new(ttl(10_000), false);
        let asks = std::iter::repeat_with(|| {
            acquisition.ask();
            acquisition.on_taken(at(0), Some(Duration::ZERO))
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
                acquisition.ask();
                acquisition.on_taken(at(0), None);
            }
            acquisition.ask();
            assert_eq!(
                acquisition.on_failed(at(0), kind, u32::MAX),
                expected,
                "{waits} {answered} {kind}"
            );
        }
        let mut twice = Acquisition::new(ttl(10_000), false);
        assert_eq!(
            [(); 2].map(|()| {
                twice.ask();
                twice.on_failed(at(0), Unknown, 0)
            }),
            [NextAsk::Now, NextAsk::GiveUp]
        );
    }
}
