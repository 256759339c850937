//! What only the Redis store does.

mod connecting;
mod fake;
mod scripts;
mod refusals;
mod wire;
