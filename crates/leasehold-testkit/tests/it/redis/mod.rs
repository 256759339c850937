//! What only the Redis store does.

mod connecting;
mod fake;
mod refusals;
mod scripts;
mod wire;
