//! Commands on strings, and on strings that are numbers.

use super::Server;
use super::arguments::Arguments;
use super::keyspace::{Entry, Stored};
use super::numbers;
use super::reply::{Refusal, Reply};

pub(super) fn get(server: &mut Server, arguments: &Arguments) -> Result<Reply, Refusal> {
    Ok(Reply::bytes(server.keyspace.text(arguments.at(1))?))
}

pub(super) fn mget(server: &mut Server, arguments: &Arguments) -> Result<Reply, Refusal> {
    let texts = arguments.from(1).map(|key| {
        // A key of another type counts as missing here.
        Reply::bytes(server.keyspace.text(key).ok().flatten())
    });
    Ok(Reply::Array(texts.collect()))
}

pub(super) fn set(server: &mut Server, arguments: &Arguments) -> Result<Reply, Refusal> {
    let options = SetOptions::read(arguments)?;
    let ends_ms = match options.ends_at {
        Some(place) => Some(options.ends_ms(arguments, place, server.now_ms())?),
        None => None,
    };
    let key = arguments.at(1);
    let before = server.keyspace.get(key);
    let (is_there, kept_ms) = (before.is_some(), before.and_then(|entry| entry.ends_ms));
    let told = match options.tells_before {
        true => Some(Reply::bytes(server.keyspace.text(key)?)),
        false => None,
    };
    if (options.only_new && is_there) || (options.only_old && !is_there) {
        return Ok(told.unwrap_or(Reply::Nil));
    }
    let ends_ms = if options.keeps_end { kept_ms } else { ends_ms };
    let stored = Stored::Text(arguments.at(2).to_vec());
    server.keyspace.put(key, Entry { stored, ends_ms });
    Ok(told.unwrap_or(Reply::OK))
}

pub(super) fn incr(server: &mut Server, arguments: &Arguments) -> Result<Reply, Refusal> {
    add(server, arguments.at(1), 1)
}

pub(super) fn decr(server: &mut Server, arguments: &Arguments) -> Result<Reply, Refusal> {
    add(server, arguments.at(1), -1)
}

pub(super) fn incrby(server: &mut Server, arguments: &Arguments) -> Result<Reply, Refusal> {
    add(server, arguments.at(1), arguments.integer(2)?)
}

fn add(server: &mut Server, key: &[u8], increment: i64) -> Result<Reply, Refusal> {
    let before = server.keyspace.text(key)?;
    let before = before.map_or(Some(0), numbers::integer).ok_or(Refusal::NOT_AN_INTEGER)?;
    let overflow = Refusal::fixed("ERR increment or decrement would overflow");
    let number = before.checked_add(increment).ok_or(overflow)?;
    let stored = Stored::Text(number.to_string().into_bytes());
    match server.keyspace.get_mut(key) {
        Some(entry) => entry.stored = stored,
        None => server.keyspace.put(key, Entry { stored, ends_ms: None }),
    }
    Ok(Reply::Int(number))
}

/// The options of SET after the value.
#[derive(Default)]
struct SetOptions {
    only_new: bool,
    only_old: bool,
    tells_before: bool,
    keeps_end: bool,
    /// The place of the argument with the expiry.
    ends_at: Option<usize>,
    unit: Option<Unit>,
}

/// The unit of the expiry.
#[derive(Clone, Copy, PartialEq)]
struct Unit {
    in_seconds: bool,
    is_moment: bool,
}

impl SetOptions {
    fn read(arguments: &Arguments) -> Result<Self, Refusal> {
        let mut options = Self::default();
        let mut place = 3;
        while place < arguments.len() {
            if arguments.is(place, "NX") && !options.only_old {
                options.only_new = true;
            } else if arguments.is(place, "XX") && !options.only_new {
                options.only_old = true;
            } else if arguments.is(place, "GET") {
                options.tells_before = true;
            } else if arguments.is(place, "KEEPTTL") && options.unit.is_none() {
                options.keeps_end = true;
            } else {
                let unit = Unit::read(arguments, place).ok_or(Refusal::SYNTAX)?;
                let contradicts = options.unit.is_some_and(|before| before != unit);
                if contradicts || options.keeps_end || place + 1 == arguments.len() {
                    return Err(Refusal::SYNTAX);
                }
                place += 1;
                (options.unit, options.ends_at) = (Some(unit), Some(place));
            }
            place += 1;
        }
        Ok(options)
    }

    /// The moment of expiry, from the argument at that place.
    fn ends_ms(&self, arguments: &Arguments, place: usize, now_ms: i64) -> Result<i64, Refusal> {
        let told = arguments.integer(place)?;
        let unit = self.unit.expect("a command with an end has a unit");
        let ends_ms = (told > 0).then_some(told).and_then(|told| {
            let told_ms = if unit.in_seconds { told.checked_mul(1000)? } else { told };
            if unit.is_moment { Some(told_ms) } else { told_ms.checked_add(now_ms) }
        });
        ends_ms.ok_or_else(|| Refusal::bad_expiry("set"))
    }
}

impl Unit {
    fn read(arguments: &Arguments, place: usize) -> Option<Self> {
        let units = [("EX", true, false), ("PX", false, false), ("EXAT", true, true)];
        let mut units = units.into_iter().chain([("PXAT", false, true)]);
        let (_, in_seconds, is_moment) = units.find(|(word, _, _)| arguments.is(place, word))?;
        Some(Self { in_seconds, is_moment })
    }
}
