//! Turns the replies of scripts into answers of the store contract.
//!
//! The server may not be a real one, so every reply is checked. A reply of another shape is an
//! error.

use std::sync::Arc;
use std::time::Duration;

use super::reasons::{misled, no_epoch, no_tokens};
use crate::core::error::{Error, ErrorKind};
use crate::core::key::Key;
use crate::core::moment::WallTime;
use crate::core::token::{ClientId, FencingBlock, FencingToken, OwnerToken, client_of};
use crate::store::redis::codec::command::Value;
use crate::store::{
    Acquired, Claim, Evicted, Holder, PermitsTaken, Quarantine, Refusal, Released, Renewed,
    Revocation, Revoked, Snapshot, Usage, Waiter, line_is_full, other_usage,
};

/// The reply of acquire.lua for a holder with other client software.
const FOREIGNER: &[u8] = b"?";

/// An answer, and further facts from the reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::store::redis) struct Answered<T> {
    /// The answer.
    pub(in crate::store::redis) answer: T,
    /// The client that holds the key, if the caller has just taken a place. It must be told that
    /// the key is wanted.
    pub(in crate::store::redis) holder: Option<ClientId>,
    /// Whether the holder has other client software, and the caller is the first in line.
    pub(in crate::store::redis) is_first_behind_a_foreigner: bool,
    /// Whether the user lacks the right to publish hints to other clients.
    pub(in crate::store::redis) hints_denied: bool,
}

/// The answer in a reply, or why there is none.
type Parsed<T> = Result<Answered<T>, Error>;

impl<T> Answered<T> {
    const fn alone(answer: T) -> Self {
        Self { answer, holder: None, is_first_behind_a_foreigner: false, hints_denied: false }
    }

    fn hinted(answer: T, denied: i64) -> Self {
        Self { hints_denied: denied != 0, ..Self::alone(answer) }
    }
}

/// Reads the reply of acquire.lua to an ask with this claim.
pub(in crate::store::redis) fn acquired(
    key: &Key,
    claim: Claim,
    reply: &Value,
) -> Parsed<Acquired> {
    if let Value::Int(number) = reply {
        let fencing = block(*number, (*number != 0).into()).ok_or_else(|| strange(key))?;
        return Ok(Answered::alone(Acquired::Granted { fencing }));
    }
    match items(reply) {
        [Value::Int(1), Value::Int(first), Value::Int(count)]
        | [Value::Int(1), Value::Int(first), Value::Int(count), Value::Int(1)] => {
            let fencing = block(*first, *count).ok_or_else(|| strange(key))?;
            Ok(Answered::alone(Acquired::Granted { fencing }))
        }
        [
            Value::Int(0),
            Value::Int(retry_in),
            Value::Int(ahead),
            Value::Bytes(holder),
            Value::Int(denied),
        ] => {
            let ahead = u32::try_from(*ahead).map_err(|_| strange(key))?;
            let is_first_behind_a_foreigner = holder == FOREIGNER && ahead == 0;
            let holder = str::from_utf8(holder).ok().and_then(ClientId::new);
            let answer = Refusal::taken(millis(*retry_in), ahead).into();
            let told = Answered::hinted(answer, *denied);
            Ok(Answered { holder, is_first_behind_a_foreigner, ..told })
        }
        [Value::Int(2)] => Err(line_is_full(key)),
        [Value::Int(4), Value::Int(left @ 1..), Value::Int(of @ 1..)] => {
            let [left, of] = [left, of].map(|ms| Duration::from_millis(ms.unsigned_abs()));
            Ok(Answered::alone(Refusal::quarantined(to_quarantine(left, of)).into()))
        }
        reply if is_misled(reply) => Err(misled()),
        [Value::Int(6)] => Err(no_epoch()),
        [Value::Int(7)] => Err(no_tokens(key)),
        [Value::Int(8), Value::Int(of)] => Err(other_usage(key, usage(*of), claim)),
        _ => Err(strange(key)),
    }
}

/// The use of a key. Zero stands for a lock, and any other number for the number of permits.
fn usage(of: i64) -> Usage {
    u32::try_from(of).ok().filter(|of| *of > 0).map_or(Usage::Lock, |of| Usage::Permits { of })
}

/// Reads the reply of resize.lua.
pub(in crate::store::redis) fn resized(
    key: &Key,
    claim: Claim,
    reply: &Value,
) -> Parsed<Option<u32>> {
    match items(reply) {
        [Value::Int(1), Value::Int(before), Value::Int(denied)] => {
            let before = u32::try_from(*before).map_err(|_| strange(key))?;
            Ok(Answered::hinted((before > 0).then_some(before), *denied))
        }
        [Value::Int(8), Value::Int(of)] => Err(other_usage(key, usage(*of), claim)),
        _ => Err(strange(key)),
    }
}

/// Whether strict.lua says that the connection leads to another process than at first.
pub(in crate::store::redis) fn was_misled(reply: &Value) -> bool {
    is_misled(items(reply))
}

const fn is_misled(reply: &[Value]) -> bool {
    matches!(reply, [Value::Int(5)])
}

/// A quarantine of the length `of`. If `left` is longer, the clock was set back, or somebody has
/// changed the end. Then the beginning is unknown.
pub(in crate::store::redis) fn to_quarantine(left: Duration, of: Duration) -> Quarantine {
    Quarantine { since: of.checked_sub(left), left }
}

/// The answer to an acquire request by command, for a lock without companion keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store::redis) enum Set {
    /// The key was free. The caller has it now.
    Done,
    /// The caller had the key before.
    Before,
    /// Another owner has the key.
    Taken,
    /// This is the reply of a script.
    Scripted,
}

/// Reads the reply of `SET` with `NX` and `GET`, which is the old value of the key. The replies of
/// acquire.lua have other types.
pub(in crate::store::redis) fn set(owner: &OwnerToken, reply: &Value) -> Set {
    match reply {
        Value::Nil => Set::Done,
        Value::Bytes(holder) if holder == owner.as_str().as_bytes() => Set::Before,
        Value::Bytes(_) => Set::Taken,
        _ => Set::Scripted,
    }
}

/// Reads the reply of renew.lua.
pub(in crate::store::redis) fn renewed(key: &Key, reply: &Value) -> Result<Renewed, Error> {
    match items(reply) {
        [Value::Int(0)] => Ok(Renewed::Lost),
        [Value::Int(1), Value::Int(first), Value::Int(count), Value::Int(wanted), before @ ..] => {
            let fencing = block(*first, *count).ok_or_else(|| strange(key))?;
            // Somebody may have written the request by hand, and that must not cost the lease.
            let (revoked, before) = match before {
                [before @ .., request @ Value::Bytes(_)] => (revocation(request), before),
                before => (None, before),
            };
            let raised_from = match before {
                [] => None,
                [Value::Int(first), Value::Int(count)] => {
                    block(*first, *count).ok_or_else(|| strange(key))?
                }
                _ => return Err(strange(key)),
            };
            Ok(Renewed::Renewed { fencing, raised_from, wanted: *wanted != 0, revoked })
        }
        _ => Err(strange(key)),
    }
}

/// Reads the reply of release.lua, or of a command that compares and deletes.
pub(in crate::store::redis) fn released(key: &Key, reply: &Value) -> Parsed<Released> {
    match reply {
        Value::Int(0) => return Ok(Answered::alone(Released::NotHeld)),
        Value::Int(1) => return Ok(Answered::alone(Released::Freed)),
        Value::Int(2) => return Ok(Answered::alone(Released::HandedOver)),
        _ => {}
    }
    match items(reply) {
        [Value::Int(0)] => Ok(Answered::alone(Released::NotHeld)),
        [Value::Int(1), Value::Int(denied)] => Ok(Answered::hinted(Released::Freed, *denied)),
        [Value::Int(2), Value::Int(denied)] => Ok(Answered::hinted(Released::HandedOver, *denied)),
        [Value::Int(3), Value::Int(first), Value::Int(count)] => {
            let fencing = block(*first, *count).ok_or_else(|| strange(key))?;
            Ok(Answered::alone(Released::Kept { fencing }))
        }
        _ => Err(strange(key)),
    }
}

/// Reads the reply of evict.lua.
pub(in crate::store::redis) fn evicted(key: &Key, reply: &Value) -> Parsed<Evicted> {
    match items(reply) {
        [Value::Int(0)] => Ok(Answered::alone(Evicted::Changed)),
        [Value::Int(1), Value::Int(denied)] => Ok(Answered::hinted(Evicted::Evicted, *denied)),
        _ => Err(strange(key)),
    }
}

/// Reads the reply of revoke.lua.
pub(in crate::store::redis) fn revoked(key: &Key, reply: &Value) -> Result<Revoked, Error> {
    match items(reply) {
        [Value::Int(0)] => Ok(Revoked::Changed),
        [Value::Int(1)] => Ok(Revoked::Asked),
        _ => Err(strange(key)),
    }
}

/// A request to let go.
fn revocation(text: &Value) -> Option<Arc<Revocation>> {
    self::text(text).and_then(|text| Revocation::read(&text)).map(Arc::new)
}

/// Reads the reply of inspect.lua. The records of the clients are read separately.
pub(in crate::store::redis) fn inspected(key: &Key, reply: &Value) -> Result<Snapshot, Error> {
    let [
        token,
        Value::Int(ttl_left),
        counter,
        grant,
        Value::Int(waiting),
        Value::Array(waiters),
        Value::Array(sharing),
        Value::Int(of),
        Value::Int(taken),
    ] = items(reply)
    else {
        return Err(strange(key));
    };
    let counter = number(counter).and_then(FencingToken::new);
    let of = u32::try_from(*of).ok().filter(|of| *of > 0);
    let holders = match token {
        Value::Nil => {
            let sharing = sharing.chunks_exact(8).take(Snapshot::HOLDERS_SHOWN_MAX);
            sharing.filter_map(|words| one_of_several(words, of)).collect()
        }
        Value::Bytes(token) => vec![holder(token, *ttl_left, counter, grant)],
        _ => return Err(strange(key)),
    };
    let waiters = waiters.chunks_exact(3).take(Snapshot::WAITERS_SHOWN_MAX);
    Ok(Snapshot {
        holders,
        waiters: waiters.map(|words| waiter(words, of)).collect(),
        waiting: u32::try_from(*waiting).map_err(|_| strange(key))?,
        fencing: counter,
        votes: Vec::new(),
        quarantine: None,
        permits: of.map(|of| PermitsTaken::new(u32::try_from(*taken).unwrap_or(0), of)),
    })
}

/// Reads the reply of living.lua.
pub(in crate::store::redis) fn living(key: &Key, reply: &Value) -> Result<bool, Error> {
    match reply {
        Value::Int(living) => Ok(*living != 0),
        _ => Err(strange(key)),
    }
}

/// Whether renew.lua or release.lua gave fencing tokens: its reply contains a block. Only then has
/// the script read the counter.
pub(in crate::store::redis) fn has_fencing(reply: &Value) -> bool {
    matches!(items(reply), [Value::Int(1 | 3), Value::Int(_), Value::Int(1..), ..])
}

/// Whether acquire.lua took new fencing tokens from the counter. The tokens of an earlier request
/// have a fourth number behind them.
pub(in crate::store::redis) fn has_new_fencing(reply: &Value) -> bool {
    matches!(reply, Value::Int(1..))
        || matches!(items(reply), [Value::Int(1), Value::Int(_), Value::Int(1..)])
}

fn holder(token: &[u8], ttl_left: i64, counter: Option<FencingToken>, grant: &Value) -> Holder {
    let [first, count, since, why, idle, request] = items(grant) else {
        // There is no note. So a client of Leasehold has the last token, and other clients have
        // none.
        let first = counter.filter(|_| client_of(token).is_some());
        return Holder {
            ttl_left: millis(ttl_left),
            fencing: first.map(|first| FencingBlock { first, count: 1 }),
            ..Holder::new(token)
        };
    };
    let signed = |value| number(value).and_then(|number| i64::try_from(number).ok());
    let fencing = signed(first).zip(signed(count)).and_then(|(first, count)| block(first, count));
    Holder {
        token: token.to_vec(),
        client: None,
        why: text(why).and_then(|why| why.strip_prefix('=').map(str::to_owned)),
        since: number(since).map(WallTime::from_unix_micros),
        ttl: None,
        ttl_left: millis(ttl_left),
        fencing: fencing.flatten(),
        idle: *idle != Value::Nil,
        claim: Claim::Exclusive,
        revoked: revocation(request),
    }
}

/// Reads a holder that shares the key. `of` is the number of permits of a semaphore.
fn one_of_several(words: &[Value], of: Option<u32>) -> Option<Holder> {
    let [token, Value::Int(left), first, Value::Int(count), since, why, Value::Int(want), request] =
        words
    else {
        return None;
    };
    let Value::Bytes(token) = token else { return None };
    let want = u32::try_from(*want).unwrap_or(0);
    let first = number(first).and_then(|first| i64::try_from(first).ok());
    Some(Holder {
        why: text(why).and_then(|why| why.strip_prefix('=').map(str::to_owned)),
        since: number(since).map(WallTime::from_unix_micros),
        ttl_left: millis(*left),
        fencing: first.and_then(|first| block(first, *count)).flatten(),
        claim: of.map_or(Claim::Shared, |of| Claim::Permits { want, of }),
        revoked: revocation(request),
        ..Holder::new(&token[..])
    })
}

fn waiter(words: &[Value], of: Option<u32>) -> Waiter {
    let [owner, since, stance] = words else { return Waiter::default() };
    let id = if let Value::Bytes(owner) = owner { client_of(owner) } else { None };
    let claim = match text(stance).as_deref() {
        Some("s") => Claim::Shared,
        Some(stance) => stance
            .strip_prefix('p')
            .and_then(|want| want.parse().ok())
            .map_or(Claim::Exclusive, |want| Claim::Permits { want, of: of.unwrap_or(want) }),
        None => Claim::Exclusive,
    };
    Waiter { id, client: None, since: number(since).map(WallTime::from_unix_micros), claim }
}

/// The items of a list; none if it is not a list.
fn items(value: &Value) -> &[Value] {
    if let Value::Array(values) = value { values } else { &[] }
}

/// A block of fencing tokens, or none; `None` if the numbers are invalid.
fn block(first: i64, count: i64) -> Option<Option<FencingBlock>> {
    if count == 0 {
        return Some(None);
    }
    let (first, count) = (u64::try_from(first).ok()?, u32::try_from(count).ok()?);
    let last = first.checked_add(u64::from(count) - 1)?;
    (last <= FencingToken::MAX)
        .then(|| FencingToken::new(first))?
        .map(|first| Some(FencingBlock { first, count }))
}

/// The time left; `None` if there is no end.
fn millis(ms: i64) -> Option<Duration> {
    u64::try_from(ms).ok().map(Duration::from_millis)
}

fn text(value: &Value) -> Option<String> {
    if let Value::Bytes(bytes) = value {
        str::from_utf8(bytes).ok().map(str::to_owned)
    } else {
        None
    }
}

fn number(value: &Value) -> Option<u64> {
    if let Value::Bytes(bytes) = value { str::from_utf8(bytes).ok()?.parse().ok() } else { None }
}

fn strange(key: &Key) -> Error {
    Error::new(
        ErrorKind::Unknown,
        "the server gave an unexpected answer; it may have granted, renewed or released the lock; \
         wait one ttl, and check that this is a Redis server",
    )
    .with_name(key.as_str())
}

#[cfg(test)]
mod tests;
