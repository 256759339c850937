//! How a process under fire tells what happens to it: events as lines on its standard output.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use leasehold::core::Moment;
use leasehold::host::{Host, SystemHost};

use crate::history::event::{Event, ProcessId, What};
use crate::history::to_line;

/// How many numbers a process has for its calls and windows.
const NUMBERS: u32 = 250_000;

/// Tells events, and numbers what they speak of.
#[derive(Debug)]
pub struct Teller {
    process: ProcessId,
    host: Arc<dyn Host>,
    next: AtomicU32,
}

impl Teller {
    /// Of that process.
    #[must_use]
    pub fn new(process: ProcessId) -> Self {
        let next = AtomicU32::new(first_number(process) + 1);
        Self { process, host: SystemHost::shared(), next }
    }

    /// Who tells.
    #[must_use]
    pub const fn process(&self) -> ProcessId {
        self.process
    }

    /// A number for a call or a window, which no other process of its world has.
    pub fn number(&self) -> u32 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Whether its numbers will soon be used up: time to end and let another go on.
    #[must_use]
    pub fn is_used_up(&self) -> bool {
        self.next.load(Ordering::Relaxed) - first_number(self.process) > NUMBERS / 2
    }

    /// Now.
    #[must_use]
    pub fn now(&self) -> Moment {
        self.host.now()
    }

    /// What time, tasks and randomness come from.
    #[must_use]
    pub fn host(&self) -> &dyn Host {
        &*self.host
    }

    /// Tells what happens just now.
    pub fn tell(&self, what: What) {
        self.tell_at(self.now(), what);
    }

    /// Tells what happened at `at`. A process that nobody listens to any more ends.
    pub fn tell_at(&self, at: Moment, what: What) {
        let line = to_line(&Event { at, what }) + "\n";
        // In one piece: whoever is killed meanwhile leaves half a line at the very end at most.
        if std::io::stdout().lock().write_all(line.as_bytes()).is_err() {
            std::process::exit(0);
        }
    }
}

/// The first number of a process. That of the call is told by who starts it, where it makes only
/// one.
#[must_use]
pub const fn first_number(process: ProcessId) -> u32 {
    process.0 * NUMBERS
}
