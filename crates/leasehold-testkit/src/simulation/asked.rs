//! What a command asks of a lock, and which fencing tokens its answer tells of.

use std::time::Duration;

use leasehold::store::redis::{Command, News, Value};

use super::redis::Executed;
use crate::history::event::{Block, Name, Request};

/// What a script call asks, read off its keys and arguments.
#[derive(PartialEq)]
pub(super) struct Asked {
    pub(super) request: Request,
    pub(super) key: Name,
    pub(super) token: Name,
}

/// The hash by which a script is called.
pub(super) fn hash_of(command: &Command) -> Option<&[u8]> {
    let mut args = command.args();
    (args.next()? == b"EVALSHA").then(|| args.next())?
}

/// What a command asks that takes a lock with nothing beside it: `SET key token NX GET PX ttl`.
pub(super) fn asked_plainly(command: &Command) -> Option<Asked> {
    let words: Vec<&[u8]> = command.args().collect();
    let [b"SET", key, token, b"NX", b"GET", b"PX", _ttl_ms] = words[..] else { return None };
    let text = |bytes| Name::from(String::from_utf8_lossy(bytes));
    let request = Request::Ask { place: None };
    Some(Asked { request, key: text(key), token: text(token) })
}

/// As the headers of the scripts say: six keys at least, the lock first; the owner token is the
/// first argument of each.
pub(super) fn asked(script: &str, command: &Command) -> Option<Asked> {
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
        "acquire_plain" => Request::Ask { place: None },
        "renew" => Request::Renew,
        // For how long to keep it follows, or that the key is to be free.
        "release" if argv(1).is_some_and(|word| word != "wake") => Request::Keep,
        "release" | "release_plain" | "release_foreign" => Request::Release,
        "evict" => Request::Evict,
        _ => return None,
    };
    Some(Asked { request, key: keys(0)?.into(), token: argv(0)?.into() })
}

/// Which fencing tokens the owner is told are its own: in the answer to its ask or release, or in
/// the message that hands the key over.
pub(super) fn told_block(executed: &Executed, owner: Option<&str>) -> Option<Block> {
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
