//! Locks that holders share: several readers at a time, and permits.

use std::collections::BTreeSet;
use std::time::Duration;

use leasehold::{Client, Error, Guard, Mutex, RwLock, Semaphore};

use crate::history::event::{CallId, Event, Share, What, WindowId};
use crate::virtual_host::SeededRandom;

/// The lock that readers share, and that a writer has alone.
pub(super) const READ: &str = "r";

/// The semaphore.
pub(super) const PERMITS: &str = "s";

/// How many permits the semaphore has.
pub(super) const PERMITS_OF: u32 = 3;

/// The names of the locks that holders share.
pub const NAMES: [&str; 2] = [READ, PERMITS];

/// A lock that a task is about to take, and how it will take it.
#[derive(Debug)]
pub(super) enum Wish {
    Mutex(Mutex),
    Read(RwLock),
    Write(RwLock),
    Permits(Semaphore, u32),
}

impl Wish {
    /// A wish for one of the locks that holders share.
    pub(super) fn of_shared(client: &Client, random: &mut SeededRandom) -> Self {
        match random.below(6) {
            0 => Self::Write(client.rwlock(READ)),
            1 | 2 => Self::Read(client.rwlock(READ)),
            // Often take one permit, so that a large wish may have to wait for several holders.
            3 | 4 => Self::permits(client, 1),
            _ => Self::permits(client, PERMITS_OF - u32::from(random.once_in(2))),
        }
    }

    fn permits(client: &Client, want: u32) -> Self {
        Self::Permits(client.semaphore(PERMITS, PERMITS_OF).weight(want), want)
    }

    /// The share of its holder. `None` for a mutex, which nobody shares.
    pub(super) const fn share(&self) -> Option<Share> {
        match self {
            Self::Mutex(_) => None,
            Self::Read(_) => Some(Share::Reader),
            Self::Write(_) => Some(Share::Alone),
            Self::Permits(_, want) => Some(Share::Permits { want: *want, of: PERMITS_OF }),
        }
    }

    /// The name of its lock, unless it is a mutex.
    pub(super) const fn shared_name(&self) -> Option<&'static str> {
        match self {
            Self::Mutex(_) => None,
            Self::Read(_) | Self::Write(_) => Some(READ),
            Self::Permits(..) => Some(PERMITS),
        }
    }

    pub(super) async fn try_lock(&self) -> Result<Option<Guard>, Error> {
        match self {
            Self::Mutex(mutex) => mutex.try_lock().await,
            Self::Read(lock) => lock.try_read().await,
            Self::Write(lock) => lock.try_write().await,
            Self::Permits(semaphore, _) => semaphore.try_acquire().await,
        }
    }

    pub(super) async fn lock_timeout(&self, wait: Duration) -> Result<Guard, Error> {
        match self {
            Self::Mutex(mutex) => mutex.lock_timeout(wait).await,
            Self::Read(lock) => lock.read_timeout(wait).await,
            Self::Write(lock) => lock.write_timeout(wait).await,
            Self::Permits(semaphore, _) => semaphore.acquire_timeout(wait).await,
        }
    }
}

/// Whether a key on a server belongs to a lock that holders share. It may be a companion key.
fn is_of_shared(key: &str) -> bool {
    NAMES.contains(&lock_of(key))
}

/// The lock that a key belongs to.
fn lock_of(key: &str) -> &str {
    let companion = key.strip_prefix('{').and_then(|key| key.split_once('}'));
    companion.map_or(key, |(lock, _)| lock)
}

/// Whether a key on a server belongs to a shared lock, and must be gone when nobody holds the lock
/// or waits for it.
pub(super) fn is_left_behind(key: &str) -> bool {
    is_of_shared(key) && !may_stay(key)
}

/// Whether a key stays for a while after its lock: counters, and how many permits there are.
fn may_stay(key: &str) -> bool {
    [":lh:fence", ":lh:open"].iter().any(|end| key.ends_with(end))
        || (lock_of(key) == PERMITS && key.ends_with(":lh:shares"))
}

/// Splits a history: first the events of mutexes, then the events of locks that holders share.
/// Events that concern no lock are in both. The checker judges the two by different rules.
pub(super) fn split(events: &[Event]) -> [Vec<Event>; 2] {
    let mut shared = Shared::default();
    let mut halves = [Vec::new(), Vec::new()];
    for event in events {
        let of = shared.see(&event.what);
        for (half, is_shared) in halves.iter_mut().zip([false, true]) {
            if of.is_none_or(|of| of == is_shared) {
                half.push(event.clone());
            }
        }
    }
    halves
}

/// The calls and windows of locks that holders share.
#[derive(Default)]
struct Shared {
    calls: BTreeSet<CallId>,
    windows: BTreeSet<WindowId>,
}

impl Shared {
    /// Whether an event is about a shared lock. `None` if it is about no lock.
    fn see(&mut self, what: &What) -> Option<bool> {
        match what {
            What::Called { call, key, .. } => {
                let is_shared = is_of_shared(key);
                if is_shared {
                    self.calls.insert(*call);
                }
                Some(is_shared)
            }
            What::Returned { call, .. } => Some(self.calls.contains(call)),
            What::Granted { window, call, .. } => {
                let is_shared = self.calls.contains(call);
                if is_shared {
                    self.windows.insert(*window);
                }
                Some(is_shared)
            }
            What::Shares { window, .. }
            | What::Extended { window, .. }
            | What::ToldLost { window }
            | What::GaveUp { window } => Some(self.windows.contains(window)),
            What::Key { name, .. } => Some(is_of_shared(name)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::event::{CallKind, Outcome, ProcessId};

    #[test]
    fn a_key_belongs_to_the_lock_in_its_name() {
        for (key, lock) in [("r", "r"), ("{s}:lh:line", "s"), ("{a}:lh:r", "a"), ("ra", "ra")] {
            assert_eq!(lock_of(key), lock, "{key}");
        }
    }

    #[test]
    fn only_counters_of_shared_locks_may_be_left() {
        let left = ["r", "s", "{r}:lh:shares", "{s}:lh:line", "{s}:lh:share"];
        assert!(left.into_iter().all(is_left_behind));
        let stay = ["{s}:lh:shares", "{r}:lh:fence", "{s}:lh:open", "a", "{a}:lh:line"];
        assert!(!stay.into_iter().any(is_left_behind));
    }

    fn event(what: What) -> Event {
        Event { at: leasehold::core::Moment::from_nanos(0), what }
    }

    /// A process takes a lock and gives it up.
    fn taken(number: u32, key: &str) -> [Event; 4] {
        let (call, window) = (CallId(number), WindowId(number));
        let (process, key, limit) = (ProcessId(number), key.into(), None);
        let (token, until) = ("t".into(), leasehold::core::Moment::from_nanos(1));
        [
            What::Called { call, process, key, kind: CallKind::Lock, limit },
            What::Returned { call, outcome: Outcome::Granted },
            What::Granted { window, call, token, fence: None, until },
            What::GaveUp { window },
        ]
        .map(event)
    }

    #[test]
    fn each_half_of_a_history_has_its_locks_and_all_faults() {
        let fault = [event(What::Forgot)];
        let all = [&taken(1, "a")[..], &taken(2, "r"), &fault, &taken(3, "s")].concat();
        let [mutexes, shared] = split(&all);
        assert_eq!(mutexes, [&taken(1, "a")[..], &fault].concat());
        assert_eq!(shared, [&taken(2, "r")[..], &fault, &taken(3, "s")].concat());
    }
}
