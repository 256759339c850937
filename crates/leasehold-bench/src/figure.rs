//! What a run found, in one form for all scenarios.

use std::time::Duration;

use serde::Serialize;

/// One number that was measured.
#[derive(Debug, Serialize)]
pub(crate) struct Figure {
    schema: &'static str,
    scenario: &'static str,
    subject: String,
    figure: String,
    value: f64,
    unit: &'static str,
    /// This value over the yardstick's, where there is one.
    ratio: Option<f64>,
    ratio_to: Option<String>,
}

/// All figures of one run.
#[derive(Debug)]
pub(crate) struct Report {
    scenario: &'static str,
    figures: Vec<Figure>,
}

impl Report {
    pub(crate) fn new(scenario: &'static str) -> Self {
        Self { scenario, figures: Vec::new() }
    }

    /// Adds a value.
    pub(crate) fn add(&mut self, subject: &str, figure: &str, value: f64, unit: &'static str) {
        self.push(subject, figure, value, unit, None);
    }

    /// Adds a value beside that of its yardstick.
    pub(crate) fn add_ratio(
        &mut self,
        subject: &str,
        figure: &str,
        (value, unit): (f64, &'static str),
        (yardstick, yardstick_value): (&str, f64),
    ) {
        let ratio = (value / yardstick_value, yardstick.to_owned());
        self.push(subject, figure, value, unit, Some(ratio));
    }

    fn push(
        &mut self,
        subject: &str,
        figure: &str,
        value: f64,
        unit: &'static str,
        ratio: Option<(f64, String)>,
    ) {
        let (ratio, ratio_to) = ratio.unzip();
        self.figures.push(Figure {
            schema: "leasehold.v1.figure",
            scenario: self.scenario,
            subject: subject.to_owned(),
            figure: figure.to_owned(),
            value,
            unit,
            ratio,
            ratio_to,
        });
    }

    /// Prints one JSON object a line, or a table for people.
    pub(crate) fn print(&self, json: bool) {
        if json {
            for figure in &self.figures {
                let line =
                    serde_json::to_string(figure).expect("a figure has nothing that JSON lacks");
                println!("{line}");
            }
            return;
        }
        println!("{:<26} {:<24} {:>12} {:<6} ratio", "subject", "figure", "value", "unit");
        for figure in &self.figures {
            let ratio = match (figure.ratio, &figure.ratio_to) {
                (Some(ratio), Some(to)) => format!("{ratio:.2} x {to}"),
                _ => String::new(),
            };
            println!(
                "{:<26} {:<24} {:>12.3} {:<6} {ratio}",
                figure.subject, figure.figure, figure.value, figure.unit
            );
        }
    }
}

/// Durations of one kind of step.
#[derive(Debug, Default)]
pub(crate) struct Samples(Vec<Duration>);

impl Samples {
    pub(crate) fn push(&mut self, sample: Duration) {
        self.0.push(sample);
    }

    /// The value below which `share` of the samples lie, in µs.
    ///
    /// # Panics
    ///
    /// Without samples.
    pub(crate) fn quantile_us(&mut self, share: f64) -> f64 {
        self.0.sort_unstable();
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "an index into few samples"
        )]
        let at = ((self.0.len() - 1) as f64 * share).round() as usize;
        self.0[at].as_secs_f64() * 1e6
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_the_nearest_sample() {
        let mut samples = Samples::default();
        for ms in [3, 1, 2, 5, 4] {
            samples.push(Duration::from_millis(ms));
        }
        let quantiles = [0.0, 0.5, 0.99, 1.0].map(|share| samples.quantile_us(share));
        assert_eq!(quantiles, [1_000.0, 3_000.0, 5_000.0, 5_000.0]);
    }
}
