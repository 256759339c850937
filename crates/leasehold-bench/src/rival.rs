//! Leasehold and the bare yardstick as programs like those of other libraries, for `cargo xtask
//! bench --rivals` and `cargo xtask interop`. `interop/README.md` describes their orders and
//! answers.

mod command;
mod compat;
mod shared;

#[path = "../../../interop/rust/src/orders.rs"]
mod orders;

use std::io::Read as _;
use std::time::Duration;

use leasehold::host::SystemHost;
use leasehold::store::RedisStore;
use leasehold::{Client, Error, ErrorKind, Guard, Release};
use leasehold_testkit::servers::zookeeper::ZookeeperServer;
use leasehold_testkit::servers::{Proxy, Way};

use self::command::Run;
use self::compat::{GoZero, Jedis, Redsync};
use self::orders::{Library, obey};
use self::shared::{Permits, Readers};
use crate::bare_lock::BareLock;

/// A program of the bench.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum Program {
    /// Mutexes as they are by default: with fencing tokens and a line
    Leasehold,
    /// Mutexes without both
    LeaseholdUnfenced,
    /// Read-write locks. Each tenth lock is for a writer
    LeaseholdRwlock,
    /// Semaphores of ten permits
    LeaseholdSemaphore,
    /// The command: `leasehold run`, which was built beside this program
    LeaseholdRun,
    /// The types of `leasehold-compat`
    CompatGoZero,
    CompatJedis,
    CompatRedsync,
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
        release(held).await
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
pub(crate) async fn run(program: Program, address: &str, ttl_ms: u64) -> Result<(), Error> {
    let ttl = Duration::from_millis(ttl_ms);
    if address.contains(',') {
        let Program::Leasehold = program else {
            return ended(Err("it is not measured over several servers".to_owned()));
        };
        let urls = address.split(',').map(|one| format!("redis://{one}"));
        let client = Client::quorum(urls).connect().await?;
        return ended(obey(Leasehold { client, ttl, is_plain: false }).await);
    }
    let is_url = address.contains("://");
    let url = &if is_url { address.to_owned() } else { format!("redis://{address}") };
    let store = || RedisStore::connect(url, SystemHost::shared());
    ended(match program {
        Program::Bare => obey(Bare { locks: BareLock::connect(url).await?, ttl_ms }).await,
        Program::Leasehold | Program::LeaseholdUnfenced => {
            let client = Client::connect(url).await?;
            let is_plain = matches!(program, Program::LeaseholdUnfenced);
            obey(Leasehold { client, ttl, is_plain }).await
        }
        Program::LeaseholdRwlock => obey(Readers::of(Client::connect(url).await?, ttl)).await,
        Program::LeaseholdSemaphore => {
            obey(Permits { client: Client::connect(url).await?, ttl }).await
        }
        Program::LeaseholdRun => obey(Run { url: url.to_owned(), ttl }).await,
        Program::CompatGoZero => obey(GoZero { store: store().await?, ttl }).await,
        Program::CompatJedis => obey(Jedis { store: store().await? }).await,
        Program::CompatRedsync => obey(Redsync { store: store().await?, ttl }).await,
    })
}

fn ended(how: Result<(), String>) -> Result<(), Error> {
    how.map_err(|message| Error::new(ErrorKind::Unavailable, message))
}

/// Adds a delay in front of the server at a port, and says at which port it listens. Ends with
/// standard input. A trip to the server and back takes that much longer.
pub(crate) fn serve_distance(server: u16, trip: Duration) {
    let proxy = Proxy::to(server);
    proxy.delay(Way::Both, trip / 2);
    println!("ready\nat 127.0.0.1:{}", proxy.port());
    let _end = std::io::stdin().read_to_end(&mut Vec::new());
}

/// Starts a ZooKeeper server, says where it is, and ends it with standard input.
pub(crate) fn serve_zookeeper() {
    let server = ZookeeperServer::start();
    println!("ready\nat 127.0.0.1:{}", server.port(0));
    let _end = std::io::stdin().read_to_end(&mut Vec::new());
}

async fn release(held: Guard) -> Result<(), String> {
    let released = held.release().await.map_err(|error| error.to_string())?;
    was_held(released == Release::Released)
}

fn was_held(held: bool) -> Result<(), String> {
    if held { Ok(()) } else { Err("the lock was lost".to_owned()) }
}
