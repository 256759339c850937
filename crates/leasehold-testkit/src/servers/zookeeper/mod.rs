//! A ZooKeeper server for tests, and an ensemble of three.
//!
//! The tests of a process share one server. Each test gets a path of its own.

mod client;
mod server;

pub use self::client::ZookeeperClient;
pub use self::server::{ZookeeperPath, ZookeeperServer};
