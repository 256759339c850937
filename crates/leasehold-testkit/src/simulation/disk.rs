//! The disk of a simulated server: the data that survives a power cut.

use std::time::Duration;

use leasehold::core::Moment;

use super::redis::Dataset;

/// The data on the disk, and how long a write takes.
#[derive(Default)]
pub(super) struct Disk {
    /// The shortest and longest write, in microseconds. `None` if no client asks for grants on
    /// disk.
    pub(super) takes_us: Option<(u64, u64)>,
    data: Dataset,
    /// The server's write position of the data on the disk.
    has: u64,
    /// The server's write position of the data handed to the disk.
    sent: u64,
    /// How often the server was restarted. A write that was under way at a restart never arrives.
    life: u32,
    last: Moment,
}

/// A write that is on its way to the disk.
pub(super) struct Syncing {
    life: u32,
    data: Dataset,
    written: u64,
}

impl Disk {
    /// Puts this data on the disk and drops all writes that are on their way.
    pub(super) fn begin(&mut self, data: Dataset, written: u64) {
        self.life += 1;
        (self.data, self.has, self.sent) = (data, written, written);
    }

    /// Records a restart of the server, which hands all data that had not arrived to the disk
    /// again.
    pub(super) const fn begin_again(&mut self) {
        self.life += 1;
        self.sent = self.has;
    }

    /// Hands new data to the disk; `None` if there is nothing new.
    pub(super) fn send(&mut self, data: impl Fn() -> Dataset, written: u64) -> Option<Syncing> {
        let is_new = self.takes_us.is_some() && written > self.sent;
        is_new.then(|| {
            self.sent = written;
            Syncing { life: self.life, data: data(), written }
        })
    }

    /// The moment at which a write arrives, which is never before an earlier write.
    pub(super) fn in_order(&mut self, now: Moment, takes: Duration) -> Moment {
        self.last = self.last.max(now + takes);
        self.last
    }

    /// Completes a write. Returns the write position of the data that is now on the disk.
    pub(super) fn receive(&mut self, syncing: Syncing) -> Option<u64> {
        let Syncing { life, data, written } = syncing;
        if life != self.life {
            return None;
        }
        (self.data, self.has) = (data, written);
        Some(written)
    }

    /// The data that survives a power cut.
    pub(super) fn data(&self) -> Dataset {
        self.data.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Command;
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
