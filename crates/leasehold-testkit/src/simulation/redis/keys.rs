//! Commands on keys of any type, and on the whole server.

use super::arguments::Arguments;
use super::reply::{Refusal, Reply};
use super::{Server, glob, numbers};

pub(super) fn ping(_: &mut Server, arguments: &Arguments) -> Result<Reply, Refusal> {
    match arguments.len() {
        1 => Ok(Reply::Status("PONG".into())),
        2 => Ok(Reply::Bytes(arguments.at(1).to_vec())),
        _ => Err(Refusal::wrong_arity("ping")),
    }
}

pub(super) fn echo(_: &mut Server, arguments: &Arguments) -> Result<Reply, Refusal> {
    Ok(Reply::Bytes(arguments.at(1).to_vec()))
}

pub(super) fn time(server: &mut Server, _: &Arguments) -> Result<Reply, Refusal> {
    let part = |number: u64| Reply::Bytes(number.to_string().into_bytes());
    let (seconds, rest) = (server.now_us / 1_000_000, server.now_us % 1_000_000);
    Ok(Reply::Array(vec![part(seconds), part(rest)]))
}

/// Answers only the lines of a real server that identify it and its data.
pub(super) fn info(server: &mut Server, arguments: &Arguments) -> Result<Reply, Refusal> {
    let said = match arguments.len() {
        2 if arguments.is(1, "server") => format!("# Server\r\nrun_id:{}\r\n", server.run_id),
        2 if arguments.is(1, "replication") => server.replication.info(),
        _ => return Err(Refusal::left_out("INFO but for `server` and `replication`")),
    };
    Ok(Reply::Bytes(said.into_bytes()))
}

pub(super) fn flushall(server: &mut Server, arguments: &Arguments) -> Result<Reply, Refusal> {
    if arguments.len() > 2 || (arguments.len() == 2 && !is_sync_or_async(arguments, 1)) {
        return Err(Refusal::SYNTAX);
    }
    server.keyspace.clear();
    Ok(Reply::OK)
}

/// Whether the argument is `SYNC` or `ASYNC`, which make no difference here.
pub(super) fn is_sync_or_async(arguments: &Arguments, place: usize) -> bool {
    arguments.is(place, "SYNC") || arguments.is(place, "ASYNC")
}

pub(super) fn del(server: &mut Server, arguments: &Arguments) -> Result<Reply, Refusal> {
    let removed = arguments.from(1).filter(|key| server.keyspace.remove(key)).count();
    Ok(Reply::count(removed))
}

pub(super) fn exists(server: &mut Server, arguments: &Arguments) -> Result<Reply, Refusal> {
    let found = arguments.from(1).filter(|key| server.keyspace.get(key).is_some()).count();
    Ok(Reply::count(found))
}

pub(super) fn kind(server: &mut Server, arguments: &Arguments) -> Result<Reply, Refusal> {
    let entry = server.keyspace.get(arguments.at(1));
    Ok(Reply::Status(entry.map_or("none", |entry| entry.stored.kind()).into()))
}

pub(super) fn pttl(server: &mut Server, arguments: &Arguments) -> Result<Reply, Refusal> {
    let now_ms = server.now_ms();
    Ok(Reply::Int(match server.keyspace.get(arguments.at(1)).map(|entry| entry.ends_ms) {
        None => -2,
        Some(None) => -1,
        Some(Some(ends_ms)) => ends_ms.saturating_sub(now_ms).max(0),
    }))
}

pub(super) fn persist(server: &mut Server, arguments: &Arguments) -> Result<Reply, Refusal> {
    let key = arguments.at(1);
    let has_end = server.keyspace.get(key).is_some_and(|entry| entry.ends_ms.is_some());
    if has_end && let Some(entry) = server.keyspace.get_mut(key) {
        entry.ends_ms = None;
    }
    Ok(Reply::Int(i64::from(has_end)))
}

pub(super) fn pexpire(server: &mut Server, arguments: &Arguments) -> Result<Reply, Refusal> {
    refuse_options(arguments)?;
    let left_ms = arguments.integer(2)?;
    end_at(server, arguments, left_ms.checked_add(server.now_ms()), "pexpire")
}

pub(super) fn pexpireat(server: &mut Server, arguments: &Arguments) -> Result<Reply, Refusal> {
    refuse_options(arguments)?;
    let ends_ms = arguments.integer(2)?;
    end_at(server, arguments, Some(ends_ms), "pexpireat")
}

fn refuse_options(arguments: &Arguments) -> Result<(), Refusal> {
    let known = ["NX", "XX", "GT", "LT"];
    for place in 3..arguments.len() {
        if !known.iter().any(|option| arguments.is(place, option)) {
            // The real server cuts the text at its first zero byte.
            let option = arguments.at(place).split(|byte| *byte == 0).next().unwrap_or_default();
            let option = String::from_utf8_lossy(option);
            return Err(Refusal::new(format!("ERR Unsupported option {option}")));
        }
    }
    if arguments.len() > 3 {
        return Err(Refusal::left_out("the options of PEXPIRE and PEXPIREAT"));
    }
    Ok(())
}

/// Sets the end of a key. An end in the past removes the key.
fn end_at(
    server: &mut Server,
    arguments: &Arguments,
    ends_ms: Option<i64>,
    command: &str,
) -> Result<Reply, Refusal> {
    let ends_ms = ends_ms.ok_or_else(|| Refusal::bad_expiry(command))?;
    let (key, now_ms) = (arguments.at(1), server.now_ms());
    let Some(entry) = server.keyspace.get_mut(key) else {
        return Ok(Reply::Int(0));
    };
    if ends_ms <= now_ms {
        server.keyspace.remove(key);
    } else {
        entry.ends_ms = Some(ends_ms);
    }
    Ok(Reply::Int(1))
}

pub(super) fn keys(server: &mut Server, arguments: &Arguments) -> Result<Reply, Refusal> {
    let living = server.keyspace.living(server.now_us / 1000).map(|(key, _)| key);
    let found = living.filter(|key| glob::matches(arguments.at(1), key));
    Ok(Reply::Array(found.map(|key| Reply::Bytes(key.clone())).collect()))
}

/// Answers SCAN. A scan visits the keys by a number that depends only on the name. So it finds
/// every key that stays, however many others come and go.
pub(super) fn scan(server: &mut Server, arguments: &Arguments) -> Result<Reply, Refusal> {
    let cursor = numbers::cursor(arguments.at(1)).ok_or(Refusal::fixed("ERR invalid cursor"))?;
    let (mut count, mut pattern) = (10, None);
    let mut place = 2;
    while place < arguments.len() {
        if place + 1 == arguments.len() {
            return Err(Refusal::SYNTAX);
        }
        if arguments.is(place, "COUNT") {
            count = arguments.integer(place + 1)?;
            if count < 1 {
                return Err(Refusal::SYNTAX);
            }
        } else if arguments.is(place, "MATCH") {
            pattern = Some(arguments.at(place + 1));
        } else if arguments.is(place, "TYPE") {
            return Err(Refusal::left_out("SCAN by type"));
        } else {
            return Err(Refusal::SYNTAX);
        }
        place += 2;
    }
    let mut ahead: Vec<(u64, Vec<u8>)> =
        server.keyspace.all().map(|key| (position(key), key.clone())).collect();
    ahead.retain(|(position, _)| *position >= cursor);
    ahead.sort_unstable();
    let count = usize::try_from(count).unwrap_or(usize::MAX).min(ahead.len());
    // Keys with the same position are returned together.
    let past = count.checked_sub(1).map(|last| ahead[last].0);
    let next = ahead.iter().map(|(position, _)| *position).find(|it| past < Some(*it));
    ahead.retain(|(position, _)| next.is_none_or(|next| *position < next));
    let found = ahead.into_iter().map(|(_, key)| key).filter(|key| {
        pattern.is_none_or(|pattern| glob::matches(pattern, key))
            && server.keyspace.get(key).is_some()
    });
    let found = Reply::Array(found.map(Reply::Bytes).collect());
    Ok(Reply::Array(vec![Reply::Bytes(next.unwrap_or(0).to_string().into_bytes()), found]))
}

/// The position of a key in a scan: FNV-1a of its name. Never zero, which means the start and the
/// end.
fn position(key: &[u8]) -> u64 {
    let hash = key.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    hash.max(1)
}
