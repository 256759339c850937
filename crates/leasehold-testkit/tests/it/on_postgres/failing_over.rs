//! A standby server, and a standby that is promoted by hand.

use leasehold::host::SystemHost;
use leasehold::store::postgres::migrate;
use leasehold::{Client, ErrorKind};
use leasehold_testkit::servers::PostgresServer;

use super::until;

#[tokio::test]
async fn a_standby_is_refused_and_serves_once_it_is_promoted() {
    let server = PostgresServer::start();
    let url = server.url("leasehold");
    migrate(&url, SystemHost::shared()).await.expect("migrated");
    let client = Client::connect(&url).await.expect("connected");
    let guard = client.mutex("a").lock().await.expect("free");
    let token = guard.fencing_token().expect("a token");
    let _released = guard.release().await.expect("released");
    server.stop();
    server.become_standby();
    server.restart();
    let refused = Client::connect(&url).await.expect_err("a standby");
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
    assert!(refused.to_string().contains("name the primary"), "{refused}");
    server.sql("SELECT pg_promote()");
    let mut guard = None;
    until("it serves", async || {
        guard = client.mutex("a").try_lock().await.ok().flatten();
        guard.is_some()
    })
    .await;
    let later = guard.expect("it serves").fencing_token().expect("a token");
    assert!(later > token, "tokens rise over the failover");
}
