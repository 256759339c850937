//! A part of a server that all tests share.

use std::sync::atomic::{AtomicU32, Ordering};

use super::server::EtcdServer;

/// A prefix of the [shared](EtcdServer::shared) server that no other test has.
#[derive(Debug)]
pub struct EtcdPrefix(String);

impl EtcdPrefix {
    /// A new prefix. The server is started if it does not run.
    ///
    /// # Panics
    ///
    /// If it cannot be started.
    #[must_use]
    pub fn lend() -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let _runs = EtcdServer::shared();
        Self(format!("test{}", MADE.fetch_add(1, Ordering::Relaxed)))
    }

    /// The URL of its keys.
    #[must_use]
    pub fn url(&self) -> String {
        EtcdServer::shared().url(&self.0)
    }

    /// How many waiters a lock has.
    ///
    /// # Panics
    ///
    /// If the server does not answer.
    #[must_use]
    pub fn waiters(&self, name: &str) -> usize {
        EtcdServer::shared().count(&format!("{}/line/{name}\t", self.0))
    }

    /// Removes the holder of a lock, as an operator may do.
    ///
    /// # Panics
    ///
    /// If the server does not answer.
    pub fn remove_holder(&self, name: &str) {
        EtcdServer::shared().remove(&format!("{}/held/{name}", self.0));
    }
}
