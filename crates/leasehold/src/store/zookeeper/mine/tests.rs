use super::*;
use crate::core::moment::WallTime;
use crate::core::ttl::Ttl;
use crate::store::{Ask, Claim};

const LATER: Duration = Duration::from_secs(1);

fn add(mine: &Mine, name: &str, until: Moment) -> Arc<Node> {
    add_to(mine, "a", name, until).0
}

/// Adds a node of a lock. Also returns whether it ends before all others.
fn add_to(mine: &Mine, lock: &str, name: &str, until: Moment) -> (Arc<Node>, bool) {
    let key = Key::new(lock).expect("a name");
    let owner = OwnerToken::new("x").expect("printable");
    let ttl = Ttl::new(LATER).expect("within bounds");
    let ask = Ask::new(key.clone(), owner.clone(), Claim::Exclusive, ttl);
    let entry = Entry::of(&ask, 1_000, WallTime::from_unix_micros(0));
    let state = State::new(entry, until, None);
    mine.add(Node::new((key, owner), &format!("/{lock}"), name, Session::unconnected(), state))
}

#[test]
fn a_node_that_has_ended_is_dying_until_it_is_deleted() {
    let (mine, now) = (Mine::default(), Moment::from_nanos(1));
    let late = add(&mine, "1", now + LATER);
    assert!(mine.ended(now).0.is_empty() && !mine.is_dying("/a/1"));
    let (ended, ..) = mine.ended(now + LATER);
    assert_eq!(ended.len(), 1);
    assert!(mine.of(&late.of).is_none() && mine.is_dying("/a/1"));
    let given_up = add(&mine, "2", now + 3 * LATER);
    mine.condemn(&given_up);
    assert!(!given_up.lengthen(now, LATER), "nothing lengthens it");
    assert!(mine.of(&late.of).is_none() && mine.is_dying("/a/2"));
    mine.deleted(&late);
    assert!(!mine.is_dying("/a/1") && mine.is_dying("/a/2"));
}

#[test]
fn a_doubt_is_settled_by_one_task_at_a_time() {
    let (mine, now) = (Mine::default(), Moment::from_nanos(1));
    let of = add(&mine, "1", now + 9 * LATER).of.clone();
    mine.doubt(Doubt::new(of.clone(), Session::unconnected(), now + LATER));
    let due = |at| mine.ended(at).1;
    assert!(due(now).is_empty(), "its caller may still come");
    let doubts = due(now + LATER);
    assert_eq!((doubts.len(), due(now + 2 * LATER).len()), (1, 0));
    mine.doubt_again(Arc::clone(&doubts[0]), now + 3 * LATER);
    assert!(due(now + 2 * LATER).is_empty(), "the task has failed just now");
    assert_eq!(due(now + 3 * LATER).len(), 1);
    mine.doubt_again(Arc::clone(&doubts[0]), now + 4 * LATER);
    mine.settled(&doubts[0]);
    assert!(mine.doubt_of(&of).is_none());
    assert!(due(now + 5 * LATER).is_empty(), "it is settled");
}

/// 1 000 leases, of which each is renewed long before its end.
#[test]
fn few_looks_find_no_lease_that_has_ended_however_many_are_renewed() {
    let (mine, ttl, millisecond) = (Mine::default(), 10 * LATER, Duration::from_millis(1));
    let mut now = Moment::from_nanos(1);
    let nodes: Vec<_> = (0..1_000)
        .map(|number| {
            let (node, is_first) = add_to(&mine, &number.to_string(), "1", now + ttl);
            assert_eq!(is_first, number == 0, "a later end changes no check");
            now = now + millisecond;
            node
        })
        .collect();
    nodes.iter().for_each(|node| assert!(node.lengthen(now, ttl)));
    let mut looks = 0;
    let end = now + ttl;
    while now < end {
        let (ended, _, next) = mine.ended(now);
        assert_eq!(ended.len(), 0);
        (now, looks) = (next.expect("there are nodes"), looks + 1);
    }
    assert!(looks <= 55, "{looks}");
    assert_eq!(mine.ended(end).0.len(), 1_000, "on time");
    assert_eq!(mine.ended(end).2, None);
}

#[test]
fn a_place_that_becomes_a_shorter_lease_ends_sooner() {
    let (mine, now) = (Mine::default(), Moment::from_nanos(1));
    let (node, other) = (add(&mine, "1", now + 9 * LATER), now + 5 * LATER);
    let (_other, is_first) = add_to(&mine, "b", "1", other);
    assert!(is_first);
    node.state.lock().until = now + LATER;
    assert!(mine.shortened(&node), "the task must wake sooner");
    assert_eq!(mine.ended(now + LATER).2, Some(other));
    assert!(mine.of(&node.of).is_none());
    assert!(!mine.shortened(&node), "it is gone");
}

#[test]
fn the_node_behind_one_that_is_gone_is_told_once() {
    let (mine, now) = (Mine::default(), Moment::from_nanos(1));
    let (node, gone) = (add(&mine, "2", now + LATER), ["/a/1".to_owned()]);
    assert!(mine.watch(&node, "/a/1") && !mine.watch(&node, "/a/1"), "once is enough");
    assert_eq!(mine.behind(&gone).len(), 1);
    assert!(mine.behind(&gone).is_empty() && mine.watch(&node, "/a/0"));
    mine.forget(&node);
    assert!(mine.0.lock().behind.is_empty(), "nobody waits any more");
    mine.watch(&node, "/a/0");
    assert!(mine.0.lock().behind.is_empty(), "it is forgotten");
}

#[test]
fn the_text_of_a_node_is_written_anew_only_after_a_change() {
    let node = add(&Mine::default(), "1", Moment::from_nanos(1));
    let mut state = node.state.lock();
    let before = state.text(1_000).to_vec();
    assert!(state.text.is_some() && state.text(1_000) == before);
    let same = state.text(1_000).as_ptr();
    assert_eq!(state.text(1_000).as_ptr(), same);
    assert_ne!(state.text(2_000), before);
    state.entry_mut().is_idle = true;
    assert_eq!(Entry::read(state.text(2_000)).as_ref(), Some(state.entry()));
}
