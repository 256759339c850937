//! Measures one scenario. In each round, it measures all subjects one after another.

use std::collections::HashMap;
use std::ops::RangeInclusive;

use serde_json::{Value, json};

use super::bench::Bench;
use super::scenarios::Scenario;
use crate::rivals::Subject;

/// The spread, as a part of the median, above which a subject is measured again.
const SPREAD_MAX: f64 = 0.5;

/// The results of a subject.
#[derive(Default)]
struct Measured {
    /// Its values, a list for each round.
    rounds: Vec<Vec<f64>>,
    /// Why it failed.
    failures: Vec<String>,
    /// Whether it failed too often. After its first failure it has another chance.
    is_out: bool,
}

/// After this many failures, the subject is not measured any more.
const FAILURES_MAX: usize = 2;

/// Measures the subjects, and returns their rows for the record.
pub(super) fn measure(
    bench: &mut Bench,
    scenario: &Scenario,
    subjects: &[&'static Subject],
    rounds: usize,
) -> Vec<Value> {
    let subjects: Vec<_> = subjects.iter().copied().filter(|it| scenario.takes(it)).collect();
    let rounds = rounds.min(scenario.rounds_max);
    let first = usize::from(!scenario.warms_up);
    let mut measured = take_turns(bench, scenario, &subjects, first..=rounds);
    let is_spread = |subject: &&&Subject| {
        let Measured { rounds, is_out, .. } = &measured[subject.name];
        !is_out && spread(rounds, scenario.main) > SPREAD_MAX
    };
    let again: Vec<&Subject> = subjects.iter().filter(is_spread).copied().collect();
    if !again.is_empty() {
        eprintln!("== {} again, for {} of {}", scenario.name, again.len(), subjects.len());
        for (name, mut second) in take_turns(bench, scenario, &again, 1..=rounds) {
            let first = measured.remove(name).unwrap_or_default();
            second.failures.splice(0..0, first.failures);
            measured.insert(name, second);
        }
    }
    let row = |subject: &&Subject| {
        let is_again = again.iter().any(|it| it.name == subject.name);
        row(scenario, subject, &measured[subject.name], is_again)
    };
    subjects.iter().map(row).collect()
}

/// Measures every subject once in each round. Round 0 warms up.
fn take_turns(
    bench: &mut Bench,
    scenario: &Scenario,
    subjects: &[&Subject],
    rounds: RangeInclusive<usize>,
) -> HashMap<&'static str, Measured> {
    let mut measured: HashMap<&'static str, Measured> = HashMap::new();
    for round in rounds {
        for subject in subjects {
            let so_far = measured.entry(subject.name).or_default();
            while !so_far.is_out {
                let values = (scenario.turn)(bench, subject);
                tell(scenario, subject, round, &values);
                match values {
                    Ok(values) if round > 0 => so_far.rounds.push(values),
                    Ok(_) => {}
                    Err(error) => {
                        so_far.failures.push(error);
                        so_far.is_out = so_far.failures.len() == FAILURES_MAX;
                        continue;
                    }
                }
                break;
            }
        }
    }
    measured
}

/// Prints one result on stderr.
fn tell(scenario: &Scenario, subject: &Subject, round: usize, values: &Result<Vec<f64>, String>) {
    let round = if round == 0 { "warm-up".to_owned() } else { format!("round {round}") };
    let values = match values {
        Ok(values) => {
            let figures = scenario.figures.iter().zip(values);
            let shown = figures.map(|(figure, value)| format!("{value:.2} {}", figure.unit));
            shown.collect::<Vec<_>>().join(", ")
        }
        Err(error) => format!("failed: {error}"),
    };
    eprintln!("{}, {round}, {}: {values}", scenario.name, subject.name);
}

/// The distance of the extremes, divided by the median.
fn spread(rounds: &[Vec<f64>], figure: usize) -> f64 {
    let sorted = sorted(rounds, figure);
    match (sorted.first(), sorted.last()) {
        // If the median is zero, the spread counts as zero.
        (Some(least), Some(most)) if median(&sorted) > 0.0 => (most - least) / median(&sorted),
        _ => 0.0,
    }
}

fn sorted(rounds: &[Vec<f64>], figure: usize) -> Vec<f64> {
    let mut values: Vec<f64> =
        rounds.iter().filter_map(|round| round.get(figure)).copied().collect();
    values.sort_by(f64::total_cmp);
    values
}

fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len().is_multiple_of(2) {
        f64::midpoint(sorted[middle - 1], sorted[middle])
    } else {
        sorted[middle]
    }
}

/// The row of the record: the median, the least and the most of each figure, and the failures. A
/// subject that failed too often has no figures.
fn row(scenario: &Scenario, subject: &Subject, measured: &Measured, again: bool) -> Value {
    let Measured { rounds, failures, is_out } = measured;
    // Keep a repeated reason once, such as that a program could not be built.
    let mut reasons = failures.clone();
    reasons.dedup();
    if *is_out || rounds.is_empty() {
        return json!({ "subject": subject.name, "failures": reasons, "figures": null });
    }
    let figures = scenario.figures.iter().enumerate().map(|(at, figure)| {
        let sorted = sorted(rounds, at);
        let value = json!({
            "median": rounded(median(&sorted)),
            "least": rounded(sorted[0]),
            "most": rounded(sorted[sorted.len() - 1]),
        });
        (figure.name.to_owned(), value)
    });
    let figures: serde_json::Map<String, Value> = figures.collect();
    json!({
        "subject": subject.name, "again": again, "failures": reasons, "figures": figures,
    })
}

/// The value with four digits. More digits are noise, and make records hard to read.
fn rounded(value: f64) -> f64 {
    format!("{value:.3e}").parse().expect("a number was printed")
}

#[cfg(test)]
mod tests {
    use super::super::scenarios;
    use super::*;
    use crate::rivals::subjects;

    #[test]
    fn a_row_has_the_median_and_the_extremes_of_each_figure() {
        let scenario = scenarios::named("roundtrip").expect("it exists");
        let subject = subjects::named("bare").expect("it exists")[0];
        let rounds = vec![vec![30.0, 5.0], vec![10.0, 6.0], vec![21.234_56, 7.0]];
        let measured = |rounds, failures: &[&str], is_out| {
            let failures = failures.iter().map(|it| (*it).to_owned()).collect();
            Measured { rounds, failures, is_out }
        };
        let expected = json!({ "subject": "bare", "again": true, "failures": ["once"], "figures": {
            "p50": { "median": 21.23, "least": 10.0, "most": 30.0 },
            "p99": { "median": 6.0, "least": 5.0, "most": 7.0 },
        }});
        assert_eq!(
            row(scenario, subject, &measured(rounds.clone(), &["once"], false), true),
            expected
        );
        let failed = row(scenario, subject, &measured(rounds, &["once", "twice"], true), false);
        let failures = json!(["once", "twice"]);
        let expected = json!({ "subject": "bare", "failures": failures, "figures": null });
        assert_eq!(failed, expected);
    }

    #[test]
    fn the_spread_is_relative_to_the_median() {
        let rounds = |values: &[f64]| values.iter().map(|value| vec![*value]).collect::<Vec<_>>();
        assert!((spread(&rounds(&[10.0, 14.0, 12.0]), 0) - 4.0 / 12.0).abs() < 1e-9);
        assert!(spread(&rounds(&[0.0, 0.0]), 0).abs() < 1e-9);
        assert!((spread(&rounds(&[1.0, 3.0]), 0) - 1.0).abs() < 1e-9);
    }
}
