//! A PostgreSQL server for tests, and schemas on it.
//!
//! The tests of a process share one server. Each test gets a schema with the tables of Leasehold. A
//! pooler may stand in front of it.

mod outside;
mod pooler;
mod schema;
mod server;

pub use self::outside::SchemaOutside;
pub use self::pooler::{Lends, Pooler};
pub use self::schema::Schema;
pub use self::server::PostgresServer;
