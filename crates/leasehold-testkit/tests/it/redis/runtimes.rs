//! One store, and runtimes that come and go around it, in real time.
#![allow(clippy::disallowed_methods, reason = "these are real runtimes, on real threads")]

use std::time::Duration;

use leasehold::core::token::ClientId;
use leasehold::host::{Host as _, SystemHost};
use leasehold::store::redis::RedisStore;
use leasehold::store::{Claim, LeaseId, OnRelease, Store as _};
use leasehold::{Client, ErrorKind, Key, OwnerToken, Release};
use leasehold_testkit::cut_after;
use leasehold_testkit::servers::RedisServer;

use super::fake::Fake;
use super::wire::release;

fn run<T>(task: impl Future<Output = T>) -> T {
    runtime().block_on(task)
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

async fn lock_and_drop(client: &Client, times: usize) {
    let mutex = client.mutex("a");
    for round in 0..times {
        let guard = mutex.try_lock().await.expect("asked");
        drop(guard.unwrap_or_else(|| panic!("taken by our own old lease, round {round}")));
    }
}

#[test]
fn a_lock_that_was_just_dropped_is_never_taken_for_its_own_client() {
    let server = RedisServer::start();
    run(async {
        let client = Client::connect(&server.url()).await.expect("connected");
        lock_and_drop(&client, 10_000).await;
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_lock_is_never_taken_for_its_own_client_on_a_runtime_of_many_threads() {
    let server = RedisServer::start();
    let client = Client::connect(&server.url()).await.expect("connected");
    lock_and_drop(&client, 10_000).await;
}

#[test]
fn a_lock_dropped_at_any_await_is_held_by_the_same_client_at_once() {
    let server = RedisServer::start();
    run(async {
        let client = Client::connect(&server.url()).await.expect("connected");
        let mutex = client.mutex("a");
        let mut polls = 0;
        loop {
            let ended = cut_after(polls, mutex.lock()).await.is_some();
            let guard = mutex.try_lock().await.expect("asked");
            assert!(guard.is_some(), "dropped after {polls} polls");
            if ended {
                break;
            }
            polls += 1;
        }
        assert!(polls > 0, "it was dropped somewhere");
    });
}

#[test]
fn a_client_goes_on_when_the_runtime_that_connected_it_is_gone() {
    let server = RedisServer::start();
    let client = run(async { Client::connect(&server.url()).await.expect("connected") });
    for _ in 0..3 {
        run(async {
            let guard = client.mutex("a").lock().await.expect("free");
            assert_eq!(guard.release().await.expect("asked"), Release::Released);
        });
    }
}

#[test]
fn a_guard_is_dropped_where_no_runtime_is_left() {
    let server = RedisServer::start();
    let (client, guard) = run(async {
        let client = Client::connect(&server.url()).await.expect("connected");
        let guard = client.mutex("a").lock().await.expect("free");
        (client, guard)
    });
    drop(guard);
    run(async {
        // The server carries the requests out in the order of their submission, or a moment later
        // if the first connection ended with its runtime.
        let guard = client.mutex("a").lock().await.expect("free soon");
        assert!(guard.is_held());
    });
}

/// A dropped request stays on the runtime on which it was dropped, and that runtime may end.
#[test]
fn a_request_is_not_taken_back_when_the_runtime_ends_that_dropped_it() {
    let fake = Fake::default();
    let (first, second) = (runtime(), runtime());
    let connecting = RedisStore::connect_with(fake.clone(), SystemHost::shared());
    let store = first.block_on(connecting).expect("connected");
    fake.set_silent(true);
    let client = ClientId::from_random([1; ClientId::CHARS]);
    let owner = OwnerToken::from_random([2; OwnerToken::RANDOM_BYTES], &client);
    let key = Key::new("a").expect("a name that passes");
    let lease = LeaseId { key, owner, claim: Claim::Exclusive };
    second.block_on(async { drop(store.release(lease, OnRelease::Free)) });
    drop(second);
    first.block_on(async {
        let is_release = |(_, words): (usize, Vec<String>)| words[0].starts_with("EVAL");
        let mut turns = 0..1_000;
        while !fake.seen().into_iter().any(is_release) {
            turns.next().expect("it is sent by the runtime of the connection");
            tokio::task::yield_now().await;
        }
    });
    assert_eq!(fake.open(), 1, "it may be answered yet");
    drop(first);
}

/// The user's executor stands still, and so does everything that it runs.
#[test]
fn leases_are_renewed_while_the_runtime_that_took_them_stands_still() {
    let server = RedisServer::start();
    let taker = runtime();
    let guard = taker.block_on(async {
        let client = Client::builder(&server.url()).ttl(Duration::from_secs(1));
        let client = client.connect().await.expect("connected");
        client.mutex("a").lock().await.expect("free")
    });
    let before = server.command(&["INFO", "commandstats"]).text();
    // `taker` stands still from here on. The test waits for three renewals, a third of a second
    // apart.
    let renewals = |stats: &str| {
        let scripts = stats.lines().filter(|line| line.starts_with("cmdstat_eval"));
        let calls = scripts.filter_map(|line| line.split(['=', ',']).nth(1)?.parse::<u64>().ok());
        calls.sum::<u64>()
    };
    while renewals(&server.command(&["INFO", "commandstats"]).text()) < renewals(&before) + 3 {
        assert!(guard.is_held());
        std::thread::yield_now();
    }
    assert!(guard.is_held());
    assert_eq!(taker.block_on(guard.release()).expect("asked"), Release::Released);
}

#[test]
fn a_runtime_that_is_not_driven_does_not_fail_the_asks_of_another() {
    let server = RedisServer::start();
    let (first, second) = (runtime(), runtime());
    let client = first.block_on(Client::connect(&server.url())).expect("connected");
    for name in ["a", "b"] {
        let guard = second.block_on(client.mutex(name).try_lock()).expect("the server answers");
        assert!(guard.is_some(), "{name} is free");
    }
    drop(first);
}

/// The runtime stops in the middle of connecting, and is never driven again.
#[test]
fn a_runtime_that_is_left_while_it_connects_holds_nobody_up_for_long() {
    let server = RedisServer::start();
    let (first, second) = (runtime(), runtime());
    let client = second.block_on(Client::connect(&server.url())).expect("connected");
    // All connections are closed. The next one begins on `first`, which then stands still.
    server.command(&["CLIENT", "KILL", "TYPE", "normal"]);
    second.block_on(async {
        while server.command(&["CLIENT", "LIST", "TYPE", "normal"]).text().lines().count() > 1 {
            tokio::task::yield_now().await;
        }
        tokio::task::yield_now().await;
    });
    let asked = first.block_on(cut_after(1, client.mutex("a").try_lock()));
    assert!(asked.is_none(), "it has only begun");
    second.block_on(async {
        let mut failures = 0;
        while let Err(error) = client.mutex("b").try_lock().await {
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            failures += 1;
            assert!(failures < 10, "held up for ever: {error}");
        }
    });
    drop(first);
}

#[test]
fn only_the_connection_that_a_runtime_did_not_make_is_served_by_another_thread() {
    let (fake, here) = (Fake::default(), std::thread::current().id());
    let (first, second) = (runtime(), runtime());
    let store = RedisStore::open(fake.clone(), SystemHost::shared());
    first.block_on(async { drop(release(&store, "a")) });
    drop(first);
    second.block_on(async { release(&store, "b").await }).expect("answered");
    let before = fake.threads();
    assert_ne!(before.last(), Some(&here), "its runtime has ended");
    fake.break_connections();
    second.block_on(async {
        let mut turns = 0..1_000;
        while fake.attempts() == before.len() {
            turns.next().expect("the end of the connection is noticed");
            let _may_fail = release(&store, "c").await;
        }
    });
    assert_eq!(fake.threads().last(), Some(&here), "its runtime works");
}

#[test]
fn a_runtime_without_input_and_output_is_served_by_another_thread() {
    let server = RedisServer::start();
    let bare = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    bare.block_on(async {
        let client = Client::connect(&server.url()).await.expect("connected");
        let guard = client.mutex("a").lock().await.expect("free");
        assert_eq!(guard.release().await.expect("asked"), Release::Released);
    });
}

#[test]
fn a_client_works_in_no_runtime_at_all() {
    let server = RedisServer::start();
    futures_executor(async {
        let client = Client::connect(&server.url()).await.expect("connected");
        let guard = client.mutex("a").lock().await.expect("free");
        assert_eq!(guard.release().await.expect("asked"), Release::Released);
        let gone = Client::connect("redis://127.0.0.1:1").await.expect_err("nobody listens");
        assert_eq!(gone.kind(), ErrorKind::Unavailable);
    });
}

#[test]
fn a_waiter_on_a_runtime_without_input_and_output_is_still_told() {
    let server = RedisServer::start();
    let client = runtime().block_on(Client::connect(&server.url())).expect("connected");
    let bare = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let holder = runtime();
    let guard = holder.block_on(client.mutex("a").lock()).expect("free");
    let other = holder.block_on(Client::connect(&server.url())).expect("connected");
    bare.block_on(async {
        let waiting = other.mutex("a");
        let mut waiting = std::pin::pin!(waiting.lock());
        loop {
            let soon = SystemHost.now() + Duration::from_millis(20);
            tokio::select! {
                biased;
                _ = &mut waiting => unreachable!("another holds it"),
                () = SystemHost.sleep_until(soon) => {}
            }
            if !server.command(&["PUBSUB", "CHANNELS"]).array().is_empty() {
                return;
            }
        }
    });
    drop(guard);
}

#[test]
fn the_inboxes_of_clients_that_are_gone_are_left() {
    let server = RedisServer::start();
    runtime().block_on(async {
        let store = RedisStore::connect(&server.url(), SystemHost::shared()).await;
        let store = store.expect("connected");
        let client = || Client::with_store(store.clone()).connect();
        let holder = client().await.expect("connected");
        let _guard = holder.mutex("a").lock().await.expect("free");
        let mut most = 0;
        for _ in 0..1_000 {
            let waiter = client().await.expect("connected");
            let waited = waiter.mutex("a").lock_timeout(Duration::from_millis(3)).await;
            assert!(waited.is_err(), "another holds it");
            most = most.max(server.command(&["PUBSUB", "CHANNELS"]).array().len());
        }
        assert!(most > 0, "a waiter listens");
        assert!(most < 500, "{most} inboxes, all of them but one of clients that are gone");
    });
}

/// Until its next renewal, nothing else would tell the client that another client waits.
#[test]
fn a_client_with_an_idle_lock_listens_on_when_the_runtime_that_listened_is_gone() {
    let server = RedisServer::start();
    let listens = async || {
        for _ in 0..1_000 {
            if !server.command(&["PUBSUB", "CHANNELS"]).array().is_empty() {
                return true;
            }
            SystemHost.sleep_until(SystemHost.now() + Duration::from_millis(10)).await;
        }
        false
    };
    let client = run(async {
        let client = Client::connect(&server.url()).await.expect("connected");
        let mutex = client.mutex("a").keep_idle(Duration::from_secs(3_600));
        drop(mutex.lock().await.expect("free"));
        assert!(listens().await, "it is idle");
        client
    });
    run(async {
        assert!(listens().await, "nobody tells it any more");
        let other = Client::connect(&server.url()).await.expect("connected");
        assert!(other.mutex("a").lock().await.expect("given up").is_held());
    });
    drop(client);
}

/// Polls on this thread and parks it in between.
fn futures_executor<T>(task: impl Future<Output = T>) -> T {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = std::sync::Arc::new(Unpark(std::thread::current())).into();
    let mut task = std::pin::pin!(task);
    loop {
        match task.as_mut().poll(&mut std::task::Context::from_waker(&waker)) {
            std::task::Poll::Ready(output) => return output,
            std::task::Poll::Pending => std::thread::park(),
        }
    }
}
