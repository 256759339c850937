//! etcd, compared with bare transactions and a bare watch.

use leasehold::Error;
use leasehold_testkit::servers::etcd::EtcdServer;
use tokio::task::spawn_blocking;

use super::bare_etcd::{Channel, Watch};
use super::{Engine, Extent};
use crate::figure::Report;

pub(super) async fn measure(extent: Extent, report: &mut Report) -> Result<(), Error> {
    let server = spawn_blocking(EtcdServer::start).await.expect("the server starts");
    let url = server.url("bench");
    let engine = Engine { name: "etcd", url: &url };
    let bare = Channel::open(server.port(0)).await?;
    let pair = async || {
        bare.put_if_absent(b"bare/a").await?;
        bare.delete_if_there(b"bare/a").await
    };
    engine.round_trips((extent.pairs, "two bare transactions"), pair, report).await?;
    let mut watch = Watch::open(Channel::open(server.port(0)).await?, b"bare/b").await?;
    let hop = async || watch.hop(&bare).await;
    engine.hand_overs((extent.pairs / 4, "a bare watch event"), hop, report).await?;
    let count = async || Ok(server.requests());
    engine.waiters((extent.watched, "requests"), count, report).await?;
    engine.leases(extent, report).await
}
