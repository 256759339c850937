//! Wakes a task that asks for a key.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

use crate::core::token::{FencingBlock, OwnerToken};
use crate::unpoisoned::Unpoisoned;

/// The content of a hint that the key was handed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HandOver {
    /// The token that has the key now.
    pub(super) owner: OwnerToken,
    pub(super) ask_no: u32,
    pub(super) fencing: Option<FencingBlock>,
}

/// Wakes an asking task: it should ask again, or it got the key.
#[derive(Debug, Default)]
pub(super) struct Wake {
    ask_again: Notify,
    /// Whether a hint said that the key may be free, and not only that hints were missed.
    may_be_free: AtomicBool,
    handed_over: Notify,
    /// The latest hand-over. An earlier one no longer matters.
    latest: Unpoisoned<Option<HandOver>>,
}

impl Wake {
    /// Tells the task to ask again.
    pub(super) fn wake(&self) {
        self.ask_again.notify_one();
    }

    /// Tells the task to ask again, since the key may be free.
    pub(super) fn may_be_free(&self) {
        self.may_be_free.store(true, Ordering::Release);
        self.wake();
    }

    pub(super) fn hand_over(&self, handed_over: HandOver) {
        *self.latest.lock() = Some(handed_over);
        self.handed_over.notify_one();
    }

    /// Ends when the task should ask again: at once if it was woken before this call. Returns
    /// whether the key may be free.
    pub(super) async fn woken(&self) -> bool {
        self.ask_again.notified().await;
        self.may_be_free.swap(false, Ordering::AcqRel)
    }

    /// Ends when the key was handed over.
    pub(super) async fn handed_over(&self) -> HandOver {
        loop {
            self.handed_over.notified().await;
            let latest = self.latest.lock().take();
            if let Some(latest) = latest {
                return latest;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn a_task_is_told_once_that_the_key_may_be_free() {
        let wake = Wake::default();
        assert_eq!(wake.woken().now_or_never(), None);
        wake.wake();
        assert_eq!(wake.woken().now_or_never(), Some(false));
        wake.may_be_free();
        wake.wake();
        assert_eq!(wake.woken().now_or_never(), Some(true), "one of two hints said it");
        wake.wake();
        assert_eq!(wake.woken().now_or_never(), Some(false));
    }

    #[test]
    fn only_the_latest_hand_over_is_told_and_only_once() {
        let (wake, owner) = (Wake::default(), OwnerToken::new("a-token").expect("printable"));
        let handed_over = |ask_no| HandOver { owner: owner.clone(), ask_no, fencing: None };
        wake.hand_over(handed_over(1));
        wake.hand_over(handed_over(2));
        assert_eq!(wake.handed_over().now_or_never(), Some(handed_over(2)));
        assert_eq!(wake.handed_over().now_or_never(), None);
    }
}
