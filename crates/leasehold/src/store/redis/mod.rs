//! Redis and Valkey: string keys with an owner token and an expiry, which every other client of that
//! recipe contends with, and companion keys beside them for the line and the fencing counter.

mod link;

pub use link::{
    Channels, Command, Connected, Connector, Link, LinkError, LinkFuture, Message, Messages,
    Subscriber, Value,
};
