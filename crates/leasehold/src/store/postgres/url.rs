//! Reads the URL of a server.
//!
//! | URL | server |
//! |---|---|
//! | `postgres://user:password@host:5432/database` | TCP; 5432 is the default port |
//! | `postgres://user@[::1]/database` | TCP; an IPv6 address needs brackets |
//! | `postgres://user@/database?host=/run/postgresql` | the socket in that folder |

#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Duration;

use crate::core::error::Error;
use crate::store::sql::url::{Parts, Place, TlsMode, Words};

const WORDS: Words = Words {
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

/// The address of a database, and the login.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Address {
    /// The path is the folder of a socket. The port is in its name.
    pub(super) place: Place,
    pub(super) user: String,
    pub(super) password: Option<String>,
    pub(super) database: String,
    /// Where the tables are.
    pub(super) schema: String,
    /// How long connecting may take, with TLS and the login.
    pub(super) connect_limit: Duration,
    pub(super) tls: TlsMode,
}

impl Address {
    /// Reads a URL.
    ///
    /// # Errors
    ///
    /// `Config`, with the mistake and the right form, but without the URL.
    pub(super) fn parse(url: &str) -> Result<Self, Error> {
        WORDS.read(url, Self::of)
    }

    fn of(parts: Parts) -> Result<Self, String> {
        let Parts { place, user, password, database, own, connect_limit, tls } = parts;
        let schema = own.unwrap_or_else(|| DEFAULT_SCHEMA.to_owned());
        if schema.is_empty() || schema.len() > NAME_BYTES_MAX {
            return Err(format!("`schema` is a name of 1 to {NAME_BYTES_MAX} bytes"));
        }
        // The bodies of the functions are quoted by `$$`.
        if schema.contains('$') {
            return Err("the name of a `schema` for locks has no `$`".to_owned());
        }
        let database = if database.is_empty() { user.clone() } else { database };
        Ok(Self { place, user, password, database, schema, connect_limit, tls })
    }

    /// The URL without password, for messages and logs. It can be copied into a command.
    pub(super) fn label(&self) -> String {
        let (place, socket) = WORDS.label(&self.place);
        let is_named = self.schema != DEFAULT_SCHEMA;
        let schema = is_named.then(|| format!("schema={}", self.schema.escape_debug()));
        let options: Vec<_> = socket.into_iter().chain(schema).collect();
        let mark = if options.is_empty() { "" } else { "?" };
        let (user, database) = (self.user.escape_debug(), self.database.escape_debug());
        format!("postgres://{user}@{place}/{database}{mark}{}", options.join("&"))
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.label())
    }
}
