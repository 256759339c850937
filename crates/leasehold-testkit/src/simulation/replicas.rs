//! The replicas of a simulated server: which data each has, and which one may take over.
//!
//! The server sends its writes to the replicas that follow it, in order. A replica confirms the
//! data that it has received. A new follower is sent everything, and keeps its old data until the
//! new data arrives.

use leasehold::core::Moment;

use super::redis::Dataset;

/// In a fault that concerns some replicas, this number means all of them.
pub(super) const ALL: u64 = u64::MAX;

/// All replicas of a server.
#[derive(Default)]
pub(super) struct Replicas {
    all: Vec<Replica>,
    /// The largest extra delay between the server and a replica, in milliseconds.
    pub(super) lag_ms: u64,
    /// How often the server became a replica for a while and took the data of another server.
    pub(super) led: u32,
    /// The write position of the data sent to the followers.
    sent: u64,
    /// The write position for which a client was told that there are enough copies.
    counted: u64,
}

struct Replica {
    data: Dataset,
    has: u64,
    /// How often the replica has begun to follow. Everything that was sent before is lost.
    link: u32,
    follows: bool,
    is_away: bool,
    /// When the last message arrives, in each direction.
    last: [Moment; 2],
}

/// Data that a server sends to one replica.
pub(super) struct Sent {
    pub(super) replica: usize,
    link: u32,
    data: Dataset,
    written: u64,
}

/// The replica's confirmation of that data.
#[derive(Clone, Copy)]
pub(super) struct Confirmation {
    pub(super) replica: usize,
    link: u32,
    pub(super) written: u64,
}

/// The direction of a message.
#[derive(Clone, Copy)]
pub(super) enum Way {
    There,
    Back,
}

impl Replicas {
    /// Creates replicas that have all the data.
    pub(super) fn new(number: usize, data: &Dataset, written: u64) -> Self {
        let all = (0..number).map(|_| Replica {
            data: data.clone(),
            has: written,
            link: 0,
            follows: true,
            is_away: false,
            last: [Moment::default(); 2],
        });
        Self { all: all.collect(), sent: written, ..Self::default() }
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// The data to send to the followers, if there is new data.
    pub(super) fn send(&mut self, data: impl Fn() -> Dataset, written: u64) -> Vec<Sent> {
        if written <= self.sent || self.all.is_empty() {
            return Vec::new();
        }
        self.sent = written;
        let following = self.all.iter().enumerate().filter(|(_, replica)| replica.follows);
        let sent = |(number, replica): (usize, &Replica)| Sent {
            replica: number,
            link: replica.link,
            data: data(),
            written,
        };
        following.map(sent).collect()
    }

    /// The moment of arrival, after all earlier messages in the same direction.
    pub(super) fn in_order(&mut self, replica: usize, way: Way, at: Moment) -> Moment {
        let last = &mut self.all[replica].last[way as usize];
        *last = at.max(*last);
        *last
    }

    /// Makes a replica receive and confirm data. `None` if the replica has disconnected meanwhile.
    pub(super) fn receive(&mut self, sent: Sent) -> Option<Confirmation> {
        let Sent { replica: number, link, data, written } = sent;
        let replica = &mut self.all[number];
        if replica.link != link || !replica.follows {
            return None;
        }
        (replica.data, replica.has) = (data, written);
        Some(Confirmation { replica: number, link, written })
    }

    /// Whether the server accepts a confirmation. It ignores confirmations over an earlier link.
    pub(super) fn is_heard(&self, confirmation: Confirmation) -> bool {
        let replica = &self.all[confirmation.replica];
        replica.follows && replica.link == confirmation.link
    }

    /// Records that a client was told that there are enough copies of all data up to that write
    /// position.
    pub(super) fn counted(&mut self, written: u64) {
        self.counted = self.counted.max(written);
    }

    /// The replicas that a fault concerns: one, or all for [`ALL`].
    pub(super) fn some(&self, much: u64) -> Vec<usize> {
        let chosen = usize::try_from(much % self.len().max(1) as u64).expect("a few");
        let is_met = |replica: &usize| much == ALL || *replica == chosen;
        (0..self.len()).filter(is_met).collect()
    }

    /// Cuts a replica off. Nothing that is on its way to the replica arrives in time.
    pub(super) fn leave(&mut self, replica: usize) {
        (self.all[replica].follows, self.all[replica].is_away) = (false, true);
    }

    /// Lets a replica be reached again.
    pub(super) fn come_back(&mut self, replica: usize) {
        self.all[replica].is_away = false;
    }

    /// Records a restart of the server. No replica follows it yet.
    pub(super) fn leave_all(&mut self) {
        self.all.iter_mut().for_each(|replica| replica.follows = false);
    }

    /// Makes a reachable replica follow. Returns the data that is sent to it.
    pub(super) fn follow(&mut self, number: usize, data: Dataset, written: u64) -> Option<Sent> {
        let replica = &mut self.all[number];
        if replica.is_away || replica.follows {
            return None;
        }
        replica.follows = true;
        replica.link += 1;
        Some(Sent { replica: number, link: replica.link, data, written })
    }

    /// The data of a replica that may take over. Such a replica has all data for which a client was
    /// told that there are enough copies.
    pub(super) fn heir(&self, much: u64) -> Option<Dataset> {
        let fit: Vec<_> = self.all.iter().filter(|one| one.has >= self.counted).collect();
        let chosen = usize::try_from(much % fit.len().max(1) as u64).expect("a few");
        fit.get(chosen).map(|replica| replica.data.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Command;
    use crate::simulation::redis::SimulatedRedis;

    /// The data of a server after this many writes, and its write position.
    fn written(times: u64) -> (Dataset, u64) {
        let mut redis = SimulatedRedis::new();
        for time in 0..times {
            redis.execute(1, &Command::new("SET").arg("a").number(time));
        }
        (redis.dataset(), redis.written())
    }

    fn replicas(number: usize) -> Replicas {
        let (data, none) = written(0);
        Replicas::new(number, &data, none)
    }

    #[test]
    fn only_a_replica_with_all_confirmed_writes_takes_over() {
        let mut replicas = replicas(2);
        let (data, last) = written(3);
        for sent in replicas.send(|| data.clone(), last).into_iter().take(1) {
            assert_eq!(replicas.receive(sent).map(|said| said.written), Some(last));
        }
        let heirs =
            |replicas: &Replicas| [0, 1].map(|much| replicas.heir(much) == Some(data.clone()));
        assert_eq!(heirs(&replicas), [true, false], "nothing has counted");
        replicas.counted(last);
        assert_eq!(heirs(&replicas), [true, true]);
        replicas.counted(last + 1);
        assert_eq!(replicas.heir(0), None);
    }

    #[test]
    fn writes_to_a_replica_that_left_before_they_arrived_are_lost() {
        let mut replicas = replicas(1);
        let (data, last) = written(3);
        let before = replicas.send(|| data.clone(), last).remove(0);
        replicas.leave(0);
        assert!(replicas.follow(0, data.clone(), last).is_none(), "it cannot be reached");
        replicas.come_back(0);
        let sent = replicas.follow(0, data.clone(), last).expect("it can be reached");
        assert!(replicas.receive(before).is_none());
        let said = replicas.receive(sent).expect("it follows");
        assert!(replicas.is_heard(said));
        replicas.leave_all();
        assert!(!replicas.is_heard(said) && !replicas.all[0].follows);
    }
}
