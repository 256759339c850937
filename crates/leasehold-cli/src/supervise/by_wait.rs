//! Finds our children without /proc. `wait` tells for any pid whether it is our child.
//!
//! There are four million pids. Asking about all of them takes seconds. Meanwhile a process that
//! forks and ends again and again has passed through thousands of pids. So each scan is short:
//!
//! | Pids | Asked about |
//! |---|---|
//! | of children that we know | first |
//! | around the newest | again and again during a scan, since a new process is there |
//! | all: from the newest down, then those above | in parts, one after the other over several scans |
//!
//! When a child ends, its children become our children. So the last row starts again then.

use std::collections::BTreeSet;
use std::iter::{Chain, Rev};
use std::ops::RangeInclusive;
use std::time::Duration;

use leasehold::host::{Host as _, SystemHost};
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use rustix::thread::gettid;

/// The largest pid that Linux gives.
const PID_MAX: i32 = 4_194_304;

/// How many pids below and above the newest one to ask about. A process that forks and ends again
/// and again gets higher pids, but far more slowly than the scan goes up. On a busy machine, it may
/// be far above the newest pid before we learn of that pid.
const BEHIND_NEWEST: i32 = 64;
const AHEAD_OF_NEWEST: i32 = 1024;

/// How many pids to ask about before the newest ones again. This takes about two milliseconds.
const PART: usize = 4096;

/// How long a scan may take. The keeper does nothing else meanwhile.
const LOOK_LASTS: Duration = Duration::from_millis(10);

/// Asks about the end of a child, and leaves the child as it is.
pub(super) const HAS_ENDED: WaitIdOptions =
    WaitIdOptions::EXITED.union(WaitIdOptions::NOHANG).union(WaitIdOptions::NOWAIT);

/// Whether we have a child that lives or was not reaped yet.
pub(super) fn has_children() -> bool {
    waitid(WaitId::All, HAS_ENDED).is_ok()
}

fn is_child(pid: i32) -> bool {
    Pid::from_raw(pid).is_some_and(|pid| waitid(WaitId::Pid(pid), HAS_ENDED).is_ok())
}

/// The children that were found so far.
#[derive(Debug)]
pub(super) struct ByWait {
    known: BTreeSet<i32>,
    walk: Walk,
    has_seen_all: bool,
}

/// All pids, from one of them down and then those above it. Most children are young, and where the
/// system gives low pids only, these come first.
type Walk = Chain<Rev<RangeInclusive<i32>>, RangeInclusive<i32>>;

fn walk_from(pid: i32) -> Walk {
    (1..=pid).rev().chain(pid + 1..=PID_MAX)
}

impl ByWait {
    pub(super) fn new() -> Self {
        let known = BTreeSet::new();
        Self { known, walk: walk_from(newest().unwrap_or(PID_MAX)), has_seen_all: false }
    }

    /// Whether every pid was asked about at least once.
    pub(super) const fn has_seen_all(&self) -> bool {
        self.has_seen_all
    }

    /// Scans for some time. Calls `found` with each child as soon as it is found, and again when it
    /// is seen again.
    pub(super) fn look(&mut self, mut found: impl FnMut(i32)) {
        let began = SystemHost.now();
        let before = self.known.len();
        self.known.retain(|pid| is_child(*pid));
        if self.known.len() < before {
            self.walk = walk_from(newest().unwrap_or(PID_MAX));
        }
        self.known.iter().for_each(|pid| found(*pid));
        while SystemHost.now().since(began) < LOOK_LASTS {
            let newest = newest();
            if let Some(newest) = newest {
                let oldest = (newest - BEHIND_NEWEST).max(1);
                self.ask(oldest..=newest + AHEAD_OF_NEWEST, &mut found);
            }
            let part: Vec<i32> = self.walk.by_ref().take(PART).collect();
            let is_last = part.len() < PART;
            self.ask(part, &mut found);
            if is_last {
                self.has_seen_all = true;
                self.walk = walk_from(newest.unwrap_or(PID_MAX));
                return;
            }
        }
    }

    fn ask(&mut self, pids: impl IntoIterator<Item = i32>, found: &mut impl FnMut(i32)) {
        for pid in pids.into_iter().filter(|pid| is_child(*pid)) {
            self.known.insert(pid);
            found(pid);
        }
    }

    /// Scans until every pid was asked about once more, which takes seconds.
    pub(super) fn look_at_all(&mut self) {
        self.has_seen_all = false;
        self.walk = walk_from(newest().unwrap_or(PID_MAX));
        while !self.has_seen_all {
            self.look(drop);
        }
    }

    /// The children that the last scan found, and those found before that were still there.
    pub(super) fn known(&self) -> Vec<i32> {
        self.known.iter().copied().collect()
    }
}

/// The newest pid of the system, found by starting a thread, which gets the next one. `None` if no
/// thread can be started.
fn newest() -> Option<i32> {
    let thread = std::thread::Builder::new().spawn(|| gettid().as_raw_nonzero().get());
    thread.ok()?.join().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pid_is_asked_about_once_and_the_young_ones_first() {
        assert_eq!(walk_from(3).take(5).collect::<Vec<_>>(), [3, 2, 1, 4, 5]);
        assert_eq!(walk_from(1000).count(), PID_MAX as usize);
        assert_eq!(walk_from(PID_MAX).count(), PID_MAX as usize);
    }

    #[test]
    fn a_child_is_known_until_it_was_reaped() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().expect("sleep(1)");
        let pid = i32::try_from(child.id()).expect("a pid");
        let mut by_wait = ByWait::new();
        let mut found = Vec::new();
        // The child has the newest pid, or one close to it if other tests start processes.
        by_wait.look(|pid| found.push(pid));
        assert!(has_children() && found.contains(&pid) && by_wait.known().contains(&pid));
        child.kill().expect("it is ours");
        child.wait().expect("it is ours");
        by_wait.look(drop);
        assert!(!by_wait.known().contains(&pid));
        assert!(!by_wait.has_seen_all(), "that takes more than two scans");
        by_wait.look_at_all();
        assert!(by_wait.has_seen_all());
    }
}
