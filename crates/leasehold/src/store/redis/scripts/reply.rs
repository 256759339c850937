//! Turns the replies of scripts into answers of the store contract.
//!
//! The server may not be a real one, so every reply is checked. A reply of another shape is an
//! error.

use std::time::Duration;

use super::reasons::{misled, no_epoch, no_tokens};
use crate::core::error::{Error, ErrorKind};
use crate::core::key::Key;
use crate::core::moment::WallTime;
use crate::core::token::{ClientId, FencingBlock, FencingToken, OwnerToken, client_of};
use crate::store::redis::codec::command::Value;
use crate::store::{
    Acquired, Evicted, Holder, Quarantine, Refusal, Released, Renewed, Snapshot, Waiter,
    line_is_full,
};

/// The reply of acquire.lua for a holder that is not one of our clients.
const FOREIGNER: &[u8] = b"?";

/// An answer, and further facts from the reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::store::redis) struct Answered<T> {
    /// The answer.
    pub(in crate::store::redis) answer: T,
    /// The client that holds the key, if the caller has just taken a place. It must be told that
    /// the key is wanted.
    pub(in crate::store::redis) holder: Option<ClientId>,
    /// Whether the holder is not one of our clients, and the caller is the first in line.
    pub(in crate::store::redis) is_first_behind_a_foreigner: bool,
    /// Whether the user may not publish hints to other clients.
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

/// Reads the reply of acquire.lua.
pub(in crate::store::redis) fn acquired(key: &Key, reply: &Value) -> Parsed<Acquired> {
    if let Value::Int(number) = reply {
        let fencing = block(*number, (*number != 0).into()).ok_or_else(|| strange(key))?;
        return Ok(Answered::alone(Acquired::Granted { fencing }));
    }
    match items(reply) {
        [Value::Int(1), Value::Int(first), Value::Int(count)] => {
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
            let raised_from = match before {
                [] => None,
                [Value::Int(first), Value::Int(count)] => {
                    block(*first, *count).ok_or_else(|| strange(key))?
                }
                _ => return Err(strange(key)),
            };
            Ok(Renewed::Renewed { fencing, raised_from, wanted: *wanted != 0 })
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

/// Reads the reply of inspect.lua. The records of the clients are read separately.
pub(in crate::store::redis) fn inspected(key: &Key, reply: &Value) -> Result<Snapshot, Error> {
    let [token, Value::Int(ttl_left), counter, grant, Value::Int(waiting), Value::Array(waiters)] =
        items(reply)
    else {
        return Err(strange(key));
    };
    let counter = number(counter).and_then(FencingToken::new);
    let holders = match token {
        Value::Nil => Vec::new(),
        Value::Bytes(token) => vec![holder(token, *ttl_left, counter, grant)],
        _ => return Err(strange(key)),
    };
    let waiters = waiters.chunks_exact(2).take(Snapshot::WAITERS_SHOWN_MAX);
    Ok(Snapshot {
        holders,
        waiters: waiters.map(|pair| waiter(&pair[0], &pair[1])).collect(),
        waiting: u32::try_from(*waiting).map_err(|_| strange(key))?,
        fencing: counter,
        votes: Vec::new(),
        quarantine: None,
    })
}

/// Reads the reply of living.lua.
pub(in crate::store::redis) fn living(key: &Key, reply: &Value) -> Result<bool, Error> {
    match reply {
        Value::Int(living) => Ok(*living != 0),
        _ => Err(strange(key)),
    }
}

/// Whether a step that asked for fencing tokens got some. If so, the reply of acquire.lua,
/// renew.lua or release.lua contains a block. Only then has the script read the counter.
pub(in crate::store::redis) fn has_fencing(reply: &Value) -> bool {
    matches!(items(reply), [Value::Int(1 | 3), Value::Int(_), Value::Int(1..), ..])
}

fn holder(token: &[u8], ttl_left: i64, counter: Option<FencingToken>, grant: &Value) -> Holder {
    let [first, count, since, why, idle] = items(grant) else {
        // There is no note: one of our clients has the last token, and others have none.
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
    }
}

fn waiter(owner: &Value, since: &Value) -> Waiter {
    let id = if let Value::Bytes(owner) = owner { client_of(owner) } else { None };
    Waiter { id, client: None, since: number(since).map(WallTime::from_unix_micros) }
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
mod tests {
    use super::*;
    use crate::store::{Afterwards, Why};

    fn key() -> Key {
        Key::new("a").expect("a name")
    }

    fn bytes(text: &str) -> Value {
        Value::Bytes(text.into())
    }

    fn ints<const N: usize>(numbers: [i64; N]) -> Value {
        Value::Array(numbers.into_iter().map(Value::Int).collect())
    }

    fn tokens(first: u64, count: u32) -> Option<FencingBlock> {
        Some(FencingBlock { first: FencingToken::new(first).expect("not zero"), count })
    }

    fn taken(retry_in: i64, ahead: i64, holder: &str, denied: i64) -> Value {
        let numbers = [0, retry_in, ahead].map(Value::Int);
        Value::Array(numbers.into_iter().chain([bytes(holder), Value::Int(denied)]).collect())
    }

    #[test]
    fn an_ask_is_granted_or_taken() {
        let answer = |reply: &Value| acquired(&key(), reply).expect("an answer");
        let granted = |reply: &Value| match answer(reply).answer {
            Acquired::Granted { fencing } => fencing,
            Acquired::Refused(refusal) => panic!("{refusal:?}"),
        };
        let refused = |reply: &Value| match answer(reply).answer {
            Acquired::Refused(refusal) => refusal,
            Acquired::Granted { fencing } => panic!("{fencing:?}"),
        };
        assert_eq!(granted(&ints([1, 41, 8])), tokens(41, 8));
        assert_eq!(granted(&ints([1, 0, 0])), None);
        assert_eq!(granted(&Value::Int(41)), tokens(41, 1));
        assert_eq!(granted(&Value::Int(0)), None);
        let end = Some(Duration::from_millis(500));
        for (retry_in, end) in [(500, end), (0, Some(Duration::ZERO)), (-1, None)] {
            let refusal = refused(&taken(retry_in, 3, "", 0));
            assert!(refusal.is_taken(), "{refusal:?}");
            assert_eq!((refusal.retry_in, refusal.ahead), (end, 3));
            assert_eq!(refusal.token, Afterwards::Keep);
        }
        let told = answer(&taken(1, 0, "AAAAAAAAAAAA", 1));
        assert_eq!(told.holder, ClientId::new("AAAAAAAAAAAA"));
        assert!(told.hints_denied && !told.is_first_behind_a_foreigner);
        for (ahead, is_first) in [(0, true), (1, false)] {
            let behind = answer(&taken(1, ahead, "?", 0));
            assert_eq!((behind.holder, behind.is_first_behind_a_foreigner), (None, is_first));
        }
        let second = Duration::from_secs(1);
        for (left, since, shown) in [
            (64_000, Some(second), second * 64),
            (65_000, Some(Duration::ZERO), second * 65),
            (70_000, None, second * 70),
        ] {
            let refusal = refused(&ints([4, left, 65_000]));
            let Why::Quarantined(quarantine) = refusal.why else { panic!("{refusal:?}") };
            assert_eq!(quarantine, Quarantine { since, left: shown });
            assert_eq!((refusal.retry_in, refusal.token), (Some(shown), Afterwards::Leave));
        }
        let full = acquired(&key(), &ints([2])).expect_err("full");
        assert_eq!(full.kind(), ErrorKind::Unavailable);
        assert!(was_misled(&ints([5])) && !was_misled(&ints([6])) && !was_misled(&Value::Int(5)));
        let misled = acquired(&key(), &ints([5])).expect_err("another process");
        assert_eq!(misled.kind(), ErrorKind::Unavailable);
        let spent = acquired(&key(), &ints([7])).expect_err("no tokens");
        assert_eq!(spent.kind(), ErrorKind::Config);
        let other = acquired(&key(), &ints([6])).expect_err("no epoch");
        assert_eq!(other.kind(), ErrorKind::Config);
    }

    #[test]
    fn the_other_answers_are_read() {
        let fencing = tokens(7, 1);
        let lease = |reply: Value| renewed(&key(), &reply).expect("an answer");
        assert_eq!(lease(ints([0])), Renewed::Lost);
        for (reply, raised_from) in
            [(ints([1, 7, 1, 1]), None), (ints([1, 7, 1, 1, 2, 3]), tokens(2, 3))]
        {
            assert_eq!(lease(reply), Renewed::Renewed { fencing, raised_from, wanted: true });
        }
        let end = |reply: Value| released(&key(), &reply).expect("an answer");
        assert_eq!(end(ints([0])), Answered::alone(Released::NotHeld));
        assert_eq!(end(ints([1, 1])), Answered::hinted(Released::Freed, 1));
        assert_eq!(end(Value::Int(1)), Answered::alone(Released::Freed));
        assert_eq!(end(Value::Int(2)), Answered::alone(Released::HandedOver));
        assert_eq!(end(ints([2, 0])), Answered::alone(Released::HandedOver));
        assert_eq!(end(ints([3, 7, 1])), Answered::alone(Released::Kept { fencing }));
        let gone = |reply: Value| evicted(&key(), &reply).expect("an answer");
        assert_eq!(gone(ints([0])), Answered::alone(Evicted::Changed));
        assert_eq!(gone(ints([1, 0])), Answered::alone(Evicted::Evicted));
        assert_eq!(living(&key(), &Value::Int(1)).ok(), Some(true));
        assert_eq!(living(&key(), &Value::Int(0)).ok(), Some(false));
    }

    #[test]
    fn a_reply_says_whether_fencing_tokens_were_taken() {
        let table = [
            (ints([1, 41, 8]), true),
            (ints([1, 7, 1, 1]), true),
            (ints([3, 7, 1]), true),
            (ints([1, 0, 0]), false),
            (taken(500, 3, "", 0), false),
            (ints([0]), false),
            (ints([2]), false),
            (ints([1, 1]), false),
            (ints([2, 1]), false),
            (Value::Nil, false),
        ];
        for (reply, expected) in table {
            assert_eq!(has_fencing(&reply), expected, "{reply:?}");
        }
    }

    #[test]
    fn what_is_not_of_the_agreed_shape_is_no_answer() {
        let max = i64::try_from(FencingToken::MAX).expect("it fits");
        let strange = [
            Value::Nil,
            Value::Int(-1),
            Value::Int(max + 1),
            bytes("OK"),
            Value::Array(vec![]),
            ints([9]),
            ints([1]),
            ints([1, -1, 1]),
            ints([1, 0, 1]),
            ints([1, 1, -1]),
            ints([1, max, 2]),
            ints([1, i64::MAX, 1]),
            ints([1, 1, 1 << 40]),
            ints([3, -1, 1]),
            ints([4, -1, 1]),
            ints([4, 0, 1]),
            ints([4, 1, 0]),
            ints([4, 1]),
            ints([1, -1, 1, 0]),
            ints([1, 7, 1, 0, 2]),
            ints([1, 7, 1, 0, -1, 1]),
            ints([0, 1, 1, 1, 1]),
            taken(1, -1, "", 0),
            taken(1, 1 << 40, "", 0),
            Value::Array(vec![Value::Nil; 5]),
            Value::Array(vec![Value::Nil; 6]),
            Value::Array(vec![ints([1, 1, 1])]),
        ];
        for reply in &strange {
            let errors = [
                acquired(&key(), reply).err(),
                renewed(&key(), reply).err(),
                released(&key(), reply).err(),
                evicted(&key(), reply).err(),
                inspected(&key(), reply).err(),
            ];
            for error in errors {
                let error = error.unwrap_or_else(|| panic!("{reply:?} was taken for an answer"));
                assert_eq!(error.kind(), ErrorKind::Unknown);
                assert!(error.to_string().contains("an unexpected answer"), "{error}");
            }
        }
        assert!(living(&key(), &Value::Nil).is_err());
    }

    fn inspection(token: Value, ttl_left: i64, grant: Value, waiters: Vec<Value>) -> Snapshot {
        let [ttl_left, waiting] = [ttl_left, 7].map(Value::Int);
        let waiters = Value::Array(waiters);
        let reply = vec![token, ttl_left, bytes("44"), grant, waiting, waiters];
        inspected(&key(), &Value::Array(reply)).expect("an answer")
    }

    #[test]
    fn a_snapshot_shows_what_is_noted() {
        const OURS: &str = "AAAAAAAAAAAAAAAAAAAAAA.BBBBBBBBBBBB";
        let grant = ["41", "4", "1000000", "=why | not", "1"].map(bytes).to_vec();
        let waiters = vec![bytes(OURS), bytes("5"), bytes("\u{1}"), bytes("x")];
        let snapshot = inspection(bytes(OURS), 500, Value::Array(grant), waiters);
        assert_eq!((snapshot.waiting, snapshot.fencing), (7, FencingToken::new(44)));
        let holder = &snapshot.holders[0];
        assert_eq!(holder.token, OURS.as_bytes());
        assert_eq!(holder.why.as_deref(), Some("why | not"));
        assert_eq!(holder.since, Some(WallTime::from_unix_micros(1_000_000)));
        assert_eq!(holder.ttl_left, Some(Duration::from_millis(500)));
        assert_eq!((holder.fencing, holder.idle), (tokens(41, 4), true));
        assert_eq!(snapshot.waiters[0].id, ClientId::new("BBBBBBBBBBBB"));
        assert_eq!(snapshot.waiters[0].since, Some(WallTime::from_unix_micros(5)));
        assert_eq!((&snapshot.waiters[1].id, snapshot.waiters[1].since), (&None, None));
    }

    #[test]
    fn a_holder_of_whom_nothing_is_noted_has_the_last_token_unless_it_is_a_foreigner() {
        let ours = "AAAAAAAAAAAAAAAAAAAAAA.BBBBBBBBBBBB";
        for (token, ttl_left, fencing) in [(ours, 5, tokens(44, 1)), ("go-zero", -1, None)] {
            let snapshot = inspection(bytes(token), ttl_left, Value::Nil, vec![]);
            assert_eq!(snapshot.holders[0].fencing, fencing);
            assert_eq!(snapshot.holders[0].ttl_left, millis(ttl_left));
        }
        let nobody = inspection(Value::Nil, -2, Value::Nil, vec![]);
        assert_eq!(nobody.holders, []);
    }

    #[test]
    fn a_hostile_note_is_shown_as_far_as_it_can_be_read() {
        let grant =
            vec![bytes("-1"), bytes("x"), bytes("\u{7}"), Value::Bytes(vec![0xff]), Value::Nil];
        let snapshot =
            inspection(Value::Bytes(vec![0xff]), 5, Value::Array(grant), vec![bytes("x")]);
        let holder = &snapshot.holders[0];
        assert_eq!((holder.fencing, &holder.why, holder.since), (None, &None, None));
        assert!(snapshot.waiters.is_empty());
    }
}
