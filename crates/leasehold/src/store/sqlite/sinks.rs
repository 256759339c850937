//! Where the hints of this process go.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};

use crate::core::token::ClientId;
use crate::store::{Hint, HintSink};

/// The sinks of the clients of this process.
#[derive(Default)]
pub(super) struct Sinks(Mutex<HashMap<ClientId, Weak<dyn HintSink>>>);

impl Sinks {
    pub(super) fn watch(&self, inbox: ClientId, sink: Weak<dyn HintSink>) {
        self.lock().insert(inbox, sink);
    }

    pub(super) fn send(&self, inbox: &ClientId, hint: Hint) {
        // Called without the lock: a sink may be what drops the last handle of a client.
        let sink = self.lock().get(inbox).and_then(Weak::upgrade);
        if let Some(sink) = sink {
            sink.hint(hint);
        }
    }

    pub(super) fn prune(&self) {
        self.lock().retain(|_, sink| sink.strong_count() > 0);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ClientId, Weak<dyn HintSink>>> {
        // The map is whole at every moment: it is changed by single insertions.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
