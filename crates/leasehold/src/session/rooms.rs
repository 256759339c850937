//! A limit on how many requests for locks are under way at a time.
//!
//! A shard answers requests one after another, and each request has a time limit. If too many were
//! under way, the later requests would reach the limit while they wait. So only some are under way
//! at a time, and the others queue here.
//!
//! The future of a caller has a permit, or queues for one. A future that nobody polls would keep
//! its permit from the other tasks of the client, even if it got the permit while it queued. Every
//! future that is polled gives its permit back within the limit of a request. If the futures in a
//! room do not give their permits back, the others get a new room with new permits.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;

use super::Session;
use crate::unpoisoned::Unpoisoned;

/// How many requests a room has permits for.
const ASKS_MAX: usize = 1_024;

/// A room is stuck if some futures keep its permits for longer than this, because nobody polls
/// them. A request may take twice its limit, which is a second.
const STUCK_AFTER: Duration = Duration::from_millis(2_250);

/// How many groups may keep their room although no request has a permit of it.
const KEPT_MAX: usize = 64;

/// Requests that share a room. They go to the same shard, and the store has answered all of their
/// acquisitions before, or none. A silent shard must not use up the permits of the others. An
/// acquisition that was answered before can wait. The caller of an unanswered acquisition wants to
/// know whether the store answers at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Group {
    pub(super) shard: u64,
    pub(super) is_answered: bool,
}

/// The rooms of a client.
#[derive(Default)]
pub(super) struct Rooms(Unpoisoned<HashMap<Group, Arc<Room>>>);

/// The requests of one group that are under way.
struct Room {
    permits: Semaphore,
    /// How many requests have given their permits back so far.
    left_total: AtomicUsize,
}

/// The right to send one request.
pub(super) struct Permit(Arc<Room>);

impl Rooms {
    /// Waits for a permit.
    pub(super) async fn enter(&self, session: &Session, group: Group) -> Permit {
        loop {
            let room = self.of(group);
            if room.enter(session).await {
                return Permit(room);
            }
            self.replace(group, &room);
        }
    }

    fn of(&self, group: Group) -> Arc<Room> {
        let mut rooms = self.0.lock();
        if !rooms.contains_key(&group) && rooms.len() >= KEPT_MAX {
            // A shard whose number is never used again must not be kept for ever.
            rooms.retain(|_, room| Arc::strong_count(room) > 1);
        }
        Arc::clone(rooms.entry(group).or_insert_with(Room::new))
    }

    /// Gives the group a new room, unless another task did so.
    fn replace(&self, group: Group, old: &Arc<Room>) {
        let mut rooms = self.0.lock();
        if rooms.get(&group).is_some_and(|room| Arc::ptr_eq(room, old)) {
            rooms.insert(group, Room::new());
        }
    }
}

impl Room {
    fn new() -> Arc<Self> {
        Arc::new(Self { permits: Semaphore::new(ASKS_MAX), left_total: AtomicUsize::new(0) })
    }

    /// Waits for a permit. Returns `false` if the room is stuck.
    async fn enter(&self, session: &Session) -> bool {
        if let Ok(permit) = self.permits.try_acquire() {
            permit.forget();
            return true;
        }
        let mut entering = pin!(self.permits.acquire());
        loop {
            let left_before = self.left_total.load(Ordering::Relaxed);
            tokio::select! {
                biased;
                permit = &mut entering => {
                    permit.expect("a room is never closed").forget();
                    return true;
                }
                () = session.sleep_until(session.now() + STUCK_AFTER) => {}
            }
            if self.left_total.load(Ordering::Relaxed).wrapping_sub(left_before) < ASKS_MAX {
                return false;
            }
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.left_total.fetch_add(1, Ordering::Relaxed);
        self.0.permits.add_permits(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn group(shard: u64) -> Group {
        Group { shard, is_answered: true }
    }

    #[test]
    fn a_room_is_forgotten_only_if_nobody_is_in_it_and_there_are_many() {
        let rooms = Rooms::default();
        let first = rooms.of(group(0));
        for shard in 1..1_000 {
            drop(rooms.of(group(shard)));
            assert!(rooms.0.lock().len() <= KEPT_MAX, "{shard}");
        }
        assert!(Arc::ptr_eq(&first, &rooms.of(group(0))), "a request has a permit of it");
        let last = rooms.of(group(999));
        let unanswered = rooms.of(Group { is_answered: false, ..group(999) });
        assert!(!Arc::ptr_eq(&last, &unanswered));
    }

    #[test]
    fn only_the_room_that_is_stuck_is_replaced() {
        let rooms = Rooms::default();
        let stuck = rooms.of(group(1));
        rooms.replace(group(1), &stuck);
        let new = rooms.of(group(1));
        assert!(!Arc::ptr_eq(&stuck, &new));
        rooms.replace(group(1), &stuck);
        assert!(Arc::ptr_eq(&new, &rooms.of(group(1))), "another task has replaced it");
    }
}
