//! A database with the tables of Leasehold, for one test.
//!
//! It is not used again, since requests of its test may still be on their way.

use std::sync::atomic::{AtomicU32, Ordering};

use super::server::MysqlServer;

static MADE: AtomicU32 = AtomicU32::new(0);

/// A database with the tables of Leasehold, for one test.
#[derive(Debug)]
pub struct MysqlDatabase {
    name: String,
}

impl MysqlDatabase {
    /// A new database of the [shared](MysqlServer::shared) server.
    ///
    /// # Panics
    ///
    /// If it cannot be made.
    #[must_use]
    pub fn lend() -> Self {
        let server = MysqlServer::shared();
        let name = format!("test{}", MADE.fetch_add(1, Ordering::Relaxed));
        server.sql(&format!("CREATE DATABASE {name}"));
        server.migrate(&name);
        Self { name }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its URL, over TCP, as a user with all rights.
    #[must_use]
    pub fn url(&self) -> String {
        MysqlServer::shared().url(&self.name)
    }

    /// Runs statements in it, as a user with all rights. Returns the rows.
    ///
    /// # Panics
    ///
    /// If the server refuses them.
    #[track_caller]
    pub fn sql(&self, sql: &str) -> Vec<Vec<String>> {
        MysqlServer::shared().sql_in(&self.name, sql)
    }
}
