//! Redis and Valkey: string keys with an owner token and an expiry, which every other client of
//! that recipe contends with, and companion keys beside them for the line and the fencing counter.

#[allow(dead_code, reason = "the store that uses it is on its way")]
mod call;
mod connect;
mod error;
mod greet;
#[allow(dead_code, reason = "the store that uses it is on its way")]
mod keys;
mod link;
mod listen;
#[allow(dead_code, reason = "the store that uses it is on its way")]
mod message;
#[allow(dead_code, reason = "the store that uses it is on its way")]
mod record;
#[allow(dead_code, reason = "the store that uses it is on its way")]
mod reply;
#[allow(dead_code, reason = "the store that uses it is on its way")]
mod scripts;
mod sha1;
mod url;

pub use connect::RedisConnector;
pub use link::{
    Channels, Command, Connected, Connector, Link, LinkError, LinkFuture, Message, Messages,
    Subscriber, Value,
};
