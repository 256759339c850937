//! Tests the promises of the stores and the session, on virtual time.

#![allow(missing_docs, reason = "a test binary")]

mod capabilities;
mod chaos;
mod conformance;
mod contention;
mod differential;
mod forks;
mod fuzz;
mod listing;
mod mixture;
mod on_etcd;
mod on_event;
mod on_mysql;
mod on_postgres;
mod on_sql;
mod on_zookeeper;
mod quorum;
mod real_time;
mod redis;
mod session;
mod simulated_redis;
mod simulation;
mod stores;
