//! Counts the requests to stop.
//!
//! One request may reach us as several signals:
//!
//! - A supervisor such as systemd signals every process of a group. A wrapper around us passes its
//!   copy on to us, and so do our keeper and that of a `leasehold run` around us.
//! - A shell that closes signals its jobs with HUP, and then the terminal does so too.
//! - A session that ends gets TERM and HUP.

use std::time::Duration;

use leasehold::core::Moment;
use rustix::process::Signal;

use crate::signals::{Received, Sender};

/// Signals that belong to one request arrive within this time.
const TOGETHER: Duration = Duration::from_secs(1);

/// The requests to stop so far.
#[derive(Debug, Default)]
pub(super) struct Requests {
    count: u32,
    /// The last arrivals, one entry for each signal.
    arrivals: Vec<Arrival>,
    /// When the first request came, if it was a HUP and nothing else has come since.
    hung_up: Option<Moment>,
}

/// A signal that may come again from others.
#[derive(Debug)]
struct Arrival {
    signal: Signal,
    since: Moment,
    /// Its senders so far.
    from: Vec<Sender>,
}

impl Arrival {
    fn new(now: Moment, came: Received) -> Self {
        Self { signal: came.signal, since: now, from: vec![came.sender] }
    }

    /// Whether a signal belongs to this arrival. All processes outside of our pid namespace have
    /// the pid 0 here, so that may be several.
    fn has(&mut self, now: Moment, sender: Sender) -> bool {
        if now.since(self.since) >= TOGETHER {
            return false;
        }
        let is_known = self.from.contains(&sender);
        if !is_known {
            self.from.push(sender);
        }
        !is_known || sender == Sender::Process(0)
    }
}

impl Requests {
    /// Whether somebody has asked us to stop.
    pub(super) const fn is_any(&self) -> bool {
        self.count > 0
    }

    /// Whether a signal has just come from another sender, so that it says nothing new. If it comes
    /// again from the same one, it was sent again.
    pub(super) fn is_echo(&mut self, now: Moment, came: Received) -> bool {
        let known = self.arrivals.iter_mut().find(|arrival| arrival.signal == came.signal);
        let Some(arrival) = known else {
            self.arrivals.push(Arrival::new(now, came));
            return false;
        };
        let is_echo = arrival.has(now, came.sender);
        if !is_echo {
            *arrival = Arrival::new(now, came);
        }
        is_echo
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

    const KEY: Sender = Sender::Kernel;
    const OUR_KEEPER: Sender = Sender::OurKeeper;
    const OUTSIDE: Sender = Sender::Process(0);

    const fn process(pid: i32) -> Sender {
        Sender::Process(pid)
    }

    /// Feeds signals of (ms, signal, sender), and returns the count after each. An echo counts
    /// nothing and shows as zero.
    fn counts(all: &[(u64, Signal, Sender)]) -> Vec<u32> {
        let mut requests = Requests::default();
        let count = |&(ms, signal, sender): &(u64, Signal, Sender)| {
            let now = Moment::from_nanos(ms * 1_000_000);
            let is_echo = requests.is_echo(now, Received { signal, sender });
            if is_echo { 0 } else { requests.count(now, signal) }
        };
        all.iter().map(count).collect()
    }

    #[test]
    fn a_signal_that_comes_from_several_senders_counts_once() {
        let senders = [process(7), process(8), OUTSIDE, OUR_KEEPER, KEY];
        for signal in crate::signals::FATAL {
            for first in senders {
                for second in senders.into_iter().filter(|second| *second != first) {
                    let near = [(5, signal, first), (1_004, signal, second)];
                    assert_eq!(counts(&near), [1, 0], "{near:?}");
                }
            }
            let all = senders.map(|sender| (5, signal, sender));
            assert_eq!(counts(&all), [1, 0, 0, 0, 0], "{signal:?}");
        }
    }

    #[test]
    fn a_signal_that_is_sent_again_counts_again() {
        let (one, other) = (process(7), process(8));
        let term = |ms, sender| (ms, Signal::TERM, sender);
        assert_eq!(counts(&[term(5, one), term(6, one), term(7, one)]), [1, 2, 3]);
        assert_eq!(counts(&[term(5, OUR_KEEPER), term(6, OUR_KEEPER)]), [1, 2]);
        assert_eq!(counts(&[term(5, one), term(1_005, OUR_KEEPER)]), [1, 2], "a second later");
        assert_eq!(counts(&[term(5, one), (6, Signal::INT, other)]), [1, 2], "another signal");
        // Two requests to a whole group, each of which comes from both.
        let twice = [term(5, one), term(6, other), term(300, one), term(301, other)];
        assert_eq!(counts(&twice), [1, 0, 2, 0]);
        let twice = [term(5, one), term(6, other), term(300, other), term(301, one)];
        assert_eq!(counts(&twice), [1, 0, 2, 0]);
    }

    #[test]
    fn what_comes_from_outside_of_the_pid_namespace_may_come_from_several_processes() {
        let term = |ms, sender| (ms, Signal::TERM, sender);
        assert_eq!(counts(&[term(5, OUTSIDE), term(1_004, OUTSIDE)]), [1, 0]);
        assert_eq!(counts(&[term(5, OUTSIDE), term(1_005, OUTSIDE)]), [1, 2]);
    }

    #[test]
    fn a_hangup_counts_only_as_the_first_request() {
        let sent = |ms, signal| (ms, signal, process(7));
        let hup = |ms| sent(ms, Signal::HUP);
        assert_eq!(counts(&[hup(5), hup(6), hup(90_000)]), [1, 1, 1]);
        assert_eq!(counts(&[sent(5, Signal::TERM), hup(6), hup(7)]), [1, 1, 1]);
        assert_eq!(counts(&[hup(5), sent(6, Signal::TERM)]), [1, 1], "the end of a session");
        assert_eq!(counts(&[hup(5), sent(6, Signal::TERM), sent(7, Signal::TERM)]), [1, 1, 2]);
        assert_eq!(counts(&[hup(5), sent(1_005, Signal::TERM)]), [1, 2]);
    }
}
