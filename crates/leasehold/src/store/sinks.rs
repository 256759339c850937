//! The receivers of hints in this process.

use std::collections::HashMap;
use std::fmt;
use std::sync::Weak;

use super::{Hint, HintSink};
use crate::core::token::ClientId;
use crate::host::shielded::shield;
use crate::unpoisoned::Unpoisoned;

/// The hint sinks of the clients of this process, for a store with hints.
///
/// [`Store::watch`](super::Store::watch) puts sinks in, and the store sends each hint that arrives
/// for an inbox. A sink is kept while its client lives.
///
/// ```
/// use std::sync::{Arc, Mutex, Weak};
/// use leasehold::Key;
/// use leasehold::core::token::ClientId;
/// use leasehold::store::{Hint, HintSink, Sinks};
///
/// #[derive(Default)]
/// struct Inbox(Mutex<Vec<Hint>>);
///
/// impl HintSink for Inbox {
///     fn hint(&self, hint: Hint) {
///         self.0.lock().unwrap().push(hint);
///     }
/// }
///
/// let (sinks, inbox) = (Sinks::default(), Arc::new(Inbox::default()));
/// let client = ClientId::from_random([7; ClientId::CHARS]);
/// let sink: Arc<dyn HintSink> = inbox.clone();
/// sinks.watch(client.clone(), Arc::downgrade(&sink));
/// sinks.send(&client, Hint::MaybeFree { key: Key::new("report")? });
/// assert_eq!(inbox.0.lock().unwrap().len(), 1);
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Default)]
pub struct Sinks(Unpoisoned<HashMap<ClientId, Weak<dyn HintSink>>>);

impl Sinks {
    /// Sets the sink of an inbox, and removes sinks whose clients are gone.
    pub fn watch(&self, inbox: ClientId, sink: Weak<dyn HintSink>) {
        let mut sinks = self.0.lock();
        sinks.retain(|_, sink| sink.strong_count() > 0);
        sinks.insert(inbox, sink);
    }

    /// Whether a sink receives the hints of an inbox.
    #[must_use]
    pub fn has(&self, inbox: &ClientId) -> bool {
        self.0.lock().get(inbox).is_some_and(|sink| sink.strong_count() > 0)
    }

    /// Passes a hint to the sink of an inbox, if there is one.
    pub fn send(&self, inbox: &ClientId, hint: Hint) {
        // The lock is free again here, because the sink may drop the last handle of a client.
        let sink = self.0.lock().get(inbox).and_then(Weak::upgrade);
        if let Some(sink) = sink {
            // The sink wakes tasks of the client, and the caller may be a task of the store.
            shield(move || sink.hint(hint));
        }
    }
}

impl fmt::Debug for Sinks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sinks({})", self.0.lock().len())
    }
}
