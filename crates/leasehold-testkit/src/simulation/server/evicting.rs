//! A server that evicts keys.

use leasehold::core::Moment;

use super::Server;
use crate::history::event::What;
use crate::virtual_host::SeededRandom;

/// Evicts one lock in every `one_in` requests.
pub(super) struct Evicting {
    one_in: usize,
    random: SeededRandom,
}

impl Server {
    /// From now on, evicts a lock before one request in `one_in`.
    pub(in crate::simulation) fn evict(&mut self, one_in: u64, seed: u64) {
        let one_in = usize::try_from(one_in).expect("drawn small");
        self.evicting = Some(Evicting { one_in, random: SeededRandom::new(seed) });
    }

    pub(in crate::simulation) fn evict_no_more(&mut self) {
        self.evicting = None;
    }

    /// Evicts any key. A node of a quorum evicts only locks, not the keys beside them, since
    /// fencing tokens of a quorum cannot survive the loss of a counter.
    pub(super) fn evict_one(&mut self, now: Moment) {
        let Some(evicting) = &mut self.evicting else { return };
        if !evicting.random.once_in(evicting.one_in) {
            return;
        }
        let now_us = self.clock.at(now);
        let keys = self.redis.keys_at(now_us).into_iter().map(|(key, _)| key);
        let is_lock = |key: &Vec<u8>| !key.windows(4).any(|part| part == b":lh:");
        let is_one_of_many = self.log.node().is_some();
        let locks: Vec<_> = keys.filter(|key| !is_one_of_many || is_lock(key)).collect();
        if locks.is_empty() {
            return;
        }
        let lock = &locks[evicting.random.below(locks.len())];
        self.redis.evict(now_us, lock);
        self.evicted += 1;
        self.log.push(What::Forgot);
    }
}
