//! Checks mutual exclusion: counts who is inside.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Tracks whether somebody is inside, and how often each participant was.
#[derive(Clone)]
pub(crate) struct Inside {
    busy: Arc<AtomicBool>,
    turns: Arc<[AtomicU32]>,
}

impl Inside {
    /// Starts with nobody inside, for `count` participants.
    pub(crate) fn of(count: usize) -> Self {
        Self { busy: Arc::default(), turns: (0..count).map(|_| AtomicU32::new(0)).collect() }
    }

    pub(crate) fn enter(&self, who: usize) {
        assert!(!self.busy.swap(true, Ordering::SeqCst), "two are inside");
        self.turns[who].fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn leave(&self) {
        assert!(self.busy.swap(false, Ordering::SeqCst), "somebody else left for us");
    }

    /// Asserts that each participant was inside several times.
    #[track_caller]
    pub(crate) fn assert_shared(&self) {
        let turns: Vec<_> = self.turns.iter().map(|turns| turns.load(Ordering::SeqCst)).collect();
        assert!(turns.iter().all(|turns| *turns >= 5), "{turns:?}");
    }
}
