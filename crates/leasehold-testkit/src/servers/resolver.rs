//! A host name whose address a test changes.
//!
//! A few lines of C replace the resolver of a program. They read the address from a file.

use std::path::PathBuf;

use tempfile::TempDir;

use super::preload::compiled;

const SOURCE: &str = include_str!("resolver.c");

/// The name that the resolver knows. No real name ends like this (RFC 6761).
const HOST: &str = "store.test";

/// A host name that programs look up through this resolver. At first, the name has no address.
#[derive(Debug)]
pub struct Resolver {
    home: TempDir,
}

impl Default for Resolver {
    fn default() -> Self {
        let resolver = Self { home: tempfile::tempdir().expect("a temporary directory") };
        std::fs::write(resolver.library(), compiled("resolver.c", SOURCE)).expect("it takes files");
        resolver
    }
}

impl Resolver {
    /// The host name.
    #[must_use]
    pub fn host(&self) -> &'static str {
        HOST
    }

    /// The environment of a program that uses this resolver.
    #[must_use]
    pub fn env(&self) -> [(&'static str, PathBuf); 3] {
        [
            ("LD_PRELOAD", self.library()),
            ("LEASEHOLD_TEST_HOST", HOST.into()),
            ("LEASEHOLD_TEST_ADDRESS", self.address()),
        ]
    }

    /// Sets the address of the host from now on.
    ///
    /// # Panics
    ///
    /// If the file cannot be written.
    pub fn points_to(&self, address: &str) {
        // Replace the file in one step, so that a program never reads half of it.
        let new = self.home.path().join("new");
        std::fs::write(&new, address).expect("the directory takes files");
        std::fs::rename(new, self.address()).expect("the directory takes files");
    }

    /// From now on, there is no such host.
    pub fn forgets(&self) {
        self.points_to("");
    }

    fn library(&self) -> PathBuf {
        self.home.path().join("resolver.so")
    }

    fn address(&self) -> PathBuf {
        self.home.path().join("address")
    }
}
