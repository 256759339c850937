//! When a process ran, stood still and died.

use std::time::Duration;

use leasehold::core::Moment;

/// When a process ran, and when it stood still.
#[derive(Clone, Debug, Default)]
pub(super) struct Life {
    /// The spans in which it stood still.
    stood: Vec<(Moment, Option<Moment>)>,
    pub(super) crashed: Option<Moment>,
}

impl Life {
    /// The process stands still from now on. If it already does, the next `Resumed` still ends it.
    /// A dead process stays dead.
    pub(super) fn stop(&mut self, at: Moment) {
        if self.crashed.is_none() && !matches!(self.stood.last(), Some((_, None))) {
            self.stood.push((at, None));
        }
    }

    /// The process goes on. Returns when it had stopped, if it stood still.
    pub(super) fn resume(&mut self, at: Moment) -> Option<Moment> {
        let (stopped, resumed @ None) = self.stood.last_mut()? else { return None };
        *resumed = Some(at);
        Some(*stopped)
    }

    /// Since when it stands still, if it has not gone on by the end of the history.
    pub(super) fn stands_since(&self) -> Option<Moment> {
        let (stopped, resumed) = self.stood.last()?;
        resumed.is_none().then_some(*stopped)
    }

    /// How long it ran between two moments.
    pub(super) fn ran(&self, from: Moment, to: Moment) -> Duration {
        let to = self.crashed.map_or(to, |crashed| crashed.min(to));
        let stood = self.stood.iter().map(|(stopped, resumed)| {
            let resumed = resumed.unwrap_or(to).min(to);
            resumed.since((*stopped).max(from))
        });
        to.since(from).saturating_sub(stood.sum())
    }

    /// Whether it stood still at any moment of a span.
    pub(super) fn stood(&self, from: Moment, to: Moment) -> bool {
        let met = |(stopped, resumed): &(Moment, Option<Moment>)| {
            *stopped <= to && resumed.is_none_or(|resumed| resumed >= from)
        };
        self.stood.iter().any(met)
    }

    /// The parts of a span in which it ran, in order.
    pub(super) fn running(&self, from: Moment, to: Moment) -> Vec<(Moment, Moment)> {
        let to = self.crashed.map_or(to, |crashed| crashed.min(to));
        let (mut parts, mut start) = (Vec::new(), from);
        for (stopped, resumed) in self.stood.iter().filter(|(stopped, _)| *stopped < to) {
            if *stopped > start {
                parts.push((start, *stopped));
            }
            start = start.max(resumed.unwrap_or(to));
        }
        if start < to {
            parts.push((start, to));
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_in_which_a_process_stood_still_does_not_count() {
        let at = |seconds: u64| Moment::from_nanos(seconds * 1_000_000_000);
        let life = Life {
            stood: vec![(at(10), Some(at(20))), (at(30), Some(at(35)))],
            crashed: Some(at(50)),
        };
        // Columns: from, to, how long the process ran.
        for (from, to, ran) in
            [(0, 5, 5), (0, 40, 25), (12, 18, 0), (15, 32, 10), (0, 99, 35), (60, 70, 0)]
        {
            assert_eq!(life.ran(at(from), at(to)).as_secs(), ran, "{from}..{to}");
            let parts = life.running(at(from), at(to));
            let sum: u64 = parts.iter().map(|(from, to)| to.since(*from).as_secs()).sum();
            assert_eq!(sum, ran, "{from}..{to}: {parts:?}");
        }
        assert!(life.stood(at(0), at(10)) && life.stood(at(12), at(13)));
        assert!(!life.stood(at(0), at(9)) && !life.stood(at(21), at(29)));
    }
}
