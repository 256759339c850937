//! The reported events of a world.

use std::sync::{Mutex, MutexGuard, PoisonError};

use leasehold::core::Moment;
use leasehold::host::{Host as _, SystemHost};

use crate::history::event::{CallKind, Event, What};

/// All reported events of a world.
#[derive(Debug, Default)]
pub struct Journal {
    events: Mutex<Vec<Event>>,
}

impl Journal {
    /// Adds an event.
    pub fn push(&self, event: Event) {
        self.events().push(event);
    }

    /// Adds an event that happens just now.
    pub fn tell(&self, what: What) {
        self.push(Event { at: SystemHost.now(), what });
    }

    /// The number of events.
    #[must_use]
    pub fn len(&self) -> usize {
        self.events().len()
    }

    /// Whether there are no events.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.events().is_empty()
    }

    /// How many acquisitions were attempted from one moment to another. Looks only at events from
    /// number `first` on.
    #[must_use]
    pub fn attempts(&self, first: usize, from: Moment, to: Moment) -> usize {
        let is_attempt = |event: &&Event| {
            let kind = match &event.what {
                What::Called { kind, .. } => Some(*kind),
                _ => None,
            };
            matches!(kind, Some(CallKind::TryLock | CallKind::Lock))
                && (from..=to).contains(&event.at)
        };
        self.events()[first..].iter().filter(is_attempt).count()
    }

    /// All events, in order of time.
    #[must_use]
    pub fn in_order(&self) -> Vec<Event> {
        let mut events = self.events().clone();
        events.sort_by_key(|event| event.at);
        events
    }

    fn events(&self) -> MutexGuard<'_, Vec<Event>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
