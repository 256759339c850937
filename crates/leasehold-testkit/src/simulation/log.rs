//! Where everybody writes down what happened.

use std::sync::{Arc, Mutex, PoisonError};

use leasehold::host::Host;

use crate::VirtualHost;
use crate::history::event::{Event, What};

/// A history that is being made. Clones write to the same one.
#[derive(Clone)]
pub(super) struct Log {
    host: Arc<VirtualHost>,
    events: Arc<Mutex<Vec<Event>>>,
}

impl Log {
    pub(super) fn new(host: &Arc<VirtualHost>) -> Self {
        Self { host: Arc::clone(host), events: Arc::default() }
    }

    /// That happened just now.
    pub(super) fn push(&self, what: What) {
        let event = Event { at: self.host.now(), what };
        self.events.lock().unwrap_or_else(PoisonError::into_inner).push(event);
    }

    /// All that happened.
    pub(super) fn take(&self) -> Vec<Event> {
        std::mem::take(&mut self.events.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
