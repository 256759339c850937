//! Leasehold and the bare yardstick as programs of the bench beside other libraries, which is
//! `cargo xtask bench --rivals`. `interop/BENCH.md` describes their orders and answers.

#[path = "../../../interop/rust/src/orders.rs"]
mod orders;

use std::time::Duration;

use leasehold::{Client, Error, ErrorKind, Guard, Release};

use self::orders::{Library, obey};
use crate::bare_lock::BareLock;

/// A program of the bench.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum Program {
    /// Mutexes as they are by default: with fencing tokens and a line
    Leasehold,
    /// Mutexes without both
    LeaseholdUnfenced,
    /// `SET NX PX`, and a script that compares and deletes, over one connection of the crate
    /// `redis`
    Bare,
}

#[derive(Clone)]
struct Leasehold {
    client: Client,
    ttl: Duration,
    is_plain: bool,
}

impl Library for Leasehold {
    type Held = Guard;

    async fn take(&self, key: &str) -> Result<Guard, String> {
        let mutex = self.client.mutex(key).ttl(self.ttl);
        let mutex = if self.is_plain { mutex.fencing(false).unqueued() } else { mutex };
        mutex.lock().await.map_err(|error| error.to_string())
    }

    async fn release(held: Guard) -> Result<(), String> {
        match held.release().await {
            Ok(Release::Released) => Ok(()),
            Ok(Release::NotHeld) => Err("the lock was lost".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// The yardstick. It cannot wait: nobody else may want its keys.
#[derive(Clone)]
struct Bare {
    locks: BareLock,
    ttl_ms: u64,
}

impl Library for Bare {
    type Held = (BareLock, String);

    async fn take(&self, key: &str) -> Result<Self::Held, String> {
        self.locks.set(key, self.ttl_ms).await.map_err(|error| error.to_string())?;
        Ok((self.locks.clone(), key.to_owned()))
    }

    async fn release((locks, key): Self::Held) -> Result<(), String> {
        locks.delete(&key).await.map_err(|error| error.to_string())
    }
}

/// Runs a program until its orders end.
pub(crate) async fn run(program: Program, url: &str, ttl_ms: u64) -> Result<(), Error> {
    let ended = match program {
        Program::Bare => obey(Bare { locks: BareLock::connect(url).await?, ttl_ms }).await,
        Program::Leasehold | Program::LeaseholdUnfenced => {
            let client = Client::connect(url).await?;
            let is_plain = matches!(program, Program::LeaseholdUnfenced);
            let ttl = Duration::from_millis(ttl_ms);
            obey(Leasehold { client, ttl, is_plain }).await
        }
    };
    ended.map_err(|message| Error::new(ErrorKind::Unavailable, message))
}
