//! A server that cannot write any more: its disk is full, or its database has reached its quota.
//!
//! Each engine meets a full disk in its own way. PostgreSQL, Redis and etcd end. MariaDB waits for
//! space. A ZooKeeper server leaves its ensemble, or ends. When there is space again, some go on by
//! themselves. The others are started again, as a supervisor does. A ZooKeeper server then gets its
//! data from the others. Otherwise it may end at each start, because ZooKeeper 3.8 cannot cut a log
//! whose last record is incomplete.

use std::time::Duration;

use super::world::World;

/// How often the disk is filled while the fault lasts. The server may delete files meanwhile, which
/// frees space.
const FILLED_TIMES: u32 = 10;

/// How long a server may take to serve again by itself, once there is space.
const RECOVERS_WITHIN: Duration = Duration::from_secs(1);

/// How often a server is asked whether it serves again.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The next step after a disk has space again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// The fault is over.
    Done,
    /// Ask the server again in a moment.
    Wait,
    /// Start the server again.
    Restart,
}

impl World {
    /// Fills the disk of a server for a while. Returns when the server serves again.
    pub(super) fn fill_disk(&mut self) {
        let lasts = self.some(30, 150);
        for _ in 0..FILLED_TIMES {
            self.server().disk().fill();
            self.wait(lasts / FILLED_TIMES);
        }
        self.server().disk().make_room();
        let since = self.now();
        loop {
            let serves = self.server().serves();
            match next(serves, self.now().since(since)) {
                Next::Done => return,
                Next::Wait => self.wait(LOOK_EVERY),
                Next::Restart => {
                    self.server().kill();
                    self.server().restart_after_full_disk();
                    return;
                }
            }
        }
    }

    /// Raises the alarm of etcd for a database that has reached its quota, for a while. The cluster
    /// refuses writes while there is an alarm.
    pub(super) fn raise_quota_alarm(&mut self) {
        let lasts = self.some(30, 150);
        self.server().etcd().be_full(true);
        self.wait(lasts);
        self.server().etcd().be_full(false);
    }
}

/// Decides how to go on with a server whose disk has had space again for that long.
fn next(serves: bool, waited: Duration) -> Next {
    match (serves, waited < RECOVERS_WITHIN) {
        (true, _) => Next::Done,
        (false, true) => Next::Wait,
        (false, false) => Next::Restart,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_does_not_serve_again_by_itself_is_started_again() {
        let almost = RECOVERS_WITHIN.saturating_sub(Duration::from_nanos(1));
        for (serves, waited, expected) in [
            (true, Duration::ZERO, Next::Done),
            (true, almost, Next::Done),
            // It was slow, but needs no restart.
            (true, RECOVERS_WITHIN * 2, Next::Done),
            (false, Duration::ZERO, Next::Wait),
            (false, almost, Next::Wait),
            (false, RECOVERS_WITHIN, Next::Restart),
            (false, RECOVERS_WITHIN * 2, Next::Restart),
        ] {
            assert_eq!(next(serves, waited), expected, "serves {serves} after {waited:?}");
        }
    }
}
