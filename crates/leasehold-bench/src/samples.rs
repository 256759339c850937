//! Many durations of one kind of step, and their quantiles.

use std::time::Duration;

/// Durations of one kind of step.
#[derive(Debug, Default)]
pub(crate) struct Samples(Vec<Duration>);

impl Samples {
    pub(crate) fn push(&mut self, sample: Duration) {
        self.0.push(sample);
    }

    /// The value below which the fraction `share` of the samples lies, in µs.
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

/// One quantile of every round, in µs.
pub(crate) fn quantiles_us(rounds: &mut [Samples], share: f64) -> Vec<f64> {
    rounds.iter_mut().map(|round| round.quantile_us(share)).collect()
}

/// A count as a float: exact, since it is far below 2^52.
#[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
pub(crate) const fn measure(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(all_ms: &[u64]) -> Samples {
        Samples(all_ms.iter().map(|ms| Duration::from_millis(*ms)).collect())
    }

    #[test]
    fn a_quantile_is_the_nearest_sample() {
        let mut samples = samples(&[3, 1, 2, 5, 4]);
        let quantiles = [0.0, 0.5, 0.99, 1.0].map(|share| samples.quantile_us(share));
        assert_eq!(quantiles, [1_000.0, 3_000.0, 5_000.0, 5_000.0]);
    }

    #[test]
    fn each_round_has_quantiles_of_its_own() {
        let mut rounds = [samples(&[1, 2, 3]), samples(&[9])];
        assert_eq!(quantiles_us(&mut rounds, 0.5), [2_000.0, 9_000.0]);
    }
}
