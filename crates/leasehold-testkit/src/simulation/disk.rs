//! The disk of a simulated server: what of its data a power cut leaves.

use std::time::Duration;

use leasehold::core::Moment;

use super::redis::Dataset;

/// What is on the disk, and how long it takes until something is there.
#[derive(Default)]
pub(super) struct Disk {
    /// In microseconds, from and to. `None` if nobody asks what is on the disk.
    pub(super) takes_us: Option<(u64, u64)>,
    data: Dataset,
    /// How far the server had written what is there.
    has: u64,
    /// How far it has handed to the disk.
    sent: u64,
    /// How often it began anew: what was under way then never arrives.
    life: u32,
    last: Moment,
}

/// What is on its way to the disk.
pub(super) struct Syncing {
    life: u32,
    data: Dataset,
    written: u64,
}

impl Disk {
    /// It has all of this, and nothing else is on its way.
    pub(super) fn begin(&mut self, data: Dataset, written: u64) {
        self.life += 1;
        (self.data, self.has, self.sent) = (data, written, written);
    }

    /// The server is another process: it hands over again what had not arrived.
    pub(super) const fn begin_again(&mut self) {
        self.life += 1;
        self.sent = self.has;
    }

    /// What is to be handed to it, if it was not yet.
    pub(super) fn send(&mut self, data: impl Fn() -> Dataset, written: u64) -> Option<Syncing> {
        let is_new = self.takes_us.is_some() && written > self.sent;
        is_new.then(|| {
            self.sent = written;
            Syncing { life: self.life, data: data(), written }
        })
    }

    /// When it is there: not before what was handed over earlier.
    pub(super) fn in_order(&mut self, now: Moment, takes: Duration) -> Moment {
        self.last = self.last.max(now + takes);
        self.last
    }

    /// It has arrived. Returns how far the data is on the disk now.
    pub(super) fn receive(&mut self, syncing: Syncing) -> Option<u64> {
        let Syncing { life, data, written } = syncing;
        if life != self.life {
            return None;
        }
        (self.data, self.has) = (data, written);
        Some(written)
    }

    /// What a power cut leaves.
    pub(super) fn data(&self) -> Dataset {
        self.data.clone()
    }
}

#[cfg(test)]
mod tests {
    use leasehold::store::redis::Command;

    use super::*;
    use crate::simulation::redis::SimulatedRedis;

    #[test]
    fn a_power_cut_leaves_what_has_arrived_and_nothing_that_was_under_way() {
        let mut redis = SimulatedRedis::new();
        let mut disk = Disk { takes_us: Some((1, 2)), ..Disk::default() };
        let mut write = |disk: &mut Disk| {
            redis.execute(1, &Command::new("INCR").arg("a"));
            let syncing = disk.send(|| redis.dataset(), redis.written());
            (syncing.expect("there is something new"), redis.dataset())
        };
        let (first, data) = write(&mut disk);
        let (second, _) = write(&mut disk);
        assert_eq!(disk.data(), Dataset::default());
        assert!(disk.receive(first).is_some());
        assert_eq!(disk.data(), data);
        disk.begin_again();
        assert!(disk.receive(second).is_none(), "its process is gone");
        assert_eq!(disk.data(), data);
        let (again, newer) = write(&mut disk);
        assert!(disk.receive(again).is_some());
        assert_eq!(disk.data(), newer);
    }
}
