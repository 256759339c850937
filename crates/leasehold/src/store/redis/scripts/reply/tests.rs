//! Tests of `reply.rs`: each reply of a script is read, and no other one.

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

const fn micros(micros: u64) -> WallTime {
    WallTime::from_unix_micros(micros)
}

fn taken(retry_in: i64, ahead: i64, holder: &str, denied: i64) -> Value {
    let numbers = [0, retry_in, ahead].map(Value::Int);
    Value::Array(numbers.into_iter().chain([bytes(holder), Value::Int(denied)]).collect())
}

#[test]
fn an_ask_is_granted_or_taken() {
    let answer = |reply: &Value| acquired(&key(), Claim::Exclusive, reply).expect("an answer");
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
    let full = acquired(&key(), Claim::Exclusive, &ints([2])).expect_err("full");
    assert_eq!(full.kind(), ErrorKind::Unavailable);
    assert!(was_misled(&ints([5])) && !was_misled(&ints([6])) && !was_misled(&Value::Int(5)));
    let misled = acquired(&key(), Claim::Exclusive, &ints([5])).expect_err("another process");
    assert_eq!(misled.kind(), ErrorKind::Unavailable);
    let spent = acquired(&key(), Claim::Exclusive, &ints([7])).expect_err("no tokens");
    assert_eq!(spent.kind(), ErrorKind::Config);
    let other = acquired(&key(), Claim::Exclusive, &ints([6])).expect_err("no epoch");
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
        let (wanted, revoked) = (true, None);
        assert_eq!(
            lease(reply.clone()),
            Renewed::Renewed { fencing, raised_from, wanted, revoked }
        );
        for (request, revoked) in [
            ("9|ada@web|noon", Some(Revocation::new("ada@web", "noon", micros(9)))),
            ("by hand", None),
        ] {
            let Value::Array(mut words) = reply.clone() else { panic!("a list") };
            words.push(bytes(request));
            let revoked = revoked.map(Arc::new);
            let expected = Renewed::Renewed { fencing, raised_from, wanted, revoked };
            assert_eq!(lease(Value::Array(words)), expected, "it costs no lease");
        }
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
    assert_eq!(revoked(&key(), &ints([0])).ok(), Some(Revoked::Changed));
    assert_eq!(revoked(&key(), &ints([1])).ok(), Some(Revoked::Asked));
    assert!(revoked(&key(), &ints([2])).is_err() && revoked(&key(), &Value::Int(1)).is_err());
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
    // The tokens of an earlier ask do not show that the counter was raised.
    for (reply, expected) in [
        (ints([1, 41, 8]), true),
        (Value::Int(41), true),
        (ints([1, 41, 8, 1]), false),
        (ints([1, 0, 0]), false),
        (Value::Int(0), false),
        (taken(500, 3, "", 0), false),
    ] {
        assert_eq!(has_new_fencing(&reply), expected, "{reply:?}");
    }
}

#[test]
fn a_reply_of_another_shape_is_no_answer() {
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
            acquired(&key(), Claim::Exclusive, reply).err(),
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
    let sharing = Value::Array(Vec::new());
    let [of, taken] = [0, 0].map(Value::Int);
    let reply = vec![token, ttl_left, bytes("44"), grant, waiting, waiters, sharing, of, taken];
    inspected(&key(), &Value::Array(reply)).expect("an answer")
}

#[test]
fn a_snapshot_shows_what_is_noted() {
    const OURS: &str = "AAAAAAAAAAAAAAAAAAAAAA.BBBBBBBBBBBB";
    let grant = ["41", "4", "1000000", "=why | not", "1", "9|ada@web|a | b"].map(bytes).to_vec();
    let waiters = ["5", "j", "\u{1}", "x", "s"].map(bytes);
    let waiters = [vec![bytes(OURS)], waiters.to_vec()].concat();
    let snapshot = inspection(bytes(OURS), 500, Value::Array(grant), waiters);
    assert_eq!((snapshot.waiting, snapshot.fencing), (7, FencingToken::new(44)));
    let holder = &snapshot.holders[0];
    assert_eq!(holder.token, OURS.as_bytes());
    assert_eq!(holder.why.as_deref(), Some("why | not"));
    assert_eq!(holder.since, Some(WallTime::from_unix_micros(1_000_000)));
    assert_eq!(holder.ttl_left, Some(Duration::from_millis(500)));
    assert_eq!((holder.fencing, holder.idle), (tokens(41, 4), true));
    let revoked = Revocation::new("ada@web", "a | b", micros(9));
    assert_eq!(holder.revoked.as_deref(), Some(&revoked));
    assert_eq!(snapshot.waiters[0].id, ClientId::new("BBBBBBBBBBBB"));
    assert_eq!(snapshot.waiters[0].since, Some(WallTime::from_unix_micros(5)));
    assert_eq!((&snapshot.waiters[1].id, snapshot.waiters[1].since), (&None, None));
    let claims: Vec<_> = snapshot.waiters.iter().map(|waiter| waiter.claim).collect();
    assert_eq!(claims, [Claim::Exclusive, Claim::Shared]);
    assert_eq!((holder.claim, snapshot.permits), (Claim::Exclusive, None));
}

#[test]
fn a_holder_without_a_note_has_the_last_token_unless_it_is_foreign() {
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
fn holders_that_share_a_key_are_shown_one_by_one() {
    let one = |words: [&str; 5]| {
        let [owner, first, since, why, request] = words.map(bytes);
        [owner, Value::Int(500), first, Value::Int(1), since, why, Value::Int(2), request]
    };
    let sharing =
        [one(["anna", "41", "1000000", "=a report", ""]), one(["bert", "x", "", "", "9|a|b"])]
            .concat();
    let reply = [Value::Nil, Value::Int(500), bytes("44"), Value::Nil, Value::Int(0)];
    let waiters = vec![bytes("carl"), bytes("7"), bytes("p3")];
    let lists = [waiters, sharing].map(Value::Array);
    let permits = [5, 4].map(Value::Int);
    let reply = Value::Array(reply.into_iter().chain(lists).chain(permits).collect());
    let snapshot = inspected(&key(), &reply).expect("an answer");
    assert_eq!(snapshot.permits, Some(PermitsTaken::new(4, 5)));
    assert_eq!(snapshot.waiters[0].claim, Claim::Permits { want: 3, of: 5 });
    let holders = snapshot.holders;
    assert_eq!(holders[1].claim, Claim::Permits { want: 2, of: 5 });
    assert_eq!(holders.len(), 2);
    assert_eq!((&holders[0].token[..], holders[0].fencing), (&b"anna"[..], tokens(41, 1)));
    assert_eq!(holders[0].why.as_deref(), Some("a report"));
    assert_eq!(holders[0].since, Some(WallTime::from_unix_micros(1_000_000)));
    assert_eq!(holders[0].revoked, None);
    assert!(holders[1].revoked.is_some());
    assert_eq!(holders[1].ttl_left, Some(Duration::from_millis(500)));
    assert_eq!((holders[1].fencing, &holders[1].why, holders[1].since), (None, &None, None));
}

#[test]
fn a_resize_tells_what_was_before_or_what_the_name_is_used_as() {
    let claim = Claim::Permits { want: 1, of: 3 };
    let answer = |reply: &Value| resized(&key(), claim, reply);
    assert_eq!(answer(&ints([1, 0, 0])).expect("an answer").answer, None);
    let told = answer(&ints([1, 2, 1])).expect("an answer");
    assert_eq!((told.answer, told.hints_denied), (Some(2), true));
    for reply in [ints([8, 0]), ints([8, 5])] {
        assert_eq!(answer(&reply).expect_err("refused").kind(), ErrorKind::Config);
    }
    assert_eq!(answer(&ints([1, -1, 0])).expect_err("strange").kind(), ErrorKind::Unknown);
    let error = acquired(&key(), claim, &ints([8, 5])).expect_err("another number");
    assert!(error.to_string().contains("for 5 permits"), "{error}");
}

#[test]
fn a_hostile_note_is_shown_as_far_as_it_can_be_read() {
    let mut grant = ["-1", "x", "\u{7}"].map(bytes).to_vec();
    grant.extend([Value::Bytes(vec![0xff]), Value::Nil, bytes("x|y|z")]);
    let snapshot = inspection(Value::Bytes(vec![0xff]), 5, Value::Array(grant), vec![bytes("x")]);
    let holder = &snapshot.holders[0];
    assert_eq!((holder.fencing, &holder.why, holder.since), (None, &None, None));
    assert_eq!(holder.revoked, None);
    assert!(snapshot.waiters.is_empty());
}
