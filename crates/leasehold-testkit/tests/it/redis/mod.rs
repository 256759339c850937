//! What only the Redis store does.

mod fake;
mod wire;
