//! Counts the requests to stop.
//!
//! One request may reach us as several signals:
//!
//! - A supervisor such as systemd signals every process of a group. A wrapper around us passes its
//!   copy on to us. Our keeper does the same, and so does the keeper of a `leasehold run` around
//!   us.
//! - timeout(1) signals its command, and immediately after that its whole group.
//! - When a shell closes, it signals its jobs with HUP, and then the terminal does so too.
//! - When a session ends, its processes get TERM and HUP.
//!
//! A HUP never counts: many daemons only read their settings again.

use std::time::Duration;

use leasehold::core::Moment;
use rustix::process::Signal;

use crate::exit::Exit;
use crate::signals::{Received, Sender};

/// Signals that belong to one request arrive within this time.
const TOGETHER: Duration = Duration::from_secs(1);

/// A process that sends one signal twice within this time means one request. A person is slower.
const AT_ONCE: Duration = Duration::from_millis(100);

/// The requests to stop so far.
#[derive(Debug, Default)]
pub(super) struct Requests {
    count: u32,
    /// The last arrivals, one entry for each signal.
    arrivals: Vec<Arrival>,
    /// When the last HUP came.
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
    /// the pid 0 here, so that pid may stand for several processes.
    fn has(&mut self, now: Moment, sender: Sender) -> bool {
        let age = now.since(self.since);
        if age >= TOGETHER {
            return false;
        }
        let is_known = self.from.contains(&sender);
        if !is_known {
            self.from.push(sender);
        }
        match sender {
            Sender::Process(0) => true,
            // A second HUP may be about settings that have changed since the first.
            Sender::Process(_) => !is_known || (age < AT_ONCE && self.signal != Signal::HUP),
            Sender::Kernel | Sender::OurKeeper => !is_known,
        }
    }
}

impl Requests {
    /// Whether somebody has asked us to stop, by a signal other than HUP.
    pub(super) const fn is_any(&self) -> bool {
        self.count > 0
    }

    /// Whether a signal has just come from another sender, so that it says nothing new. If the same
    /// sender sends it again a little later, that is another request.
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

    /// Counts a request, unless it is a HUP, and returns how many there are now.
    pub(super) fn count(&mut self, now: Moment, signal: Signal) -> u32 {
        if signal == Signal::HUP {
            self.hung_up = Some(now);
        } else {
            self.count += 1;
        }
        self.count
    }

    /// Whether a HUP has come.
    pub(super) const fn has_hung_up(&self) -> bool {
        self.hung_up.is_some()
    }

    /// Whether a command that ended at `at` with `exit` took a HUP as a request to stop.
    pub(super) fn ended_by_hup(&self, exit: Exit, at: Moment) -> bool {
        // A shell that ends by a signal may report it as a code.
        let is_of_hup = [Exit::Signal(Signal::HUP.as_raw()), Exit::Code(129)].contains(&exit);
        // The HUP may also have come after the end, for the processes that the command left.
        let is_near = |hup: Moment| at.since(hup).max(hup.since(at)) < TOGETHER;
        self.hung_up.is_some_and(|hup| is_of_hup || is_near(hup))
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
            let once = u32::from(signal != Signal::HUP);
            for first in senders {
                for second in senders.into_iter().filter(|second| *second != first) {
                    let near = [(5, signal, first), (1_004, signal, second)];
                    assert_eq!(counts(&near), [once, 0], "{near:?}");
                }
            }
            let all = senders.map(|sender| (5, signal, sender));
            assert_eq!(counts(&all), [once, 0, 0, 0, 0], "{signal:?}");
        }
    }

    #[test]
    fn a_signal_that_is_sent_again_counts_again() {
        let (one, other) = (process(7), process(8));
        let term = |ms, sender| (ms, Signal::TERM, sender);
        assert_eq!(counts(&[term(5, one), term(105, one), term(205, one)]), [1, 2, 3]);
        assert_eq!(counts(&[term(5, OUR_KEEPER), term(6, OUR_KEEPER)]), [1, 2]);
        assert_eq!(counts(&[term(5, one), term(1_005, OUR_KEEPER)]), [1, 2], "a second later");
        assert_eq!(counts(&[term(5, one), (6, Signal::INT, other)]), [1, 2], "another signal");
        // Two requests to a whole group, each of which both senders send.
        let twice = [term(5, one), term(6, other), term(300, one), term(301, other)];
        assert_eq!(counts(&twice), [1, 0, 2, 0]);
        let twice = [term(5, one), term(6, other), term(300, other), term(301, one)];
        assert_eq!(counts(&twice), [1, 0, 2, 0]);
    }

    /// timeout(1) does so.
    #[test]
    fn a_signal_that_a_process_sends_twice_at_once_counts_once() {
        let all = [5, 6, 104, 105].map(|ms| (ms, Signal::TERM, process(7)));
        assert_eq!(counts(&all), [1, 0, 0, 2]);
    }

    #[test]
    fn signals_from_outside_of_the_pid_namespace_may_have_several_senders() {
        let term = |ms, sender| (ms, Signal::TERM, sender);
        assert_eq!(counts(&[term(5, OUTSIDE), term(1_004, OUTSIDE)]), [1, 0]);
        assert_eq!(counts(&[term(5, OUTSIDE), term(1_005, OUTSIDE)]), [1, 2]);
    }

    #[test]
    fn a_hangup_brings_no_later_signal_closer_to_a_kill() {
        let sent = |ms, signal| (ms, signal, process(7));
        let (hup, term) = (|ms| sent(ms, Signal::HUP), |ms| sent(ms, Signal::TERM));
        assert_eq!(counts(&[hup(5), hup(205), hup(90_000)]), [0, 0, 0]);
        assert_eq!(counts(&[term(5), hup(6), hup(206)]), [1, 1, 1]);
        assert_eq!(counts(&[hup(5), term(6)]), [0, 1], "the end of a session");
        assert_eq!(counts(&[hup(5), term(90_000), term(91_000)]), [0, 1, 2]);
    }

    #[test]
    fn a_command_that_ends_at_a_hangup_took_it_as_a_request() {
        let at = |ms: u64| Moment::from_nanos(ms * 1_000_000);
        let mut requests = Requests::default();
        assert!(!requests.ended_by_hup(Exit::Signal(1), at(5)), "there was none");
        requests.count(at(10_000), Signal::HUP);
        for (exit, ms, expected) in [
            (Exit::Code(3), 9_000, false),
            (Exit::Code(3), 9_001, true),
            (Exit::OK, 10_000, true),
            (Exit::Code(3), 10_999, true),
            (Exit::Code(3), 11_000, false),
            (Exit::Signal(1), 90_000, true),
            (Exit::Signal(15), 90_000, false),
        ] {
            assert_eq!(requests.ended_by_hup(exit, at(ms)), expected, "{exit:?} at {ms} ms");
        }
        assert!(!requests.is_any(), "a daemon may only have read its settings again");
    }
}
