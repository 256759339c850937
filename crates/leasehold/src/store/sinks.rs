//! Where the hints of a store that lives in this process go.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};

use super::{Hint, HintSink};
use crate::core::token::ClientId;

/// The sinks of the clients of this process.
#[derive(Default)]
pub(crate) struct Sinks(Mutex<HashMap<ClientId, Weak<dyn HintSink>>>);

impl Sinks {
    /// Takes the sink of an inbox, and lets go of those whose clients are gone.
    pub(crate) fn watch(&self, inbox: ClientId, sink: Weak<dyn HintSink>) {
        let mut sinks = self.lock();
        sinks.retain(|_, sink| sink.strong_count() > 0);
        sinks.insert(inbox, sink);
    }

    /// Whether anybody takes what is sent there.
    #[cfg(any(feature = "redis", feature = "sqlite"))]
    pub(crate) fn has(&self, inbox: &ClientId) -> bool {
        self.lock().get(inbox).is_some_and(|sink| sink.strong_count() > 0)
    }

    pub(crate) fn send(&self, inbox: &ClientId, hint: Hint) {
        // Called without the lock: a sink may be what drops the last handle of a client.
        let sink = self.lock().get(inbox).and_then(Weak::upgrade);
        if let Some(sink) = sink {
            sink.hint(hint);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ClientId, Weak<dyn HintSink>>> {
        // The map is whole at every moment: it is changed by single insertions.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
