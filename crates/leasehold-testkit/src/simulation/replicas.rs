//! The replicas of a simulated server: what each of them has, and which may take its place.
//!
//! What a server writes goes to those that follow it, in order. A replica confirms what it has
//! received. One that begins to follow is sent everything, and keeps what it had until that is
//! there.

use leasehold::core::Moment;

use super::redis::Dataset;

/// Stands for all replicas where a fault concerns some of them.
pub(super) const ALL: u64 = u64::MAX;

/// All of them.
#[derive(Default)]
pub(super) struct Replicas {
    all: Vec<Replica>,
    /// By how many milliseconds what goes to them and back is late at most.
    pub(super) lag_ms: u64,
    /// How often their server was one of them meanwhile, and took the data of another.
    pub(super) led: u32,
    /// How far what was sent to those that follow was written.
    sent: u64,
    /// How far a client was told that there are copies enough.
    counted: u64,
}

struct Replica {
    data: Dataset,
    has: u64,
    /// How often it has begun to follow: what was sent before that is lost.
    link: u32,
    follows: bool,
    is_away: bool,
    /// When what was sent last, in either direction, is there.
    last: [Moment; 2],
}

/// What a server sends to one replica.
pub(super) struct Sent {
    pub(super) replica: usize,
    link: u32,
    data: Dataset,
    written: u64,
}

/// What that replica says of it.
#[derive(Clone, Copy)]
pub(super) struct Confirmation {
    pub(super) replica: usize,
    link: u32,
    pub(super) written: u64,
}

/// Which way something goes.
#[derive(Clone, Copy)]
pub(super) enum Way {
    There,
    Back,
}

impl Replicas {
    /// So many that have all of it.
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

    /// How many follow.
    pub(super) fn following(&self) -> usize {
        self.all.iter().filter(|replica| replica.follows).count()
    }

    /// What is to be sent to those that follow, if it was not yet.
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

    /// Not before what went the same way.
    pub(super) fn in_order(&mut self, replica: usize, way: Way, at: Moment) -> Moment {
        let last = &mut self.all[replica].last[way as usize];
        *last = at.max(*last);
        *last
    }

    /// A replica has received that, and confirms it; unless it has left meanwhile.
    pub(super) fn receive(&mut self, sent: Sent) -> Option<Confirmation> {
        let Sent { replica: number, link, data, written } = sent;
        let replica = &mut self.all[number];
        if replica.link != link || !replica.follows {
            return None;
        }
        (replica.data, replica.has) = (data, written);
        Some(Confirmation { replica: number, link, written })
    }

    /// Whether the server hears that: what is said of it over a link from before, it does not.
    pub(super) fn is_heard(&self, confirmation: Confirmation) -> bool {
        let replica = &self.all[confirmation.replica];
        replica.follows && replica.link == confirmation.link
    }

    /// Somebody was told that there are copies of all that was written so far.
    pub(super) fn counted(&mut self, written: u64) {
        self.counted = self.counted.max(written);
    }

    /// Which of them a fault concerns: one, or [`ALL`].
    pub(super) fn some(&self, much: u64) -> Vec<usize> {
        let chosen = usize::try_from(much % self.len().max(1) as u64).expect("a few");
        let is_met = |replica: &usize| much == ALL || *replica == chosen;
        (0..self.len()).filter(is_met).collect()
    }

    /// It is cut off: nothing that is on its way is there in time.
    pub(super) fn leave(&mut self, replica: usize) {
        (self.all[replica].follows, self.all[replica].is_away) = (false, true);
    }

    /// It can be reached again.
    pub(super) fn come_back(&mut self, replica: usize) {
        self.all[replica].is_away = false;
    }

    /// The server is another process: nobody follows it yet.
    pub(super) fn leave_all(&mut self) {
        self.all.iter_mut().for_each(|replica| replica.follows = false);
    }

    /// A replica that can be reached begins to follow: what it is sent for that.
    pub(super) fn follow(&mut self, number: usize, data: Dataset, written: u64) -> Option<Sent> {
        let replica = &mut self.all[number];
        if replica.is_away || replica.follows {
            return None;
        }
        replica.follows = true;
        replica.link += 1;
        Some(Sent { replica: number, link: replica.link, data, written })
    }

    /// What a replica has that takes over: one of those that have all that counted.
    pub(super) fn heir(&self, much: u64) -> Option<Dataset> {
        let fit: Vec<_> = self.all.iter().filter(|one| one.has >= self.counted).collect();
        let chosen = usize::try_from(much % fit.len().max(1) as u64).expect("a few");
        fit.get(chosen).map(|replica| replica.data.clone())
    }
}

#[cfg(test)]
mod tests {
    use leasehold::store::redis::Command;

    use super::*;
    use crate::simulation::redis::SimulatedRedis;

    /// A server that has written so often, and the number of that.
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
    fn only_who_has_all_that_counted_takes_over() {
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
    fn what_was_sent_to_a_replica_before_it_left_is_lost() {
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
        assert!(!replicas.is_heard(said) && replicas.following() == 0);
    }
}
