//! Copies: a grant does not count if too few replicas confirm it, or if it is not on disk. Some
//! tests run on virtual time against a scripted server, others in real time against real servers.

use std::sync::Arc;
use std::time::Duration;

use leasehold::core::token::ClientId;
use leasehold::host::{Host as _, SystemHost};
use leasehold::store::redis::{Copies, RedisConnector, RedisStore, Replicas};
use leasehold::store::{
    Acquired, Afterwards, Ask, Claim, LeaseId, OnRelease, Refusal, Released, Renewal, Store, Why,
};
use leasehold::{Client, Error, ErrorKind, Identity, Key, OwnerToken, Release, Ttl};
use leasehold_testkit::VirtualHost;
use leasehold_testkit::conformance::check::{
    self, granted, lost, refused, renewed, taken, too_few_copies,
};
use leasehold_testkit::protocol::Value;
use leasehold_testkit::servers::{PATIENCE, RedisServer};

use super::fake::{Fake, numbers, taken as taken_reply};

fn lease(name: &str, claim: Claim) -> LeaseId {
    let client = ClientId::from_random([1; ClientId::CHARS]);
    let owner = OwnerToken::from_random([2; OwnerToken::RANDOM_BYTES], &client);
    LeaseId { key: Key::new(name).expect("a name that passes"), owner, claim }
}

fn ask(name: &str, claim: Claim) -> Ask {
    let LeaseId { key, owner, claim } = lease(name, claim);
    let mut ask = Ask::new(key, owner, claim, Ttl::DEFAULT);
    ask.reserve = (claim == Claim::Exclusive).into();
    ask
}

/// Like [`ask`], with a new token.
fn fresh_ask(name: &str, claim: Claim) -> Ask {
    let mut random = [0; OwnerToken::RANDOM_BYTES];
    SystemHost::shared().random(&mut random);
    let client = ClientId::from_random([1; ClientId::CHARS]);
    let mut ask = ask(name, claim);
    ask.owner = OwnerToken::from_random(random, &client);
    ask
}

fn renewal(name: &str) -> Renewal {
    Renewal::new(lease(name, Claim::Exclusive), Ttl::DEFAULT)
}

fn keep(name: &str) -> (LeaseId, OnRelease) {
    let owner = OwnerToken::new("heir").expect("a token");
    let keep = OnRelease::KeepIfAlone { owner, ttl: Ttl::DEFAULT, reserve: 0, opens: false };
    (lease(name, Claim::Exclusive), keep)
}

/// Runs a test on a connected store that wants one copy.
fn play(test: impl AsyncFnOnce(&Arc<VirtualHost>, &Fake, &RedisStore)) {
    let host = VirtualHost::new(1);
    let fake = Fake::on_terms(Copies::new(Replicas::Count(1), false));
    host.run(async {
        let store = RedisStore::connect_with(fake.clone(), host.clone()).await.expect("connected");
        host.settle().await;
        let _ping = fake.seen();
        test(&host, &fake, &store).await;
    });
    host.drop_tasks();
}

/// The commands that a client sends behind its first lock without companion keys.
const PROBES: [&str; 2] = ["DELIFEQ {a}:lh:probe probe", "DELEX {a}:lh:probe IFEQ probe"];

/// The commands that came in since the last call.
fn commands(fake: &Fake) -> Vec<String> {
    let named = |words: Vec<String>| match words[0].as_str() {
        "EVAL" | "EVALSHA" => "script".to_owned(),
        _ => words.join(" "),
    };
    fake.seen().into_iter().map(|(_, words)| named(words)).collect()
}

#[test]
fn the_question_for_copies_leaves_with_the_request_and_not_after_its_answer() {
    // The futures are not polled, so only the connection makes progress.
    let seen = |submit: &dyn Fn(&RedisStore)| {
        let mut seen = Vec::new();
        play(async |host, fake, store| {
            fake.set_silent(true);
            submit(store);
            host.settle().await;
            seen = commands(fake);
        });
        seen
    };
    let asked = seen(&|store| drop(store.acquire(ask("a", Claim::Exclusive))));
    assert_eq!(asked, ["script", "WAIT 1 500"]);
    let asked = seen(&|store| drop(store.acquire(ask("a", Claim::Plain))));
    assert_eq!(asked, [&["script"][..], &PROBES, &["WAIT 1 500"]].concat());
    let (lease, on_release) = keep("a");
    let kept = seen(&|store| drop(store.release(lease.clone(), on_release.clone())));
    assert_eq!(kept, ["script", "WAIT 1 500"]);
    let granting_nothing = seen(&|store| {
        drop(store.release(lease.clone(), OnRelease::Free));
        drop(store.inspect(Key::new("a").expect("a name")));
    });
    assert_eq!(granting_nothing, ["script", "script"]);
}

/// The server would serve these requests one after the other, and wait for copies after each.
#[test]
fn requests_that_come_while_the_server_waits_for_copies_leave_together_after_that() {
    play(async |host, fake, store| {
        fake.set_silent(true);
        let _unpolled = store.acquire(ask("a", Claim::Exclusive));
        host.settle().await;
        assert_eq!(commands(fake).len(), 2);
        for name in ["b", "c"] {
            let _unpolled = store.release(lease(name, Claim::Exclusive), OnRelease::Free);
            let _unpolled = store.acquire(fresh_ask(name, Claim::Exclusive));
            host.settle().await;
        }
        assert_eq!(commands(fake), [""; 0], "the server would not serve them");
        fake.answer_some(1);
        host.settle().await;
        assert_eq!(commands(fake), [""; 0], "the copies are not there yet");
        fake.answer_some(1);
        host.settle().await;
        let seen = commands(fake);
        assert!(seen.iter().position(|it| it == "WAIT 1 500") == Some(seen.len() - 1), "{seen:?}");
    });
}

/// The answer to the probe may be behind copies that the server waits for.
#[test]
fn a_server_that_may_wait_for_copies_is_not_taken_for_silent_too_soon() {
    play(async |host, fake, store| {
        fake.set_silent(true);
        let released = store.release(lease("a", Claim::Exclusive), OnRelease::Free).await;
        assert_eq!(released.expect_err("it has no answer").kind(), ErrorKind::Unknown);
        host.advance(Duration::from_millis(700)).await;
        assert_eq!(fake.open(), 1, "a quarter of a second, and half a second for copies");
        host.advance(Duration::from_millis(100)).await;
        assert_eq!(fake.open(), 0, "it is given up");
    });
}

#[test]
fn a_command_without_a_script_is_confirmed_too() {
    play(async |host, fake, store| {
        fake.answer(Ok(Value::Int(0)));
        granted(store.acquire(ask("a", Claim::Plain)).await);
        let _seen = fake.seen();
        let _unpolled = store.acquire(ask("a", Claim::Plain));
        host.settle().await;
        let seen = commands(fake);
        assert!(seen[0].starts_with("SET a ") && seen[1..] == ["WAIT 1 500"], "{seen:?}");
    });
}

#[test]
fn a_grant_that_falls_short_is_given_back_before_it_is_told() {
    for claim in [Claim::Exclusive, Claim::Plain] {
        play(async |_, fake, store| {
            fake.answer(Ok(Value::Int(0)));
            fake.confirm(Some(Ok(Value::Int(0))));
            let error = too_few_copies(store.acquire(ask("a", claim)).await);
            assert_eq!(error.kind(), ErrorKind::Unavailable);
            let says = "not granted: only 0 of 1 replicas confirmed the write in 500ms; the grant \
                        was released; check that the replicas follow";
            assert!(error.to_string().contains(says), "{error}");
            let probes = if claim == Claim::Plain { &PROBES[..] } else { &[] };
            let expected = [&["script"], probes, &["WAIT 1 500", "script"]].concat();
            assert_eq!(commands(fake), expected);
        });
    }
}

/// After an `Unknown` error the caller cleans up; after `Unavailable` it does not.
#[test]
fn a_grant_that_falls_short_and_cannot_be_given_back_is_an_unknown_outcome() {
    play(async |host, fake, store| {
        fake.answer(Ok(Value::Int(0)));
        fake.confirm(Some(Ok(Value::Int(0))));
        fake.answer(None);
        refused(store.acquire(ask("a", Claim::Exclusive)).await, ErrorKind::Unknown);
        // The same holds if the connection ends before the confirmation.
        fake.answer(Ok(Value::Int(0)));
        fake.confirm(None);
        let answer = store.acquire(ask("b", Claim::Exclusive));
        host.settle().await;
        fake.break_connections();
        refused(answer.await, ErrorKind::Unknown);
    });
}

/// This matters for a node of a quorum, since the quorum asks with one token for as long as it
/// waits.
#[test]
fn a_token_whose_grant_was_given_back_is_not_used_again() {
    for claim in [Claim::Exclusive, Claim::Plain] {
        play(async |_, fake, store| {
            fake.answer(Ok(Value::Int(0)));
            fake.confirm(Some(Ok(Value::Int(0))));
            let refusal = check::refusal(store.acquire(ask("a", claim)).await);
            assert_eq!((refusal.retry_in, refusal.token), (None, Afterwards::Spent));
            let _seen = fake.seen();
            let refusal = check::refusal(store.acquire(ask("a", claim)).await);
            let at_once = Some(Duration::ZERO);
            assert_eq!((refusal.retry_in, refusal.token), (at_once, Afterwards::Leave));
            let error = too_few_copies(Ok(refusal.into()));
            assert_eq!(error.kind(), ErrorKind::Unavailable);
            assert!(error.to_string().contains("use a fresh token"), "{error}");
            assert!(commands(fake).is_empty());
            // The release may still be on its way, over a connection that renewals do not use.
            lost(store.renew(renewal("a")).await);
            assert!(commands(fake).is_empty());
        });
    }
}

/// The release of the unconfirmed grant may come late, or twice. It would then end a later grant to
/// the same token, so the client needs a fresh one.
#[test]
fn a_waiter_goes_on_with_a_fresh_token_once_a_grant_was_given_back() {
    // If the answer to the store's release is lost, the client releases the token too.
    let table = [vec![Some(numbers(&[1, 0]))], vec![None, Some(numbers(&[1, 0]))]];
    for released in table {
        play(async |host, fake, store| {
            let releases = released.len();
            let first = [taken_reply(), Ok(Value::Int(7))].map(Some);
            for answer in first.into_iter().chain(released.clone()) {
                fake.answer(answer);
            }
            fake.answer(Ok(Value::Int(8)));
            for copies in [1, 0] {
                fake.confirm(Some(Ok(Value::Int(copies))));
            }
            let builder = Client::with_store(store.clone()).host(host.clone());
            let client = builder.identity(Identity::anonymous()).connect().await;
            let mutex = client.expect("connected").mutex("a");
            let guard = mutex.lock().await.expect("in the end");
            assert_eq!(guard.fencing_token().map(|token| token.get()), Some(8));
            // The owner token is the first argument after the keys.
            let token = |words: &[String]| {
                let keys: usize = words[2].parse().expect("a number");
                words[3 + keys].clone()
            };
            let seen: Vec<_> = fake.seen().into_iter().map(|(_, words)| words).collect();
            let scripts = seen.iter().filter(|words| words[0].starts_with("EVAL"));
            let tokens: Vec<_> = scripts.map(|words| token(words)).collect();
            let (fresh, spent) = tokens.split_last().expect("something was asked");
            assert_eq!(spent.len(), 2 + releases, "two asks and the releases");
            assert!(spent.iter().all(|token| *token == spent[0]), "{spent:?}");
            assert_ne!(*fresh, spent[0]);
            assert_eq!(guard.token().as_str(), fresh);
        });
    }
}

#[test]
fn an_ask_that_finds_the_key_taken_needs_no_copy() {
    play(async |_, fake, store| {
        fake.answer(taken_reply());
        fake.confirm(Some(Ok(Value::Int(0))));
        taken(store.acquire(ask("a", Claim::Exclusive)).await);
        assert_eq!(commands(fake), ["script", "WAIT 1 500"], "and nothing is given back");
    });
}

#[test]
fn a_renewal_that_falls_short_has_failed_and_nothing_is_lost() {
    play(async |_, fake, store| {
        fake.answer(numbers(&[1, 0, 0, 0]));
        fake.confirm(Some(Ok(Value::Int(0))));
        let error = store.renew(renewal("a")).await.expect_err("no copy");
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().contains("renewed on the server, but only 0 of 1"), "{error}");
        fake.answer(numbers(&[1, 0, 0, 0]));
        renewed(store.renew(renewal("a")).await);
        // A lost lease is lost, with or without copies.
        fake.answer(numbers(&[0]));
        fake.confirm(Some(Ok(Value::Int(0))));
        lost(store.renew(renewal("a")).await);
    });
}

#[test]
fn a_lease_that_is_kept_by_another_token_is_a_grant_too() {
    play(async |_, fake, store| {
        for (copies, expected) in [(1, Ok(())), (0, Err(ErrorKind::Unavailable))] {
            let (lease, on_release) = keep("a");
            fake.answer(numbers(&[3, 0, 0]));
            fake.confirm(Some(Ok(Value::Int(copies))));
            let answer = store.release(lease, on_release).await;
            let kept = answer.map(|answer| assert_eq!(answer, Released::Kept { fencing: None }));
            assert_eq!(kept.map_err(|error| error.kind()), expected);
        }
    });
}

/// A primary, and a replica that follows it without lag.
struct Pair {
    primary: RedisServer,
    replica: RedisServer,
}

impl Pair {
    fn start() -> Self {
        let primary = RedisServer::builder().config("repl-diskless-sync-delay", "0").start();
        let of = format!("127.0.0.1 {}", primary.port());
        let replica = RedisServer::builder().config("replicaof", &of).start();
        // The first confirmation covers the full copy. Later writes may reach the replica up to a
        // second after that.
        for write in ["first", "second"] {
            primary.command(&["SET", "written", write]);
            let patience = PATIENCE.as_millis().to_string();
            let replicas = primary.command(&["WAIT", "1", &patience]).int();
            assert_eq!(replicas, 1, "the replica never came: {}", replica.log());
        }
        Self { primary, replica }
    }

    async fn store(&self, options: &str) -> Result<RedisStore, Error> {
        RedisStore::connect(&(self.primary.url() + options), SystemHost::shared()).await
    }
}

/// Repeats a request until its replica has confirmed it, for slow machines.
async fn patiently<T>(mut again: impl AsyncFnMut() -> Result<T, Error>) -> T {
    let begun = SystemHost.now();
    loop {
        match again().await {
            Ok(answer) => return answer,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                assert!(SystemHost.now().since(begun) < PATIENCE, "it never came to that: {error}");
            }
        }
    }
}

/// Like [`patiently`], until a grant has its copies.
async fn patiently_granted(mut again: impl AsyncFnMut() -> Result<Acquired, Error>) {
    let asked = async || match again().await? {
        Acquired::Refused(Refusal { why: Why::TooFewCopies(error), .. }) => Err(error),
        answer => Ok(answer),
    };
    granted(Ok(patiently(asked).await));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answered_grant_is_on_the_replica() {
    let pair = Pair::start();
    for options in ["?replicas=1", "?replicas=majority", "?replicas=1&strict=yes"] {
        let store = pair.store(options).await.expect("connected");
        pair.primary.command(&["HDEL", ":lh:epoch", "until"]);
        for (name, claim) in [("a", Claim::Exclusive), ("b", Claim::Plain), ("b", Claim::Plain)] {
            let mut owner = None;
            let answer = patiently_granted(async || {
                let ask = fresh_ask(name, claim);
                owner = Some(ask.owner.clone());
                let answer = store.acquire(ask.clone()).await;
                pair.primary.command(&["HDEL", ":lh:epoch", "until"]);
                match answer {
                    Ok(Acquired::Refused(Refusal { why: Why::Quarantined(_), .. })) => {
                        store.acquire(ask).await
                    }
                    answer => answer,
                }
            });
            answer.await;
            let mut lease = lease(name, claim);
            lease.owner = owner.expect("it asked");
            let there = pair.replica.command(&["GET", name]).text();
            assert_eq!(there, lease.owner.as_str(), "{options}");
            let answer = store.release(lease, OnRelease::Free).await;
            assert_eq!(answer.expect("answered"), Released::Freed);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_replica_hangs_nothing_is_granted_or_renewed_and_nothing_stays_behind() {
    let pair = Pair::start();
    let store = pair.store("?replicas=1").await.expect("connected");
    let renew = async || store.renew(renewal("held")).await;
    let asks = async |name| store.acquire(fresh_ask(name, Claim::Exclusive)).await;
    patiently_granted(async || asks("first").await).await;
    granted(store.acquire(ask("held", Claim::Exclusive)).await);
    pair.replica.pause();
    for claim in [Claim::Exclusive, Claim::Plain] {
        let error = too_few_copies(store.acquire(fresh_ask("a", claim)).await);
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().contains("only 0 of 1 replicas"), "{error}");
        assert_eq!(pair.primary.command(&["EXISTS", "a"]).int(), 0, "it was given back");
    }
    refused(renew().await, ErrorKind::Unavailable);
    assert_eq!(pair.primary.command(&["EXISTS", "held"]).int(), 1, "it is not lost by that");
    pair.replica.resume();
    renewed(Ok(patiently(renew).await));
    patiently_granted(async || asks("a").await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn more_replicas_than_there_are_never_confirm() {
    let pair = Pair::start();
    let store = pair.store("?replicas=2").await.expect("connected");
    let error = too_few_copies(store.acquire(ask("a", Claim::Exclusive)).await);
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("of 2 replicas confirmed the write"), "{error}");
    assert_eq!(pair.primary.command(&["EXISTS", "a"]).int(), 0, "it was given back");
    // A server without replicas has no majority.
    let alone = RedisServer::start();
    let url = alone.url() + "?replicas=majority";
    let store = RedisStore::connect(&url, SystemHost::shared()).await.expect("connected");
    too_few_copies(store.acquire(ask("a", Claim::Exclusive)).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_is_no_server_to_ask_for_copies() {
    let pair = Pair::start();
    for options in ["?replicas=1", "?replicas=majority"] {
        let url = pair.replica.url() + options;
        let error = RedisStore::connect(&url, SystemHost::shared()).await.expect_err("a replica");
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().contains("name the primary"), "{error}");
    }
}

/// This test uses whole clients. Local tasks and other clients wait for the same lock.
#[tokio::test(flavor = "multi_thread")]
async fn clients_that_wait_for_one_another_have_it_in_turn() {
    let pair = Pair::start();
    let url = pair.primary.url() + "?replicas=1";
    let ttl = Duration::from_mins(10);
    let (anna, bert) = tokio::join!(
        Client::builder(&url).ttl(ttl).connect(),
        Client::builder(&url).ttl(ttl).connect(),
    );
    let (anna, bert) = (anna.expect("connected"), bert.expect("connected"));
    let turns = async |client: &Client| {
        for _ in 0..5 {
            let guard = patiently(async || client.mutex("a").lock().await).await;
            assert_eq!(guard.release().await.expect("answered"), Release::Released);
        }
    };
    tokio::join!(turns(&anna), turns(&anna), turns(&bert), turns(&bert));
    assert_eq!(pair.primary.command(&["EXISTS", "a"]).int(), 0);
}

/// The result depends on the server, since WAITAOF exists from Redis 7.2 on.
#[tokio::test(flavor = "multi_thread")]
async fn fsync_is_refused_where_the_server_cannot_tell_and_holds_where_it_can() {
    for appends in ["no", "yes"] {
        let server = RedisServer::builder().config("appendonly", appends);
        let server = server.config("appendfsync", "always").start();
        let url = server.url() + "?fsync=yes";
        let store = RedisStore::connect(&url, SystemHost::shared()).await;
        let can_tell = server.try_command(&["WAITAOF", "0", "0", "1"]).is_ok();
        match (can_tell, appends) {
            (false, _) => {
                let error = store.expect_err("it cannot tell");
                assert_eq!(error.kind(), ErrorKind::Unsupported);
                assert!(error.to_string().contains("Redis 7.2"), "{error}");
            }
            (true, "no") => {
                let error = store.expect_err("there is no file");
                assert_eq!(error.kind(), ErrorKind::Config);
                assert!(error.to_string().contains("`appendonly yes`"), "{error}");
            }
            (true, _) => {
                let store = store.expect("connected");
                let ask = async || store.acquire(fresh_ask("a", Claim::Exclusive)).await;
                granted(Ok(patiently(ask).await));
                assert!(server.command(&["EXISTS", "a"]).int() == 1);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_right_is_reported_when_connecting() {
    let server = RedisServer::start();
    let connect = async |rights: &str, options: &str| {
        let words = ["ACL", "SETUSER", "app", "reset", "on", "nopass", "~*", "+@all"];
        let words: Vec<_> = words.into_iter().chain(rights.split_whitespace()).collect();
        server.command(&words);
        let url = server.url().replace("//", "//app:any@") + options;
        let connector = RedisConnector::new(&url).expect("a URL");
        RedisStore::connect_with(connector, SystemHost::shared()).await.map(drop)
    };
    refused(connect("-wait", "?replicas=1").await, ErrorKind::Denied);
    refused(connect("-info", "?replicas=majority").await, ErrorKind::Denied);
    connect("-info", "?replicas=1").await.expect("a number needs no INFO");
    connect("-wait -info", "").await.expect("nothing is asked for");
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../GUARANTEES.md");
    let guarantees = std::fs::read_to_string(path).expect("the page is there");
    for right in ["`+wait`", "`+waitaof`", "`+info`"] {
        assert!(guarantees.contains(right), "{right} is not documented");
    }
}
