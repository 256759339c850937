//! The table of commands, and the checks before one runs.

use super::arguments::Arguments;
use super::reply::{Refusal, Reply};
use super::{Server, channels, hashes, keys, replication, sorted_sets, strings};

/// A command, and the data for the checks before it runs.
pub(super) struct Known {
    name: &'static str,
    /// The number of words with the name. A negative number means at least this many.
    arity: i8,
    pub(super) need: Need,
    pub(super) run: Run,
}

/// How a command uses the memory of the server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Need {
    /// It only reads.
    None,
    /// It writes, but needs no more memory than it frees.
    Write,
    /// It writes, and is refused when the memory is full.
    Memory,
}

/// How a command runs.
#[derive(Clone, Copy)]
pub(super) enum Run {
    Plainly(fn(&mut Server, &Arguments) -> Result<Reply, Refusal>),
    /// Like `Plainly`, but scripts must not call it.
    Alone(fn(&mut Server, &Arguments) -> Result<Reply, Refusal>),
    /// In the part that runs scripts. Scripts must not call it.
    ByScripts,
}

const fn known(
    name: &'static str,
    arity: i8,
    need: Need,
    run: fn(&mut Server, &Arguments) -> Result<Reply, Refusal>,
) -> Known {
    Known { name, arity, need, run: Run::Plainly(run) }
}

const fn scripting(name: &'static str, arity: i8) -> Known {
    Known { name, arity, need: Need::None, run: Run::ByScripts }
}

/// All commands, sorted by name.
static COMMANDS: &[Known] = &[
    known("DECR", 2, Need::Memory, strings::decr),
    known("DEL", -2, Need::Write, keys::del),
    known("ECHO", 2, Need::None, keys::echo),
    scripting("EVAL", -3),
    scripting("EVALSHA", -3),
    known("EXISTS", -2, Need::None, keys::exists),
    known("FLUSHALL", -1, Need::Write, keys::flushall),
    known("GET", 2, Need::None, strings::get),
    known("HDEL", -3, Need::Write, hashes::hdel),
    known("HGET", 3, Need::None, hashes::hget),
    known("HGETALL", 2, Need::None, hashes::hgetall),
    known("HLEN", 2, Need::None, hashes::hlen),
    known("HMGET", -3, Need::None, hashes::hmget),
    known("HSET", -4, Need::Memory, hashes::hset),
    known("INCR", 2, Need::Memory, strings::incr),
    known("INCRBY", 3, Need::Memory, strings::incrby),
    known("INFO", -1, Need::None, keys::info),
    known("KEYS", 2, Need::None, keys::keys),
    known("MGET", -2, Need::None, strings::mget),
    known("PERSIST", 2, Need::Write, keys::persist),
    known("PEXPIRE", -3, Need::Write, keys::pexpire),
    known("PEXPIREAT", -3, Need::Write, keys::pexpireat),
    known("PING", -1, Need::None, keys::ping),
    known("PTTL", 2, Need::None, keys::pttl),
    known("PUBLISH", 3, Need::None, channels::publish),
    known("SCAN", -2, Need::None, keys::scan),
    scripting("SCRIPT", -2),
    known("SET", -3, Need::Memory, strings::set),
    known("TIME", 1, Need::None, keys::time),
    known("TYPE", 2, Need::None, keys::kind),
    Known { name: "WAIT", arity: 3, need: Need::None, run: Run::Alone(replication::wait) },
    Known { name: "WAITAOF", arity: 4, need: Need::None, run: Run::Alone(replication::waitaof) },
    known("ZADD", -4, Need::Memory, sorted_sets::zadd),
    known("ZCARD", 2, Need::None, sorted_sets::zcard),
    known("ZCOUNT", 4, Need::None, sorted_sets::zcount),
    known("ZMSCORE", -3, Need::None, sorted_sets::zmscore),
    known("ZRANGE", -4, Need::None, sorted_sets::zrange),
    known("ZRANGEBYSCORE", -4, Need::None, sorted_sets::zrangebyscore),
    known("ZRANK", 3, Need::None, sorted_sets::zrank),
    known("ZREM", -3, Need::Write, sorted_sets::zrem),
    known("ZSCORE", 3, Need::None, sorted_sets::zscore),
];

/// The longest name of a command.
const NAME_BYTES_MAX: usize = 16;

impl Known {
    /// The command of that name, ignoring case.
    pub(super) fn find(name: &[u8]) -> Option<&'static Self> {
        let mut upper = [0; NAME_BYTES_MAX];
        let upper = upper.get_mut(..name.len())?;
        upper.copy_from_slice(name);
        upper.make_ascii_uppercase();
        let found = COMMANDS.binary_search_by(|known| known.name.as_bytes().cmp(upper));
        found.ok().map(|place| &COMMANDS[place])
    }

    pub(super) fn takes(&self, words: usize) -> bool {
        let arity = usize::from(self.arity.unsigned_abs());
        if self.arity < 0 { words >= arity } else { words == arity }
    }
}

impl Server {
    /// Checks a client's command before it runs.
    pub(super) fn check(&self, arguments: &Arguments) -> Result<&'static Known, Refusal> {
        let name = arguments.at(0);
        let Some(known) = Known::find(name) else {
            let name: String = String::from_utf8_lossy(name).chars().take(128).collect();
            return Err(Refusal::new(format!("ERR unknown command '{name}'")));
        };
        if !known.takes(arguments.len()) {
            return Err(Refusal::wrong_arity(known.name));
        }
        if self.is_full && known.need == Need::Memory {
            return Err(Refusal::FULL);
        }
        Ok(known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_found_by_name() {
        assert!(COMMANDS.is_sorted_by_key(|known| known.name));
        for known in COMMANDS {
            let found = Known::find(known.name.to_ascii_lowercase().as_bytes());
            assert_eq!(found.map(|known| known.name), Some(known.name));
        }
        assert!(Known::find(b"").is_none());
        assert!(Known::find(b"ZRANGEBYSCOREANDMORE").is_none());
    }
}
