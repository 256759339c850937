//! Checks the history of a world.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{calm, shares};
use crate::history::event::{CallKind, Event, Outcome, Share, What};
use crate::history::{Bounds, Violation, check, summary};

/// The verdict on the history of a world.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Verdict {
    /// Violations of promises, by invariant.
    pub in_model: BTreeMap<String, u64>,
    /// Violations where nothing was promised, by invariant.
    pub out_of_model: BTreeMap<String, u64>,
    /// The violations of promises, in words.
    pub texts: Vec<String>,
    /// How many acquisitions were attempted.
    pub attempted: u64,
    /// How many of them were granted.
    pub granted: u64,
    /// The times from the end of a window to the next window of a waiter, outside of faults.
    pub wake_ups_ms: Vec<f64>,
    /// The same times after the last fault and its effects.
    pub calm_wake_ups_ms: Vec<f64>,
    /// How long it was calm after the last fault.
    pub calm: Duration,
    /// How many of the grants were to readers, or of permits.
    pub shares: u64,
    /// In how many hand-overs the fencing tokens were compared.
    pub hand_overs: u64,
}

impl Verdict {
    /// Checks a history in order of time, whose locks have that ttl. After a crash of its client, a
    /// lease stays for `stays` at most.
    #[must_use]
    pub fn on(events: &[Event], ttl: Duration, stays: Duration) -> Self {
        let bounds = bounds(ttl, stays);
        let mut verdict = Self { calm: calm::after_faults(events, &bounds), ..Self::default() };
        let [mutexes, shared] = shares::split(events);
        for half in [&mutexes, &shared] {
            check(half, &bounds).iter().for_each(|violation| verdict.take(violation));
            verdict.hand_overs += summary(half, &bounds).hand_overs;
        }
        verdict.take_wake_ups(&mutexes, &bounds);
        verdict.count(events);
        verdict
    }

    fn take_wake_ups(&mut self, mutexes: &[Event], bounds: &Bounds) {
        let all = calm::wake_ups(mutexes);
        let begins = calm::begins(mutexes, bounds);
        let is_calm = |wake_up: &&calm::WakeUp| begins.is_some_and(|begins| wake_up.at >= begins);
        let calm: Vec<_> = all.iter().filter(is_calm).copied().collect();
        self.texts.extend(calm::slow(&calm));
        self.wake_ups_ms.extend(all.iter().map(calm::WakeUp::ms));
        self.calm_wake_ups_ms.extend(calm.iter().map(calm::WakeUp::ms));
    }

    fn count(&mut self, events: &[Event]) {
        for event in events {
            match event.what {
                What::Called { kind: CallKind::Lock | CallKind::TryLock, .. } => {
                    self.attempted += 1;
                }
                What::Returned { outcome: Outcome::Granted, .. } => self.granted += 1,
                What::Shares { share: Share::Reader | Share::Permits { .. }, .. } => {
                    self.shares += 1;
                }
                _ => {}
            }
        }
    }

    fn take(&mut self, violation: &Violation) {
        let counts = if violation.promised {
            self.texts.push(violation.to_string());
            &mut self.in_model
        } else {
            &mut self.out_of_model
        };
        *counts.entry(violation.invariant.to_string()).or_default() += 1;
    }

    /// Adds the result of another world.
    pub fn add(&mut self, other: Self) {
        for (sum, counts) in
            [(&mut self.in_model, other.in_model), (&mut self.out_of_model, other.out_of_model)]
        {
            counts.into_iter().for_each(|(name, count)| *sum.entry(name).or_default() += count);
        }
        self.texts.extend(other.texts);
        self.attempted += other.attempted;
        self.granted += other.granted;
        self.wake_ups_ms.extend(other.wake_ups_ms);
        self.calm_wake_ups_ms.extend(other.calm_wake_ups_ms);
        self.calm += other.calm;
        self.shares += other.shares;
        self.hand_overs += other.hand_overs;
    }
}

/// How long things take in real worlds, on a machine that is busy with all these processes.
pub(super) fn bounds(ttl: Duration, stays: Duration) -> Bounds {
    Bounds {
        slack: Duration::from_secs(2),
        handed: Duration::from_secs(2) + Bounds::OPENED,
        opened: Bounds::OPENED,
        // Half of the time that a client waits for an answer.
        hiccup: ttl / 8,
        wake: Duration::from_millis(250),
        notice: Duration::from_millis(500),
        // For others, a lease that stays longer than its ttl looks like a lease with a lock delay.
        lock_delay: stays.saturating_sub(ttl),
        ..Bounds::of_ttl(ttl)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use leasehold::core::Moment;

    use super::*;
    use crate::history::event::{CallId, ProcessId, WindowId};

    const TTL: Duration = Duration::from_secs(1);

    fn at(ms: u64, what: What) -> Event {
        Event { at: Moment::from_nanos(ms * 1_000_000), what }
    }

    /// A process waits for a key from `called` on, and holds it from `from` to `to`.
    fn holder(number: u32, called: u64, from: u64, to: u64) -> Vec<Event> {
        let (call, window) = (CallId(number), WindowId(number));
        let (process, key) = (ProcessId(number), Arc::from("k"));
        let (kind, limit) = (CallKind::Lock, None);
        let until = Moment::from_nanos((from + 900) * 1_000_000);
        let (token, fence) = (format!("token{number}").into(), Some(u64::from(number)));
        vec![
            at(called, What::Called { call, process, key, kind, limit }),
            at(from, What::Returned { call, outcome: Outcome::Granted }),
            at(from, What::Granted { window, call, token, fence, until }),
            at(to, What::GaveUp { window }),
        ]
    }

    /// Shares are judged too. The two windows together use more permits than there are.
    #[test]
    fn a_history_in_which_holders_have_too_much_of_a_lock_fails() {
        let overlaps = |key: &str, of: [Share; 2]| {
            let parts = [holder(1, 0, 10, 100), holder(2, 50, 90, 200)];
            let mut all = Vec::new();
            for ((mut part, share), number) in parts.into_iter().zip(of).zip(1..) {
                if let What::Called { key: name, .. } = &mut part[0].what {
                    *name = key.into();
                }
                let shares = What::Shares { window: WindowId(number), share };
                part.insert(3, Event { at: part[2].at, what: shares });
                all.push(part);
            }
            let verdict = judge(&all);
            (verdict.in_model.get("no-overlap").copied().unwrap_or(0), verdict.shares)
        };
        let permits = |want| Share::Permits { want, of: 3 };
        assert_eq!(overlaps("r", [Share::Reader, Share::Reader]), (0, 2));
        assert_eq!(overlaps("r", [Share::Reader, Share::Alone]), (1, 1));
        assert_eq!(overlaps("s", [permits(1), permits(2)]), (0, 2));
        assert_eq!(overlaps("s", [permits(2), permits(2)]), (1, 2));
    }

    fn judge(parts: &[Vec<Event>]) -> Verdict {
        let mut events = parts.concat();
        events.sort_by_key(|event| event.at);
        Verdict::on(&events, TTL, TTL)
    }

    #[test]
    fn a_history_in_which_one_holds_after_the_other_passes_and_is_counted() {
        let verdict = judge(&[holder(1, 0, 10, 100), holder(2, 50, 103, 200)]);
        assert_eq!(verdict.in_model, BTreeMap::new());
        assert_eq!((verdict.attempted, verdict.granted), (2, 2));
        assert_eq!(verdict.hand_overs, 1);
        assert_eq!(verdict.wake_ups_ms, [3.0]);
    }

    #[test]
    fn a_history_in_which_two_hold_at_once_fails() {
        let verdict = judge(&[holder(1, 0, 10, 100), holder(2, 50, 90, 200)]);
        assert_eq!(verdict.in_model.get("no-overlap"), Some(&1), "{verdict:?}");
        assert_eq!(verdict.texts.len(), 1);
    }

    #[test]
    fn a_violation_that_is_not_promised_is_counted_apart() {
        let kind = |kind: &str| {
            vec![
                at(80, What::FaultBegan { fault: 1, kind: kind.into() }),
                at(85, What::FaultEnded { fault: 1 }),
            ]
        };
        let two = || [holder(1, 0, 10, 100), holder(2, 50, 90, 200)].concat();
        let verdict = judge(&[two(), kind("flushall")]);
        assert_eq!(verdict.in_model, BTreeMap::new());
        assert_eq!(verdict.out_of_model.get("no-overlap"), Some(&1), "{verdict:?}");
        let verdict = judge(&[two(), kind("reset")]);
        assert_eq!(verdict.in_model.get("no-overlap"), Some(&1), "{verdict:?}");
    }
}
