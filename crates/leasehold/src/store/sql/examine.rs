//! Examines a database: whether it admits this client, what it says of itself, and whether a lease
//! works.

use std::sync::Arc;
use std::time::Duration;

use crate::core::error::Error;
use crate::core::moment::WallTime;
use crate::host::Host;
use crate::store::{Store, try_out};

/// How long one question may take.
pub(in crate::store) const LIMIT: Duration = Duration::from_secs(2);

/// The facts about a database. Plain values, without any judgement.
#[derive(Debug)]
pub(crate) struct DatabaseFacts {
    pub(crate) label: String,
    /// Why the database cannot be used.
    pub(crate) refused: Option<Error>,
    pub(crate) about: Option<About>,
    pub(crate) round_trips: Vec<Duration>,
    /// Whether a probe lease worked: granted, renewed, and released by no other token than its own.
    pub(crate) lease: Option<Result<bool, Error>>,
}

/// The facts that a server tells about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct About {
    /// Such as `PostgreSQL 15.4`.
    pub(crate) server: String,
    /// The version of its tables and functions.
    pub(crate) version: u32,
    /// The version that this build makes.
    pub(crate) ours: u32,
    pub(crate) keeping: Keeping,
    /// Whether hints arrive; `None` if clients ask for them.
    pub(crate) hints: Option<HintsArrive>,
    /// How far the server's clock is ahead of ours, in microseconds.
    pub(crate) ahead_us: i64,
    /// How long the question took.
    pub(crate) trip: Duration,
}

/// The settings that decide what a server keeps of its last commits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Keeping {
    #[cfg(feature = "mysql")]
    Mysql {
        /// `innodb_flush_log_at_trx_commit`.
        flush: i64,
        /// Whether the server writes a log, which replicas and backups follow.
        has_log: bool,
        /// Whether `sync_binlog` is 1.
        syncs_log: bool,
    },
    #[cfg(feature = "postgres")]
    Postgres {
        /// `synchronous_commit`.
        commit: String,
        has_fsync: bool,
        /// How many standbys are connected.
        standbys: u32,
        /// Whether `synchronous_standby_names` names any.
        names_standbys: bool,
    },
}

/// Whether a session that listens is told.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "postgres"), allow(dead_code, reason = "only PostgreSQL tells sessions"))]
pub(crate) enum HintsArrive {
    Yes,
    NotWithin(Duration),
    NotKnown,
}

/// How far a clock is ahead of ours, in microseconds.
pub(in crate::store) fn ahead_us(clock: i64, ours: WallTime) -> Option<i64> {
    Some(clock.saturating_sub(i64::try_from(ours.as_unix_micros()).ok()?))
}

/// Tries a store. `asked` is what its server said of itself.
pub(in crate::store) async fn examine(
    store: &impl Store,
    asked: Result<Option<About>, Error>,
    (host, canary): (&Arc<dyn Host>, &str),
) -> DatabaseFacts {
    let label = store.label();
    let about = match asked {
        Ok(about) => about,
        Err(error) => {
            let (refused, round_trips) = (Some(error), Vec::new());
            return DatabaseFacts { label, refused, about: None, round_trips, lease: None };
        }
    };
    let (lease, round_trips) = try_out(store, &**host, canary).await;
    DatabaseFacts { label, refused: None, about, round_trips, lease: Some(lease) }
}
