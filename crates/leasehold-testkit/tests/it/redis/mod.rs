//! What only the Redis store does.

mod clients;
mod coexisting;
mod connecting;
mod copies;
mod epoch;
mod fake;
mod flooding;
mod foreign;
mod late;
mod loose;
mod moved;
mod plain;
mod listing;
mod refusals;
mod rights;
mod runtimes;
mod scripts;
mod strict;
mod wire;
