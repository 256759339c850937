//! An etcd server for tests, and a cluster of three.
//!
//! The tests of a process share one server. Each test gets a prefix of its own.

mod base64;
mod member;
mod prefix;
mod server;
mod space;

pub use self::prefix::EtcdPrefix;
pub use self::server::EtcdServer;
