//! A PostgreSQL server for tests, and schemas on it.
//!
//! The tests of a process share one server. Each test gets a schema with the tables of Leasehold.

mod outside;
mod schema;
mod server;
mod watched;

pub use self::outside::SchemaOutside;
pub use self::schema::Schema;
pub use self::server::PostgresServer;
