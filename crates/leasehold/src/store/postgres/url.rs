//! Reads the URL of a server.
//!
//! | URL | server |
//! |---|---|
//! | `postgres://user:password@host:5432/database` | TCP; 5432 is the default port |
//! | `postgres://user@[::1]/database` | TCP; an IPv6 address needs brackets |
//! | `postgres://user@/database?host=/run/postgresql` | the socket in that folder |

#[cfg(test)]
mod tests;

use crate::core::error::Error;
use crate::store::sql::url::{Address, Words};

static WORDS: Words = Words {
    schemes: &["postgres", "postgresql"],
    port: 5432,
    files: ["sslrootcert", "sslcert", "sslkey"],
    socket: ("host", "the folder of a socket"),
    own: Some("schema"),
};

/// The schema of the tables if the URL names none.
const DEFAULT_SCHEMA: &str = "leasehold";

/// The longest name that PostgreSQL does not truncate, in bytes.
const NAME_BYTES_MAX: usize = 63;

/// Reads a URL.
///
/// # Errors
///
/// `Config`, with the mistake and the right form, but without the URL.
pub(super) fn parse(url: &str) -> Result<Address, Error> {
    WORDS.read(url, |mut address| {
        let schema = schema(&address);
        if schema.is_empty() || schema.len() > NAME_BYTES_MAX {
            return Err(format!("`schema` must be a name of 1 to {NAME_BYTES_MAX} bytes"));
        }
        // The bodies of the functions are quoted by `$$`.
        if schema.contains('$') {
            return Err("the name of a `schema` for locks has no `$`".to_owned());
        }
        address.own = address.own.filter(|schema| schema != DEFAULT_SCHEMA);
        if address.database.is_empty() {
            address.database.clone_from(&address.user);
        }
        Ok(address)
    })
}

/// The schema with the tables.
pub(super) fn schema(address: &Address) -> &str {
    address.own.as_deref().unwrap_or(DEFAULT_SCHEMA)
}
