//! The copies of a simulated server's data: on its replicas and on its disk.

use leasehold::store::redis::Replicas as Wanted;

use super::Server;
use crate::protocol::Value;
use crate::simulation::disk::Syncing;
use crate::simulation::plan::Copied;
use crate::simulation::redis::{Dataset, Wait};
use crate::simulation::replicas::{Confirmation, Replicas, Sent};

impl Server {
    /// Gives it replicas that have all its data.
    pub(in crate::simulation) fn is_copied_from_now_on(&mut self, copies: Copied) {
        self.copies = Some(copies);
        let written = self.redis.written();
        self.replicas = Replicas::new(copies.replicas, &self.redis.dataset(), written);
        (0..copies.replicas).for_each(|replica| self.redis.confirm(replica, Some(written)));
        self.disk.takes_us = copies.disk_us;
        self.has_on_disk(self.redis.dataset());
    }

    /// Puts all its data on its disk.
    pub(super) fn has_on_disk(&mut self, dataset: Dataset) {
        let written = self.redis.written();
        self.disk.begin(dataset, written);
        self.redis.sync(written);
    }

    /// Cuts its power. It comes back with the data on its disk.
    pub(in crate::simulation) fn lose_power(&mut self) {
        self.power_cuts += 1;
        self.come_back_with(self.disk.data());
    }

    /// The data that it has written since it last sent data to its replicas.
    pub(in crate::simulation) fn replicate(&mut self) -> Vec<Sent> {
        self.replicas.send(|| self.redis.dataset(), self.redis.written())
    }

    /// The data to hand to its disk, and the shortest and longest time of that write.
    pub(in crate::simulation) fn sync(&mut self) -> Option<(Syncing, (u64, u64))> {
        let takes_us = self.disk.takes_us?;
        let syncing = self.disk.send(|| self.redis.dataset(), self.redis.written())?;
        Some((syncing, takes_us))
    }

    /// A write has reached its disk. Returns false for a write from before a restart.
    pub(in crate::simulation) fn is_synced(&mut self, syncing: Syncing) -> bool {
        let written = self.disk.receive(syncing);
        if let Some(written) = written {
            self.redis.sync(written);
        }
        written.is_some()
    }

    /// Makes a reachable replica follow it.
    pub(in crate::simulation) fn is_followed_by(&mut self, replica: usize) -> Option<Sent> {
        self.replicas.follow(replica, self.redis.dataset(), self.redis.written())
    }

    /// Cuts a replica off.
    pub(in crate::simulation) fn is_left_by(&mut self, replica: usize) {
        self.replicas.leave(replica);
        self.redis.confirm(replica, None);
    }

    /// Handles a replica's confirmation of data.
    pub(in crate::simulation) fn confirm(&mut self, said: Confirmation) {
        if self.replicas.is_heard(said) {
            self.redis.confirm(said.replica, Some(said.written));
        }
    }

    /// The answer to a wait, if there are enough copies.
    pub(in crate::simulation) fn is_confirmed(&mut self, wait: Wait) -> Option<Value> {
        let confirmed = self.redis.confirmed_by(wait.written);
        let is_short = wait.on_disk.is_some_and(|local| local > self.redis.on_disk(wait.written));
        if is_short || confirmed < wait.replicas {
            return None;
        }
        // A client may ask for fewer copies than its terms say. Such an answer does not have to
        // count as enough copies.
        let agreed = match self.copies.map(|copies| copies.wanted) {
            Some(Wanted::Count(count)) => count.into(),
            _ => 1,
        };
        if confirmed >= agreed {
            self.replicas.counted(wait.written);
        }
        Some(self.confirmed_by(wait))
    }

    /// The number of copies that a wait has so far.
    pub(in crate::simulation) fn confirmed_by(&self, wait: Wait) -> Value {
        self.redis.copies(wait)
    }
}
