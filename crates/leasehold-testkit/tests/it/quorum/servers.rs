//! Real servers as nodes, on virtual time.

use std::sync::Arc;

use leasehold::host::Host;
use leasehold::store::{AnyStore, Quorum};
use leasehold::{Client, ErrorKind, Identity};
use leasehold_testkit::VirtualHost;
use leasehold_testkit::servers::{ServerOutside, pool};

use super::{TTL, ms};
use crate::stores;

/// A client of these servers.
async fn client(host: &Arc<VirtualHost>, servers: &[Arc<ServerOutside>]) -> Client {
    let mut nodes: Vec<AnyStore> = Vec::new();
    for server in servers {
        nodes.push(stores::redis_on(server, host)().await);
    }
    let quorum =
        Quorum::connect(nodes, host.clone() as Arc<dyn Host>).await.expect("all are there");
    let builder = Client::with_store(quorum).host(host.clone()).ttl(TTL);
    builder.identity(Identity::anonymous()).connect().await.expect("connected")
}

fn play(scene: impl AsyncFnOnce(&Arc<VirtualHost>, &[Arc<ServerOutside>])) {
    let host = VirtualHost::new(0);
    let servers: Vec<_> = pool::lend_all(3).into_iter().map(ServerOutside::new).collect();
    host.run(scene(&host, &servers));
    host.drop_tasks();
}

#[test]
fn servers_that_lose_their_data_one_after_the_other_get_the_lock_back() {
    play(async |host, servers| {
        let (client, other) = (client(host, servers).await, client(host, servers).await);
        let guard = client.mutex("a").lock().await.expect("free");
        let fence = guard.fencing_token().expect("it has one");
        host.settle().await;
        for server in servers {
            server.server().flush();
            host.advance(TTL / 2).await;
            assert!(guard.is_held());
            assert!(other.mutex("a").try_lock().await.expect("asked").is_none());
        }
        let released = guard.release().await.expect("a majority lets go of it");
        assert_eq!(released, leasehold::Release::Released);
        let next = other.mutex("a").lock().await.expect("free");
        assert!(next.fencing_token().expect("it has one") > fence);
    });
}

#[test]
fn a_lock_whose_servers_lost_their_data_is_lost() {
    play(async |host, servers| {
        let client = client(host, servers).await;
        let guard = client.mutex("a").lock().await.expect("free");
        // Two of three nodes are enough, so the third may still be carrying the request out.
        host.settle().await;
        servers[0].server().flush();
        servers[2].server().flush();
        assert_eq!(guard.lost().await, leasehold::Lost::NotOurs);
        host.advance(ms(100)).await;
        let seen = client.inspect("a").await.expect("asked");
        assert!(seen.votes.iter().all(|vote| vote.holder == Ok(None)), "{seen:?}");
    });
}

#[test]
fn waiters_on_servers_are_woken() {
    play(async |host, servers| {
        let (client, other) = (client(host, servers).await, client(host, servers).await);
        let guard = client.mutex("a").lock().await.expect("free");
        let waiting = host.task(async move { other.mutex("a").lock().await });
        host.advance(ms(1_700)).await;
        let released = host.now();
        drop(guard);
        let next = waiting.await.expect("it becomes free");
        assert!(host.now().since(released) < ms(100), "woken, and not by a poll");
        drop(next);
    });
}

#[test]
fn two_ways_to_one_server_are_no_two_nodes() {
    play(async |host, servers| {
        let mut nodes = Vec::new();
        for server in [&servers[0], &servers[1], &servers[0]] {
            nodes.push(stores::redis_on(server, host)().await);
        }
        let quorum = Quorum::connect(nodes, host.clone() as Arc<dyn Host>).await;
        assert_eq!(quorum.expect_err("two are the same").kind(), ErrorKind::Config);
    });
}

/// One server keeps the key for another client for half a second, and later another server forgets.
#[test]
fn a_server_that_voted_for_another_gives_its_vote_to_the_holder_when_that_vote_ends() {
    play(async |host, servers| {
        let (client, other) = (client(host, servers).await, client(host, servers).await);
        servers[1].server().command(&["SET", "a", "another", "PX", "500"]);
        let mutex = client.mutex("a").ttl(ms(30_000));
        let guard = mutex.lock().await.expect("two of three are free");
        let token = guard.token().as_str().to_owned();
        let owner = |server: usize| servers[server].server().command(&["GET", "a"]).text();
        host.advance(ms(498)).await;
        assert_eq!(owner(1), "another");
        host.advance(ms(5)).await;
        assert_eq!(owner(1), token);
        servers[2].server().flush();
        assert!(other.mutex("a").try_lock().await.expect("asked").is_none(), "two would hold it");
        assert!(guard.is_held());
        let fence = guard.fencing_token().expect("it has one");
        assert_eq!(guard.release().await.expect("asked"), leasehold::Release::Released);
        let next = other.mutex("a").lock().await.expect("free");
        assert!(next.fencing_token().expect("it has one") > fence);
    });
}
