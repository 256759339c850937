//! Futures that are dropped at each of their awaits.

use std::time::Duration;

use leasehold::store::RedisStore;
use leasehold_compat::redsync::Mutex;
use leasehold_testkit::{cut_after, cut_when_woken};

use super::world::{Nodes, play};
use crate::world::ms;

/// How often a call may complete in its first poll, because every server answered meanwhile.
const QUICK_CALLS_MAX: usize = 100;

/// Drops the call after no poll, after one, and so on, until it completes. Does this twice: right
/// after the poll, and when the call is woken for the next. `check` inspects what is left each
/// time.
async fn cut_everywhere<T>(
    prepare: impl AsyncFn() -> Mutex<RedisStore>,
    call: impl AsyncFn(&Mutex<RedisStore>) -> T,
    check: impl AsyncFn(&Mutex<RedisStore>, usize),
) {
    for sees_last in [true, false] {
        let mut polls = 0;
        let mut quick_calls = 0;
        loop {
            let mutex = prepare().await;
            let ended = if sees_last {
                cut_after(polls, call(&mutex)).await.is_some()
            } else {
                cut_when_woken(polls, call(&mutex)).await.is_some()
            };
            match polls {
                _ if !ended => {
                    check(&mutex, polls).await;
                    polls += 1;
                }
                1 => {
                    quick_calls += 1;
                    assert!(quick_calls < QUICK_CALLS_MAX, "it was never cut on its way");
                }
                _ => break,
            }
        }
    }
}

/// X5: a lock that nobody learnt of leaves nothing behind.
#[test]
fn a_lock_whose_future_is_dropped_leaves_nothing() {
    for theirs in 0..3_usize {
        play(3, async |nodes| {
            let prepare = async || {
                for node in 0..3 {
                    nodes.tell(node, &["FLUSHALL"]);
                    assert!(node >= theirs || nodes.takes(node, "theirs", 600_000));
                }
                nodes.mutex().await.with_tries(3)
            };
            let check = async |mutex: &Mutex<RedisStore>, polls: usize| {
                nodes.pass(Duration::ZERO).await;
                assert_eq!(mutex.value(), None);
                let left = |node| (node < theirs).then(|| "theirs".to_owned());
                let left: Vec<_> = (0..3).map(left).collect();
                assert_eq!(nodes.values(), left, "after {polls} polls, {theirs} are theirs");
            };
            cut_everywhere(prepare, async |mutex| mutex.lock().await, check).await;
        });
    }
}

#[test]
fn a_lock_dropped_while_a_node_is_silent_leaves_nothing_when_it_speaks_again() {
    for silent in [1, 2] {
        play(3, async |nodes| {
            let prepare = async || {
                let mutex = nodes.mutex().await.with_tries(2);
                (0..silent).for_each(|node| nodes.server(node).pause());
                mutex
            };
            let speak = || (0..silent).for_each(|node| nodes.server(node).resume());
            let check = async |_: &Mutex<RedisStore>, polls: usize| {
                speak();
                nodes.pass(Duration::ZERO).await;
                assert_eq!(nodes.values(), [None, None, None], "after {polls} polls");
            };
            let call = async |mutex: &Mutex<RedisStore>| {
                let locked = mutex.lock().await;
                speak();
                if locked.is_ok() {
                    mutex.unlock().await.expect("it is ours");
                }
            };
            cut_everywhere(prepare, call, check).await;
        });
    }
}

async fn held(nodes: &Nodes) -> Mutex<RedisStore> {
    (0..3).for_each(|node| drop(nodes.tell(node, &["FLUSHALL"])));
    let mutex = nodes.mutex().await.with_set_nx_on_extend();
    mutex.lock().await.expect("it is free");
    nodes.pass(ms(1_000)).await;
    mutex
}

#[test]
fn an_unlock_whose_future_is_dropped_frees_the_lock() {
    play(3, async |nodes| {
        let check = async |_: &Mutex<RedisStore>, polls: usize| {
            nodes.pass(Duration::ZERO).await;
            // Before the first poll no request is sent, as with every future.
            let left = if polls == 0 { 3 } else { 0 };
            let held = nodes.values().iter().flatten().count();
            assert_eq!(held, left, "after {polls} polls");
        };
        let call = async |mutex: &Mutex<RedisStore>| mutex.unlock().await;
        cut_everywhere(async || held(nodes).await, call, check).await;
    });
}

#[test]
fn an_extension_whose_future_is_dropped_leaves_nothing_that_outlives_the_expiry() {
    play(3, async |nodes| {
        let check = async |mutex: &Mutex<RedisStore>, _| {
            nodes.pass(Duration::ZERO).await;
            assert_eq!(nodes.holding(&mutex.value().expect("it is held")), 3);
            assert!(nodes.lasts().iter().all(|lasts| (1..=8_000).contains(lasts)));
            assert!(mutex.until() == Some(nodes.now() + ms(6_920)), "as nobody was told of it");
            nodes.pass(ms(8_001)).await;
            assert_eq!(nodes.values(), [None, None, None]);
        };
        let call = async |mutex: &Mutex<RedisStore>| mutex.extend().await;
        cut_everywhere(async || held(nodes).await, call, check).await;
    });
}
