//! The simulated server: its data, its clock, and the faults of both.

mod copying;
mod evicting;
mod refusing;
mod sharing;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use leasehold::core::Moment;
use leasehold::store::redis::{Strict, Strictness, Terms};

use self::evicting::Evicting;
use self::refusing::Refusals;
pub(super) use self::sharing::Keys;
use super::asked::{Asked, asked, asked_plainly, hash_of, told_block};
use super::clock::ServerClock;
use super::disk::Disk;
use super::log::Log;
use super::plan::Copied;
use super::redis::{Dataset, Executed, SimulatedRedis, name_of, sha1_hex};
use super::replicas::Replicas;
use crate::history::event::{Name, Request, What};
use crate::protocol::Command;

/// How often the data is saved for restarts with old data, and how many saves are kept.
const KEPT_EVERY: Duration = Duration::from_millis(100);
const KEPT: usize = 30;

pub(super) struct Server {
    redis: SimulatedRedis,
    pub(super) clock: ServerClock,
    /// Whether the server is up. If it is down, it refuses connections and answers nothing.
    pub(super) is_up: bool,
    /// Whether the process is stopped. Then the kernel accepts bytes, but nobody reads them.
    pub(super) is_stopped: bool,
    /// The moment at which the previous command is done.
    free_at: Moment,
    evicting: Option<Evicting>,
    /// The scripts that it refuses to run.
    refusals: Refusals,
    past: VecDeque<Dataset>,
    kept_at: Moment,
    /// The script of each hash, for scripts that were sent in full.
    hashes: BTreeMap<Vec<u8>, Arc<str>>,
    /// Requests by a hash that the server did not know. The client will send them again in full.
    forgotten: Vec<Asked>,
    pub(super) log: Log,
    /// The strict mode of the server; `None` if it is not strict.
    pub(super) strict: Option<Strict>,
    /// The copies that the clients want; `None` without copies.
    copies: Option<Copied>,
    pub(super) replicas: Replicas,
    pub(super) disk: Disk,
    /// How often it was started.
    pub(super) started: u32,
    /// How many keys the server evicted, and how many acquires came as a plain command.
    evicted: u64,
    plain: u64,
    /// How often it came back with the data of its disk.
    power_cuts: u64,
    /// Whether holders share keys. Then the log names no single owner after a request.
    pub(super) tells_shares: bool,
    /// The keys of each lock that a script was called for.
    known_keys: BTreeMap<Vec<u8>, Keys>,
}

/// A lock request that was carried out.
struct Carried<'a> {
    now_us: u64,
    key: &'a [u8],
    before: Option<Name>,
    /// When it left its process; `None` if it is a copy of one that was carried out before.
    sent: Option<Moment>,
}

impl Server {
    pub(super) fn new(clock: ServerClock, log: Log) -> Self {
        let mut server = Self {
            redis: SimulatedRedis::new(),
            clock,
            is_up: true,
            is_stopped: false,
            free_at: Moment::default(),
            evicting: None,
            refusals: Refusals::default(),
            past: VecDeque::new(),
            kept_at: Moment::default(),
            hashes: BTreeMap::new(),
            forgotten: Vec::new(),
            log,
            strict: None,
            copies: None,
            replicas: Replicas::default(),
            disk: Disk::default(),
            started: 0,
            evicted: 0,
            plain: 0,
            power_cuts: 0,
            tells_shares: false,
            known_keys: BTreeMap::new(),
        };
        server.is_process();
        server
    }

    /// Makes the server start as another process, without scripts.
    pub(super) fn start_again(&mut self) {
        self.started += 1;
        self.is_process();
        self.redis.flush_scripts();
        self.replicas.leave_all();
        self.disk.begin_again();
        (0..self.replicas.len()).for_each(|replica| self.redis.confirm(replica, None));
    }

    /// Sets the ids by which clients know its process and its data.
    fn is_process(&mut self) {
        let [run_id, replid] = self.process();
        self.redis.set_run_id(&run_id);
        self.redis.set_replid(&replid, None);
    }

    /// Makes the server a replica for a while, without a restart. It takes the data of another
    /// server, which is `tenths` tenths of a second old.
    pub(super) fn fail_over_and_back(&mut self, tenths: usize) {
        let [_, before] = self.process();
        self.replicas.led += 1;
        self.redis.set_replid(&self.process()[1], Some(&before));
        self.forget(Some(tenths));
    }

    /// Makes it strict, and marks it as having forgotten nothing.
    pub(super) fn is_strict_from(&mut self, now: Moment, strict: Strict) {
        self.strict = Some(strict);
        let epoch = Command::new("HSET").arg(":lh:epoch").arg("run").arg(&self.process()[0]);
        let executed = self.redis.execute(self.clock.at(now), &epoch);
        assert!(executed.reply.is_ok(), "{:?}", executed.reply);
    }

    /// The terms on which clients use the server.
    pub(super) fn terms(&self) -> Terms {
        let mut terms = Terms::default();
        terms.strict = self.strict.map_or(Strictness::No, Strictness::Yes);
        terms.copies = self.copies.map(Copied::terms).unwrap_or_default();
        terms
    }

    /// The id of its process, and the id of its data's history.
    pub(super) fn process(&self) -> [String; 2] {
        let (started, led) = (self.started, self.replicas.led);
        [format!("run{started}"), format!("replid{started}x{led}")]
    }

    /// Runs a command that left its process at `sent`. `written` is the write position after the
    /// connection's previous command.
    pub(super) fn carry_out(
        &mut self,
        now: Moment,
        sent: Moment,
        written: u64,
        command: &Command,
    ) -> Executed {
        self.carry(now, Some(sent), written, command)
    }

    /// Runs a second copy of a command. Nobody waits for its answer.
    pub(super) fn carry_out_again(&mut self, now: Moment, command: &Command) -> Executed {
        self.carry(now, None, 0, command)
    }

    /// The moment at which it runs a command that has arrived. It runs commands one after the
    /// other, each for at least a microsecond, even those that arrived while it was stopped.
    fn turn(&mut self, now: Moment) -> Moment {
        let at = now.max(self.free_at);
        self.free_at = at + Duration::from_micros(1);
        at
    }

    fn carry(
        &mut self,
        now: Moment,
        sent: Option<Moment>,
        written: u64,
        command: &Command,
    ) -> Executed {
        self.keep(now);
        self.evict_one(now);
        let turn = self.turn(now);
        let now_us = self.clock.at(turn);
        if let Some(refused) = self.refuse(command) {
            return refused;
        }
        let key = command.args().nth(3).map(<[u8]>::to_vec).unwrap_or_default();
        let plain = asked_plainly(command);
        let key = plain.as_ref().map_or(key, |asked| asked.key.as_bytes().to_vec());
        let before = self.owner_at(now_us, &key).map(|(owner, _)| owner);
        let together = self.together(now_us, command);
        // A call with several steps has keys of several locks.
        let stood = if together.is_some() { None } else { self.stands(now_us, command) };
        let executed = self.redis.execute_after(written, now_us, command);
        if let Some(asked) = plain {
            self.plain += 1;
            let served = Carried { now_us, key: &key, before, sent };
            self.tell(now, &served, asked, &executed);
            return executed;
        }
        let Some(script) = &executed.script else {
            self.forgotten.extend(self.asked_by_hash(command));
            return executed;
        };
        // A client that sent a script in full may call it by its hash at once.
        if hash_of(command).is_none()
            && !self.hashes.values().any(|known| known == script)
            && let Some(text) = command.args().nth(1)
        {
            self.hashes.insert(sha1_hex(text).into_bytes(), Arc::clone(script));
        }
        if let Some(steps) = together {
            self.tell_together((now, now_us, sent), steps, &executed);
        } else if let Some((keys, before)) = stood {
            let times = (now, now_us, sent);
            self.tell_standing(times, asked(script, command), &keys, before, &executed);
        } else if let Some(asked) = asked(script, command) {
            let served = Carried { now_us, key: &key, before, sent };
            self.tell(now, &served, asked, &executed);
        }
        executed
    }

    /// Logs the effect of a lock request.
    fn tell(&self, now: Moment, carried: &Carried<'_>, asked: Asked, executed: &Executed) {
        let Asked { request, key, token } = asked;
        let after = self.owner_at(carried.now_us, carried.key);
        let left = after.as_ref().map_or(Duration::ZERO, |(_, left)| *left);
        let (before, after) = (carried.before.clone(), after.map(|(owner, _)| owner));
        // The client gets no answer to a copy of its request, so it has nothing to release.
        if let Some(node) = self.log.node() {
            let is_ask = matches!(request, Request::Ask { .. });
            if carried.sent.is_some() && is_ask && after.as_ref() == Some(&token) {
                self.log.push(What::GrantedAt { node, key, token, left });
            }
        } else if executed.reply.is_ok() || after != before {
            // A refused request took no place in the line. It is logged only if it changed the
            // owner.
            let block = told_block(executed, after.as_deref());
            let travelled = carried.sent.map(|sent| now.since(sent));
            self.log.push(What::Served {
                request,
                key,
                token,
                before,
                after,
                left,
                block,
                travelled,
            });
        }
    }

    /// The lock requests of a command that is being sent. Empty if the command repeats a request
    /// whose script the server did not know.
    pub(super) fn are_asked(&mut self, command: &Command) -> Vec<Asked> {
        match self.asked_together(command) {
            Some(steps) => steps,
            None => self.is_asked(command).into_iter().collect(),
        }
    }

    fn is_asked(&mut self, command: &Command) -> Option<Asked> {
        if let Some(asked) = asked_plainly(command) {
            return Some(asked);
        }
        let mut args = command.args();
        if args.next()? != b"EVAL" {
            return self.asked_by_hash(command);
        }
        let asked = asked(&name_of(args.next()?)?, command)?;
        match self.forgotten.iter().position(|before| *before == asked) {
            Some(before) => {
                self.forgotten.swap_remove(before);
                None
            }
            None => Some(asked),
        }
    }

    fn asked_by_hash(&self, command: &Command) -> Option<Asked> {
        asked(self.script(command)?, command)
    }

    /// The name of the script that a command calls by its hash.
    pub(super) fn script(&self, command: &Command) -> Option<&Arc<str>> {
        self.hashes.get(hash_of(command)?)
    }

    /// The owner of a key, and the time that its lease has left at most, on the common clock. If
    /// there are several owners, this is the owner with that token.
    pub(super) fn owner(&self, now: Moment, key: &str, token: &str) -> Option<(Name, Duration)> {
        let (now_us, key) = (self.clock.at(now), key.as_bytes());
        let owner = self.share_left(now_us, key, token).or_else(|| self.owner_at(now_us, key));
        owner.map(|(owner, left)| (owner, self.clock.lasts_at_most(left)))
    }

    pub(super) fn owner_at(&self, now_us: u64, key: &[u8]) -> Option<(Name, Duration)> {
        let (owner, left_ms) = self.redis.string_at(now_us, key)?;
        let left = left_ms.map_or(Duration::MAX, Duration::from_millis);
        Some((Arc::from(String::from_utf8_lossy(&owner)), left))
    }

    /// Every key, with the time that it has left.
    pub(super) fn keys(&self, now: Moment) -> Vec<(String, Option<Duration>)> {
        let keys = self.redis.keys_at(self.clock.at(now));
        let named = |(key, left): (Vec<u8>, Option<u64>)| {
            (String::from_utf8_lossy(&key).into_owned(), left.map(Duration::from_millis))
        };
        keys.into_iter().map(named).collect()
    }

    pub(super) fn subscribe(&mut self, subscriber: u64, channel: &str) {
        self.redis.subscribe(subscriber, channel);
    }

    /// Tells a subscriber when a key changes.
    pub(super) fn track(&mut self, now: Moment, subscriber: u64, key: &str) -> Executed {
        self.keep(now);
        let exists = Command::new("EXISTS").arg(key);
        self.redis.execute_for(subscriber, self.clock.at(now), &exists)
    }

    pub(super) fn unsubscribe(&mut self, subscriber: u64) {
        self.redis.unsubscribe(subscriber);
    }

    pub(super) fn flush_scripts(&mut self) {
        self.redis.flush_scripts();
    }

    pub(super) fn set_full(&mut self, full: bool) {
        self.redis.set_full(full);
    }

    /// Counts of events that only some kinds of worlds have.
    pub(super) fn did(&self) -> [(&'static str, u64); 5] {
        let [refused, denied] = self.refusals.did();
        [
            refused,
            denied,
            ("keys evicted", self.evicted),
            ("asked by one command", self.plain),
            ("read from disk", self.power_cuts),
        ]
    }

    /// Makes its clock jump forward by `by_ms`. Leases end early, as if they were forgotten.
    pub(super) fn step(&mut self, by_ms: u64) {
        self.clock.stepped_us += i64::try_from(by_ms * 1_000).expect("a step of seconds");
        self.log.push(What::Forgot);
    }

    /// Makes its clock jump back by `by_ms`. Leases last longer.
    pub(super) fn step_back(&mut self, by_ms: u64) {
        self.clock.stepped_us -= i64::try_from(by_ms * 1_000).expect("a step of seconds");
    }

    /// Goes back to the data of that many tenths of a second ago. `None` means that all data is
    /// lost.
    pub(super) fn forget(&mut self, tenths: Option<usize>) {
        let dataset = match tenths {
            Some(tenths) => {
                let at = self.past.len().saturating_sub(tenths.max(1));
                self.past.get(at).cloned().unwrap_or_default()
            }
            None => Dataset::default(),
        };
        self.come_back_with(dataset);
    }

    /// Lets a replica that has all counted data take over. If there is none, the server itself
    /// comes back.
    pub(super) fn fail_over(&mut self, much: u64) {
        if let Some(dataset) = self.replicas.heir(much) {
            self.come_back_with(dataset);
        }
    }

    fn come_back_with(&mut self, dataset: Dataset) {
        // Later data is gone for good, so the next restart cannot bring it back either.
        self.past.clear();
        self.past.push_back(dataset.clone());
        self.redis.restore(dataset.clone());
        self.has_on_disk(dataset);
        self.log.push(What::Forgot);
    }

    fn keep(&mut self, now: Moment) {
        if now.since(self.kept_at) < KEPT_EVERY {
            return;
        }
        self.kept_at = now;
        if self.past.len() == KEPT {
            self.past.pop_front();
        }
        self.past.push_back(self.redis.dataset());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::VirtualHost;
    use crate::protocol::Value;

    /// An acquire as the store sends it, with the script's text or hash.
    fn ask(by: &str, what: &str) -> Command {
        let words =
            ["6", "a", "b", "c", "d", "e", "f", "TOKEN", "10", "1", "0", "1", "j|500|400|1|x"];
        words.into_iter().fold(Command::new(by).arg(what), Command::arg)
    }

    const SCRIPT: &str =
        "-- acquire.lua: takes the key\nreturn redis.call('SET', KEYS[1], ARGV[1])";

    #[test]
    fn a_request_that_is_sent_in_full_is_asked_once() {
        let log = Log::new(&VirtualHost::new(1));
        let mut server = Server::new(ServerClock::default(), log);
        let now = Moment::from_nanos(1_000_000_000_000);
        let load = Command::new("SCRIPT").arg("LOAD").arg(SCRIPT);
        let hash = match server.carry_out(now, now, 0, &load).reply {
            Ok(Value::Bytes(hash)) => String::from_utf8(hash),
            other => panic!("{other:?}"),
        };
        let (by_hash, in_full) = (ask("EVALSHA", &hash.expect("ASCII")), ask("EVAL", SCRIPT));
        assert!(server.is_asked(&in_full).is_some() && server.is_asked(&by_hash).is_none());
        let _answered = server.carry_out(now, now, 0, &in_full);
        assert!(server.is_asked(&by_hash).is_some());
        server.flush_scripts();
        assert!(server.carry_out(now, now, 0, &by_hash).reply.is_err());
        assert!(server.is_asked(&in_full).is_none(), "it was asked by its hash before");
        assert!(server.is_asked(&in_full).is_some());
    }

    #[test]
    fn a_request_that_a_full_server_refuses_is_not_told() {
        let host = VirtualHost::new(1);
        let log = Log::new(&host);
        let mut server = Server::new(ServerClock::default(), log.clone());
        let ask = ask("EVAL", SCRIPT);
        let now = Moment::from_nanos(1_000_000_000_000);
        server.set_full(true);
        assert!(server.carry_out(now, now, 0, &ask).reply.is_err());
        assert_eq!(log.take(), []);
        server.set_full(false);
        assert!(server.carry_out(now, now, 0, &ask).reply.is_ok());
        let place = Some(Duration::from_millis(500));
        let (key, after) = ("a".into(), Some("TOKEN".into()));
        let (request, token, left) = (Request::Ask { place }, "TOKEN".into(), Duration::MAX);
        let served = What::Served {
            request,
            key,
            token,
            before: None,
            after,
            left,
            block: None,
            travelled: Some(Duration::ZERO),
        };
        assert_eq!(log.take().into_iter().map(|event| event.what).collect::<Vec<_>>(), [served]);
    }
}
