//! The tasks of one client that wait for a key, and the hints that wake them.
//!
//! A client has one place in the line of a key, whatever the number of its tasks that wait: they
//! queue here, in order, and the first of them asks.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use super::Session;
use crate::core::key::Key;
use crate::core::token::OwnerToken;

/// Who waits for what.
#[derive(Default)]
pub(super) struct Waiting {
    keys: Mutex<HashMap<Key, WaitedFor>>,
}

/// One key that tasks of this client wait for.
struct WaitedFor {
    /// How many tasks wait or ask. The entry goes with the last.
    tasks: usize,
    /// One permit: the right to ask. Fair, so that tasks are served in the order in which they
    /// came.
    turn: Arc<Semaphore>,
    asker: Option<Asker>,
}

/// Who asks at present.
struct Asker {
    owner: OwnerToken,
    wake: Arc<Notify>,
}

impl Waiting {
    fn keys(&self) -> MutexGuard<'_, HashMap<Key, WaitedFor>> {
        self.keys.lock().expect("the table of waiting tasks panics in no state")
    }

    /// Joins the tasks that wait for `key`.
    fn join(&self, key: &Key) -> Arc<Semaphore> {
        let mut keys = self.keys();
        let waited_for = keys.entry(key.clone()).or_insert_with(|| WaitedFor {
            tasks: 0,
            turn: Arc::new(Semaphore::new(1)),
            asker: None,
        });
        waited_for.tasks += 1;
        Arc::clone(&waited_for.turn)
    }

    fn leave(&self, key: &Key) {
        let mut keys = self.keys();
        if let Some(waited_for) = keys.get_mut(key) {
            waited_for.tasks -= 1;
            if waited_for.tasks == 0 {
                keys.remove(key);
            }
        }
    }

    fn set_asker(&self, key: &Key, asker: Option<Asker>) {
        if let Some(waited_for) = self.keys().get_mut(key) {
            waited_for.asker = asker;
        }
    }

    /// Wakes the task that asks for `key`, if it asks by `owner`, or by whatever token. Returns
    /// whether there is one.
    pub(super) fn wake(&self, key: &Key, owner: Option<&OwnerToken>) -> bool {
        let asker = self.keys().get(key).and_then(|waited_for| {
            let asker = waited_for.asker.as_ref()?;
            owner.is_none_or(|owner| asker.owner == *owner).then(|| Arc::clone(&asker.wake))
        });
        // Without the table in hand: a waker may do anything.
        asker.inspect(|wake| wake.notify_one()).is_some()
    }

    pub(super) fn wake_all(&self) {
        let askers: Vec<_> = self
            .keys()
            .values()
            .filter_map(|waited_for| Some(Arc::clone(&waited_for.asker.as_ref()?.wake)))
            .collect();
        for wake in askers {
            wake.notify_one();
        }
    }
}

/// A task's presence among those that wait for a key: from its call to its lease, or to its end.
pub(super) struct Presence {
    session: Arc<Session>,
    key: Key,
    turn: Arc<Semaphore>,
}

impl Presence {
    pub(super) fn join(session: &Arc<Session>, key: &Key) -> Self {
        let turn = session.waiting.join(key);
        Self { session: Arc::clone(session), key: key.clone(), turn }
    }

    /// Waits until every task that came before has its lease or went away.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives the place among the tasks up.
    pub(super) async fn turn(&self) -> OwnedSemaphorePermit {
        Arc::clone(&self.turn).acquire_owned().await.expect("the semaphore is never closed")
    }

    /// From now on, hints for `owner` and for the key wake the returned notification.
    pub(super) fn ask_as(&self, owner: OwnerToken) -> Arc<Notify> {
        let wake = Arc::new(Notify::new());
        let asker = Asker { owner, wake: Arc::clone(&wake) };
        self.session.waiting.set_asker(&self.key, Some(asker));
        wake
    }

    pub(super) fn stop_asking(&self) {
        self.session.waiting.set_asker(&self.key, None);
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.session.waiting.leave(&self.key);
    }
}
