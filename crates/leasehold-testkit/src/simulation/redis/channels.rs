//! Channels and their subscribers.

use std::collections::BTreeMap;

use super::arguments::Arguments;
use super::reply::{Refusal, Reply};
use super::{Publication, Server};
use crate::protocol::{Message, News};

/// The subscribers of each channel, in the order in which they subscribed.
#[derive(Debug, Default)]
pub(super) struct Channels {
    subscribers: BTreeMap<String, Vec<u64>>,
}

impl Channels {
    pub(super) fn subscribe(&mut self, subscriber: u64, channel: &str) {
        let subscribers = self.subscribers.entry(channel.to_owned()).or_default();
        if !subscribers.contains(&subscriber) {
            subscribers.push(subscriber);
        }
    }

    pub(super) fn unsubscribe(&mut self, subscriber: u64) {
        self.subscribers.retain(|_, subscribers| {
            subscribers.retain(|other| *other != subscriber);
            !subscribers.is_empty()
        });
    }
}

pub(super) fn publish(server: &mut Server, arguments: &Arguments) -> Result<Reply, Refusal> {
    // No client subscribes to a channel whose name is not UTF-8.
    let channel = str::from_utf8(arguments.at(1)).ok();
    let heard = channel.and_then(|channel| server.channels.subscribers.get_key_value(channel));
    let Some((channel, subscribers)) = heard else {
        return Ok(Reply::Int(0));
    };
    let message = Message::new(channel.as_str(), arguments.at(2));
    server.published.extend(subscribers.iter().map(|subscriber| Publication {
        subscriber: *subscriber,
        news: News::Published(message.clone()),
    }));
    Ok(Reply::count(subscribers.len()))
}
