//! MariaDB, compared with bare statements. It sends nothing by itself, so there is no bare message.

use leasehold::Error;
use leasehold_testkit::servers::mysql::MysqlServer;
use tokio::task::spawn_blocking;

use super::bare_mysql::Session;
use super::{Engine, Extent, refused};
use crate::figure::Report;

const DATABASE: &str = "bench";

/// A row for each key, and no more: the least that a lock in a table needs.
const BARE_TABLE: &str = "CREATE TABLE bare (
    name VARBINARY(512) PRIMARY KEY, owner VARBINARY(128), until DATETIME(6)) ENGINE = InnoDB";
const BARE_LOCK: &str = "INSERT INTO bare VALUES ('a', 'me', UTC_TIMESTAMP(6) + INTERVAL 10 SECOND)
    ON DUPLICATE KEY UPDATE
        until = IF(owner IS NULL OR until < UTC_TIMESTAMP(6), VALUES(until), until),
        owner = IF(owner IS NULL, VALUES(owner), owner)";
const BARE_RELEASE: &str = "UPDATE bare SET owner = NULL WHERE name = 'a' AND owner = 'me'";

pub(super) async fn measure(extent: Extent, report: &mut Report) -> Result<(), Error> {
    let starting = spawn_blocking(|| {
        let server = MysqlServer::start();
        server.sql(&format!("CREATE DATABASE {DATABASE}"));
        server.migrate(DATABASE);
        server.sql_in(DATABASE, BARE_TABLE);
        server
    });
    let server = starting.await.expect("the server starts");
    let url = server.url(DATABASE);
    let engine = Engine { name: "MariaDB", url: &url };
    let mut bare = Session::open(server.port(), DATABASE).await?;
    let pair = async || {
        bare.run(BARE_LOCK).await?;
        bare.run(BARE_RELEASE).await
    };
    engine.round_trips((extent.pairs, "two bare transactions"), pair, report).await?;
    engine.hand_overs_alone(extent.pairs / 4, report).await?;
    let count = async || questions(&server);
    engine.waiters((extent.watched, "statements"), count, report).await?;
    engine.leases(extent, report).await
}

/// How many statements the server has run.
fn questions(server: &MysqlServer) -> Result<u64, Error> {
    let rows = server.sql("SHOW GLOBAL STATUS LIKE 'Questions'");
    let count = rows.first().and_then(|row| row.get(1)?.parse().ok());
    count.ok_or_else(|| refused("no count of statements"))
}
