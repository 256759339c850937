//! Leases in tables of a PostgreSQL server.
//!
//! A step is one call of a function in the database. A message is one transaction and one round
//! trip. It has one step, or all steps that waited together. The lock on the key's row puts the
//! steps in an order. Time is the clock of the server.
//!
//! | file | purpose |
//! |---|---|
//! | `sql/` | the tables, and the functions that are the steps |
//! | `schema`, `migration` | which of them a build has, and how they are made |
//! | `url`, `connect`, `link` | how a connection is made, and which servers are refused |
//! | `guarded_stream` | bounds what a server may send |
//! | `hints` | receives messages of the server |
//! | `error` | what the errors of a server mean |
//! | `examine` | asks the questions of a diagnosis |
//!
//! Everything else is in `store/sql/`, for all engines.

mod connect;
mod error;
pub(crate) mod examine;
mod guarded_stream;
mod hints;
mod link;
mod migration;
mod schema;
mod url;

use std::fmt;
use std::sync::{Arc, Weak};

pub use self::connect::PostgresConnector;
pub use self::migration::migrate;
use super::delegate::delegate;
pub use super::net::{Opening, Stream};
pub use super::sql::Migrated;
use super::sql::SqlStore;
use super::{
    Acquired, Ask, BoxAnswer, Browse, Capabilities, HintSink, LeaseId, OnRelease, Released,
    Renewal, Renewed, Snapshot, Store,
};
use crate::core::error::Error;
use crate::core::key::Key;
use crate::core::token::ClientId;
use crate::host::Host;

/// A store in a schema of a PostgreSQL database, version 13 or newer.
///
/// [`migrate`] makes its tables, once. Clones share the connections, each opened when it is first
/// used: one for requests, one for renewals, one for hints, and one for renewals of keys whose row
/// another transaction has locked. The locks reach every client of the database, and outlive its
/// restarts. The clock of the server decides when a lease ends.
#[derive(Clone)]
pub struct PostgresStore {
    inner: SqlStore<PostgresConnector>,
}

impl PostgresStore {
    /// A store that connects with its first request.
    #[must_use]
    pub fn open(connector: PostgresConnector, host: Arc<dyn Host>) -> Self {
        Self { inner: SqlStore::open(connector, host) }
    }

    /// Makes sure that the server answers and has the tables.
    pub(crate) async fn reach(&self) -> Result<(), Error> {
        self.inner.reach().await
    }
}

delegate!(PostgresStore, PostgresConnector);
