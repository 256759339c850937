//! The simulated server: its data, its clock, and what becomes of both.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use leasehold::core::Moment;
use leasehold::store::redis::{Command, News, Replicas as Wanted, Strict, Terms, Value};

use super::clock::ServerClock;
use super::copies::Copied;
use super::log::Log;
use super::redis::{Dataset, Executed, SimulatedRedis, Wait, name_of, sha1_hex};
use super::replicas::{Confirmation, Replicas, Sent};
use crate::history::event::{Block, Name, Request, What};
use crate::virtual_host::SeededRandom;

/// How often the state of the data is kept, for restarts with old data, and for how long.
const KEPT_EVERY: Duration = Duration::from_millis(100);
const KEPT: usize = 30;

/// One server.
pub(super) struct Server {
    redis: SimulatedRedis,
    pub(super) clock: ServerClock,
    /// Down: nobody answers, and who connects is refused.
    pub(super) is_up: bool,
    /// Stopped: the kernel takes bytes, and nobody reads them.
    pub(super) is_stopped: bool,
    evicting: Option<Evicting>,
    past: VecDeque<Dataset>,
    kept_at: Moment,
    /// Which script a hash stands for, as far as one was sent in full.
    hashes: BTreeMap<Vec<u8>, Arc<str>>,
    /// What was asked by a hash that the server did not know: it will be sent once more in full.
    forgotten: Vec<Asked>,
    log: Log,
    /// On which strict terms it is used, if it is.
    pub(super) strict: Option<Strict>,
    /// Which copies are wanted of it, if they are.
    copies: Option<Copied>,
    pub(super) replicas: Replicas,
    /// How often it was started.
    pub(super) started: u32,
}

/// Locks vanish, one before so many requests.
struct Evicting {
    one_in: usize,
    random: SeededRandom,
}

/// What a script call asks, read off its keys and arguments.
#[derive(PartialEq)]
pub(super) struct Asked {
    pub(super) request: Request,
    pub(super) key: Name,
    pub(super) token: Name,
}

impl Server {
    pub(super) fn new(clock: ServerClock, log: Log) -> Self {
        let mut server = Self {
            redis: SimulatedRedis::new(),
            clock,
            is_up: true,
            is_stopped: false,
            evicting: None,
            past: VecDeque::new(),
            kept_at: Moment::default(),
            hashes: BTreeMap::new(),
            forgotten: Vec::new(),
            log,
            strict: None,
            copies: None,
            replicas: Replicas::default(),
            started: 0,
        };
        server.redis.set_run_id(&server.run_id());
        server
    }

    /// It is another process now, and has no scripts.
    pub(super) fn start_again(&mut self) {
        self.started += 1;
        self.redis.set_run_id(&self.run_id());
        self.redis.flush_scripts();
        self.replicas.leave_all();
        (0..self.replicas.len()).for_each(|replica| self.redis.confirm(replica, None));
    }

    /// It is strict, and known to have forgotten nothing.
    pub(super) fn is_strict_from(&mut self, now: Moment, strict: Strict) {
        self.strict = Some(strict);
        let epoch = Command::new("HSET").arg(":lh:epoch").arg("run").arg(self.run_id());
        let executed = self.redis.execute(self.clock.at(now), &epoch);
        assert!(executed.reply.is_ok(), "{:?}", executed.reply);
    }

    /// It has replicas, which have all of it.
    pub(super) fn is_copied_from_now_on(&mut self, copies: Copied) {
        self.copies = Some(copies);
        let written = self.redis.written();
        self.replicas = Replicas::new(copies.replicas, &self.redis.dataset(), written);
        (0..copies.replicas).for_each(|replica| self.redis.confirm(replica, Some(written)));
    }

    /// On which terms it is used.
    pub(super) fn terms(&self) -> Terms {
        let mut terms = Terms::default();
        terms.strict = self.strict;
        terms.copies = self.copies.map(Copied::terms).unwrap_or_default();
        terms
    }

    /// How many replicas it says that it has, to those who have to know.
    pub(super) fn counts_replicas(&self) -> Option<u32> {
        self.copies.filter(|copies| copies.wanted == Wanted::Majority)?;
        Some(u32::try_from(self.replicas.following()).expect("a few"))
    }

    /// Which process it is.
    pub(super) fn run_id(&self) -> String {
        format!("run{}", self.started)
    }

    /// Carries a command out, of a connection whose last one left so much written.
    pub(super) fn carry_out(&mut self, now: Moment, written: u64, command: &Command) -> Executed {
        self.carry(now, written, command, false)
    }

    /// Carries a command out once more, by a copy of it whose answer nobody waits for.
    pub(super) fn carry_out_again(&mut self, now: Moment, command: &Command) -> Executed {
        self.carry(now, 0, command, true)
    }

    fn carry(&mut self, now: Moment, written: u64, command: &Command, is_copy: bool) -> Executed {
        self.keep(now);
        self.evict_one(now);
        let now_us = self.clock.at(now);
        let key = command.args().nth(3).map(<[u8]>::to_vec).unwrap_or_default();
        let before = self.owner_at(now_us, &key).map(|(owner, _)| owner);
        let executed = self.redis.execute_after(written, now_us, command);
        let Some(script) = &executed.script else {
            self.forgotten.extend(self.asked_by_hash(command));
            return executed;
        };
        // Whoever has sent a script in full may call it by its hash at once.
        if hash_of(command).is_none()
            && !self.hashes.values().any(|known| known == script)
            && let Some(text) = command.args().nth(1)
        {
            self.hashes.insert(sha1_hex(text).into_bytes(), Arc::clone(script));
        }
        if let Some(Asked { request, key: name, token }) = asked(script, command) {
            let after = self.owner_at(now_us, &key);
            let left = after.as_ref().map_or(Duration::ZERO, |(_, left)| *left);
            let after = after.map(|(owner, _)| owner);
            // What was refused took no place; if it changed the owner all the same, that is told.
            let is_told = self.log.node().is_none();
            // Who asked is told nothing of a copy, and so has nothing to give back.
            if let Some(node) = self.log.node()
                && !is_copy
                && matches!(request, Request::Ask { .. })
                && after.as_ref() == Some(&token)
            {
                let (key, token) = (Arc::clone(&name), Arc::clone(&token));
                self.log.push(What::GrantedAt { node, key, token, left });
            }
            if is_told && (executed.reply.is_ok() || after != before) {
                let block = told_block(&executed, after.as_deref());
                self.log.push(What::Served {
                    request,
                    key: name,
                    token,
                    before,
                    after,
                    left,
                    block,
                });
            }
        }
        executed
    }

    /// What a request asks that is just sent, unless it is sent once more because the server did
    /// not know its script.
    pub(super) fn is_asked(&mut self, command: &Command) -> Option<Asked> {
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
        asked(self.hashes.get(hash_of(command)?)?, command)
    }

    /// Who owns a key, and for how long still.
    pub(super) fn owner(&self, now: Moment, key: &str) -> Option<(Name, Duration)> {
        self.owner_at(self.clock.at(now), key.as_bytes())
    }

    fn owner_at(&self, now_us: u64, key: &[u8]) -> Option<(Name, Duration)> {
        let (owner, left_ms) = self.redis.string_at(now_us, key)?;
        let left = left_ms.map_or(Duration::MAX, Duration::from_millis);
        Some((Arc::from(String::from_utf8_lossy(&owner)), left))
    }

    /// Every key, with the time it has left.
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

    /// Has a subscriber told when a key changes.
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

    /// It evicts a lock before one request in so many, from now on.
    pub(super) fn evict(&mut self, one_in: u64, seed: u64) {
        let one_in = usize::try_from(one_in).expect("drawn small");
        self.evicting = Some(Evicting { one_in, random: SeededRandom::new(seed) });
    }

    pub(super) fn evict_no_more(&mut self) {
        self.evicting = None;
    }

    /// Any of the locks, and nothing that is kept beside them: a counter that is lost is more than
    /// what fencing survives at a quorum.
    fn evict_one(&mut self, now: Moment) {
        let Some(evicting) = &mut self.evicting else { return };
        if !evicting.random.once_in(evicting.one_in) {
            return;
        }
        let now_us = self.clock.at(now);
        let keys = self.redis.keys_at(now_us).into_iter().map(|(key, _)| key);
        let locks: Vec<_> =
            keys.filter(|key| !key.windows(4).any(|part| part == b":lh:")).collect();
        if locks.is_empty() {
            return;
        }
        let lock = &locks[evicting.random.below(locks.len())];
        self.redis.evict(now_us, lock);
        self.log.push(What::Forgot);
    }

    /// Its clock jumps forward by that many ms: leases end early, as if they were forgotten.
    pub(super) fn step(&mut self, by_ms: u64) {
        self.clock.stepped_us += i64::try_from(by_ms * 1_000).expect("a step of seconds");
        self.log.push(What::Forgot);
    }

    /// It jumps back: leases last longer.
    pub(super) fn step_back(&mut self, by_ms: u64) {
        self.clock.stepped_us -= i64::try_from(by_ms * 1_000).expect("a step of seconds");
    }

    /// It comes back with the data of that many tenths of a second ago; `None`: without any.
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

    /// A replica takes its place: one that has all that counted. Where there is none, the server is
    /// there again itself.
    pub(super) fn fail_over(&mut self, much: u64) {
        if let Some(dataset) = self.replicas.heir(much) {
            self.come_back_with(dataset);
        }
    }

    fn come_back_with(&mut self, dataset: Dataset) {
        // What came after is gone for good: the next restart cannot bring it back either.
        self.past.clear();
        self.past.push_back(dataset.clone());
        self.redis.restore(dataset);
        self.log.push(What::Forgot);
    }

    /// What it has written since it sent something to its replicas.
    pub(super) fn replicate(&mut self) -> Vec<Sent> {
        self.replicas.send(|| self.redis.dataset(), self.redis.written())
    }

    /// A replica that can be reached begins to follow it.
    pub(super) fn is_followed_by(&mut self, replica: usize) -> Option<Sent> {
        self.replicas.follow(replica, self.redis.dataset(), self.redis.written())
    }

    /// A replica is cut off.
    pub(super) fn is_left_by(&mut self, replica: usize) {
        self.replicas.leave(replica);
        self.redis.confirm(replica, None);
    }

    /// A replica says how far it has the data.
    pub(super) fn confirm(&mut self, said: Confirmation) {
        if self.replicas.is_heard(said) {
            self.redis.confirm(said.replica, Some(said.written));
        }
    }

    /// How many replicas have confirmed what that waits for, if they are enough.
    pub(super) fn is_confirmed(&mut self, wait: Wait) -> Option<usize> {
        let confirmed = self.redis.confirmed_by(wait.written);
        if confirmed < wait.replicas {
            return None;
        }
        // Whoever asks for less than was agreed on is told so, and may count it or not.
        let agreed = match self.copies.map(|copies| copies.wanted) {
            Some(Wanted::Count(count)) => count.into(),
            _ => 1,
        };
        if confirmed >= agreed {
            self.replicas.counted(wait.written);
        }
        Some(confirmed)
    }

    /// How many replicas have confirmed that.
    pub(super) fn confirmed_by(&self, wait: Wait) -> usize {
        self.redis.confirmed_by(wait.written)
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

/// The hash by which a script is called.
fn hash_of(command: &Command) -> Option<&[u8]> {
    let mut args = command.args();
    (args.next()? == b"EVALSHA").then(|| args.next())?
}

/// As the headers of the scripts say: six keys at least, the lock first; the owner token is the
/// first argument of each.
fn asked(script: &str, command: &Command) -> Option<Asked> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let keys = |number: usize| command.args().nth(3 + number).map(text);
    let count = command.args().nth(2).map(text)?.parse::<usize>().ok()?;
    let argv = |number: usize| command.args().nth(3 + count + number).map(text);
    let request = match script {
        "acquire" => {
            // `j|waiter_ttl_ms|…`. Only who joins has a turn: none does at a strict server.
            let place = argv(5).filter(|place| place.starts_with("j|"));
            let waiter_ttl_ms = place.and_then(|place| place.split('|').nth(1)?.parse().ok());
            Request::Ask { place: waiter_ttl_ms.map(Duration::from_millis) }
        }
        "renew" => Request::Renew,
        // For how long to keep it follows, or that the key is to be free.
        "release" if argv(1).is_some_and(|word| word != "wake") => Request::Keep,
        "release" => Request::Release,
        "evict" => Request::Evict,
        _ => return None,
    };
    Some(Asked { request, key: keys(0)?.into(), token: argv(0)?.into() })
}

/// Which fencing tokens the owner is told are its own: in the answer to its ask or release, or in
/// the message that hands the key over.
fn told_block(executed: &Executed, owner: Option<&str>) -> Option<Block> {
    let block = |first: u64, count: u64| (first > 0 && count > 0).then_some(Block { first, count });
    for publication in &executed.published {
        let News::Published(message) = &publication.news else { continue };
        let words = String::from_utf8_lossy(&message.payload);
        let words: Vec<_> = words.splitn(6, ' ').collect();
        if let ["g", _ask_no, first, count, token, _key] = words[..]
            && Some(token) == owner
        {
            return block(first.parse().ok()?, count.parse().ok()?);
        }
    }
    let reply = executed.reply.as_ref().ok()?;
    let (first, count) = match (executed.script.as_deref()?, reply) {
        ("acquire", Value::Int(first)) => (first, &1),
        ("acquire" | "release", Value::Array(reply)) => match reply.as_slice() {
            [Value::Int(1 | 3), Value::Int(first), Value::Int(count)] => (first, count),
            _ => return None,
        },
        _ => return None,
    };
    block(u64::try_from(*first).ok()?, u64::try_from(*count).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::VirtualHost;

    /// As a store calls the script by that text or hash.
    fn ask(by: &str, what: &str) -> Command {
        let words =
            ["6", "a", "b", "c", "d", "e", "f", "TOKEN", "10", "1", "0", "1", "j|500|400|1|x"];
        words.into_iter().fold(Command::new(by).arg(what), Command::arg)
    }

    const SCRIPT: &str =
        "-- acquire.lua: takes the key\nreturn redis.call('SET', KEYS[1], ARGV[1])";

    #[test]
    fn what_is_sent_in_full_is_asked_once() {
        let log = Log::new(&VirtualHost::new(1));
        let mut server = Server::new(ServerClock::default(), log);
        let now = Moment::from_nanos(1_000_000_000_000);
        let load = Command::new("SCRIPT").arg("LOAD").arg(SCRIPT);
        let hash = match server.carry_out(now, 0, &load).reply {
            Ok(Value::Bytes(hash)) => String::from_utf8(hash),
            other => panic!("{other:?}"),
        };
        let (by_hash, in_full) = (ask("EVALSHA", &hash.expect("ASCII")), ask("EVAL", SCRIPT));
        assert!(server.is_asked(&in_full).is_some() && server.is_asked(&by_hash).is_none());
        let _answered = server.carry_out(now, 0, &in_full);
        assert!(server.is_asked(&by_hash).is_some());
        server.flush_scripts();
        assert!(server.carry_out(now, 0, &by_hash).reply.is_err());
        assert!(server.is_asked(&in_full).is_none(), "it was asked by its hash before");
        assert!(server.is_asked(&in_full).is_some());
    }

    #[test]
    fn what_a_full_server_refuses_is_not_told() {
        let host = VirtualHost::new(1);
        let log = Log::new(&host);
        let mut server = Server::new(ServerClock::default(), log.clone());
        let ask = ask("EVAL", SCRIPT);
        let now = Moment::from_nanos(1_000_000_000_000);
        server.set_full(true);
        assert!(server.carry_out(now, 0, &ask).reply.is_err());
        assert_eq!(log.take(), []);
        server.set_full(false);
        assert!(server.carry_out(now, 0, &ask).reply.is_ok());
        let place = Some(Duration::from_millis(500));
        let (key, after) = ("a".into(), Some("TOKEN".into()));
        let (request, token, left) = (Request::Ask { place }, "TOKEN".into(), Duration::MAX);
        let served = What::Served { request, key, token, before: None, after, left, block: None };
        assert_eq!(log.take().into_iter().map(|event| event.what).collect::<Vec<_>>(), [served]);
    }
}
