//! A pool of servers that the tests of one process use in turn. Starting a server takes as long as
//! ten tests.

use std::fmt;
use std::ops::Deref;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::{PATIENCE, RedisServer, Reply};

/// The largest number of servers that a process starts.
const SERVERS_MAX: usize = 8;

struct Pool {
    idle: Vec<RedisServer>,
    lent: usize,
}

static POOL: Mutex<Pool> = Mutex::new(Pool { idle: Vec::new(), lent: 0 });
static RETURNED: Condvar = Condvar::new();

/// A server of the pool, lent to one test until this is dropped.
///
/// It has no directory any more, so it cannot be restarted. A test starts its own server if it
/// needs another configuration, or if its clients may outlive it: they would connect to the server
/// of the next test.
pub struct PooledServer {
    /// `Some` until it is dropped.
    server: Option<RedisServer>,
}

/// Lends a server without keys, scripts and connections. Its clock shows the machine's time until
/// the test [sets](RedisServer::clock) it. Waits if all servers are lent.
///
/// Servers of the pool end with the process.
///
/// # Panics
///
/// If no server can be started, or none is returned in time.
#[must_use]
#[track_caller]
pub fn lend() -> PooledServer {
    lend_all(1).remove(0)
}

/// Lends several servers together. Tests that took them one by one could wait for each other.
///
/// # Panics
///
/// As [`lend`].
#[must_use]
#[track_caller]
pub fn lend_all(count: usize) -> Vec<PooledServer> {
    let are_lent = |pool: &mut Pool| pool.lent + count > SERVERS_MAX;
    let limit = RETURNED.wait_timeout_while(pool(), PATIENCE, are_lent);
    let (mut pool, waited) = limit.unwrap_or_else(PoisonError::into_inner);
    assert!(!waited.timed_out(), "too many servers of the pool are lent, and stay so");
    pool.lent += count;
    // From here on, even a panic returns the places to the pool.
    let mut all: Vec<_> = (0..count).map(|_| PooledServer { server: pool.idle.pop() }).collect();
    drop(pool);
    for lent in &mut all {
        if lent.server.as_ref().is_some_and(|server| reset(server).is_err()) {
            lent.server = None;
        }
        lent.server.get_or_insert_with(start);
    }
    all
}

fn pool() -> MutexGuard<'static, Pool> {
    // Always valid, even after a panic.
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
}

fn start() -> RedisServer {
    let mut server = RedisServer::builder().with_clock().start();
    // A static is never dropped, so its files would stay. The server opens none of them again.
    server.leave_home();
    server
}

fn reset(server: &RedisServer) -> Result<(), String> {
    server.clock().run_free();
    // A new connection: when the server serves it, it has accepted all earlier ones and can close
    // them.
    let mut client = server.connect().map_err(|error| error.to_string())?;
    for command in
        ["CLIENT KILL TYPE normal", "CLIENT KILL TYPE pubsub", "FLUSHALL", "SCRIPT FLUSH"]
    {
        match client.ask(&command.split(' ').collect::<Vec<_>>()) {
            Ok(Reply::Error(text)) => return Err(text),
            Ok(_) => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(())
}

impl Deref for PooledServer {
    type Target = RedisServer;

    fn deref(&self) -> &RedisServer {
        self.server.as_ref().expect("it is there until it is dropped")
    }
}

impl fmt::Debug for PooledServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PooledServer({:?})", **self)
    }
}

impl Drop for PooledServer {
    fn drop(&mut self) {
        let server = self.server.take().filter(RedisServer::is_fit);
        // A failed test prints the log of its server, and nobody else gets that server.
        let server = server.filter(|_| !std::thread::panicking());
        let mut pool = pool();
        pool.lent -= 1;
        pool.idle.extend(server);
        drop(pool);
        // One who waits for several may not be served by this one.
        RETURNED.notify_all();
    }
}
