//! Leases in tables of a MySQL or MariaDB server.
//!
//! A step is one call of a procedure in the database, so one message, one transaction and one round
//! trip. The lock on the key's row puts the steps in an order. Time is the clock of the server.
//!
//! | file | purpose |
//! |---|---|
//! | `sql/` | the tables, and the procedures that are the steps |
//! | `schema`, `migration` | which of them a build has, and how they are made |
//! | `url`, `connect` | how a connection is made, and which servers are refused |
//! | `packet`, `login`, `conn`, `link` | the protocol |
//! | `renewals` | renewals of many leases as one call |
//! | `text` | texts as digits |
//! | `hints` | asks for messages |
//! | `error` | what the errors of a server mean |
//! | `examine` | asks the questions of a diagnosis |
//!
//! Everything else is in `store/sql/`, for all engines.

mod conn;
mod connect;
mod error;
pub(crate) mod examine;
mod hints;
mod link;
mod login;
mod migration;
mod packet;
mod renewals;
mod schema;
mod text;
mod url;

use std::fmt;
use std::sync::{Arc, Weak};

pub use self::connect::MysqlConnector;
pub use self::migration::migrate;
use super::delegate::delegate;
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

/// The clock of a server in µs since 1970, in SQL. The procedures read it in the same way.
const SERVER_NOW: &str = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";

/// A store in a database of a MySQL server, version 8.0 or newer, or MariaDB, 10.6 or newer.
///
/// [`migrate`] makes its tables, once. Clones share the connections, each opened when it is first
/// used: one for requests, one for renewals, one for hints, and one for renewals of keys whose row
/// another transaction has locked. The locks reach every client of the database, and outlive its
/// restarts. The clock of the server decides when a lease ends.
#[derive(Clone)]
pub struct MysqlStore {
    inner: SqlStore<MysqlConnector>,
}

impl MysqlStore {
    /// A store that connects with its first request.
    #[must_use]
    pub fn open(connector: MysqlConnector, host: Arc<dyn Host>) -> Self {
        Self { inner: SqlStore::open(connector, host) }
    }

    /// Makes sure that the server answers and has the tables.
    pub(crate) async fn reach(&self) -> Result<(), Error> {
        self.inner.reach().await
    }
}

delegate!(MysqlStore, MysqlConnector);
