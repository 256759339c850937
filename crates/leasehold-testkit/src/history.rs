//! What happened to one key, and whether it may have happened.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold::Guard;
use leasehold::core::Moment;
use leasehold::host::Host;

use crate::VirtualHost;

/// The validity windows of every guard of one key. Clones share them.
#[derive(Clone, Debug)]
pub struct History {
    host: Arc<VirtualHost>,
    windows: Arc<Mutex<Vec<Window>>>,
}

#[derive(Clone, Copy, Debug)]
struct Window {
    fence: u64,
    from: Moment,
    /// When its holder last believed that it holds the key; `None` while it does.
    until: Option<Moment>,
}

/// A window that is open: its guard is in use.
#[derive(Debug)]
pub struct InUse {
    history: History,
    number: usize,
}

impl History {
    /// Nothing has happened yet.
    #[must_use]
    pub fn new(host: &Arc<VirtualHost>) -> Self {
        Self { host: Arc::clone(host), windows: Arc::default() }
    }

    /// A guard was granted just now. Its window ends when it is told to be lost, or by
    /// [`InUse::end`], whichever is first.
    ///
    /// # Panics
    ///
    /// If it carries no fencing token.
    #[must_use]
    pub fn granted(&self, guard: &Guard) -> InUse {
        let from = self.host.now();
        let fence = guard.fencing_token().expect("a guard with a fencing token").get();
        let mut windows = self.windows();
        windows.push(Window { fence, from, until: None });
        let number = windows.len() - 1;
        drop(windows);
        let (history, lost) = (self.clone(), guard.lost());
        self.host.spawn(Box::pin(async move {
            lost.await;
            history.close(number);
        }));
        InUse { history: self.clone(), number }
    }

    fn close(&self, number: usize) {
        let now = self.host.now();
        self.windows()[number].until.get_or_insert(now);
    }

    fn windows(&self) -> MutexGuard<'_, Vec<Window>> {
        self.windows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many guards there were.
    #[must_use]
    pub fn grants(&self) -> usize {
        self.windows().len()
    }

    /// For how long the key was held, in all.
    #[must_use]
    pub fn held(&self) -> Duration {
        let now = self.host.now();
        self.windows().iter().map(|window| window.until.unwrap_or(now).since(window.from)).sum()
    }

    /// No two windows overlap, and fencing tokens rise.
    #[track_caller]
    pub fn check(&self) {
        let mut windows = self.windows().clone();
        windows.sort_by_key(|window| (window.from, window.fence));
        for pair in windows.windows(2) {
            let [before, after] = pair else { unreachable!("windows of two") };
            assert!(after.fence > before.fence, "the fencing fell: {before:?}, then {after:?}");
            assert!(
                before.until.is_some_and(|until| until <= after.from),
                "two held it at once: {before:?} and {after:?}"
            );
        }
    }
}

impl InUse {
    /// The holder gives up now: the moment before it releases.
    pub fn end(self) {
        self.history.close(self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(windows: &[(u64, u64, Option<u64>)]) -> History {
        let history = History::new(&VirtualHost::new(0));
        let at = Moment::from_nanos;
        history.windows().extend(windows.iter().map(|(fence, from, until)| Window {
            fence: *fence,
            from: at(*from),
            until: until.map(at),
        }));
        history
    }

    #[test]
    fn windows_one_after_another_pass() {
        history(&[(1, 10, Some(20)), (2, 20, Some(30)), (5, 31, None)]).check();
    }

    #[test]
    #[should_panic(expected = "two held it at once")]
    fn windows_that_overlap_fail() {
        history(&[(1, 10, Some(21)), (2, 20, Some(30))]).check();
    }

    #[test]
    #[should_panic(expected = "two held it at once")]
    fn a_window_that_never_ends_overlaps_the_next() {
        history(&[(1, 10, None), (2, 20, Some(30))]).check();
    }

    #[test]
    #[should_panic(expected = "the fencing fell")]
    fn fencing_that_does_not_rise_fails() {
        history(&[(2, 10, Some(11)), (2, 20, Some(30))]).check();
    }
}
