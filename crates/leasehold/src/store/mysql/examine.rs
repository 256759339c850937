//! Asks a database the questions of a diagnosis.

use std::sync::Arc;

use super::connect::Facts;
use super::schema::BUILD;
use super::{MysqlConnector, MysqlStore, SERVER_NOW};
use crate::core::error::Error;
use crate::host::Host;
use crate::store::sql::Engine as _;
use crate::store::sql::errors::Stage;
use crate::store::sql::examine::{self, About, DatabaseFacts, Keeping, LIMIT, ahead_us};
use crate::store::within;

/// Examines the database of a connector.
pub(crate) async fn examine(
    connector: MysqlConnector,
    host: &Arc<dyn Host>,
    canary: &str,
) -> DatabaseFacts {
    let asked = ask(&connector, host).await;
    let store = MysqlStore::open(connector, Arc::clone(host));
    examine::examine(&store, asked, (host, canary)).await
}

async fn ask(connector: &MysqlConnector, host: &Arc<dyn Host>) -> Result<Option<About>, Error> {
    let sql =
        format!("SELECT @@innodb_flush_log_at_trx_commit, @@sync_binlog, @@log_bin, {SERVER_NOW}");
    let link = connector.connect(host).await?;
    let facts = within(Arc::clone(host), LIMIT, Facts::read(&link)).await?;
    let found = within(Arc::clone(host), LIMIT, connector.found(&link)).await?;
    let (version, ours) = (found.version, BUILD.version);
    let (sent, wall) = (host.now(), host.wall());
    let rows = within(Arc::clone(host), LIMIT, link.ask(&sql, Stage::Connecting)).await?;
    let trip = host.now().since(sent);
    let number = |at: usize| rows.first()?.get(at)?.as_deref()?.parse::<i64>().ok();
    let read = || {
        let keeping = Keeping::Mysql {
            flush: number(0)?,
            has_log: number(2)? != 0,
            syncs_log: number(1)? == 1,
        };
        let ahead_us = ahead_us(number(3)?, wall)?;
        let server = facts.server();
        Some(About { server, version, ours, keeping, hints: None, ahead_us, trip })
    };
    Ok(read())
}
