//! The terms on which a task takes a lock.

use std::time::Duration;

use leasehold::{Client, Coexist, MultiLock, Mutex, Semaphore};

use super::plan::Plan;
use super::worlds::{AnyLock, max_hold, min_hold};
use crate::history::event::Share;
use crate::virtual_host::SeededRandom;

/// The options of a task for one lock.
#[derive(Clone, Debug)]
pub(super) struct Terms {
    pub(super) ttl: Duration,
    why: Option<&'static str>,
    is_fenced: bool,
    is_fifo: bool,
    coexists: bool,
    is_unqueued: bool,
    /// How the client shares the key.
    pub(super) share: Share,
    /// How long the client keeps the lease without a guard.
    pub(super) keep_idle: Duration,
    /// How long the key stays taken at least after each grant.
    pub(super) min_hold: Duration,
    /// How long each hold lasts at most; `None` without a limit.
    pub(super) max_hold: Option<Duration>,
}

impl Terms {
    /// The client's terms. If its tasks are mixed, sometimes other terms.
    pub(super) fn draw(world: &Plan, client: usize, random: &mut SeededRandom) -> Self {
        let plan = &world.clients[client];
        let mut terms = Self {
            ttl: plan.ttl,
            why: plan.why,
            is_fenced: plan.is_fenced,
            is_fifo: plan.is_fifo,
            coexists: world.coexists,
            is_unqueued: world.is_unqueued,
            share: Share::Alone,
            keep_idle: if plan.is_fifo { Duration::ZERO } else { plan.keep_idle },
            min_hold: Duration::ZERO,
            max_hold: None,
        };
        if plan.is_mixed {
            match random.below(8) {
                0 => terms.ttl = plan.ttl * 2 / 3,
                1 => terms.why = Some("for another reason"),
                2 => terms.is_fenced = !plan.is_fenced,
                3 => terms.keep_idle = Duration::ZERO,
                4 => (terms.is_fifo, terms.keep_idle) = (true, Duration::ZERO),
                _ => {}
            }
        }
        terms.min_hold = min_hold(world, terms.ttl, random);
        terms.max_hold = max_hold(world, terms.ttl.max(terms.min_hold), random);
        if terms.max_hold.is_some() {
            terms.keep_idle = Duration::ZERO;
        }
        terms
    }

    /// The terms of one of many leases at the same time. They ask for nothing beside the key,
    /// because the world inspects each lease.
    pub(super) fn of_one_of_many(world: &Plan, client: usize) -> Self {
        Self {
            ttl: world.clients[client].ttl,
            why: None,
            is_fenced: false,
            is_fifo: false,
            coexists: world.coexists,
            is_unqueued: world.is_unqueued,
            share: Share::Alone,
            keep_idle: Duration::ZERO,
            min_hold: Duration::ZERO,
            max_hold: None,
        }
    }

    /// The same terms, for that share of the key.
    pub(super) fn of_share(self, share: Share) -> Self {
        let of_mutex = |span| if share == Share::Alone { span } else { Duration::ZERO };
        let (keep_idle, min_hold) = (of_mutex(self.keep_idle), of_mutex(self.min_hold));
        let max_hold = self.max_hold.filter(|_| share == Share::Alone);
        Self { share, keep_idle, min_hold, max_hold, ..self }
    }

    pub(super) fn lock(&self, client: &Client, name: &str) -> AnyLock {
        match self.share {
            Share::Alone => AnyLock::Alone(self.mutex(client, name)),
            Share::Reader => {
                let lock = client.rwlock(name).ttl(self.ttl);
                AnyLock::Reading(match self.why {
                    Some(why) => lock.why(why),
                    None => lock,
                })
            }
            Share::Permits { want, of } => AnyLock::Permits(self.semaphore(client, name, want, of)),
        }
    }

    /// Locks of several names, taken together.
    pub(super) fn lock_all(&self, client: &Client, names: &[&str]) -> MultiLock {
        let locks = client.lock_all(names.iter().copied()).ttl(self.ttl).fencing(self.is_fenced);
        match self.why {
            Some(why) => locks.why(why),
            None => locks,
        }
    }

    fn semaphore(&self, client: &Client, name: &str, want: u32, of: u32) -> Semaphore {
        let semaphore = client.semaphore(name, of).weight(want).ttl(self.ttl);
        let semaphore = semaphore.fencing(self.is_fenced);
        match self.why {
            Some(why) => semaphore.why(why),
            None => semaphore,
        }
    }

    fn mutex(&self, client: &Client, name: &str) -> Mutex {
        let mutex = client.mutex(name).ttl(self.ttl).fencing(self.is_fenced);
        let mutex = mutex.keep_idle(self.keep_idle).min_hold(self.min_hold);
        let mutex = match self.max_hold {
            Some(span) => mutex.max_hold(span),
            None => mutex,
        };
        let mutex = if self.is_fifo { mutex.strict_fifo() } else { mutex };
        let mutex = if self.coexists { mutex.coexist(Coexist::On) } else { mutex };
        let mutex = if self.is_unqueued { mutex.unqueued() } else { mutex };
        match self.why {
            Some(why) => mutex.why(why),
            None => mutex,
        }
    }
}
