//! The receivers of hints in this process.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};

use super::{Hint, HintSink};
use crate::core::token::ClientId;

/// The hint sinks of the clients of this process.
#[derive(Default)]
pub(crate) struct Sinks(Mutex<HashMap<ClientId, Weak<dyn HintSink>>>);

impl Sinks {
    /// Sets the sink of an inbox, and removes sinks whose clients are gone.
    pub(crate) fn watch(&self, inbox: ClientId, sink: Weak<dyn HintSink>) {
        let mut sinks = self.lock();
        sinks.retain(|_, sink| sink.strong_count() > 0);
        sinks.insert(inbox, sink);
    }

    /// Whether a sink receives the hints of an inbox.
    #[cfg(any(feature = "postgres", feature = "redis", feature = "sqlite"))]
    pub(crate) fn has(&self, inbox: &ClientId) -> bool {
        self.lock().get(inbox).is_some_and(|sink| sink.strong_count() > 0)
    }

    pub(crate) fn send(&self, inbox: &ClientId, hint: Hint) {
        // Not under the lock: the sink may drop the last handle of a client.
        let sink = self.lock().get(inbox).and_then(Weak::upgrade);
        if let Some(sink) = sink {
            sink.hint(hint);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ClientId, Weak<dyn HintSink>>> {
        // The map is valid at every moment, since single insertions change it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
