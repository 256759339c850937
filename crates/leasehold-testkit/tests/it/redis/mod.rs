//! Behaviour that only the Redis store has.

mod application;
mod clients;
mod cluster;
mod coexisting;
mod connecting;
mod copies;
mod counter;
mod epoch;
mod failed_over;
mod fake;
mod flooding;
mod foreign;
mod forged;
mod late;
mod listing;
mod loose;
mod moved;
mod plain;
mod refusals;
mod rights;
mod runtimes;
mod scripts;
mod sentinel;
mod strict;
mod tls;
mod wire;
