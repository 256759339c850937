//! What only the Redis store does.

mod clients;
mod connecting;
mod fake;
mod refusals;
mod runtimes;
mod scripts;
mod wire;
