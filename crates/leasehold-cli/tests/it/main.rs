//! Drives the built command as its users do: with processes, pipes and signals, and with a store in
//! a file or on a server.
#![allow(clippy::disallowed_methods, reason = "tests look at real processes in real time")]
#![allow(missing_docs, reason = "the names of the tests say it")]

#[macro_use]
mod harness;

mod bad_input;
mod choosing;
mod counting;
mod doctor;
mod electing;
mod exit_codes;
mod joining;
mod json;
mod keeping;
mod limits;
mod logging;
mod losing;
mod main_jobs;
mod on_etcd;
mod on_mysql;
mod on_postgres;
mod on_zookeeper;
mod once;
mod package;
mod redis;
mod revoking;
mod scripts;
mod serving;
mod several;
mod sharing;
mod shown;
mod signals;
mod starting;
mod stdout;
mod strangers;
mod supervising;
mod terminal;
mod waiting;
