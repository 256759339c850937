//! A Redis in this process: the few commands that the store uses, and its scripts in Lua 5.1.
//!
//! No network and no clock: whoever drives it hands in commands, and says with each what time it
//! is. The same commands at the same times give the same answers, byte by byte. A test holds it
//! against real servers with random commands, and with the calls of the store itself; what it
//! leaves out is refused and never made up.
//!
//! | module | what it is |
//! |---|---|
//! | `keyspace` | keys, their values and their ends |
//! | `commands` | which commands there are, and how one is carried out |
//! | `strings`, `hashes`, `sorted_sets` | the commands on values of one kind |
//! | `keys` | the commands on keys of any kind, and on the server as a whole |
//! | `channels` | who listens where |
//! | `tracking` | who is told that keys change |
//! | `replication` | which replicas and which disk have what, and who waits for that |
//! | `scripts` | calls of scripts, and what Lua and the server hand to one another |
//! | `arguments`, `numbers`, `reply` | what goes in and what comes out |

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

use leasehold::store::redis::{Command, LinkError, News, Value};

use self::arguments::Arguments;
use self::channels::Channels;
use self::commands::Run;
use self::keyspace::{Keyspace, Stored};
use self::replication::Replication;
use self::reply::{Refusal, Reply};
use self::scripts::{Called, Running, Scripts};

pub(super) use self::scripts::name_of;
pub(super) use self::sha1::sha1_hex;

pub use self::keyspace::Dataset;
pub use self::replication::Wait;

/// A Redis server: its state and its behaviour.
///
/// ```
/// use leasehold::store::redis::{Command, Value};
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
    /// The words of the command under way.
    arguments: Arguments,
}

/// What came of a command.
#[derive(Clone, Debug)]
pub struct Executed {
    /// What the one who asked is answered.
    pub reply: Result<Value, LinkError>,
    /// What others are told.
    pub published: Vec<Publication>,
    /// Which script ran, if one did: the name in the last of its lines of the form `-- NAME.lua:`.
    pub script: Option<Arc<str>>,
    /// What it waits for before it is answered: WAIT and WAITAOF, and no other. The reply is that
    /// of one who cannot wait.
    pub wait: Option<Wait>,
    /// How far the server had written by then.
    pub written: u64,
}

/// What one subscriber is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publication {
    /// Whom it is for.
    pub subscriber: u64,
    /// What.
    pub news: News,
}

/// What commands work on, called by a client or by a script.
#[derive(Default)]
struct Server {
    keyspace: Keyspace,
    channels: Channels,
    replication: Replication,
    /// The time of the command under way, which stands still in a script.
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

    /// Carries out one command. `now_us` is the time of day on the server, in microseconds since
    /// 1970. It may go back: keys then live longer, since their ends are moments.
    pub fn execute(&mut self, now_us: u64, command: &Command) -> Executed {
        self.execute_after(0, now_us, command)
    }

    /// Carries out one command of a connection whose last one left the server `written` so far
    /// ([`Executed::written`]); 0 for its first.
    pub fn execute_after(&mut self, written: u64, now_us: u64, command: &Command) -> Executed {
        self.arguments.clear();
        command.args().for_each(|argument| self.arguments.push(argument));
        lock(&self.server).replication.begin(written);
        let (reply, script) = self.carry_out(now_us);
        let reply = reply.and_then(Reply::into_value).map_err(Refusal::into_link_error);
        let mut server = lock(&self.server);
        let (published, wait) = (std::mem::take(&mut server.published), server.replication.wait());
        Executed { reply, published, script, wait, written: server.keyspace.written() }
    }

    /// How far it has written.
    #[must_use]
    pub fn written(&self) -> u64 {
        lock(&self.server).keyspace.written()
    }

    /// A replica says how far it has the data; `None`: it does not follow any more.
    pub fn confirm(&mut self, replica: usize, written: Option<u64>) {
        lock(&self.server).replication.confirm(replica, written);
    }

    /// How many replicas have confirmed what was written so far.
    #[must_use]
    pub fn confirmed_by(&self, written: u64) -> usize {
        lock(&self.server).replication.confirmed_by(written)
    }

    /// All that was written so far is on its disk.
    pub fn sync(&mut self, written: u64) {
        lock(&self.server).replication.sync(written);
    }

    /// On how many disks of its own that is: one or none.
    #[must_use]
    pub fn on_disk(&self, written: u64) -> usize {
        lock(&self.server).replication.on_disk(written)
    }

    /// What whoever waits for that is answered by now.
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
                // The commands of the script take it again, one by one.
                drop(server);
                self.scripts.execute(&self.server, &self.arguments)
            }
            Err(refusal) => (Err(refusal), None),
        }
    }

    /// Lets a subscriber hear of what is published on a channel.
    pub fn subscribe(&mut self, subscriber: u64, channel: &str) {
        lock(&self.server).channels.subscribe(subscriber, channel);
    }

    /// Ends all subscriptions of a subscriber, who hears of no changes either.
    pub fn unsubscribe(&mut self, subscriber: u64) {
        let mut server = lock(&self.server);
        server.channels.unsubscribe(subscriber);
        server.keyspace.tracking().forget(subscriber);
    }

    /// Carries out one command of a subscriber, who is told of the next change of the keys that
    /// it reads: EXISTS and no other.
    pub fn execute_for(&mut self, subscriber: u64, now_us: u64, command: &Command) -> Executed {
        let executed = self.execute(now_us, command);
        let mut args = command.args();
        if args.next() == Some(b"EXISTS") {
            let mut server = lock(&self.server);
            args.for_each(|key| server.keyspace.tracking().read(subscriber, key));
        }
        executed
    }

    /// Is another process than before, as told by its `run_id`.
    pub fn set_run_id(&mut self, run_id: &str) {
        run_id.clone_into(&mut lock(&self.server).run_id);
    }

    /// Has a replication id. `before` is the one until then, if the server was a replica and has
    /// the data of another.
    pub fn set_replid(&mut self, replid: &str, before: Option<&str>) {
        lock(&self.server).replication.set_ids(replid, before);
    }

    /// Forgets all scripts, as SCRIPT FLUSH and a restart do.
    pub fn flush_scripts(&mut self) {
        self.scripts.flush();
    }

    /// All keys as they are now. Costs nothing: the next write copies what it is about to change.
    #[must_use]
    pub fn dataset(&self) -> Dataset {
        lock(&self.server).keyspace.dataset()
    }

    /// Has these keys and no others, with the ends that they had: what a restart and a fail-over
    /// leave. [`Dataset::default`] has none.
    pub fn restore(&mut self, dataset: Dataset) {
        lock(&self.server).keyspace.restore(dataset);
    }

    /// Whether the memory that the server may use is used up. It evicts nothing then, and refuses
    /// whatever may need more; a script that has begun to write may go on.
    pub fn set_full(&mut self, full: bool) {
        lock(&self.server).is_full = full;
    }

    /// Removes a key, as a server does that is short of memory and has a policy for that. Whoever
    /// is to be told of it is, with the next command.
    pub fn evict(&mut self, now_us: u64, key: &[u8]) {
        let mut server = lock(&self.server);
        server.begin(now_us);
        server.keyspace.remove(key);
        server.tell();
    }

    /// Removes the keys whose end is past, as a server does ten times a second for some of them.
    /// Whether it did matters to a clock that is set back, and to nothing else.
    pub fn remove_expired(&mut self, now_us: u64) {
        let mut server = lock(&self.server);
        server.keyspace.remove_expired(now_us / 1000);
        server.tell();
    }

    /// The text that a key holds, and the milliseconds that it has left; `None` for those that have
    /// no end. Nothing is changed by looking.
    #[must_use]
    pub fn string_at(&self, now_us: u64, key: &[u8]) -> Option<(Vec<u8>, Option<u64>)> {
        let server = lock(&self.server);
        let entry = server.keyspace.peek(now_us / 1000, key)?;
        match &entry.stored {
            Stored::Text(text) => Some((text.clone(), entry.left_ms(now_us / 1000))),
            _ => None,
        }
    }

    /// The keys there are, in the order of their bytes, and the milliseconds that each has left.
    /// Nothing is changed by looking.
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
    /// Carries out a command, and tells of the keys that it changed before anything else is said.
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

    /// Whole milliseconds: what ends are counted in.
    fn now_ms(&self) -> i64 {
        i64::try_from(self.now_us / 1000).expect("a time of these millennia")
    }
}

fn lock(server: &Mutex<Server>) -> MutexGuard<'_, Server> {
    // A command that panicked is a bug that the test shows; what it left is looked at as it is.
    server.lock().unwrap_or_else(PoisonError::into_inner)
}
