//! ZooKeeper, compared with a bare node that is created and deleted.

use leasehold::Error;
use leasehold_testkit::servers::zookeeper::{ZookeeperClient, ZookeeperServer};
use tokio::task::spawn_blocking;

use super::{Engine, Extent};
use crate::figure::Report;

pub(super) async fn measure(extent: Extent, report: &mut Report) -> Result<(), Error> {
    let server = spawn_blocking(ZookeeperServer::start).await.expect("the server starts");
    let url = server.url("bench");
    let engine = Engine { name: "ZooKeeper", url: &url };
    let mut bare = ZookeeperClient::connect(server.port(0));
    // It blocks. Meanwhile our client has nothing to do.
    let pair = async || {
        let _path = bare.make("/bare");
        bare.delete("/bare");
        Ok(())
    };
    engine.round_trips((extent.pairs, "create and delete"), pair, report).await?;
    engine.hand_overs_alone(extent.pairs / 4, report).await?;
    engine.leases(extent, report).await
}
