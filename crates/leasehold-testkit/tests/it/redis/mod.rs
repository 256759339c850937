//! What only the Redis store does.

mod fake;
mod scripts;
mod wire;
