//! The clock of a simulated server: it may be right, drift, swing, jitter or step.

use std::time::Duration;

use leasehold::core::Moment;

use crate::virtual_host::{SeededRandom, unstepped_wall};

/// A clock that adds up the four kinds of error of TigerBeetle's simulator
/// (<https://github.com/tigerbeetle/tigerbeetle/blob/main/src/testing/time.zig>).
#[derive(Clone, Debug, Default)]
pub(super) struct ServerClock {
    /// Linear: how many millionths it runs fast since the start.
    pub(super) faster_ppm: i64,
    /// Periodic: how far it swings ahead and behind.
    pub(super) wave_us: u64,
    /// How long one swing takes.
    pub(super) wave: Duration,
    /// Jitter: the largest error of one reading.
    pub(super) jitter_us: u64,
    /// The sum of all steps so far.
    pub(super) stepped_us: i64,
}

/// The largest drift of one clock. Two clocks may differ by 1 % over one ttl, so each side gets a
/// little less than half of that.
pub(super) const DRIFT_PPM_MAX: u64 = 4_000;

/// Draws the drift of a clock, in millionths.
pub(super) fn drift_ppm(random: &mut SeededRandom) -> i64 {
    let drawn = random.next_u64() % (2 * DRIFT_PPM_MAX + 1);
    drawn.cast_signed() - DRIFT_PPM_MAX.cast_signed()
}

/// A clock with some of the errors. Wave and jitter together stay below 2 ms, which are allowed
/// besides the drift because the server counts in whole milliseconds.
pub(super) fn drawn(random: &mut SeededRandom) -> ServerClock {
    let mut clock = ServerClock::default();
    if random.once_in(2) {
        clock.faster_ppm = drift_ppm(random);
    }
    if random.once_in(3) {
        clock.wave_us = random.next_u64() % 200;
        clock.wave = Duration::from_millis(500 + random.next_u64() % 5_000);
    }
    if random.once_in(3) {
        clock.jitter_us = random.next_u64() % 200;
    }
    clock
}

impl ServerClock {
    /// Whether it shows the right time.
    pub(super) fn is_right(&self) -> bool {
        (self.faster_ppm, self.wave_us, self.jitter_us, self.stepped_us) == (0, 0, 0, 0)
    }

    /// Corrects the clock at that moment.
    pub(super) fn set_right_at(&mut self, moment: Moment) {
        self.stepped_us -= self.off_at(moment);
    }

    /// The time that it shows, in µs since the epoch. It depends only on the moment.
    pub(super) fn at(&self, moment: Moment) -> u64 {
        let right = unstepped_wall(moment).as_unix_micros();
        right.saturating_add_signed(self.off_at(moment))
    }

    /// The longest time on the common clock until this clock has advanced by `span`. Wave and
    /// jitter may be at opposite ends at the two moments.
    pub(super) fn lasts_at_most(&self, span: Duration) -> Duration {
        let span_us = span.as_micros();
        let own_second = u128::from(1_000_000_u64.saturating_add_signed(self.faster_ppm));
        let us = span_us * 1_000_000 / own_second + 1;
        let us = us + 2 * u128::from(self.wave_us + self.jitter_us);
        Duration::from_micros(u64::try_from(us).unwrap_or(u64::MAX))
    }

    fn off_at(&self, moment: Moment) -> i64 {
        let passed_us = i64::try_from(moment.as_nanos() / 1_000).unwrap_or(i64::MAX);
        let linear = passed_us / 1_000 * self.faster_ppm / 1_000;
        linear + self.wave_at(moment) + self.jitter_at(moment) + self.stepped_us
    }

    /// A triangle wave. Unlike a sine, it is the same on every machine to the last bit.
    fn wave_at(&self, moment: Moment) -> i64 {
        let turn_us = u64::try_from(self.wave.as_micros()).unwrap_or(u64::MAX);
        if turn_us < 4 {
            return 0;
        }
        let (at, quarter) = (moment.as_nanos() / 1_000 % turn_us, turn_us / 4);
        let height = |from_zero: u64| {
            i64::try_from(self.wave_us * from_zero / quarter).expect("a wave of less than years")
        };
        match at / quarter {
            0 => height(at),
            1 => height(2 * quarter - at),
            2 => -height(at - 2 * quarter),
            _ => -height((4 * quarter).saturating_sub(at)),
        }
    }

    fn jitter_at(&self, moment: Moment) -> i64 {
        if self.jitter_us == 0 {
            return 0;
        }
        let drawn = SeededRandom::new(moment.as_nanos()).next_u64() % (2 * self.jitter_us + 1);
        i64::try_from(drawn).expect("small") - i64::try_from(self.jitter_us).expect("small")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn off(clock: &ServerClock, after: Duration) -> i64 {
        let moment = Moment::from_nanos(2_000_000_000_000) + after;
        let right = unstepped_wall(moment).as_unix_micros();
        clock.at(moment).cast_signed() - right.cast_signed()
    }

    #[test]
    fn a_span_of_a_fast_clock_is_short_on_the_common_one() {
        let lasts = |faster_ppm, jitter_us| {
            let clock = ServerClock { faster_ppm, jitter_us, ..ServerClock::default() };
            clock.lasts_at_most(Duration::from_millis(1_004)).as_micros()
        };
        assert_eq!([lasts(0, 0), lasts(4_000, 0)], [1_004_001, 1_000_001]);
        assert_eq!([lasts(-4_000, 0), lasts(4_000, 500)], [1_008_033, 1_001_001]);
    }

    #[test]
    fn each_shape_is_wrong_in_its_own_way() {
        let s = Duration::from_secs;
        let right = ServerClock::default();
        assert_eq!(off(&right, s(7)), 0);
        let linear = ServerClock { faster_ppm: 4_000, ..right.clone() };
        assert_eq!(off(&linear, s(10)) - off(&linear, s(0)), 40_000);
        let waving = ServerClock { wave_us: 500, wave: s(8), ..right.clone() };
        let seen: Vec<_> = [0, 1, 2, 3, 4, 6].iter().map(|at| off(&waving, s(*at))).collect();
        assert_eq!(seen, [0, 250, 500, 250, 0, -500]);
        let jumping = ServerClock { jitter_us: 300, ..right.clone() };
        let seen: Vec<_> = (0..1_000).map(|at| off(&jumping, s(at))).collect();
        assert!(seen.iter().all(|off| off.abs() <= 300));
        assert!(seen.iter().any(|off| *off > 200) && seen.iter().any(|off| *off < -200));
        let stepped = ServerClock { stepped_us: -5_000_000, ..right };
        assert_eq!(off(&stepped, s(3)), -5_000_000);
        let mut set = linear;
        set.set_right_at(Moment::from_nanos(2_000_000_000_000) + s(10));
        assert_eq!((off(&set, s(10)), off(&set, s(20))), (0, 40_000));
    }
}
