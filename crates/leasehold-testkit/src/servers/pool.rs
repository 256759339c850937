//! A pool of servers that the tests of one process use one after another. Starting a server takes
//! as long as ten tests.

use std::fmt;
use std::ops::Deref;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use tempfile::NamedTempFile;

use super::{Authority, Cluster, PATIENCE, RedisServer, Reply};

/// The largest number of servers of all kinds, lent and idle together.
const SERVERS_MAX: usize = 8;

struct Pool {
    idle: Vec<Member>,
    lent: usize,
}

/// A server of the pool.
#[derive(Debug)]
struct Member {
    server: RedisServer,
    kind: Kind,
    /// The certificate of the authority that signed the server's certificate, if it has a TLS port.
    ca: Option<Vec<u8>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Plain,
    WithTls,
    /// A cluster of one node.
    Cluster,
}

static POOL: Mutex<Pool> = Mutex::new(Pool { idle: Vec::new(), lent: 0 });
static RETURNED: Condvar = Condvar::new();

/// A server of the pool, lent to one test until this is dropped.
///
/// It has no directory any more, so it cannot be restarted. A test starts its own server if it
/// needs another configuration, or if its clients may outlive it, since they would connect to the
/// server of the next test.
pub struct PooledServer {
    /// `Some` until it is dropped.
    member: Option<Member>,
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

/// Lends several servers together. Tests that borrowed servers one by one could wait for each
/// other.
///
/// # Panics
///
/// Same as [`lend`].
#[must_use]
#[track_caller]
pub fn lend_all(count: usize) -> Vec<PooledServer> {
    lend_kind(Kind::Plain, count)
}

/// Lends a [cluster of one node](Cluster::of_one_node).
///
/// # Panics
///
/// Same as [`lend`].
#[must_use]
#[track_caller]
pub fn lend_cluster() -> PooledServer {
    lend_kind(Kind::Cluster, 1).remove(0)
}

/// Lends a server with a TLS port, and a file with the certificate of its authority.
///
/// # Panics
///
/// Same as [`lend`].
#[must_use]
#[track_caller]
pub fn lend_with_tls() -> (PooledServer, NamedTempFile) {
    let server = lend_kind(Kind::WithTls, 1).remove(0);
    let ca = server.member().ca.as_ref().expect("it was started with one");
    let file = NamedTempFile::new().expect("a temporary file");
    std::fs::write(file.path(), ca).expect("it takes the certificate");
    (server, file)
}

#[track_caller]
fn lend_kind(kind: Kind, count: usize) -> Vec<PooledServer> {
    let are_lent = |pool: &mut Pool| pool.lent + count > SERVERS_MAX;
    let limit = RETURNED.wait_timeout_while(pool(), PATIENCE, are_lent);
    let (mut pool, waited) = limit.unwrap_or_else(PoisonError::into_inner);
    assert!(!waited.timed_out(), "no test gave a server back in time");
    pool.lent += count;
    // From here on, even a panic gives the servers back to the pool.
    let mut all: Vec<_> = (0..count).map(|_| PooledServer { member: pool.take(kind) }).collect();
    drop(pool);
    for lent in &mut all {
        if lent.member.as_ref().is_some_and(|member| reset(&member.server).is_err()) {
            lent.member = None;
        }
        lent.member.get_or_insert_with(|| Member::start(kind));
    }
    all
}

fn pool() -> MutexGuard<'static, Pool> {
    // The pool is valid even after a panic.
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    fn take(&mut self, kind: Kind) -> Option<Member> {
        let index = self.idle.iter().position(|member| member.kind == kind)?;
        Some(self.idle.swap_remove(index))
    }
}

impl Member {
    #[track_caller]
    fn start(kind: Kind) -> Self {
        let mut ca = None;
        let mut server = match kind {
            Kind::Plain => RedisServer::builder().with_clock().start(),
            Kind::WithTls => {
                let authority = Authority::new();
                ca = Some(std::fs::read(authority.ca()).expect("it is there"));
                let identity = authority.issue("server", &["127.0.0.1"]);
                RedisServer::builder().with_tls(&identity, &authority).with_clock().start()
            }
            Kind::Cluster => Cluster::of_one_node(),
        };
        // A static is never dropped, so its files would stay. The server opens none of them again.
        server.leave_home();
        Self { server, kind, ca }
    }
}

fn reset(server: &RedisServer) -> Result<(), String> {
    server.clock().run_free();
    // Use a new connection. When the server serves it, the server has accepted all earlier
    // connections and can close them.
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

impl PooledServer {
    fn member(&self) -> &Member {
        self.member.as_ref().expect("it is there until it is dropped")
    }
}

impl Deref for PooledServer {
    type Target = RedisServer;

    fn deref(&self) -> &RedisServer {
        &self.member().server
    }
}

impl fmt::Debug for PooledServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PooledServer({:?})", **self)
    }
}

impl Drop for PooledServer {
    fn drop(&mut self) {
        let member = self.member.take().filter(|member| member.server.is_fit());
        // A failed test prints the log of its server, and no other test gets that server.
        let member = member.filter(|_| !std::thread::panicking());
        let mut pool = pool();
        pool.lent -= 1;
        pool.idle.extend(member);
        // End servers of another kind instead.
        let too_many = (pool.lent + pool.idle.len()).saturating_sub(SERVERS_MAX);
        let ended: Vec<_> = pool.idle.drain(..too_many).collect();
        drop(pool);
        drop(ended);
        // This server may not be enough for a test that waits for several.
        RETURNED.notify_all();
    }
}
