//! Counts the requests to stop.
//!
//! One request may reach us as several signals:
//!
//! - A supervisor such as systemd signals every process of a group. The keeper passes its copy on
//!   to us, and so does the keeper of a `leasehold run` around us.
//! - A shell that closes signals its jobs with HUP, and then the terminal does so too.
//! - A session that ends gets TERM and HUP.

use std::time::Duration;

use leasehold::core::Moment;
use rustix::process::Signal;

/// Signals that belong to one request arrive within this time.
const TOGETHER: Duration = Duration::from_secs(1);

/// A signal, and how it came to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Came {
    /// The signal.
    pub(crate) signal: Signal,
    /// The way that it took.
    pub(crate) way: Way,
}

/// The way that a signal took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// A process sent it to us.
    Process,
    /// The kernel sent it: a key was pressed at our terminal, or the terminal was closed.
    Kernel,
    /// The keeper of a `leasehold run` around us sent it.
    OuterKeeper,
    /// Our keeper received it, and passed it on to us.
    OurKeeper,
}

/// The requests to stop so far.
#[derive(Debug, Default)]
pub(super) struct Requests {
    count: u32,
    /// The last arrivals, one entry for each signal.
    arrivals: Vec<Arrival>,
    /// When the first request came, if it was a HUP and nothing else has come since.
    hung_up: Option<Moment>,
}

/// A signal that may come again by other ways.
#[derive(Debug)]
struct Arrival {
    signal: Signal,
    since: Moment,
    ways: Vec<Way>,
}

impl Requests {
    /// Whether somebody has asked us to stop.
    pub(super) const fn is_any(&self) -> bool {
        self.count > 0
    }

    /// Whether a signal has just come by another way, so that it says nothing new. If it comes
    /// again by the same way, somebody has sent it again.
    pub(super) fn is_echo(&mut self, now: Moment, came: Came) -> bool {
        let Came { signal, way } = came;
        let known = self.arrivals.iter_mut().find(|arrival| arrival.signal == signal);
        if let Some(arrival) = known
            && now.since(arrival.since) < TOGETHER
            && !arrival.ways.contains(&way)
        {
            arrival.ways.push(way);
            return true;
        }
        self.arrivals.retain(|arrival| arrival.signal != signal);
        self.arrivals.push(Arrival { signal, since: now, ways: vec![way] });
        false
    }

    /// Counts a request, and returns how many there are now. A HUP counts only as the first one: a
    /// terminal that closes may send several, and means no more by the second.
    pub(super) fn count(&mut self, now: Moment, signal: Signal) -> u32 {
        let belongs_to_hup = self.hung_up.take().is_some_and(|at| now.since(at) < TOGETHER);
        let is_hup = signal == Signal::HUP;
        if self.count == 0 {
            self.hung_up = is_hup.then_some(now);
            self.count = 1;
        } else if !is_hup && !belongs_to_hup {
            self.count += 1;
        }
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds signals of (ms, signal, way), and returns the count after each. An echo counts nothing
    /// and shows as zero.
    fn counts(all: &[(u64, Signal, Way)]) -> Vec<u32> {
        let mut requests = Requests::default();
        let count = |&(ms, signal, way): &(u64, Signal, Way)| {
            let now = Moment::from_nanos(ms * 1_000_000);
            let is_echo = requests.is_echo(now, Came { signal, way });
            if is_echo { 0 } else { requests.count(now, signal) }
        };
        all.iter().map(count).collect()
    }

    #[test]
    fn a_signal_that_comes_by_several_ways_counts_once() {
        let ways = [Way::Process, Way::OuterKeeper, Way::OurKeeper, Way::Kernel];
        for signal in crate::signals::FATAL {
            for first in ways {
                for second in ways.into_iter().filter(|second| *second != first) {
                    let near = [(5, signal, first), (1_004, signal, second)];
                    assert_eq!(counts(&near), [1, 0], "{near:?}");
                }
            }
            let all = ways.map(|way| (5, signal, way));
            assert_eq!(counts(&all), [1, 0, 0, 0], "{signal:?}");
        }
    }

    #[test]
    fn a_signal_that_is_sent_again_counts_again() {
        let (us, keeper) = (Way::Process, Way::OurKeeper);
        let term = |ms, way| (ms, Signal::TERM, way);
        assert_eq!(counts(&[term(5, us), term(6, us), term(7, us)]), [1, 2, 3]);
        assert_eq!(counts(&[term(5, keeper), term(6, keeper)]), [1, 2]);
        assert_eq!(counts(&[term(5, us), term(1_005, keeper)]), [1, 2], "a second later");
        assert_eq!(counts(&[term(5, us), (6, Signal::INT, keeper)]), [1, 2], "another signal");
        // Two requests to a whole group, each of which comes by both ways.
        let twice = [term(5, us), term(6, keeper), term(300, us), term(301, keeper)];
        assert_eq!(counts(&twice), [1, 0, 2, 0]);
        let twice = [term(5, us), term(6, keeper), term(300, keeper), term(301, us)];
        assert_eq!(counts(&twice), [1, 0, 2, 0]);
    }

    #[test]
    fn a_hangup_counts_only_as_the_first_request() {
        let sent = |ms, signal| (ms, signal, Way::Process);
        let hup = |ms| sent(ms, Signal::HUP);
        assert_eq!(counts(&[hup(5), hup(6), hup(90_000)]), [1, 1, 1]);
        assert_eq!(counts(&[sent(5, Signal::TERM), hup(6), hup(7)]), [1, 1, 1]);
        assert_eq!(counts(&[hup(5), sent(6, Signal::TERM)]), [1, 1], "the end of a session");
        assert_eq!(counts(&[hup(5), sent(6, Signal::TERM), sent(7, Signal::TERM)]), [1, 1, 2]);
        assert_eq!(counts(&[hup(5), sent(1_005, Signal::TERM)]), [1, 2]);
    }
}
