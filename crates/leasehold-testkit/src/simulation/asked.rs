//! Reads which request a command makes, and which fencing tokens its answer contains.

use std::time::Duration;

use super::redis::Executed;
use crate::history::event::{Block, Name, Request};
use crate::protocol::{Command, News, Value};

/// The request of a script call, read from its keys and arguments.
#[derive(PartialEq)]
pub(super) struct Asked {
    pub(super) request: Request,
    pub(super) key: Name,
    pub(super) token: Name,
}

/// The hash of the script that a command calls.
pub(super) fn hash_of(command: &Command) -> Option<&[u8]> {
    let mut args = command.args();
    (args.next()? == b"EVALSHA").then(|| args.next())?
}

/// Reads an acquire that is not a script: `SET key token NX GET PX ttl`.
pub(super) fn asked_plainly(command: &Command) -> Option<Asked> {
    let words: Vec<&[u8]> = command.args().collect();
    let [b"SET", key, token, b"NX", b"GET", b"PX", _ttl_ms] = words[..] else { return None };
    let text = |bytes| Name::from(String::from_utf8_lossy(bytes));
    let request = Request::Ask { place: None };
    Some(Asked { request, key: text(key), token: text(token) })
}

/// Reads a script call as the headers of the scripts describe it: at least six keys, the lock
/// first, and the owner token as the first argument.
pub(super) fn asked(script: &str, command: &Command) -> Option<Asked> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let keys = |number: usize| command.args().nth(3 + number).map(text);
    let count = command.args().nth(2).map(text)?.parse::<usize>().ok()?;
    let argv = |number: usize| command.args().nth(3 + count + number).map(text);
    let request = match script {
        "acquire" => {
            // `j|waiter_ttl_ms|…`. A client that joins the line gets a turn. A watcher does not. At
            // a strict server, no client joins.
            let place = argv(5).filter(|place| place.starts_with(['j', 's', 'p']));
            let waiter_ttl_ms = place.and_then(|place| place.split('|').nth(1)?.parse().ok());
            Request::Ask { place: waiter_ttl_ms.map(Duration::from_millis) }
        }
        "acquire_plain" => Request::Ask { place: None },
        "renew" => Request::Renew,
        "release" if argv(1).is_some_and(|word| word == "share") => Request::Downgrade,
        "resize" => {
            return Some(Asked {
                request: Request::Resize,
                key: keys(0)?.into(),
                token: "".into(),
            });
        }
        // The next argument is the time for which to keep the key, or a word that says how it is
        // released.
        "release" if argv(1).is_some_and(|word| word.parse::<u64>().is_ok()) => Request::Keep,
        "release" | "release_plain" | "release_foreign" => Request::Release,
        "evict" => Request::Evict,
        _ => return None,
    };
    Some(Asked { request, key: keys(0)?.into(), token: argv(0)?.into() })
}

/// The fencing tokens that the server tells the owner, in the reply to its acquire or release, or
/// in the message that hands the key over.
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
            [Value::Int(1 | 3), Value::Int(first), Value::Int(count), ..] => (first, count),
            _ => return None,
        },
        _ => return None,
    };
    block(u64::try_from(*first).ok()?, u64::try_from(*count).ok()?)
}
