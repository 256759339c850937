//! How a process under test reports events: as lines on its standard output.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use leasehold::core::Moment;
use leasehold::host::{Host, SystemHost};

use crate::history::event::{Event, ProcessId, What};
use crate::history::to_line;

/// How many numbers a process has for its calls and windows.
const NUMBERS: u32 = 250_000;

/// How late a running process may look at the clock. If it is later, it stood still.
const LATE_MAX: Duration = Duration::from_millis(15);

/// Reports events, and numbers calls and windows.
#[derive(Debug)]
pub struct Teller {
    process: ProcessId,
    host: Arc<dyn Host>,
    next: AtomicU32,
}

impl Teller {
    /// Creates the teller of a process.
    #[must_use]
    pub fn new(process: ProcessId) -> Self {
        let next = AtomicU32::new(first_number(process) + 1);
        Self { process, host: SystemHost::shared(), next }
    }

    /// The process that reports.
    #[must_use]
    pub const fn process(&self) -> ProcessId {
        self.process
    }

    /// A new number for a call or a window. No other process of its world has it.
    pub fn number(&self) -> u32 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Whether its numbers will soon be used up, so that another process should take over.
    #[must_use]
    pub fn is_used_up(&self) -> bool {
        self.next.load(Ordering::Relaxed) - first_number(self.process) > NUMBERS / 2
    }

    /// The current moment.
    #[must_use]
    pub fn now(&self) -> Moment {
        self.host.now()
    }

    /// The source of time, tasks and randomness.
    #[must_use]
    pub fn host(&self) -> &dyn Host {
        &*self.host
    }

    /// Reports that the process stood still, if it reads the clock much later than `every` after
    /// the last reading.
    pub fn tell_if_it_stood_still(&self, last: Moment, now: Moment, every: Duration) {
        if now.since(last) > every + LATE_MAX {
            self.tell_at(last, What::Stopped { process: self.process });
            self.tell_at(now, What::Resumed { process: self.process });
        }
    }

    /// Reports an event that happens just now.
    pub fn tell(&self, what: What) {
        self.tell_at(self.now(), what);
    }

    /// Reports an event that happened at `at`. Ends the process if nobody listens any more.
    pub fn tell_at(&self, at: Moment, what: What) {
        let line = to_line(&Event { at, what }) + "\n";
        // Write the line in one piece, so that a killed process leaves at most half a line at the
        // very end.
        if std::io::stdout().lock().write_all(line.as_bytes()).is_err() {
            std::process::exit(0);
        }
    }
}

/// The first number of a process. If the process makes only one call, its parent reports the call
/// under this number.
#[must_use]
pub const fn first_number(process: ProcessId) -> u32 {
    process.0 * NUMBERS
}
