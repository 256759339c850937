//! How to take a lock: whether to wait, and how much of the lock to take.

use std::time::Duration;

use clap::Args;
use leasehold::Client;
use leasehold::store::Claim;

use super::coexisting::Coexisting;
use super::count;
use crate::duration;
use crate::exit::{Exit, Failure};
use crate::take::{Wait, Wanted};

/// How to take a lock.
#[derive(Debug, Args)]
pub(crate) struct Take {
    /// Fail at once if the lock is taken
    #[arg(short, long, conflicts_with = "wait")]
    nonblock: bool,
    /// Wait at most this long; 0 is -n. Default: for ever
    #[arg(short, long, value_name = "DUR", value_parser = duration::parse)]
    wait: Option<Duration>,
    /// Retry for this long if the store cannot be reached, also with -n. The time of -w begins when
    /// the store answers. Default: fail at once
    #[arg(long, value_name = "DUR", value_parser = duration::parse)]
    pub(crate) wait_store: Option<Duration>,
    /// Exit with N (0 to 255) instead of 75 if the lock is taken
    #[arg(short = 'E', long, value_name = "N")]
    pub(crate) conflict_exit_code: Option<u8>,
    /// Tell waiters why the lock is held. Longer text is truncated to 1 KiB
    #[arg(long, value_name = "TEXT")]
    why: Option<String>,
    /// Share the lock with other commands that use --shared. Commands without --shared are excluded
    /// meanwhile. If such a command waits, this one queues behind it. A shared lock has no fence
    #[arg(short, long, conflicts_with = "permits")]
    shared: bool,
    /// Take a permit of a semaphore of N permits instead of a lock, so that N commands may run at a
    /// time. All users of NAME must name the same N; `leasehold resize` changes it
    #[arg(long, value_name = "N", value_parser = count::parse)]
    permits: Option<u32>,
    /// How many permits to take
    #[arg(long, value_name = "W", requires = "permits", default_value = "1")]
    #[arg(conflicts_with = "shared")]
    #[arg(value_parser = count::parse)]
    weight: u32,
    #[command(flatten)]
    pub(super) coexisting: Coexisting,
}

impl Take {
    /// The lock that these settings make of one name.
    pub(crate) fn of(&self, client: &Client, name: &str, ttl: Duration) -> Wanted {
        let (why, how) = (self.why(), self.coexisting.how());
        match self.permits {
            Some(of) => {
                let semaphore = client.semaphore(name, of).weight(self.weight);
                Wanted::Permits(semaphore.ttl(ttl).why(why))
            }
            None if self.shared => Wanted::Shared(client.rwlock(name).ttl(ttl).why(why)),
            None => Wanted::Alone(client.mutex(name).coexist(how).ttl(ttl).why(why)),
        }
    }

    /// How these settings claim a name.
    pub(crate) fn claim(&self) -> Claim {
        match self.permits {
            Some(of) => Claim::Permits { want: self.weight, of },
            None if self.shared => Claim::Shared,
            None => Claim::Exclusive,
        }
    }

    /// The lock that these settings make of one name, or of several together.
    pub(crate) fn of_all(&self, client: &Client, names: &[String], ttl: Duration) -> Wanted {
        match names {
            [name] => self.of(client, name, ttl),
            _ => {
                let locks = client.lock_all(names).coexist(self.coexisting.how());
                Wanted::Together(locks.ttl(ttl).why(self.why()))
            }
        }
    }

    /// Refuses to share several locks, since each of several locks is taken as a whole.
    pub(crate) fn refuse_parts_of(&self, names: &[String]) -> Result<(), Failure> {
        let flag = if self.shared { "--shared" } else { "--permits" };
        if names.len() < 2 || !(self.shared || self.permits.is_some()) {
            return Ok(());
        }
        let count = names.len();
        Err(Failure::config(format!(
            "{flag} is for one name, and {count} were given; nothing was acquired; name one lock, \
             or leave {flag} out to take all of them exclusively"
        )))
    }

    /// How long to wait.
    pub(crate) fn wait(&self) -> Wait {
        match (self.nonblock, self.wait) {
            (true, _) | (false, Some(Duration::ZERO)) => Wait::Never,
            (false, Some(limit)) => Wait::AtMost(limit),
            (false, None) => Wait::ForEver,
        }
    }

    /// The reason for taking the lock. Without `--why` it is empty, not absent, since a store that
    /// records a reason also records since when the lock is held.
    pub(crate) fn why(&self) -> &str {
        self.why.as_deref().unwrap_or_default()
    }

    /// The exit code if the lock is taken.
    pub(crate) fn taken(&self) -> Exit {
        self.conflict_exit_code.map_or(Exit::TAKEN, Exit::Code)
    }
}
