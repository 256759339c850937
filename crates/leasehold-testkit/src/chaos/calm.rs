//! The calm after the last fault of a world, and how long waiters wait in it.
//!
//! While faults follow each other, they excuse every error and every late wake-up. So each world
//! goes on for a while after its last fault. Then nothing is excused any more.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold::core::Moment;

use crate::history::event::{CallKind, Event, Name, Outcome, ProcessId, What};
use crate::history::{Bounds, summary};

/// The shortest time for which a world goes on after its last fault.
const LASTS_MIN: Duration = Duration::from_secs(15);

/// The shortest time for which a world goes on after all effects of its last fault.
const CALM_MIN: Duration = Duration::from_secs(8);

/// The longest median of a process's wake-ups in calm weather. On a busy machine the median is up
/// to 10 ms, and 95 ms in processes that get no hints and poll.
const WAKE_UP_MAX: Duration = Duration::from_millis(50);

/// How many wake-ups of a process are needed to judge it.
const WAKE_UPS_MIN: usize = 10;

/// How long a world goes on after its last fault.
pub(super) fn lasts(bounds: &Bounds) -> Duration {
    LASTS_MIN.max(bounds.aftermath() + CALM_MIN)
}

/// How long a history was calm after its last fault.
pub(super) fn after_faults(events: &[Event], bounds: &Bounds) -> Duration {
    let is_fault = |event: &Event| matches!(event.what, What::FaultBegan { .. });
    let Some(last) = events.iter().rposition(is_fault) else { return Duration::ZERO };
    // Keep only the events of the weather. The checker would need calls and windows as a whole.
    let is_weather = |event: &&Event| {
        use What::{Crashed, FaultBegan, FaultEnded, Forgot, Over, Resumed, Stopped};
        matches!(
            event.what,
            FaultBegan { .. }
                | FaultEnded { .. }
                | Stopped { .. }
                | Resumed { .. }
                | Crashed { .. }
                | Forgot
                | Over
        )
    };
    let weather: Vec<_> = events[last..].iter().filter(is_weather).cloned().collect();
    summary(&weather, bounds).calm
}

/// The moment from which the last fault of a history has no effects.
pub(super) fn begins(events: &[Event], bounds: &Bounds) -> Option<Moment> {
    let is_end = |event: &&Event| matches!(event.what, What::FaultEnded { .. });
    events.iter().rfind(is_end).map(|event| event.at + bounds.aftermath())
}

/// The time from the end of a window to the next window of a waiter, outside of faults.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct WakeUp {
    pub(super) process: ProcessId,
    pub(super) at: Moment,
    pub(super) took: Duration,
}

impl WakeUp {
    pub(super) fn ms(&self) -> f64 {
        self.took.as_secs_f64() * 1e3
    }
}

/// The wake-ups of a history.
pub(super) fn wake_ups(events: &[Event]) -> Vec<WakeUp> {
    let mut waits = Waits::default();
    events.iter().filter_map(|event| waits.see(event)).collect()
}

/// The processes that were woken late again and again, because they lost their hints for good.
pub(super) fn slow(wake_ups: &[WakeUp]) -> Vec<String> {
    let mut of_process: BTreeMap<ProcessId, Vec<Duration>> = BTreeMap::new();
    for wake_up in wake_ups {
        of_process.entry(wake_up.process).or_default().push(wake_up.took);
    }
    let slow = of_process.into_iter().filter_map(|(process, mut spans)| {
        spans.sort_unstable();
        let (count, middle) = (spans.len(), spans[spans.len() / 2]);
        (count >= WAKE_UPS_MIN && middle > WAKE_UP_MAX).then(|| {
            let process = process.0;
            format!(
                "in calm weather, the median of {count} wake-ups of process {process} is {middle:?}"
            )
        })
    });
    slow.collect()
}

/// Matches waiters with released keys.
#[derive(Default)]
struct Waits {
    /// For each waiting call: when it began to wait, its process and its key.
    waiting: BTreeMap<u32, (Moment, ProcessId, Name)>,
    /// For each window: its key.
    held: BTreeMap<u32, Name>,
    /// For each key: when it was last given up.
    freed: BTreeMap<Name, Moment>,
    faults: u32,
    calm_since: Moment,
}

impl Waits {
    fn see(&mut self, event: &Event) -> Option<WakeUp> {
        let at = event.at;
        match &event.what {
            What::FaultBegan { .. } => self.faults += 1,
            What::FaultEnded { .. } => {
                self.faults -= 1;
                self.calm_since = at;
            }
            What::Called { call, process, key, kind: CallKind::Lock, .. } => {
                self.waiting.insert(call.0, (at, *process, key.clone()));
            }
            What::Returned { call, outcome } if *outcome != Outcome::Granted => {
                self.waiting.remove(&call.0);
            }
            What::GaveUp { window } => {
                let key = self.held.remove(&window.0)?;
                self.freed.insert(key, at);
            }
            What::Granted { window, call, .. } => {
                let (since, process, key) = self.waiting.remove(&call.0)?;
                self.held.insert(window.0, key.clone());
                let freed = self.freed.remove(&key)?;
                let counts = self.faults == 0 && freed > since && freed > self.calm_since;
                return counts.then(|| WakeUp { process, at, took: at.since(freed) });
            }
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Moment {
        Moment::from_nanos(ms * 1_000_000)
    }

    fn fault(began: u64, ended: u64) -> [Event; 2] {
        let (fault, kind) = (1, "reset".into());
        [
            Event { at: at(began), what: What::FaultBegan { fault, kind } },
            Event { at: at(ended), what: What::FaultEnded { fault } },
        ]
    }

    fn stood(from: u64, to: u64) -> [Event; 2] {
        let process = ProcessId(1);
        [
            Event { at: at(from), what: What::Stopped { process } },
            Event { at: at(to), what: What::Resumed { process } },
        ]
    }

    #[test]
    fn calm_is_what_is_left_after_the_effects_of_the_last_fault() {
        let bounds =
            Bounds { hiccup: Duration::from_millis(100), ..Bounds::of_ttl(Duration::from_secs(1)) };
        let lasts = u64::try_from(lasts(&bounds).as_millis()).expect("a few seconds");
        let over = Event { at: at(1_000 + lasts), what: What::Over };
        let calm = |more: &[Event]| {
            let mut events = [&fault(500, 1_000)[..], more, std::slice::from_ref(&over)].concat();
            events.sort_by_key(|event| event.at);
            after_faults(&events, &bounds)
        };
        assert_eq!(begins(&fault(500, 1_000), &bounds), Some(at(1_000) + bounds.aftermath()));
        assert_eq!(calm(&[]), Duration::from_millis(lasts) - bounds.aftermath());
        assert_eq!(calm(&stood(12_000, 12_050)), calm(&[]), "it hardly stood still");
        assert!(calm(&stood(12_000, 12_200)) < calm(&[]));
        assert_eq!(after_faults(std::slice::from_ref(&over), &bounds), Duration::ZERO);
    }

    #[test]
    fn a_process_that_is_often_woken_late_is_found() {
        let of = |process: u32, times: usize, ms: u64| {
            let (process, took) = (ProcessId(process), Duration::from_millis(ms));
            vec![WakeUp { process, at: at(0), took }; times]
        };
        assert_eq!(slow(&[of(1, 20, 3), of(2, 9, 300), of(1, 19, 300)].concat()), [""; 0]);
        let found = slow(&[of(1, 20, 3), of(2, 10, 300), of(2, 9, 3)].concat());
        assert_eq!(found.len(), 1, "{found:?}");
    }
}
