//! A Redis in this process: the few commands that the store uses, and its scripts in Lua 5.1.
//!
//! It has no network and no clock. The caller passes each command with the current time. The same
//! commands at the same times give the same answers, byte by byte. A test compares it with real
//! servers, using random commands and the calls of the store. It refuses everything that it does
//! not implement.
//!
//! | module | contents |
//! |---|---|
//! | `keyspace` | keys, their values and their expiry |
//! | `commands` | the table of commands, and the checks before one runs |
//! | `strings`, `hashes`, `sorted_sets` | the commands on values of one type |
//! | `keys` | the commands on keys of any type, and on the whole server |
//! | `channels` | channels and their subscribers |
//! | `tracking` | clients that are told when keys change |
//! | `replication` | which data replicas and the disk have, and connections that wait for it |
//! | `scripts` | script calls, and the conversion between Lua and the server |
//! | `arguments`, `numbers`, `reply` | parsing of input and form of output |

mod arguments;
mod channels;
mod commands;
mod glob;
mod hashes;
mod keys;
mod keyspace;
mod numbers;
mod replication;
mod reply;
mod scripts;
mod sha1;
mod sorted_set;
mod sorted_sets;
mod strings;
#[cfg(test)]
mod tests;
mod tracking;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use self::arguments::Arguments;
use self::channels::Channels;
use self::commands::Run;
use self::keyspace::{Keyspace, Stored};
use self::replication::Replication;
use self::reply::{Refusal, Reply};
use self::scripts::{Called, Running, Scripts};
use crate::protocol::{Answer, Command, News, Value};

pub(super) use self::scripts::name_of;
pub(super) use self::sha1::sha1_hex;

pub use self::keyspace::Dataset;
pub use self::replication::Wait;

/// A Redis server: its state and its behaviour.
///
/// ```
/// use leasehold_testkit::protocol::{Command, Value};
/// use leasehold_testkit::simulation::redis::SimulatedRedis;
///
/// let mut redis = SimulatedRedis::new();
/// let set = Command::new("SET").arg("key").arg("value").arg("PX").number(10);
/// redis.execute(1_000_000, &set);
/// let get = Command::new("GET").arg("key");
/// let reply = |value: &str| Ok(Value::Bytes(value.into()));
/// assert_eq!(redis.execute(1_010_999, &get).reply, reply("value"));
/// assert_eq!(redis.execute(1_011_000, &get).reply, Ok(Value::Nil));
/// ```
pub struct SimulatedRedis {
    /// Shared with the functions that scripts call.
    server: Arc<Mutex<Server>>,
    scripts: Scripts,
    arguments: Arguments,
}

/// The result of a command.
#[derive(Clone, Debug)]
pub struct Executed {
    /// The answer to the client.
    pub reply: Answer,
    /// The messages to other clients.
    pub published: Vec<Publication>,
    /// The script that ran, if any: the name in its last line of the form `-- NAME.lua:`.
    pub script: Option<Arc<str>>,
    /// The wait before the answer, for WAIT and WAITAOF only. `reply` is the answer for a caller
    /// that cannot wait.
    pub wait: Option<Wait>,
    /// The write position of the server after the command.
    pub written: u64,
}

/// A message to one subscriber.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publication {
    /// The subscriber.
    pub subscriber: u64,
    /// The message.
    pub news: News,
}

/// The state that commands work on, called by a client or by a script.
#[derive(Default)]
struct Server {
    keyspace: Keyspace,
    channels: Channels,
    replication: Replication,
    /// The time of the current command. It stands still during a script.
    now_us: u64,
    is_full: bool,
    run_id: String,
    published: Vec<Publication>,
    running: Running,
}

impl SimulatedRedis {
    /// A server that has just been started, without keys.
    #[must_use]
    pub fn new() -> Self {
        let server = Arc::<Mutex<Server>>::default();
        let scripts = Scripts::new(&server);
        Self { server, scripts, arguments: Arguments::default() }
    }

    /// Runs one command. `now_us` is the server's time of day in microseconds since 1970. It may go
    /// back. Keys then live longer, because their ends are moments of this clock.
    pub fn execute(&mut self, now_us: u64, command: &Command) -> Executed {
        self.execute_after(0, now_us, command)
    }

    /// Runs one command of a connection. `written` is the write position after the connection's
    /// last command ([`Executed::written`]), or 0 for its first command.
    pub fn execute_after(&mut self, written: u64, now_us: u64, command: &Command) -> Executed {
        self.arguments.clear();
        command.args().for_each(|argument| self.arguments.push(argument));
        lock(&self.server).replication.begin(written);
        let (reply, script) = self.carry_out(now_us);
        let reply = reply.and_then(Reply::into_value).map_err(Refusal::into_refused);
        let mut server = lock(&self.server);
        let (published, wait) = (std::mem::take(&mut server.published), server.replication.wait());
        Executed { reply, published, script, wait, written: server.keyspace.written() }
    }

    /// The current write position.
    #[must_use]
    pub fn written(&self) -> u64 {
        lock(&self.server).keyspace.written()
    }

    /// Records that a replica confirms data up to a write position. `None` means that it no longer
    /// follows.
    pub fn confirm(&mut self, replica: usize, written: Option<u64>) {
        lock(&self.server).replication.confirm(replica, written);
    }

    /// How many replicas have confirmed data up to that write position.
    #[must_use]
    pub fn confirmed_by(&self, written: u64) -> usize {
        lock(&self.server).replication.confirmed_by(written)
    }

    /// Records that all data up to that write position is on the server's disk.
    pub fn sync(&mut self, written: u64) {
        lock(&self.server).replication.sync(written);
    }

    /// How many of the server's own disks have the data up to that write position: one or none.
    #[must_use]
    pub fn on_disk(&self, written: u64) -> usize {
        lock(&self.server).replication.on_disk(written)
    }

    /// The current answer to a wait.
    #[must_use]
    pub fn copies(&self, wait: Wait) -> Value {
        lock(&self.server).replication.copies(wait)
    }

    fn carry_out(&mut self, now_us: u64) -> Called {
        let mut server = lock(&self.server);
        server.begin(now_us);
        match server.check(&self.arguments).map(|known| known.run) {
            Ok(Run::Plainly(run) | Run::Alone(run)) => (server.run(run, &self.arguments), None),
            Ok(Run::ByScripts) => {
                // The commands of the script lock the server again, one by one.
                drop(server);
                self.scripts.execute(&self.server, &self.arguments)
            }
            Err(refusal) => (Err(refusal), None),
        }
    }

    /// Subscribes to a channel.
    pub fn subscribe(&mut self, subscriber: u64, channel: &str) {
        lock(&self.server).channels.subscribe(subscriber, channel);
    }

    /// Ends all subscriptions of a subscriber, and its tracking of keys.
    pub fn unsubscribe(&mut self, subscriber: u64) {
        let mut server = lock(&self.server);
        server.channels.unsubscribe(subscriber);
        server.keyspace.tracking().forget(subscriber);
    }

    /// Runs one command of a subscriber. If it is EXISTS, the subscriber is told of the next change
    /// of each key that it names.
    pub fn execute_for(&mut self, subscriber: u64, now_us: u64, command: &Command) -> Executed {
        let executed = self.execute(now_us, command);
        let mut args = command.args();
        if args.next() == Some(b"EXISTS") {
            let mut server = lock(&self.server);
            args.for_each(|key| server.keyspace.tracking().read(subscriber, key));
        }
        executed
    }

    /// Becomes another process, which has another `run_id`.
    pub fn set_run_id(&mut self, run_id: &str) {
        run_id.clone_into(&mut lock(&self.server).run_id);
    }

    /// Sets the replication id. `before` is the earlier id, if the server was a replica and has the
    /// data of another server.
    pub fn set_replid(&mut self, replid: &str, before: Option<&str>) {
        lock(&self.server).replication.set_ids(replid, before);
    }

    /// Forgets all scripts, as SCRIPT FLUSH and a restart do.
    pub fn flush_scripts(&mut self) {
        self.scripts.flush();
    }

    /// All current keys. This is cheap, since a later write copies the data before it changes them.
    #[must_use]
    pub fn dataset(&self) -> Dataset {
        lock(&self.server).keyspace.dataset()
    }

    /// Replaces all keys by these, with their old expiry: the result of a restart or a failover.
    /// [`Dataset::default`] has no keys.
    pub fn restore(&mut self, dataset: Dataset) {
        lock(&self.server).keyspace.restore(dataset);
    }

    /// Sets whether the server's memory is full. A full server evicts nothing and refuses commands
    /// that may need memory. A script that has begun to write may go on.
    pub fn set_full(&mut self, full: bool) {
        lock(&self.server).is_full = full;
    }

    /// Removes a key, as a server with an eviction policy does when memory is short. Clients that
    /// track the key are told with the next command.
    pub fn evict(&mut self, now_us: u64, key: &[u8]) {
        let mut server = lock(&self.server);
        server.begin(now_us);
        server.keyspace.remove(key);
        server.tell();
    }

    /// Removes expired keys, as a server does for some of them ten times a second. This makes a
    /// difference only if the clock is set back later.
    pub fn remove_expired(&mut self, now_us: u64) {
        let mut server = lock(&self.server);
        server.keyspace.remove_expired(now_us / 1000);
        server.tell();
    }

    /// The text of a key, and the milliseconds that it has left; `None` if it does not expire.
    /// Changes nothing.
    #[must_use]
    pub fn string_at(&self, now_us: u64, key: &[u8]) -> Option<(Vec<u8>, Option<u64>)> {
        let server = lock(&self.server);
        let entry = server.keyspace.peek(now_us / 1000, key)?;
        match &entry.stored {
            Stored::Text(text) => Some((text.clone(), entry.left_ms(now_us / 1000))),
            _ => None,
        }
    }

    /// The members of a sorted set and their scores, in order. Changes nothing.
    #[must_use]
    pub fn sorted_at(&self, now_us: u64, key: &[u8]) -> Vec<(Vec<u8>, f64)> {
        let server = lock(&self.server);
        match server.keyspace.peek(now_us / 1000, key).map(|entry| &entry.stored) {
            Some(Stored::Sorted(set)) => set.all().collect(),
            _ => Vec::new(),
        }
    }

    /// A field of a hash. Changes nothing.
    #[must_use]
    pub fn field_at(&self, now_us: u64, key: &[u8], field: &[u8]) -> Option<Vec<u8>> {
        let server = lock(&self.server);
        match &server.keyspace.peek(now_us / 1000, key)?.stored {
            Stored::Hash(hash) => hash.get(field).cloned(),
            _ => None,
        }
    }

    /// The keys that have not expired, sorted by bytes, and the milliseconds that each has left.
    /// Changes nothing.
    #[must_use]
    pub fn keys_at(&self, now_us: u64) -> Vec<(Vec<u8>, Option<u64>)> {
        let (server, now_ms) = (lock(&self.server), now_us / 1000);
        let living = server.keyspace.living(now_ms);
        living.map(|(key, entry)| (key.clone(), entry.left_ms(now_ms))).collect()
    }
}

impl Default for SimulatedRedis {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for SimulatedRedis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimulatedRedis({} keys)", lock(&self.server).keyspace.len())
    }
}

impl Server {
    /// Runs a command. The messages about changed keys come before any later message.
    fn run(
        &mut self,
        run: fn(&mut Self, &Arguments) -> Result<Reply, Refusal>,
        arguments: &Arguments,
    ) -> Result<Reply, Refusal> {
        let reply = run(self, arguments);
        self.tell();
        reply
    }

    fn tell(&mut self) {
        let told = self.keyspace.tracking().take_told();
        self.published.extend(told);
    }

    fn begin(&mut self, now_us: u64) {
        self.now_us = now_us;
        self.keyspace.set_now(now_us / 1000);
    }

    /// The time in whole milliseconds, the unit of expiry.
    fn now_ms(&self) -> i64 {
        i64::try_from(self.now_us / 1000).expect("a time of these millennia")
    }
}

fn lock(server: &Mutex<Server>) -> MutexGuard<'_, Server> {
    // A test reports a command that panicked. Later calls use the state that it left.
    server.lock().unwrap_or_else(PoisonError::into_inner)
}
