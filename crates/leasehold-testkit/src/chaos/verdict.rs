//! Checks the history of a world.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::history::event::{CallKind, Event, Outcome, What};
use crate::history::{Bounds, Violation, check};

/// The result of the history of a world.
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
}

impl Verdict {
    /// Checks a history in order of time, whose locks have that ttl. After a crash of its client, a
    /// lease stays for `stays` at most.
    #[must_use]
    pub fn on(events: &[Event], ttl: Duration, stays: Duration) -> Self {
        let mut verdict = Self { wake_ups_ms: wake_ups_ms(events), ..Self::default() };
        for violation in check(events, &bounds(ttl, stays)) {
            verdict.take(&violation);
        }
        for event in events {
            match event.what {
                What::Called { kind: CallKind::Lock | CallKind::TryLock, .. } => {
                    verdict.attempted += 1;
                }
                What::Returned { outcome: Outcome::Granted, .. } => verdict.granted += 1,
                _ => {}
            }
        }
        verdict
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
    }
}

/// How long things take in real worlds, on a machine that is busy with all these processes.
fn bounds(ttl: Duration, stays: Duration) -> Bounds {
    Bounds {
        slack: Duration::from_secs(2),
        opened: Bounds::OPENED,
        wake: Duration::from_millis(250),
        notice: Duration::from_millis(500),
        // To others, a lease that stays longer than its ttl is one with a lock delay.
        lock_delay: stays.saturating_sub(ttl),
        ..Bounds::of_ttl(ttl)
    }
}

/// How long waiters waited for a key after its window ended, outside of faults.
fn wake_ups_ms(events: &[Event]) -> Vec<f64> {
    let mut waits = Waits::default();
    events.iter().filter_map(|event| waits.see(event)).collect()
}

/// Matches waiters with released keys.
#[derive(Default)]
struct Waits {
    /// For each waiting call: when it began to wait, and its key.
    waiting: BTreeMap<u32, (u64, crate::history::event::Name)>,
    /// For each window: its key.
    held: BTreeMap<u32, crate::history::event::Name>,
    /// For each key: when it was last given up.
    freed: BTreeMap<crate::history::event::Name, u64>,
    faults: u32,
    calm_since: u64,
}

impl Waits {
    fn see(&mut self, event: &Event) -> Option<f64> {
        let at = event.at.as_nanos();
        match &event.what {
            What::FaultBegan { .. } => self.faults += 1,
            What::FaultEnded { .. } => {
                self.faults -= 1;
                self.calm_since = at;
            }
            What::Called { call, key, kind: CallKind::Lock, .. } => {
                self.waiting.insert(call.0, (at, key.clone()));
            }
            What::Returned { call, outcome } if *outcome != Outcome::Granted => {
                self.waiting.remove(&call.0);
            }
            What::GaveUp { window } => {
                let key = self.held.remove(&window.0)?;
                self.freed.insert(key, at);
            }
            What::Granted { window, call, .. } => {
                let (since, key) = self.waiting.remove(&call.0)?;
                self.held.insert(window.0, key.clone());
                let freed = self.freed.remove(&key)?;
                let counts = self.faults == 0 && freed > since && freed > self.calm_since;
                return counts.then(|| (at - freed) as f64 / 1e6);
            }
            _ => {}
        }
        None
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
        assert_eq!(verdict.wake_ups_ms, [3.0]);
    }

    #[test]
    fn a_history_in_which_two_hold_at_once_fails() {
        let verdict = judge(&[holder(1, 0, 10, 100), holder(2, 50, 90, 200)]);
        assert_eq!(verdict.in_model.get("no-overlap"), Some(&1), "{verdict:?}");
        assert_eq!(verdict.texts.len(), 1);
    }

    #[test]
    fn what_nobody_promised_is_counted_apart() {
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
