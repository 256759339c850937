//! The record of a run, from which TRUST.md is made.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The record of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// `leasehold.trust.chaos.v1`.
    pub schema: String,
    /// The commit that was tested.
    pub commit: String,
    /// The form of its servers.
    #[serde(default)]
    pub deployment: String,
    /// The server and its version.
    pub server: String,
    /// How long it took.
    pub minutes: f64,
    /// The seed of the run's choices. The behaviour of the machine is not repeatable.
    pub seed: u64,
    /// How many acquisitions were attempted.
    pub acquisitions: u64,
    /// How many of them were granted.
    pub granted: u64,
    /// The faults by kind.
    pub faults: BTreeMap<String, Injected>,
    /// The faults that could not be injected on this machine, and the reason for each.
    #[serde(default)]
    pub left_out: BTreeMap<String, String>,
    /// Violations of what the table of faults promises, by invariant.
    pub violations_in_model: BTreeMap<String, u64>,
    /// Violations where the table promises nothing, by invariant.
    pub violations_out_of_model: BTreeMap<String, u64>,
    /// The results of `leasehold run` when its server is out of reach.
    pub black_holes: BlackHoles,
    /// The times from the end of a window to the next window of a waiter, outside of faults.
    pub wake_up_ms: WakeUps,
    /// For how many seconds the worlds were calm after their last fault. In that time, a fault
    /// excuses no error and no long wait.
    #[serde(default)]
    pub calm_s: u64,
    /// How long waiters waited after a release in that time.
    #[serde(default)]
    pub calm_wake_up_ms: WakeUps,
    /// How many grants were to readers, or of permits.
    #[serde(default)]
    pub shares_granted: u64,
    /// In how many hand-overs the fencing tokens were compared.
    #[serde(default)]
    pub hand_overs_compared: u64,
    /// How many `leasehold run` were killed while their child ran.
    #[serde(default)]
    pub killed_runs: u64,
}

/// How often a fault was injected, and how often it met enough load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Injected {
    /// How often it was injected.
    pub injected: u64,
    /// How often enough acquisitions were attempted between it and one ttl after it.
    pub counted: u64,
}

/// Children of `leasehold run` whose server is out of reach.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlackHoles {
    /// How many children were tested.
    pub tried: u64,
    /// How many of them died before the server freed the key.
    pub child_dead_in_time: u64,
}

/// How long waiters waited after a release, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WakeUps {
    /// The median.
    pub p50: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The longest time.
    pub max: f64,
}

impl WakeUps {
    /// Summarises these spans in milliseconds.
    #[must_use]
    pub fn of(mut spans_ms: Vec<f64>) -> Self {
        spans_ms.sort_by(f64::total_cmp);
        let at = |share: usize| {
            let index = (spans_ms.len() * share / 100).min(spans_ms.len().saturating_sub(1));
            spans_ms.get(index).map_or(0.0, |ms| (ms * 100.0).round() / 100.0)
        };
        Self { p50: at(50), p99: at(99), max: at(100) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_waits_are_taken_in_order() {
        let spans = (0..200).rev().map(f64::from).collect();
        assert_eq!(WakeUps::of(spans), WakeUps { p50: 100.0, p99: 198.0, max: 199.0 });
        assert_eq!(WakeUps::of(Vec::new()), WakeUps::default());
    }
}
