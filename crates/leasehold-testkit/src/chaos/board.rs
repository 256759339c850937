//! Chooses the next fault, and counts the faults that met enough load.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::kind::Kind;
use super::record::Injected;
use crate::virtual_host::SeededRandom;

/// A fault counts only if at least this many acquisitions are attempted between it and one ttl
/// after it. Without load, a fault proves nothing.
pub const ATTEMPTS_LEAST: usize = 50;

/// How often each fault must count in a run of [`MINUTES_WHOLE`] or more.
const COUNTED_LEAST: u64 = 15;

/// How long a run must be for each fault to count that often.
const MINUTES_WHOLE: f64 = 12.0;

/// The faults of one run, shared by its worlds.
#[derive(Debug)]
pub struct Board {
    faults: Mutex<BTreeMap<Kind, State>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    injected: u64,
    counted: u64,
    under_way: u64,
}

impl Board {
    /// A board for these faults. None has happened yet.
    #[must_use]
    pub fn new(kinds: &[Kind]) -> Self {
        let faults = kinds.iter().map(|kind| (*kind, State::default())).collect();
        Self { faults: Mutex::new(faults) }
    }

    /// The next fault: one of those that counted least often. Faults under way are included.
    ///
    /// # Panics
    ///
    /// If there are no kinds.
    pub fn next(&self, random: &mut SeededRandom) -> Kind {
        let mut faults = self.faults();
        let due = |state: &State| state.counted + state.under_way;
        let least = faults.values().map(due).min().expect("a kind of fault");
        let rarest: Vec<Kind> =
            faults.iter().filter(|(_, state)| due(state) == least).map(|(kind, _)| *kind).collect();
        let kind = rarest[random.below(rarest.len())];
        faults.entry(kind).or_default().under_way += 1;
        kind
    }

    /// Records a fault, with the number of acquisitions that were attempted between it and one ttl
    /// after it. Returns whether the fault counts.
    pub fn done(&self, kind: Kind, attempts: usize) -> bool {
        let mut faults = self.faults();
        let state = faults.entry(kind).or_default();
        state.under_way = state.under_way.saturating_sub(1);
        state.injected += 1;
        let counts = attempts >= ATTEMPTS_LEAST;
        state.counted += u64::from(counts);
        counts
    }

    /// How often each fault was injected and counted.
    #[must_use]
    pub fn injected(&self) -> BTreeMap<String, Injected> {
        let faults = self.faults();
        let shown = |state: &State| Injected { injected: state.injected, counted: state.counted };
        faults.iter().map(|(kind, state)| (kind.name().to_owned(), shown(state))).collect()
    }

    fn faults(&self) -> MutexGuard<'_, BTreeMap<Kind, State>> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How often each fault must count in a run of that many minutes. A short run owes less.
#[must_use]
pub fn owed(minutes: f64) -> u64 {
    let share = (minutes / MINUTES_WHOLE).clamp(0.0, 1.0);
    (0..=COUNTED_LEAST).rev().find(|owed| *owed as f64 <= COUNTED_LEAST as f64 * share).unwrap_or(0)
}

/// The faults that counted less often than owed.
#[must_use]
pub fn missing(injected: &BTreeMap<String, Injected>, owed: u64) -> Vec<String> {
    let rare = injected.iter().filter(|(_, fault)| fault.counted < owed);
    rare.map(|(kind, fault)| format!("{kind} counted {} of {owed} times", fault.counted)).collect()
}

#[cfg(test)]
mod tests {
    use strum::VariantArray as _;

    use super::*;

    #[test]
    fn a_fault_that_hardly_anybody_saw_does_not_count_and_is_done_again() {
        let board = Board::new(&[Kind::Reset]);
        let mut random = SeededRandom::new(1);
        assert_eq!(board.next(&mut random), Kind::Reset);
        assert!(!board.done(Kind::Reset, ATTEMPTS_LEAST - 1));
        assert_eq!(board.injected()["reset"], Injected { injected: 1, counted: 0 });
        assert_eq!(missing(&board.injected(), 1), ["reset counted 0 of 1 times"]);
        assert_eq!(board.next(&mut random), Kind::Reset);
        assert!(board.done(Kind::Reset, ATTEMPTS_LEAST));
        assert_eq!(board.injected()["reset"], Injected { injected: 2, counted: 1 });
        assert!(missing(&board.injected(), 1).is_empty());
    }

    #[test]
    fn each_fault_has_its_turn_before_any_comes_again() {
        let board = Board::new(Kind::VARIANTS);
        let mut random = SeededRandom::new(2);
        for round in 1..=3 {
            // Draw all faults before any of them is done, as several worlds do.
            let drawn: Vec<Kind> = Kind::VARIANTS.iter().map(|_| board.next(&mut random)).collect();
            drawn.iter().for_each(|kind| assert!(board.done(*kind, ATTEMPTS_LEAST)));
            for (kind, fault) in board.injected() {
                assert_eq!(fault.counted, round, "{kind}");
            }
        }
    }

    #[test]
    fn a_short_run_owes_less_than_a_whole_one() {
        let table = [(0.0, 0), (0.2, 0), (1.0, 1), (6.0, 7), (12.0, 15), (600.0, 15)];
        for (minutes, least) in table {
            assert_eq!(owed(minutes), least, "{minutes} minutes");
        }
    }
}
