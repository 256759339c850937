//! The disk of the server is full.

use std::time::Duration;

use leasehold::host::SystemHost;
use leasehold::store::postgres::migrate;
use leasehold::{ErrorKind, Release};
use leasehold_testkit::not_run;
use leasehold_testkit::servers::{Disk, PostgresServer};

use super::{client, until};

/// No lease ends by itself in these tests.
const TTL: Duration = Duration::from_secs(3_600);

/// More locks than fit into the last page of a table.
const LOCKS_MAX: usize = 10_000;

/// A new server with tables, on a disk of its own. `None` if this process may not mount one.
async fn on_disk() -> Option<(PostgresServer, String)> {
    if let Some(reason) = Disk::refusal() {
        not_run(&format!("cannot mount a disk: {reason}"));
        return None;
    }
    let server = PostgresServer::start_on_disk();
    let url = server.url("leasehold");
    migrate(&url, SystemHost::shared()).await.expect("migrated");
    Some((server, url))
}

#[tokio::test]
async fn a_lock_that_does_not_fit_on_a_full_disk_is_refused_and_free_once_there_is_space() {
    let Some((server, url)) = on_disk().await else { return };
    let client = client(&url).await;
    let guard = client.mutex("a").ttl(TTL).lock().await.expect("free");
    let token = guard.fencing_token().expect("a token");
    // The log has room in its new file, so that a table is full first.
    server.sql("SELECT pg_switch_wal()");
    drop(client.mutex("b").lock().await.expect("free"));
    server.disk().fill();
    let mut refused = None;
    for number in 0..LOCKS_MAX {
        let name = format!("n{number}");
        match client.mutex(&name).ttl(TTL).try_lock().await {
            Ok(taken) => drop(taken.expect("it is free").detach()),
            Err(error) => {
                refused = Some((name, error));
                break;
            }
        }
    }
    let (name, error) = refused.expect("a full disk takes no more locks");
    let text = error.to_string();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{text}");
    let says = ["the disk of the server is full", "nothing was changed", "free some space"];
    assert!(says.iter().all(|part| text.contains(part)), "{text}");
    assert!(guard.is_held(), "a refused lock ends no other");
    server.disk().make_room();
    let taken = client.mutex(&name).try_lock().await.expect("asked");
    assert!(taken.is_some(), "nobody has `{name}`");
    guard.renew().await.expect("renewed");
    assert_eq!(guard.release().await.expect("released"), Release::Released);
    let next = client.mutex("a").try_lock().await.expect("asked").expect("it is free");
    assert!(next.fencing_token().expect("a token") > token);
}

#[tokio::test]
async fn a_server_that_ended_on_a_full_disk_has_every_lock_when_it_is_started_again() {
    let Some((server, url)) = on_disk().await else { return };
    let (one, other) = (client(&url).await, client(&url).await);
    let guard = one.mutex("a").ttl(TTL).lock().await.expect("free");
    server.disk().fill();
    // Each change after a switch needs the next file of the log.
    until("the server has no room for its log", async || {
        let _may_fail = one.mutex("b").try_lock().await;
        server.try_sql("SELECT pg_switch_wal()").is_err()
    })
    .await;
    assert!(guard.is_held(), "the lease goes on");
    server.disk().make_room();
    server.kill();
    server.restart();
    until("the lease is renewed", async || guard.renew().await.is_ok()).await;
    // Renewals have a connection of their own. The other one is tried again after a pause.
    let connected = async || one.mutex("c").try_lock().await.is_ok();
    until("the other requests of the holder are answered", connected).await;
    let mut taken = None;
    until("the other client is answered", async || {
        taken = other.mutex("a").try_lock().await.ok();
        taken.is_some()
    })
    .await;
    assert!(taken.flatten().is_none(), "it is still held");
    assert!(guard.is_held());
    assert_eq!(guard.release().await.expect("released"), Release::Released);
}
