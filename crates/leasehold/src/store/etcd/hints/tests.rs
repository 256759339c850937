//! Tests of the news that watches tell to each waiter.

use super::*;
use crate::core::moment::WallTime;
use crate::store::entry::Entry;
use crate::store::etcd::rpc::Kv;

fn owner() -> OwnerToken {
    OwnerToken::new("waiter").expect("printable")
}

fn key() -> Key {
    Key::new("k").expect("a name")
}

/// A lock with one waiter, whose ask 3 saw change 20.
fn watched() -> Watched {
    let waits = HashMap::from([(owner(), wait(0, 20))]);
    Watched { number: 1, waits, ..Watched::after(20) }
}

fn wait(ahead: u32, seen: i64) -> Wait {
    let inbox = ClientId::from_random([7; ClientId::CHARS]);
    Wait { inbox, ask_no: 3, ahead, seen, until: Moment::from_nanos(0) }
}

fn event(modified: i64, granted_to: Option<OwnerToken>) -> Event {
    let entry = granted_to.map(|owner| Entry {
        owner,
        lasts: 2,
        since: WallTime::from_unix_micros(0),
        reserve: 1,
        fence: None,
        is_idle: false,
        is_plain: false,
        why: None,
        client: None,
        revoked: None,
    });
    let value = entry.as_ref().map(Entry::write).unwrap_or_default();
    Event { is_delete: entry.is_none(), kv: Kv { value, modified, ..Kv::default() } }
}

#[test]
fn a_change_from_before_the_last_ask_is_no_news() {
    for modified in [5, 20] {
        for granted_to in [Some(owner()), None] {
            let (mut watched, mut mail) = (watched(), Mail::new());
            watched.take(&key(), event(modified, granted_to), &mut mail);
            assert!(mail.is_empty(), "{mail:?}");
            assert_eq!(watched.waits.len(), 1, "it goes on waiting");
        }
    }
}

/// The answer that begins a watch comes before the changes since `from`.
#[test]
fn a_watch_that_ends_before_its_first_change_begins_again_at_that_change() {
    let mut state = State::default();
    state.watched.insert(key(), watched());
    state.numbers.insert(1, key());
    let news = |events| News { watch: 1, events, ..News::default() };
    assert_eq!(state.take(news(Vec::new())), Ok(Mail::new()));
    assert_eq!(state.watched[&key()].from, 21, "the first change after what was seen");
    state.take(news(vec![event(25, None)])).expect("it is served");
    assert_eq!(state.watched[&key()].from, 26);
}

#[test]
fn a_grant_after_the_last_ask_counts_from_it() {
    let (mut watched, mut mail) = (watched(), Mail::new());
    watched.take(&key(), event(21, Some(owner())), &mut mail);
    assert!(matches!(mail[..], [(_, Hint::Granted { ask_no: 3, .. })]), "{mail:?}");
    assert!(watched.waits.is_empty());
}

#[test]
fn a_lock_that_is_free_after_the_last_ask_is_told() {
    let (mut watched, mut mail) = (watched(), Mail::new());
    watched.take(&key(), event(21, None), &mut mail);
    assert!(matches!(mail[..], [(_, Hint::MaybeFree { .. })]), "{mail:?}");
}
/// The watch told the others of this change before this waiter was registered.
#[test]
fn a_waiter_is_told_of_a_change_between_its_ask_and_its_wait() {
    let other = OwnerToken::new("other").expect("printable");
    for (granted_to, ahead, seen, is_told) in [
        (None, 0, 24, true),
        (None, 0, 25, false),
        (None, 1, 24, false),
        (Some(&owner()), 1, 24, true),
        (Some(&owner()), 1, 25, false),
        (Some(&other), 0, 24, false),
    ] {
        let mut watched = Watched { number: 1, ..Watched::after(20) };
        watched.take(&key(), event(25, granted_to.cloned()), &mut Mail::new());
        let has_missed = watched.wait(&owner(), wait(ahead, seen));
        assert_eq!(has_missed, is_told, "{granted_to:?}, {ahead} ahead, saw {seen}");
    }
}

#[test]
fn a_waiter_is_told_of_changes_before_the_watch_of_another_one_began() {
    for (seen, is_told) in [(19, true), (20, false), (21, false)] {
        assert_eq!(Watched::after(20).wait(&owner(), wait(1, seen)), is_told, "saw {seen}");
    }
}

#[test]
fn a_grant_to_another_waiter_between_an_ask_and_its_wait_moves_the_place_up() {
    let mut watched = Watched { number: 1, ..Watched::after(20) };
    let other = OwnerToken::new("other").expect("printable");
    watched.take(&key(), event(25, Some(other)), &mut Mail::new());
    assert!(!watched.wait(&owner(), wait(1, 24)));
    assert_eq!(watched.waits[&owner()].ahead, 0);
}

/// Otherwise nobody tells it when the lock is free, and it would sleep until it asks again by
/// itself.
#[test]
fn a_waiter_behind_the_new_holder_is_told_when_the_lock_is_free() {
    let other = OwnerToken::new("other").expect("printable");
    for (ahead, seen, is_told) in [(1, 20, true), (2, 20, false), (1, 21, false)] {
        let waits = HashMap::from([(other.clone(), wait(0, 20)), (owner(), wait(ahead, seen))]);
        let mut watched = Watched { number: 1, waits, ..Watched::after(20) };
        watched.take(&key(), event(21, Some(other.clone())), &mut Mail::new());
        let mut mail = Mail::new();
        watched.take(&key(), event(22, None), &mut mail);
        let told = matches!(mail[..], [(_, Hint::MaybeFree { .. })]);
        assert_eq!(told, is_told, "{ahead} ahead, saw {seen}: {mail:?}");
    }
}

/// The holder may get a longer lease, become idle, or be asked to let go.
#[test]
fn a_holder_that_writes_again_moves_nobody_up() {
    let other = OwnerToken::new("other").expect("printable");
    let waits = HashMap::from([(owner(), wait(3, 20))]);
    let mut watched = Watched { number: 1, waits, ..Watched::after(20) };
    for modified in [21, 22, 23] {
        watched.take(&key(), event(modified, Some(other.clone())), &mut Mail::new());
        assert_eq!(watched.waits[&owner()].ahead, 2, "change {modified}");
    }
    // An ask that has seen the grant, but not what the holder wrote later.
    watched.wait(&owner(), wait(2, 21));
    assert_eq!(watched.waits[&owner()].ahead, 2);
}

#[test]
fn only_new_watches_and_those_that_ended_are_looked_at() {
    let (mut state, keys) = (State::default(), Keys::new("x"));
    let names = (0..3).map(|number| Key::new(format!("k{number}")).expect("a name"));
    let names: Vec<_> = names.collect();
    for name in &names {
        state.wait(name, &owner(), wait(0, 20));
    }
    assert_eq!(state.messages(&keys).len(), 3);
    state.wait(&names[0], &owner(), wait(0, 30));
    assert!(state.due.is_empty() && state.messages(&keys).is_empty(), "it is watched");
    state.watched.get_mut(&names[1]).expect("it is watched").waits.clear();
    state.end_unused(&names[0]);
    assert!(state.ended.is_empty(), "somebody waits for it");
    state.end_unused(&names[1]);
    assert_eq!((state.watched.len(), state.messages(&keys).len()), (2, 1));
    let cancelled = News { watch: 1, is_cancelled: true, ..News::default() };
    state.take(cancelled).expect("it is served");
    assert_eq!(state.messages(&keys).len(), 1, "it begins again");
    state.begin_anew();
    assert_eq!(state.messages(&keys).len(), 2, "on the next stream");
}

#[test]
fn a_watch_that_the_server_refuses_ends_the_stream() {
    for watch in [-1, 1] {
        let mut state = State::default();
        state.watched.insert(key(), watched());
        state.numbers.insert(1, key());
        let refused = News { watch, is_created: true, is_cancelled: true, ..News::default() };
        let refusal = state.take(refused).expect_err("its waiters would never be told");
        assert!(refusal.contains("refused"), "{refusal}");
    }
}

/// The server would refuse each watch that begins before.
#[test]
fn a_watch_whose_changes_the_server_forgot_begins_again_behind_them() {
    for (compacted, from) in [(90, 90), (0, 21)] {
        let mut state = State::default();
        state.watched.insert(key(), watched());
        state.numbers.insert(1, key());
        let cancelled = News { watch: 1, is_cancelled: true, compacted, ..News::default() };
        state.take(cancelled).expect("it is served");
        assert_eq!(state.watched[&key()].from, from);
    }
}

/// A client that died while it waited would be watched for until the store ends.
#[test]
fn a_wait_that_is_over_is_forgotten_and_its_watch_ends_with_the_last_one() {
    let (mut state, keys) = (State::default(), Keys::new("x"));
    let other = OwnerToken::new("other").expect("printable");
    let until = |nanos| Wait { until: Moment::from_nanos(nanos), ..wait(0, 20) };
    state.wait(&key(), &owner(), until(5));
    state.wait(&key(), &other, until(9));
    assert_eq!(state.messages(&keys).len(), 1, "one watch for both");
    for (now, waits, ended) in [(4, 2, 0), (5, 1, 0), (8, 1, 0), (9, 0, 1)] {
        state.forget_old(Moment::from_nanos(now));
        let waiting = state.watched.get(&key()).map_or(0, |it| it.waits.len());
        assert_eq!((waiting, state.ended.len()), (waits, ended), "at {now}");
    }
    assert!(state.watched.is_empty() && state.numbers.is_empty());
}
