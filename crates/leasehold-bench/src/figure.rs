//! The results of a run, in one form for all scenarios.

use serde::Serialize;

/// One number that was measured several times.
#[derive(Debug, Serialize)]
pub(crate) struct Figure {
    schema: &'static str,
    scenario: &'static str,
    /// The thing that was measured, such as `lock + release, fenced`.
    subject: String,
    /// The kind of number, such as `p50`.
    figure: String,
    unit: &'static str,
    #[serde(flatten)]
    value: Spread,
    /// The goal, if one was set beforehand.
    goal: Option<Goal>,
    /// The divisor of a ratio.
    yardstick: Option<Beside>,
}

/// The values of several rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) lowest: f64,
    pub(crate) highest: f64,
}

/// The goal of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Goal {
    AtMost(f64),
    AtLeast(f64),
}

/// The two values of a ratio, as medians.
#[derive(Debug, Serialize)]
struct Beside {
    name: String,
    unit: &'static str,
    ours: f64,
    theirs: f64,
}

/// Our values and the yardstick's, from the same rounds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Compared<'a> {
    pub(crate) ours: &'a [f64],
    pub(crate) theirs: &'a [f64],
    pub(crate) unit: &'static str,
    /// The name of the yardstick.
    pub(crate) to: &'a str,
}

/// All figures of one run.
#[derive(Debug)]
pub(crate) struct Report {
    scenario: &'static str,
    figures: Vec<Figure>,
}

impl Spread {
    /// # Panics
    ///
    /// Without values.
    pub(crate) fn of(values: &[f64]) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let sorted: Vec<f64> = sorted.into_iter().map(rounded).collect();
        let middle = sorted.len() / 2;
        let median = if sorted.len().is_multiple_of(2) {
            f64::midpoint(sorted[middle - 1], sorted[middle])
        } else {
            sorted[middle]
        };
        let median = rounded(median);
        Self { median, lowest: sorted[0], highest: sorted[sorted.len() - 1] }
    }
}

impl Goal {
    fn is_reached(self, value: f64) -> bool {
        match self {
            Self::AtMost(most) => value <= most,
            Self::AtLeast(least) => value >= least,
        }
    }
}

impl Figure {
    /// Sets the goal: not above this.
    pub(crate) fn at_most(&mut self, most: f64) {
        self.goal = Some(Goal::AtMost(most));
    }

    /// Sets the goal: not below this.
    pub(crate) fn at_least(&mut self, least: f64) {
        self.goal = Some(Goal::AtLeast(least));
    }

    #[cfg(test)]
    pub(crate) const fn has_goal(&self) -> bool {
        self.goal.is_some()
    }

    fn shown(&self) -> String {
        let Spread { median, lowest, highest } = self.value;
        let Self { subject, figure, unit, .. } = self;
        let spread = if lowest.to_bits() == highest.to_bits() {
            String::new()
        } else {
            format!("{lowest:.3} to {highest:.3}")
        };
        let goal = match self.goal {
            None => String::new(),
            Some(goal) => {
                let (sign, bound) = match goal {
                    Goal::AtMost(most) => ("<=", most),
                    Goal::AtLeast(least) => (">=", least),
                };
                let verdict = if goal.is_reached(median) { "" } else { " MISSED" };
                format!("{sign} {bound}{verdict}")
            }
        };
        let beside = self.yardstick.as_ref().map_or_else(String::new, |beside| {
            let Beside { name, unit, ours, theirs } = beside;
            format!("{ours:.3} {unit} / {theirs:.3} {unit}, {name}")
        });
        format!(
            "{subject:<36} {figure:<30} {median:>12.3} {unit:<8} {spread:<28} {goal:<16} {beside}"
        )
    }
}

impl Report {
    pub(crate) fn new(scenario: &'static str) -> Self {
        Self { scenario, figures: Vec::new() }
    }

    /// Adds a figure with one value per round.
    pub(crate) fn add(
        &mut self,
        subject: &str,
        figure: &str,
        values: &[f64],
        unit: &'static str,
    ) -> &mut Figure {
        self.push(subject, figure, Spread::of(values), unit)
    }

    /// Adds a ratio: each value is divided by the yardstick's value of the same round. So a slow
    /// phase of the machine does not count.
    pub(crate) fn ratio(
        &mut self,
        subject: &str,
        figure: &str,
        compared: Compared<'_>,
    ) -> &mut Figure {
        let Compared { ours, theirs, unit, to } = compared;
        let ratios: Vec<f64> =
            ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect();
        let added = self.push(subject, figure, Spread::of(&ratios), "x");
        let (ours, theirs) = (Spread::of(ours).median, Spread::of(theirs).median);
        added.yardstick = Some(Beside { name: to.to_owned(), unit, ours, theirs });
        added
    }

    fn push(
        &mut self,
        subject: &str,
        figure: &str,
        value: Spread,
        unit: &'static str,
    ) -> &mut Figure {
        self.figures.push(Figure {
            schema: "leasehold.v1.figure",
            scenario: self.scenario,
            subject: subject.to_owned(),
            figure: figure.to_owned(),
            unit,
            value,
            goal: None,
            yardstick: None,
        });
        self.figures.last_mut().expect("it was just pushed")
    }

    #[cfg(test)]
    pub(crate) fn figures(&self) -> &[Figure] {
        &self.figures
    }

    /// Prints one JSON object per line, or a table for people.
    pub(crate) fn print(&self, json: bool) {
        if !json {
            let (subject, figure, median) = ("subject", "figure", "median");
            println!(
                "{subject:<36} {figure:<30} {median:>12} {:<8} {:<28} {:<16} yardstick",
                "unit", "lowest to highest", "goal"
            );
        }
        for figure in &self.figures {
            if json {
                let line =
                    serde_json::to_string(figure).expect("a figure has nothing that JSON lacks");
                println!("{line}");
            } else {
                println!("{}", figure.shown().trim_end());
            }
        }
    }
}

/// Rounds to six digits: more are noise, and people read the records.
fn rounded(value: f64) -> f64 {
    // The printed text is always a number.
    format!("{value:.5e}").parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_the_middle_and_both_ends() {
        let table: [(&[f64], [f64; 3]); 5] = [
            (&[7.0], [7.0, 7.0, 7.0]),
            (&[3.0, 1.0, 2.0], [2.0, 1.0, 3.0]),
            (&[4.0, 1.0, 3.0, 2.0], [2.5, 1.0, 4.0]),
            (&[10.0, 2.0], [6.0, 2.0, 10.0]),
            (&[1_234_567.8, 0.012_345_678], [617_285.0, 0.012_345_7, 1_234_570.0]),
        ];
        for (values, [median, lowest, highest]) in table {
            assert_eq!(Spread::of(values), Spread { median, lowest, highest }, "{values:?}");
        }
    }

    #[test]
    fn a_ratio_is_taken_within_each_round() {
        let mut report = Report::new("test");
        // The second round was slow for both.
        let compared =
            Compared { ours: &[2.0, 20.0, 3.0], theirs: &[1.0, 10.0, 1.0], unit: "us", to: "it" };
        report.ratio("s", "f", compared).at_most(2.0);
        let figure = &report.figures[0];
        assert_eq!(figure.value, Spread { median: 2.0, lowest: 2.0, highest: 3.0 });
        let beside = figure.yardstick.as_ref().expect("a yardstick");
        assert_eq!((beside.ours, beside.theirs), (3.0, 1.0));
        assert!(!figure.shown().contains("MISSED"), "{}", figure.shown());
    }

    #[test]
    fn a_goal_is_reached_at_its_bound_and_missed_beyond() {
        assert!(Goal::AtMost(1.0).is_reached(1.0) && !Goal::AtMost(1.0).is_reached(1.01));
        assert!(Goal::AtLeast(1.0).is_reached(1.0) && !Goal::AtLeast(1.0).is_reached(0.99));
        let mut report = Report::new("test");
        report.add("s", "f", &[0.5], "x").at_least(0.85);
        assert!(report.figures[0].shown().contains(">= 0.85 MISSED"));
        let json = serde_json::to_value(&report.figures[0]).expect("JSON");
        assert_eq!(json["goal"]["at_least"], 0.85);
        assert_eq!(json["median"], 0.5);
    }
}
