//! A summary of a history in numbers.

use std::collections::BTreeMap;
use std::time::Duration;

use super::check::{Gap, gaps, hand_overs};
use super::event::{CallKind, Outcome};
use super::story::Story;

/// A fault counts only if at least this many acquisitions were attempted around it.
const ATTEMPTS_MIN: usize = 50;

/// A history in numbers. [`add`](Self::add) adds up the summaries of several histories.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// The time from the first event to the last.
    pub span: Duration,
    /// How much of that time was calm: no fault and no aftermath. Some invariants are checked only
    /// then.
    pub calm: Duration,
    /// How often a key was granted.
    pub acquisitions: u64,
    /// How many calls of any kind there were.
    pub calls: u64,
    /// How many calls were told *taken*, or gave up waiting.
    pub in_vain: u64,
    /// How many calls ended in an error.
    pub errors: u64,
    /// How many windows were lost.
    pub lost: u64,
    /// How many hand-overs between two clients had their fencing tokens compared.
    pub hand_overs: u64,
    /// The faults, by kind.
    pub faults: BTreeMap<String, Injected>,
    /// The delays of wake-ups.
    pub wake_ups: WakeUps,
    /// The longest time in which a key had a waiter and no holder, in any weather.
    pub orphaned_max: Duration,
}

/// Faults of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Injected {
    /// How many faults there were.
    pub injected: u64,
    /// How many faults met enough load: 50 attempted acquisitions between their beginning and one
    /// ttl after their end.
    pub counted: u64,
}

/// The times from the end of one window to the beginning of the next, while no fault disturbs the
/// run and a client waits all the time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WakeUps {
    /// How many there were of each length, in whole milliseconds, rounded up.
    by_ms: BTreeMap<u64, u64>,
}

impl WakeUps {
    fn push(&mut self, delay: Duration) {
        let ms = delay.as_nanos().div_ceil(1_000_000);
        *self.by_ms.entry(u64::try_from(ms).unwrap_or(u64::MAX)).or_default() += 1;
    }

    /// The delay that `percent` percent of the wake-ups do not exceed; `None` without wake-ups.
    #[must_use]
    pub fn percentile(&self, percent: u64) -> Option<Duration> {
        let rank = (self.count() * percent).div_ceil(100).max(1);
        let mut seen = 0;
        let mut lengths = self.by_ms.iter();
        let found = lengths.find(|(_, count)| {
            seen += **count;
            seen >= rank
        });
        found.map(|(ms, _)| Duration::from_millis(*ms))
    }

    /// The longest delay.
    #[must_use]
    pub fn max(&self) -> Option<Duration> {
        self.by_ms.keys().next_back().map(|ms| Duration::from_millis(*ms))
    }

    /// The number of wake-ups.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.by_ms.values().sum()
    }
}

impl Summary {
    pub(super) fn of(story: &Story<'_>) -> Self {
        let began = story.events.first().map_or(story.end, |event| event.at);
        let calm = story.weather.calm(began, story.end);
        let mut summary = Self {
            span: story.end.since(began),
            calm: calm.into_iter().map(|(from, to)| to.since(from)).sum(),
            ..Self::default()
        };
        for of_key in story.keys.values() {
            summary.acquisitions += of_key.windows.len() as u64;
            summary.lost += of_key.windows.iter().filter(|w| w.told.is_some()).count() as u64;
            summary.calls += of_key.calls.len() as u64;
            summary.hand_overs += hand_overs(story, of_key) as u64;
            for (_, outcome) in of_key.calls.iter().filter_map(|call| call.returned) {
                match outcome {
                    Outcome::Taken | Outcome::WaitElapsed => summary.in_vain += 1,
                    Outcome::Unavailable | Outcome::Unknown | Outcome::Failed => {
                        summary.errors += 1;
                    }
                    _ => {}
                }
            }
            for gap in gaps(story, of_key) {
                summary.orphaned_max = summary.orphaned_max.max(gap.span());
                if is_wake_up(story, &gap) {
                    summary.wake_ups.push(gap.span());
                }
            }
        }
        summary.count_faults(story);
        summary
    }

    fn count_faults(&mut self, story: &Story<'_>) {
        let calls = story.keys.values().flat_map(|of_key| &of_key.calls);
        let asks = calls.filter(|call| call.kind == CallKind::TryLock || call.kind.waits());
        let mut attempts: Vec<_> = asks.map(|call| call.called).collect();
        attempts.sort_unstable();
        for spell in &story.weather.spells {
            let until = spell.ended.unwrap_or(story.end) + story.bounds.ttl_max;
            let before = attempts.partition_point(|at| *at < spell.began);
            let met = attempts.partition_point(|at| *at <= until) - before;
            let faults = self.faults.entry(spell.kind.to_owned()).or_default();
            faults.injected += 1;
            faults.counted += u64::from(met >= ATTEMPTS_MIN);
        }
    }

    /// Adds the numbers of another history.
    pub fn add(&mut self, other: &Self) {
        self.span += other.span;
        self.calm += other.calm;
        self.acquisitions += other.acquisitions;
        self.calls += other.calls;
        self.in_vain += other.in_vain;
        self.errors += other.errors;
        self.lost += other.lost;
        self.hand_overs += other.hand_overs;
        for (kind, more) in &other.faults {
            let faults = self.faults.entry(kind.clone()).or_default();
            faults.injected += more.injected;
            faults.counted += more.counted;
        }
        for (ms, more) in &other.wake_ups.by_ms {
            *self.wake_ups.by_ms.entry(*ms).or_default() += more;
        }
        self.orphaned_max = self.orphaned_max.max(other.orphaned_max);
    }
}

fn is_wake_up(story: &Story<'_>, gap: &Gap) -> bool {
    gap.begins_held && gap.ends_held && story.weather.is_calm(gap.from, gap.to)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::build::tale;
    use crate::history::event::Outcome::{Taken, Unknown};

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_summary_counts_what_happened() {
        let tale = tale().at(1.0).takes(1, "A", 1, 10.8).tries(2).returns(2, Taken).locks(2);
        let tale = tale.at(2.0).gives_up("A").at(2.5).gets(2, "B", 2, 12.0).locks(1).at(3.0);
        let tale = tale.fault("delay").tries(3).at(3.5).returns(3, Unknown).gives_up("B").heals();
        let tale = tale.at(5.0).gets(1, "C", 3, 14.0).at(6.0).loses("C");
        let summary = super::super::summary(tale.events(), tale.bounds());
        let delay = Injected { injected: 1, counted: 0 };
        let expected = Summary {
            span: ms(5_000),
            calm: ms(2_000),
            acquisitions: 3,
            calls: 5,
            in_vain: 1,
            errors: 1,
            lost: 1,
            hand_overs: 2,
            faults: BTreeMap::from([("delay".to_owned(), delay)]),
            wake_ups: wake_ups(&[500]),
            orphaned_max: ms(1_500),
        };
        assert_eq!(summary, expected);
        let mut twice = summary.clone();
        twice.add(&summary);
        assert_eq!((twice.calls, twice.wake_ups.count()), (10, 2));
        assert_eq!(twice.faults["delay"].injected, 2);
    }

    #[test]
    fn a_fault_that_meets_fifty_attempts_counts() {
        let faults = |attempts: usize| {
            let mut tale = tale().at(1.0).fault("reset").at(2.0).heals().at(11.9);
            for _ in 0..attempts {
                tale = tale.tries(1).returns(1, Taken);
            }
            super::super::summary(tale.events(), tale.bounds()).faults["reset"]
        };
        assert_eq!(faults(50), Injected { injected: 1, counted: 1 });
        assert_eq!(faults(49), Injected { injected: 1, counted: 0 });
    }

    fn wake_ups(delays: &[u64]) -> WakeUps {
        let mut wake_ups = WakeUps::default();
        delays.iter().for_each(|delay| wake_ups.push(ms(*delay)));
        wake_ups
    }

    #[test]
    fn percentiles_are_delays_that_were() {
        let hundred: Vec<_> = (1..=100).rev().collect();
        let hundred = wake_ups(&hundred);
        assert_eq!(hundred.percentile(50), Some(ms(50)));
        assert_eq!(hundred.percentile(99), Some(ms(99)));
        assert_eq!(hundred.max(), Some(ms(100)));
        assert_eq!(wake_ups(&[7]).percentile(1), Some(ms(7)));
        assert_eq!(wake_ups(&[]).percentile(50), None);
    }
}
