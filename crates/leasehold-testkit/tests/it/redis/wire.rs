//! The wire: order, reconnecting, limits, and what is known about a failed request. The tests run
//! on virtual time against a scripted server.

use std::sync::Arc;
use std::time::Duration;

use leasehold::core::token::ClientId;
use leasehold::host::{Host, SystemHost};
use leasehold::store::redis::RedisStore;
use leasehold::store::{
    Acquired, Ask, BoxAnswer, Claim, LeaseId, OnRelease, Released, Renewal, Renewed, Store,
};
use leasehold::{Error, ErrorKind, Key, OwnerToken, Ttl};
use leasehold_testkit::VirtualHost;

use super::fake::{Door, Fake, numbers, refused, taken};

/// The limit of a request whose ttl is 4 s or more.
const LIMIT: Duration = Duration::from_secs(1);

pub(super) struct World {
    pub(super) host: Arc<VirtualHost>,
    pub(super) fake: Fake,
    pub(super) store: RedisStore,
}

/// Runs a test on a connected store.
pub(super) fn connected(seed: u64, test: impl AsyncFnOnce(&World)) {
    let host = VirtualHost::new(seed);
    let fake = Fake::default();
    host.run(async {
        let store = RedisStore::connect_with(fake.clone(), host.clone()).await.expect("connected");
        let world = World { host: host.clone(), fake: fake.clone(), store };
        host.settle().await;
        let _ping = fake.seen();
        test(&world).await;
    });
    host.drop_tasks();
}

fn key(name: &str) -> Key {
    Key::new(name).expect("a name that passes")
}

fn owner() -> OwnerToken {
    let client = ClientId::from_random([1; ClientId::CHARS]);
    OwnerToken::from_random([2; OwnerToken::RANDOM_BYTES], &client)
}

pub(super) fn release(store: &RedisStore, name: &str) -> BoxAnswer<Released> {
    let lease = LeaseId { key: key(name), owner: owner(), claim: Claim::Exclusive };
    store.release(lease, OnRelease::Free)
}

impl World {
    pub(super) fn release(&self, name: &str) -> BoxAnswer<Released> {
        release(&self.store, name)
    }

    fn ask(&self, name: &str) -> BoxAnswer<Acquired> {
        let mut ask = Ask::new(key(name), owner(), Claim::Exclusive, Ttl::DEFAULT);
        ask.reserve = 1;
        self.store.acquire(ask)
    }

    fn renew(&self, name: &str) -> BoxAnswer<Renewed> {
        let lease = LeaseId { key: key(name), owner: owner(), claim: Claim::Exclusive };
        self.store.renew(Renewal::new(lease, Ttl::DEFAULT))
    }

    /// The names of the locks in the received script calls, in order.
    fn asked_for(&self) -> Vec<String> {
        self.fake.seen().into_iter().filter_map(|(_, words)| lock_of(&words)).collect()
    }

    pub(super) async fn pass(&self, span: Duration) {
        self.host.advance(span).await;
    }
}

/// The first key of a script call.
fn lock_of(words: &[String]) -> Option<String> {
    words[0].starts_with("EVAL").then(|| words[3].clone())
}

#[track_caller]
pub(super) fn kind<T: std::fmt::Debug>(answer: Result<T, Error>) -> ErrorKind {
    answer.expect_err("not refused").kind()
}

#[test]
fn requests_are_sent_in_the_order_of_submission_even_while_connecting() {
    for seed in 0..20 {
        connected(seed, async |world| {
            world.fake.break_connections();
            world.pass(Duration::ZERO).await;
            // All futures are submitted before any is polled, and then polled in another order.
            let mut answers: Vec<_> = ["a", "b", "c"].map(|name| world.release(name)).into();
            answers.reverse();
            for answer in answers {
                assert_eq!(answer.await.expect("answered"), Released::Freed);
            }
            let later = world.release("d");
            let last = world.release("e");
            assert_eq!(last.await.expect("answered"), Released::Freed);
            assert_eq!(later.await.expect("answered"), Released::Freed);
            assert_eq!(world.asked_for(), ["a", "b", "c", "d", "e"]);
            assert_eq!(world.fake.attempts(), 2, "one attempt for all of them");
        });
    }
}

#[test]
fn a_request_that_nobody_waits_for_any_more_is_not_taken_back() {
    connected(0, async |world| {
        world.fake.set_silent(true);
        drop(world.release("a"));
        world.host.settle().await;
        assert_eq!(world.asked_for(), ["a"]);
        world.pass(LIMIT / 2).await;
        assert_eq!(world.fake.open(), 1, "it may be answered yet");
    });
}

/// A tool asks now and then, and waits for less than the limit. The other end of its connection has
/// disappeared silently.
#[test]
fn a_silent_connection_is_replaced_even_if_no_caller_waits_until_the_limit() {
    connected(0, async |world| {
        world.fake.set_silent(true);
        for _ in 0..5 {
            drop(world.release("a"));
            world.pass(Duration::from_millis(300)).await;
        }
        assert_eq!(world.fake.attempts(), 2, "the silent one was given up");
    });
}

#[test]
fn a_connection_is_kept_on_which_an_answer_comes_that_nobody_waits_for() {
    connected(0, async |world| {
        world.fake.set_silent(true);
        drop(world.release("a"));
        // This is long enough for a probe, whose answer comes behind the other answer.
        world.pass(LIMIT + Duration::from_millis(100)).await;
        world.fake.set_silent(false);
        world.pass(Duration::from_secs(5)).await;
        assert_eq!((world.fake.open(), world.fake.attempts()), (1, 1));
    });
}

#[test]
fn within_the_pause_after_a_failure_a_request_is_refused_at_once() {
    connected(0, async |world| {
        world.fake.set_door(Door::Refusing);
        world.fake.break_connections();
        world.pass(Duration::ZERO).await;
        assert_eq!(kind(world.release("a").await), ErrorKind::Unavailable);
        assert_eq!(world.fake.attempts(), 2);
        assert_eq!(kind(world.release("b").await), ErrorKind::Unavailable);
        assert_eq!(world.fake.attempts(), 2, "not tried again within the pause");
        world.fake.set_door(Door::Open);
        world.pass(Duration::from_millis(10)).await;
        assert_eq!(world.release("c").await.expect("answered"), Released::Freed);
        assert_eq!(world.asked_for(), ["c"], "what was refused was not sent later");
    });
}

#[test]
fn an_outage_is_not_beaten_by_attempts_to_connect() {
    connected(0, async |world| {
        world.fake.set_door(Door::Refusing);
        world.fake.break_connections();
        world.pass(Duration::ZERO).await;
        for _ in 0..10_000 {
            assert_eq!(kind(world.release("a").await), ErrorKind::Unavailable);
            world.pass(Duration::from_millis(1)).await;
        }
        let attempts = world.fake.attempts();
        assert!((20..=60).contains(&attempts), "{attempts} attempts in 10 s");
        world.fake.set_door(Door::Open);
        world.pass(Duration::from_millis(500)).await;
        assert_eq!(world.release("a").await.expect("answered"), Released::Freed, "within 500 ms");
    });
}

/// A server that stood still and goes on is reached at once, since the failed attempt was a long
/// enough pause.
#[test]
fn an_attempt_to_connect_that_took_long_to_fail_is_followed_by_the_next_at_once() {
    for seed in 0..5 {
        connected(seed, async |world| {
            world.fake.set_door(Door::Hanging);
            world.fake.break_connections();
            world.pass(Duration::ZERO).await;
            assert_eq!(kind(world.release("a").await), ErrorKind::Unavailable);
            // The attempt was given up 2 s after its start, and this answer came after 1 s.
            world.pass(Duration::from_millis(1_001)).await;
            world.fake.set_door(Door::Open);
            assert_eq!(world.release("b").await.expect("answered"), Released::Freed);
            assert_eq!(world.asked_for(), ["b"]);
        });
    }
}

#[test]
fn requests_on_a_connection_that_ends_are_unknown() {
    connected(0, async |world| {
        world.fake.set_silent(true);
        let answer = world.release("a");
        world.host.settle().await;
        world.fake.break_connections();
        assert_eq!(kind(answer.await), ErrorKind::Unknown);
        world.fake.set_silent(false);
        assert_eq!(world.release("a").await.expect("answered"), Released::Freed);
        assert_eq!(world.fake.attempts(), 2);
    });
}

#[test]
fn a_request_without_an_answer_is_unknown_when_its_limit_is_over() {
    connected(0, async |world| {
        world.fake.set_silent(true);
        let started = world.host.now();
        let error = world.release("a").await.expect_err("not answered");
        let took = world.host.now().since(started);
        assert_eq!(error.kind(), ErrorKind::Unknown);
        assert!(error.to_string().contains("may still take effect"), "{error}");
        assert!(took >= LIMIT && took <= LIMIT + Duration::from_millis(25), "{took:?}");
    });
}

#[test]
fn a_connection_whose_probe_is_answered_is_kept() {
    connected(0, async |world| {
        world.fake.set_silent(true);
        assert_eq!(kind(world.release("a").await), ErrorKind::Unknown);
        // The answers come late, first the one to the request.
        world.pass(Duration::from_millis(200)).await;
        world.fake.set_silent(false);
        world.pass(LIMIT).await;
        assert_eq!(world.release("b").await.expect("answered"), Released::Freed);
        assert_eq!(world.fake.attempts(), 1);
    });
}

#[test]
fn a_connection_whose_probe_is_not_answered_is_replaced() {
    connected(0, async |world| {
        world.fake.set_silent(true);
        assert_eq!(kind(world.release("a").await), ErrorKind::Unknown);
        world.pass(Duration::from_millis(300)).await;
        assert_eq!(world.fake.open(), 0, "given up");
        world.fake.set_silent(false);
        assert_eq!(world.release("b").await.expect("answered"), Released::Freed);
        assert_eq!(world.fake.attempts(), 2);
        let probes = world.fake.seen().into_iter().filter(|(_, words)| words[0] == "PING").count();
        assert_eq!(probes, 1);
    });
}

/// Bytes alone do not show that the server works, since an answer that comes byte by byte would
/// never end.
#[test]
fn an_answer_that_drips_in_is_unknown_and_its_connection_is_replaced() {
    connected(0, async |world| {
        world.fake.set_silent(true);
        let (host, fake) = (world.host.clone(), world.fake.clone());
        world.host.spawn(Box::pin(async move {
            for byte in b"$1000\r\n".iter().chain(&[b'x'; 130]) {
                fake.tell(&[*byte]);
                host.sleep_until(host.now() + Duration::from_millis(10)).await;
            }
        }));
        assert_eq!(kind(world.release("a").await), ErrorKind::Unknown);
        world.pass(Duration::from_millis(400)).await;
        assert_eq!(world.fake.open(), 0, "given up");
        world.fake.set_silent(false);
        assert_eq!(world.release("b").await.expect("answered"), Released::Freed);
        assert_eq!(world.fake.attempts(), 2);
    });
}

/// Sending to a dead connection would only create more unknown outcomes.
#[test]
fn a_request_while_a_connection_is_probed_waits_for_the_outcome() {
    for is_alive in [true, false] {
        connected(0, async |world| {
            world.fake.set_silent(true);
            assert_eq!(kind(world.release("a").await), ErrorKind::Unknown);
            let answers = ["b", "c"].map(|name| world.release(name));
            world.host.settle().await;
            let seen = world.fake.seen().into_iter().map(|(_, words)| words[0].clone());
            assert_eq!(Vec::from_iter(seen), ["EVAL", "PING"]);
            if !is_alive {
                world.pass(Duration::from_millis(300)).await;
            }
            world.fake.set_silent(false);
            for answer in answers {
                assert_eq!(answer.await.expect("answered"), Released::Freed);
            }
            assert_eq!(world.asked_for(), ["b", "c"]);
            assert_eq!(world.fake.attempts(), if is_alive { 1 } else { 2 });
        });
    }
}

/// Under load a probe waits behind many requests. Closing the connection would lose them all.
#[test]
fn a_connection_on_which_answers_come_is_kept_however_late_the_probe_is() {
    connected(0, async |world| {
        world.fake.set_silent(true);
        let slow = world.release("a");
        world.pass(Duration::from_millis(500)).await;
        let answered = world.release("b");
        assert_eq!(kind(slow.await), ErrorKind::Unknown);
        world.pass(Duration::from_millis(100)).await;
        // Only the probe has no answer after this.
        world.fake.answer_some(2);
        assert_eq!(answered.await.expect("answered"), Released::Freed);
        world.pass(Duration::from_millis(300)).await;
        assert_eq!(world.fake.open(), 1);
    });
}

#[test]
fn a_hundred_unanswered_requests_probe_once() {
    connected(0, async |world| {
        world.fake.set_silent(true);
        let answers: Vec<_> = (0..100).map(|_| world.release("a")).collect();
        for answer in answers {
            assert_eq!(kind(answer.await), ErrorKind::Unknown);
        }
        let probes = world.fake.seen().into_iter().filter(|(_, words)| words[0] == "PING").count();
        assert_eq!(probes, 1);
    });
}

#[test]
fn a_server_that_never_accepts_a_client_is_unavailable() {
    let host = VirtualHost::new(0);
    let fake = Fake::default();
    fake.set_door(Door::Hanging);
    let opened = host.run(RedisStore::connect_with(fake.clone(), host.clone()));
    let error = opened.expect_err("nobody answers");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("no request was sent"), "{error}");
    host.drop_tasks();
}

#[test]
fn a_request_that_waits_for_a_connection_until_its_limit_is_not_sent() {
    connected(0, async |world| {
        world.fake.set_door(Door::Hanging);
        world.fake.break_connections();
        world.pass(Duration::ZERO).await;
        let error = world.release("a").await.expect_err("not connected");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        world.fake.set_door(Door::Open);
        world.pass(Duration::from_secs(3)).await;
        assert_eq!(world.release("b").await.expect("answered"), Released::Freed);
        assert_eq!(world.asked_for(), ["b"], "it was true that no other request was sent");
    });
}

/// By then, the client's release behind it may have been given up.
#[test]
fn a_request_whose_caller_left_is_not_sent_after_its_limit() {
    connected(1, async |world| {
        world.fake.set_door(Door::Late);
        world.fake.break_connections();
        world.pass(Duration::ZERO).await;
        drop(world.ask("a"));
        world.pass(LIMIT).await;
        let later = world.host.task(world.release("b"));
        world.pass(Duration::ZERO).await;
        world.fake.set_door(Door::Open);
        assert_eq!(later.await.expect("answered"), Released::Freed);
        assert_eq!(world.asked_for(), ["b"]);
    });
}

#[test]
fn renewals_have_a_connection_of_their_own_opened_with_the_first() {
    connected(0, async |world| {
        world.release("a").await.expect("answered");
        assert_eq!(world.fake.open(), 1);
        world.fake.answer(numbers(&[1, 7, 1, 0]));
        assert!(matches!(world.renew("a").await, Ok(Renewed::Renewed { .. })));
        assert_eq!(world.fake.open(), 2);
    });
}

/// This test uses real threads. An answer must not wake another thread, even after earlier
/// connections failed.
#[tokio::test]
async fn a_connection_that_ended_or_failed_is_made_again_on_the_thread_of_the_caller() {
    let fake = Fake::default();
    let connecting = RedisStore::connect_with(fake.clone(), SystemHost::shared());
    let store = connecting.await.expect("connected");
    for door in [Door::Open, Door::Refusing, Door::Open] {
        fake.set_door(door);
        fake.break_connections();
        let before = fake.attempts();
        while fake.attempts() == before {
            let lease = LeaseId { key: key("a"), owner: owner(), claim: Claim::Exclusive };
            let _answered_or_not = store.release(lease, OnRelease::Free).await;
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(fake.threads(), [std::thread::current().id(); 4]);
}

#[test]
fn every_connection_is_closed_with_the_store() {
    let host = VirtualHost::new(0);
    let fake = Fake::default();
    host.run(async {
        let store = RedisStore::connect_with(fake.clone(), host.clone()).await.expect("connected");
        assert_eq!(fake.open(), 1);
        drop(store);
        host.settle().await;
        assert_eq!(fake.open(), 0);
    });
}

#[test]
fn a_script_is_sent_in_full_once_and_by_its_hash_after_that() {
    connected(0, async |world| {
        for _ in 0..3 {
            world.release("a").await.expect("answered");
        }
        let names = |seen: Vec<(usize, Vec<String>)>| -> Vec<String> {
            seen.into_iter().map(|(_, words)| words[0].clone()).collect()
        };
        assert_eq!(names(world.fake.seen()), ["EVAL", "EVALSHA", "EVALSHA"]);
        world.fake.answer(refused("NOSCRIPT No matching script."));
        world.release("a").await.expect("answered by the second try");
        assert_eq!(names(world.fake.seen()), ["EVALSHA", "EVAL"]);
        world.fake.break_connections();
        world.pass(Duration::ZERO).await;
        world.release("a").await.expect("answered");
        assert_eq!(names(world.fake.seen()), ["EVAL"], "another connection starts over");
    });
}

#[test]
fn a_server_that_forgets_every_script_is_not_asked_for_ever() {
    connected(0, async |world| {
        for _ in 0..10 {
            world.fake.answer(refused("NOSCRIPT No matching script."));
        }
        let error = world.release("a").await.expect_err("no script");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        let cause = std::error::Error::source(&error).map(ToString::to_string);
        assert_eq!(cause.as_deref(), Some("the server said `NOSCRIPT No matching script.`"));
        assert!(world.fake.seen().len() <= 3);
    });
}

/// After a reconnect the server may be another one, or may have forgotten its fencing tokens.
#[test]
fn the_first_fenced_grant_of_a_key_on_a_connection_lifts_its_counter() {
    connected(0, async |world| {
        let is_cold = |seen: Vec<(usize, Vec<String>)>| -> Vec<bool> {
            // Words: EVAL script 8 lock fence grant line ends places shares open owner ttl reserve
            // cold.
            let scripts = seen.into_iter().filter(|(_, words)| lock_of(words).is_some());
            scripts.map(|(_, words)| words[14] == "1").collect()
        };
        world.fake.answer(refused("OOM full"));
        assert!(world.ask("a").await.is_err());
        world.fake.answer(taken());
        world.ask("a").await.expect("answered");
        for name in ["a", "a", "b", "a", "b"] {
            world.fake.answer(numbers(&[1, 7, 1]));
            world.ask(name).await.expect("answered");
        }
        let expected = [true, true, true, false, true, false, false];
        assert_eq!(is_cold(world.fake.seen()), expected, "cold until it was granted");
        world.fake.break_connections();
        world.pass(Duration::ZERO).await;
        world.fake.answer(numbers(&[1, 7, 1]));
        world.ask("a").await.expect("answered");
        assert_eq!(is_cold(world.fake.seen()), [true]);
    });
}
