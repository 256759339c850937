//! A MariaDB or MySQL server for tests, and databases on it.
//!
//! The tests of a process share one server. Each test gets a database with the tables of Leasehold.

mod database;
mod make;
mod server;

pub use self::database::MysqlDatabase;
pub use self::server::MysqlServer;
