//! Locks over a connection of the crate `redis` that an application has.
#![allow(clippy::disallowed_methods, reason = "servers live in real time, on threads of their own")]

use std::sync::Arc;
use std::time::Duration;

use leasehold::host::SystemHost;
use leasehold::store::RedisStore;
use leasehold::store::redis::ApplicationConnector;
use leasehold::{Client, Release};
use leasehold_testkit::servers::RedisServer;
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{AsyncCommands as _, Cmd, Pipeline, RedisFuture, Value};

use super::connecting::connect;

async fn connection(server: &RedisServer) -> MultiplexedConnection {
    let client = redis::Client::open(server.url()).expect("a URL");
    client.get_multiplexed_async_connection().await.expect("it listens")
}

async fn client(connection: impl ConnectionLike + Clone + Send + Sync + 'static) -> Client {
    let connector = ApplicationConnector::new(connection, "redis://application");
    let store = RedisStore::connect_with(connector, SystemHost::shared()).await;
    let client = Client::with_store(store.expect("it is connected")).connect().await;
    client.expect("the store is open")
}

#[tokio::test]
async fn a_lock_over_the_connection_of_an_application_excludes_all_others() {
    let server = RedisServer::start();
    let mut shared = connection(&server).await;
    let ours = client(shared.clone()).await;
    let store = connect(&server.url()).await.expect("it listens");
    let others = Client::with_store(store).connect().await.expect("the store is open");
    let mut last = None;
    for _ in 0..20 {
        for (one, other) in [(&ours, &others), (&others, &ours)] {
            let held = one.mutex("a").lock().await.expect("answered");
            assert!(other.mutex("a").try_lock().await.expect("answered").is_none());
            assert!(held.fencing_token() > last);
            last = held.fencing_token();
            held.renew().await.expect("renewed");
            assert_eq!(held.release().await.expect("answered"), Release::Released);
        }
    }
    // Requests arrive in the order in which they are submitted.
    for _ in 0..200 {
        drop(ours.mutex("b").try_lock().await.expect("answered").expect("it is free"));
    }
    let _: () = shared.set("x", "y").await.expect("it is the application's");
    assert_eq!(shared.get::<_, String>("x").await.expect("answered"), "y");
}

#[tokio::test]
async fn a_waiter_over_the_connection_of_an_application_polls() {
    let server = RedisServer::start();
    let shared = connection(&server).await;
    let (one, other) = (client(shared.clone()).await, client(shared).await);
    let held = one.mutex("a").lock().await.expect("it is free");
    let waiting = tokio::spawn(async move { other.mutex("a").lock().await });
    while server.command(&["EXISTS", "{a}:lh:line"]).int() == 0 {
        tokio::task::yield_now().await;
    }
    drop(held);
    let next = tokio::time::timeout(Duration::from_secs(30), waiting).await;
    let next = next.expect("it asks again").expect("no panic").expect("it is granted");
    assert!(next.is_held());
    assert!(server.command(&["PUBSUB", "CHANNELS"]).array().is_empty());
}

#[tokio::test]
async fn many_requests_at_a_time_are_answered_each() {
    let server = RedisServer::start();
    let ours = Arc::new(client(connection(&server).await).await);
    let all = (0..1_000).map(|number| {
        let ours = Arc::clone(&ours);
        tokio::spawn(async move {
            let held = ours.mutex(format!("key{number}")).lock().await.expect("it is free");
            held.release().await.expect("answered")
        })
    });
    for released in futures_util::future::join_all(all).await {
        assert_eq!(released.expect("no panic"), Release::Released);
    }
}

/// A connection that is made anew for each request.
#[derive(Clone)]
struct Reconnecting(redis::Client);

impl ConnectionLike for Reconnecting {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        Box::pin(async move {
            self.0.get_multiplexed_async_connection().await?.req_packed_command(cmd).await
        })
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        Box::pin(async move {
            let mut connection = self.0.get_multiplexed_async_connection().await?;
            connection.req_packed_commands(pipeline, offset, count).await
        })
    }

    fn get_db(&self) -> i64 {
        0
    }
}

/// The store does not notice that the server has come back with older data.
#[tokio::test]
async fn fencing_tokens_rise_though_the_connection_was_made_again_unnoticed() {
    let server = RedisServer::start();
    let redis = redis::Client::open(server.url()).expect("a URL");
    let ours = client(Reconnecting(redis)).await;
    let first = ours.mutex("a").lock().await.expect("it is free");
    let token = first.fencing_token();
    assert_eq!(first.release().await.expect("answered"), Release::Released);
    let counter = server.command(&["GET", "{a}:lh:fence"]).text();
    let older = counter.parse::<u64>().expect("a number") - 1_000;
    server.restart();
    server.command(&["SET", "{a}:lh:fence", &older.to_string()]);
    let next = ours.mutex("a").lock().await.expect("it is free");
    assert!(next.fencing_token() > token);
}

#[tokio::test]
async fn a_server_that_is_gone_is_an_error_that_names_it() {
    let server = RedisServer::start();
    let ours = client(connection(&server).await).await;
    drop(ours.mutex("a").lock().await.expect("it is free"));
    server.kill();
    let error = ours.mutex("b").try_lock().await.expect_err("nobody is there");
    assert!(error.is_retryable(), "{error}");
    assert!(error.to_string().contains("redis://application"), "{error}");
}
