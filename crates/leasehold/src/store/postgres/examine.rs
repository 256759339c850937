//! Examines a database: whether it admits us, what it says of itself, and whether a lease works.

use std::sync::Arc;
use std::time::Duration;

use super::error::{Stage, failure};
use super::schema::in_schema;
use super::{PostgresConnector, PostgresStore};
use crate::core::error::Error;
use crate::core::key::Key;
use crate::host::Host;
use crate::store::{Store as _, try_lease, within};

/// How many inspections are measured.
const LOOKS: usize = 20;

/// How long one question may take.
const LIMIT: Duration = Duration::from_secs(2);

/// What was learned about a database. Plain values, without any judgement.
#[derive(Debug)]
pub(crate) struct DatabaseFacts {
    pub(crate) label: String,
    /// Why it cannot be used.
    pub(crate) refused: Option<Error>,
    pub(crate) about: Option<About>,
    pub(crate) round_trips: Vec<Duration>,
    /// Whether a probe lease worked: granted, not released by a wrong token, released by its own.
    pub(crate) lease: Option<Result<bool, Error>>,
}

/// What a server says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct About {
    /// Such as `15.4`.
    pub(crate) version: String,
    /// `synchronous_commit`.
    pub(crate) commit: String,
    pub(crate) has_fsync: bool,
    /// How many standbys are connected.
    pub(crate) standbys: u32,
    /// How far its clock is ahead of ours, in microseconds.
    pub(crate) ahead_us: i64,
    /// How long the question took.
    pub(crate) trip: Duration,
}

/// Examines the database of a connector.
pub(crate) async fn examine(
    connector: PostgresConnector,
    host: &Arc<dyn Host>,
    canary: &str,
) -> DatabaseFacts {
    let (mut about, mut round_trips, mut lease) = (None, Vec::new(), None);
    let label = connector.label();
    let asked = ask(&connector, host).await;
    let refused = match asked {
        Ok(found) => {
            about = found;
            let store = PostgresStore::open(connector, Arc::clone(host));
            let random = canary.rsplit(':').next().unwrap_or_default();
            let key = Key::probe(random);
            lease = Some(try_lease(&store, key.clone(), random).await);
            for _ in 0..LOOKS {
                let sent = host.now();
                if store.inspect(key.clone()).await.is_err() {
                    break;
                }
                round_trips.push(host.now().since(sent));
            }
            None
        }
        Err(error) => Some(error),
    };
    DatabaseFacts { label, refused, about, round_trips, lease }
}

async fn ask(connector: &PostgresConnector, host: &Arc<dyn Host>) -> Result<Option<About>, Error> {
    const SQL: &str = "SELECT current_setting('server_version'),
        current_setting('synchronous_commit'), current_setting('fsync'),
        (SELECT count(*) FROM pg_stat_replication), leasehold.clock()";
    let mut link = connector.connect(host).await?;
    let sql = in_schema(SQL, &connector.address);
    let (sent, wall) = (host.now(), host.wall());
    let asking = async { link.ask(&sql).await.map_err(|error| failure(&error, Stage::Connecting)) };
    let rows = within(Arc::clone(host), LIMIT, asking).await?;
    let trip = host.now().since(sent);
    let text = |at: usize| rows.first()?.get(at)?.as_deref();
    let read = || {
        let clock: i64 = text(4)?.parse().ok()?;
        let ours = i64::try_from(wall.as_unix_micros()).ok()?;
        Some(About {
            version: text(0)?.to_owned(),
            commit: text(1)?.to_owned(),
            has_fsync: text(2)? == "on",
            standbys: text(3)?.parse().ok()?,
            ahead_us: clock.saturating_sub(ours),
            trip,
        })
    };
    Ok(read())
}
