//! The room for requests for a lock.
//!
//! A shard answers requests one after another, and each has a time limit, which later ones would
//! reach while they wait. So only some are under way at a time, and the others queue here.
//!
//! The future of a caller has the room, or queues for it. A future that nobody polls would keep its
//! room from the other tasks of the client, even if it got the room while it queued. Every future
//! that is polled gives its room back within the limit of a request. If those inside do not, the
//! others get new rooms.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;

use super::Session;

/// How many requests have room at a time.
const ASKS_MAX: usize = 1_024;

/// When all that were inside have left, if they are polled. A request may take twice its limit,
/// which is a second.
const LEFT_WITHIN: Duration = Duration::from_millis(2_250);

/// How many groups may keep their rooms although nobody is inside.
const KEPT_MAX: usize = 64;

/// Requests that share rooms. They go to the same shard, and the store has answered all of their
/// acquisitions before, or none. A silent shard must not take the room of the others. An
/// acquisition that was answered can wait. The caller of any other one wants to know whether the
/// store answers at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Group {
    pub(super) shard: u64,
    pub(super) is_answered: bool,
}

/// The rooms of a client.
#[derive(Default)]
pub(super) struct AskRooms(Mutex<HashMap<Group, Arc<Rooms>>>);

struct Rooms {
    free: Semaphore,
    /// How many have left so far.
    left: AtomicUsize,
}

/// The room for one request.
pub(super) struct Room(Arc<Rooms>);

impl AskRooms {
    /// Waits for room.
    pub(super) async fn enter(&self, session: &Session, group: Group) -> Room {
        loop {
            let rooms = self.of(group);
            if rooms.enter(session).await {
                return Room(rooms);
            }
            self.replace(group, &rooms);
        }
    }

    fn rooms(&self) -> MutexGuard<'_, HashMap<Group, Arc<Rooms>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn of(&self, group: Group) -> Arc<Rooms> {
        let mut all = self.rooms();
        if !all.contains_key(&group) && all.len() >= KEPT_MAX {
            // A shard whose number is never used again must not be kept for ever.
            all.retain(|_, rooms| Arc::strong_count(rooms) > 1);
        }
        Arc::clone(all.entry(group).or_insert_with(Rooms::new))
    }

    /// Gives the group new rooms, unless another task did so.
    fn replace(&self, group: Group, old: &Arc<Rooms>) {
        let mut all = self.rooms();
        if all.get(&group).is_some_and(|rooms| Arc::ptr_eq(rooms, old)) {
            all.insert(group, Rooms::new());
        }
    }
}

impl Rooms {
    fn new() -> Arc<Self> {
        Arc::new(Self { free: Semaphore::new(ASKS_MAX), left: AtomicUsize::new(0) })
    }

    /// Waits for room. Returns `false` if those inside are not polled.
    async fn enter(&self, session: &Session) -> bool {
        if let Ok(room) = self.free.try_acquire() {
            room.forget();
            return true;
        }
        let mut entering = pin!(self.free.acquire());
        loop {
            let left_before = self.left.load(Ordering::Relaxed);
            tokio::select! {
                biased;
                room = &mut entering => {
                    room.expect("the rooms are never closed").forget();
                    return true;
                }
                () = session.sleep_until(session.now() + LEFT_WITHIN) => {}
            }
            if self.left.load(Ordering::Relaxed).wrapping_sub(left_before) < ASKS_MAX {
                return false;
            }
        }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.0.left.fetch_add(1, Ordering::Relaxed);
        self.0.free.add_permits(1);
    }
}
