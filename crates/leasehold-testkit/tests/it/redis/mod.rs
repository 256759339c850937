//! What only the Redis store does.

mod clients;
mod connecting;
mod fake;
mod late;
mod refusals;
mod rights;
mod runtimes;
mod scripts;
mod wire;
