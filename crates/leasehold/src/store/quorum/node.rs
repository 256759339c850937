//! One node of a quorum.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::watch;

use crate::core::error::{Error, ErrorKind};
use crate::core::ttl::Ttl;
use crate::unpoisoned::Unpoisoned;

/// The shortest time after which a node counts as late.
const PATIENCE_MIN: Duration = Duration::from_millis(5);

/// The assumed round trip before the first measurement.
const ROUND_TRIP_GUESSED: Duration = Duration::from_millis(1);

/// A store, its round trip, and its right to vote.
pub(super) struct Node<S> {
    pub(super) store: S,
    pub(super) label: String,
    /// The usual round trip in nanoseconds, a moving mean. Zero until the first answer.
    usual: AtomicU64,
    standing: Unpoisoned<Standing>,
    /// Whether the node's first trial has ended. Until then, nobody knows whether the node works.
    is_tried: watch::Sender<bool>,
}

/// Whether a node may vote.
#[derive(Clone, Debug)]
pub(super) enum Standing {
    /// The node is a separate store. It was not compared with the nodes of `unseen`, which voted
    /// already and could not be looked at. Of this node and a node of `unseen`, only one vote
    /// counts.
    Admitted { unseen: Vec<usize> },
    /// The node could not be checked yet, for this reason.
    Candidate(Error),
    /// The node is the same store as another node.
    Refused(Error),
}

impl Standing {
    /// The nodes that this node was not compared with, or the reason why it has no vote.
    pub(super) fn into_vote(self) -> Result<Vec<usize>, Error> {
        match self {
            Self::Admitted { unseen } => Ok(unseen),
            Self::Candidate(error) | Self::Refused(error) => Err(error),
        }
    }
}

impl<S> Node<S> {
    pub(super) fn new(store: S, label: String) -> Self {
        let standing = Unpoisoned::new(Standing::Candidate(not_tried()));
        let is_tried = watch::Sender::new(false);
        Self { store, label, usual: AtomicU64::new(0), standing, is_tried }
    }

    pub(super) fn standing(&self) -> Standing {
        self.standing.lock().clone()
    }

    /// The reason why the node has no vote.
    pub(super) fn no_vote(&self) -> Option<Error> {
        self.standing().into_vote().err()
    }

    pub(super) fn is_admitted(&self) -> bool {
        matches!(*self.standing.lock(), Standing::Admitted { .. })
    }

    /// Ends a trial.
    pub(super) fn stand(&self, standing: Standing) {
        *self.standing.lock() = standing;
        self.is_tried.send_replace(true);
    }

    /// Waits until its first trial ends. `None` if it has ended already.
    pub(super) fn first_trial(&self) -> Option<impl Future<Output = ()> + Send + 'static + use<S>> {
        if self.is_tried() {
            return None;
        }
        let mut is_tried = self.is_tried.subscribe();
        Some(async move {
            // An error means that the quorum is gone.
            let _over = is_tried.wait_for(|is_tried| *is_tried).await;
        })
    }

    pub(super) fn is_tried(&self) -> bool {
        *self.is_tried.borrow()
    }

    /// Whether it has answered at all.
    pub(super) fn has_answered(&self) -> bool {
        self.usual.load(Ordering::Relaxed) != 0
    }

    /// Adds one measured round trip to the mean.
    pub(super) fn answered_after(&self, span: Duration) {
        let span = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX).max(1);
        let usual = self.usual.load(Ordering::Relaxed);
        let mean = if usual == 0 { span } else { usual - usual / 8 + span / 8 };
        // If two answers come at the same time, one may be lost. That does no harm.
        self.usual.store(mean.max(1), Ordering::Relaxed);
    }

    /// The usual round trip.
    pub(super) fn round_trip(&self) -> Duration {
        match self.usual.load(Ordering::Relaxed) {
            0 => ROUND_TRIP_GUESSED,
            nanos => Duration::from_nanos(nanos),
        }
    }

    /// How long until it counts as late: four times its usual round trip, from 5 ms to ttl/10.
    pub(super) fn patience(&self, ttl: Ttl) -> Duration {
        let longest = (ttl.get() / 10).max(PATIENCE_MIN);
        match self.usual.load(Ordering::Relaxed) {
            0 => longest,
            nanos => Duration::from_nanos(nanos).saturating_mul(4).clamp(PATIENCE_MIN, longest),
        }
    }
}

/// The reason why a node has no vote before its first trial has ended.
pub(super) fn not_tried() -> Error {
    Error::new(
        ErrorKind::Unavailable,
        "it has not answered its first requests yet; it was not asked for the lock; if that lasts, \
         check whether it is stopped or overloaded",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_late_after_four_of_its_usual_round_trips() {
        let ttl = |ms| Ttl::new(Duration::from_millis(ms)).expect("within bounds");
        // usual round trip in µs, ttl in ms, patience in µs
        for (usual, ttl_ms, patience) in [
            (0, 10_000, 1_000_000),
            (100, 10_000, 5_000),
            (2_000, 10_000, 8_000),
            (900_000, 10_000, 1_000_000),
            (2_000, 50, 5_000),
            (0, 20, 5_000),
        ] {
            let node = Node::new((), String::new());
            if usual > 0 {
                node.answered_after(Duration::from_micros(usual));
            }
            let patience = Duration::from_micros(patience);
            assert_eq!(node.patience(ttl(ttl_ms)), patience, "{usual} {ttl_ms}");
        }
    }

    #[test]
    fn a_single_slow_answer_hardly_changes_what_is_usual() {
        let node = Node::new((), String::new());
        for _ in 0..100 {
            node.answered_after(Duration::from_millis(1));
        }
        node.answered_after(Duration::from_millis(9));
        let usual = node.round_trip();
        assert!(usual > Duration::from_millis(1) && usual < Duration::from_millis(3), "{usual:?}");
    }
}
