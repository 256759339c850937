//! Asks a database the questions of a diagnosis.

use std::sync::Arc;

use super::error::failure;
use super::hints::{ARRIVES_WITHIN, are_told, try_in_time};
use super::schema::{BUILD, in_schema};
use super::{PostgresConnector, PostgresStore};
use crate::core::error::Error;
use crate::host::Host;
use crate::store::sql::Engine as _;
use crate::store::sql::errors::Stage;
use crate::store::sql::examine::{
    self, About, DatabaseFacts, HintsArrive, Keeping, LIMIT, ahead_us,
};
use crate::store::within;

/// Examines the database of a connector.
pub(crate) async fn examine(
    connector: PostgresConnector,
    host: &Arc<dyn Host>,
    canary: &str,
) -> DatabaseFacts {
    let asked = ask(&connector, host, canary).await;
    let store = PostgresStore::open(connector, Arc::clone(host));
    examine::examine(&store, asked, (host, canary)).await
}

async fn ask(
    connector: &PostgresConnector,
    host: &Arc<dyn Host>,
    canary: &str,
) -> Result<Option<About>, Error> {
    const SQL: &str = "SELECT current_setting('server_version'),
        current_setting('synchronous_commit'), current_setting('fsync'),
        (SELECT count(*) FROM pg_stat_replication), leasehold.clock(),
        current_setting('synchronous_standby_names')";
    let mut link = connector.connect(host).await?;
    let found = within(Arc::clone(host), LIMIT, connector.found(&mut link)).await?;
    let (version, ours) = (found.version, BUILD.version);
    let sql = in_schema(SQL, &connector.address);
    let (sent, wall) = (host.now(), host.wall());
    let asking = async { link.ask(&sql).await.map_err(|error| failure(&error, Stage::Connecting)) };
    let rows = within(Arc::clone(host), LIMIT, asking).await?;
    let trip = host.now().since(sent);
    let notify = async |sql: String| {
        let mut other = connector.log_in_within_limit(host).await?;
        try_in_time(host, other.ask(&sql)).await
    };
    let hints = match are_told(host, &mut link, random_part(canary), notify).await {
        Ok(true) => HintsArrive::Yes,
        Ok(false) => HintsArrive::NotWithin(ARRIVES_WITHIN),
        Err(_) => HintsArrive::NotKnown,
    };
    let text = |at: usize| rows.first()?.get(at)?.as_deref();
    let read = || {
        let keeping = Keeping::Postgres {
            commit: text(1)?.to_owned(),
            has_fsync: text(2)? == "on",
            standbys: text(3)?.parse().ok()?,
            names_standbys: !text(5)?.is_empty(),
        };
        let ahead_us = ahead_us(text(4)?.parse().ok()?, wall)?;
        let server = format!("PostgreSQL {}", text(0)?);
        let hints = Some(hints.clone());
        Some(About { server, version, ours, keeping, hints, ahead_us, trip })
    };
    Ok(read())
}

/// The part of the name of a probe that no other diagnosis has.
fn random_part(canary: &str) -> &str {
    canary.rsplit(':').next().unwrap_or_default()
}
