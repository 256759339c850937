//! Reads the reports of a process and its children into the journal.

use std::io::{BufRead as _, BufReader, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use leasehold::core::Moment;

use super::journal::Journal;
use super::teller::first_number;
use crate::history::event::{CallId, Event, Outcome, ProcessId, Share, What, WindowId};
use crate::history::from_line;

/// Logs the reports of a process and its children.
pub(super) struct Reader {
    pub(super) process: ProcessId,
    /// The share of the lock that the child has. `None` for a mutex, and for a worker.
    pub(super) share: Option<Share>,
    pub(super) journal: Arc<Journal>,
    pub(super) watch: Arc<Watch>,
    /// Whether the child runs.
    pub(super) holds: Arc<AtomicBool>,
}

impl Reader {
    /// Reads until the process and its children have ended. Returns whether a lock was granted.
    pub(super) fn read(self, reports: impl Read) -> bool {
        let mut granted = false;
        let mut open: Option<(WindowId, Moment)> = None;
        for line in BufReader::new(reports).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line);
            // A process that was killed while it wrote leaves half a line.
            let Ok(event) = from_line(&line) else { continue };
            let call = CallId(first_number(self.process));
            let mut shares = None;
            match &event.what {
                What::Granted { window, call: by, .. } if *by == call => {
                    open = Some((*window, event.at));
                    self.holds.store(true, Ordering::Release);
                    let returned = What::Returned { call, outcome: Outcome::Granted };
                    self.journal.push(Event { at: event.at, what: returned });
                    shares = self.share.map(|share| What::Shares { window: *window, share });
                }
                // The world reports the stops that it makes.
                What::Extended { .. } | What::Stopped { .. } | What::Resumed { .. }
                    if !self.watch.counts(event.at) =>
                {
                    continue;
                }
                What::Extended { window, .. } if open.is_some() => {
                    open = Some((*window, event.at));
                }
                What::GaveUp { .. } if open.is_some() => {
                    self.holds.store(false, Ordering::Release);
                    if !self.watch.counts(event.at) {
                        break;
                    }
                    open = None;
                }
                _ => {}
            }
            granted |= matches!(event.what, What::Granted { .. });
            let at = event.at;
            self.journal.push(event);
            if let Some(what) = shares {
                self.journal.push(Event { at, what });
            }
        }
        self.holds.store(false, Ordering::Release);
        // A killed child does not report that it gives up, so its window ends with its last report.
        if let Some((window, at)) = open {
            self.journal.push(Event { at, what: What::GaveUp { window } });
        }
        granted
    }
}

/// Since when the reports of a child count. They do not count while its `leasehold run` stands
/// still.
#[derive(Debug)]
pub(super) struct Watch(Mutex<Option<Moment>>);

impl Watch {
    pub(super) fn from(moment: Moment) -> Self {
        Self(Mutex::new(Some(moment)))
    }

    pub(super) fn stop(&self) {
        *self.0.lock().expect("nobody panics with it") = None;
    }

    pub(super) fn go_on(&self, moment: Moment) {
        *self.0.lock().expect("nobody panics with it") = Some(moment);
    }

    /// Whether a report counts. A report may be read long after it was written.
    fn counts(&self, written: Moment) -> bool {
        self.0.lock().expect("nobody panics with it").is_some_and(|from| written >= from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::to_line;

    fn at(ms: u64) -> Moment {
        Moment::from_nanos(ms * 1_000_000)
    }

    /// The end of a child's window. The child reports at 1 ms and gives up at 3 ms.
    fn ends(watch: Watch) -> Moment {
        let (process, window) = (ProcessId(1), WindowId(first_number(ProcessId(1)) + 1));
        let call = CallId(first_number(process));
        let granted =
            What::Granted { window, call, token: "t".into(), fence: Some(1), until: at(0) };
        let reports = [
            (at(0), granted),
            (at(1), What::Extended { window, until: at(1) }),
            (at(3), What::GaveUp { window }),
        ];
        let lines: String =
            reports.map(|(at, what)| to_line(&Event { at, what }) + "\n").into_iter().collect();
        let journal = Arc::new(Journal::default());
        let reader = Reader {
            process,
            share: Some(Share::Reader),
            journal: Arc::clone(&journal),
            watch: Arc::new(watch),
            holds: Arc::default(),
        };
        assert!(reader.read(lines.as_bytes()), "a lock was granted");
        let events = journal.in_order();
        let told = events.iter().position(|event| matches!(event.what, What::Granted { .. }));
        let next = &events[told.expect("it was granted") + 1].what;
        assert_eq!(*next, What::Shares { window, share: Share::Reader });
        let gave_up = events.iter().find(|event| matches!(event.what, What::GaveUp { .. }));
        gave_up.expect("the window ends").at
    }

    #[test]
    fn a_report_counts_by_when_it_was_written() {
        assert_eq!(ends(Watch::from(at(0))), at(3), "it was watched all the time");
        let again = Watch::from(at(0));
        again.stop();
        again.go_on(at(4));
        assert_eq!(ends(again), at(0), "it was read later, but written while nobody watched");
    }
}
