//! The shard channels of the clients of this process at one node of a cluster.
//!
//! A node passes a published message on to all nodes of its cluster. A message for a shard channel
//! stays at the nodes that have the slot of the channel. So each client that listens at a node has
//! a shard channel there, in addition to its inbox. Scripts try the shard channel first, and the
//! inbox if nobody got the message. So a shard channel only saves work. A stranger with the right
//! to listen could take its messages away; then the client polls.
//!
//! A channel belongs to a client and a node, not to a lock. Its *tag* is the lowest number whose
//! slot the node has. A script may publish to any slot of its node. So a client has one shard
//! channel at each node. It has two for a moment while the node's tag changes.
//!
//! | event | the shard channel of a client that listens |
//! |---|---|
//! | the map gives the node a tag, or another one | is subscribed to; then the old one is left |
//! | its slot leaves the node | is gone; the map is read again, and names another tag |
//! | the node refuses it, because it does not serve the slot | the same; or is tried again after a second |
//! | the user has no right to it | is tried again after a minute, or on the next connection |
//! | the server has no shard channels | is tried again after an hour, or on the next connection |
//! | the connection ends | is subscribed to on the next one |
//! | the connection ends instead of an answer | is tried again after a minute: a proxy in between may not know the command |

use std::collections::BTreeMap;
use std::time::Duration;

use crate::core::moment::Moment;
use crate::core::token::ClientId;
use crate::store::redis::codec;

/// How long no shard channel is tried after a refusal.
const MOVED_FOR: Duration = Duration::from_secs(1);
const DENIED_FOR: Duration = Duration::from_mins(1);
const ABSENT_FOR: Duration = Duration::from_hours(1);

/// The shard channels at one node.
#[derive(Default)]
pub(super) struct Shards {
    /// The tag of the node. `None` without a cluster, or if no map names the node.
    tag: Option<u32>,
    /// The tags in the channels that are subscribed to.
    subscribed: BTreeMap<ClientId, u32>,
    /// Why the node refused a channel, and until when none is tried.
    refused: Option<(Refused, Moment)>,
    /// Whether the missing right of the user was logged.
    has_told: bool,
}

/// Why a node refuses a shard channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// The node does not serve the slot.
    Elsewhere,
    /// The user lacks the right.
    Denied,
    /// The server has no shard channels.
    Absent,
    /// The connection ended instead of an answer.
    Ended,
}

impl Refused {
    /// Reads what the node said.
    pub(super) fn read(text: &str) -> Self {
        match codec::code(text) {
            "NOPERM" => Self::Denied,
            "ERR" => Self::Absent,
            _ => Self::Elsewhere,
        }
    }
}

impl Shards {
    /// Sets the tag that the map of the cluster gives the node. Returns whether it changed.
    pub(super) fn live_at(&mut self, tag: Option<u32>) -> bool {
        let is_another = self.tag != tag;
        if is_another {
            (self.tag, self.refused) = (tag, None);
        }
        is_another
    }

    fn tag(&self, now: Moment) -> Option<u32> {
        self.tag.filter(|_| self.refused.is_none_or(|(_, until)| until <= now))
    }

    /// The tag that a place of this client should name. A client that does not listen yet will do
    /// so soon.
    pub(super) fn named(&self, client: &ClientId, now: Moment) -> Option<u32> {
        self.subscribed.get(client).copied().or_else(|| self.tag(now))
    }

    /// The tag of the shard channel that this client should subscribe to.
    pub(super) fn wanted(&self, client: &ClientId, now: Moment) -> Option<u32> {
        self.tag(now).filter(|tag| self.subscribed.get(client) != Some(tag))
    }

    /// Notes that a shard channel is subscribed to. Returns the tag of the channel to leave.
    pub(super) fn confirmed(&mut self, client: &ClientId, tag: u32) -> Option<u32> {
        self.subscribed.insert(client.clone(), tag)
    }

    /// Notes that a shard channel is not subscribed to any more. Returns whether it was in use.
    pub(super) fn left(&mut self, client: &ClientId, tag: u32) -> bool {
        let was_used = self.subscribed.get(client) == Some(&tag);
        if was_used {
            self.subscribed.remove(client);
        }
        was_used
    }

    /// Notes that the node refused the shard channel with this tag. Returns whether to log that the
    /// user lacks the right.
    pub(super) fn refused(&mut self, refused: Refused, tag: u32, now: Moment) -> bool {
        if refused == Refused::Elsewhere && self.tag != Some(tag) {
            // The map was read meanwhile. The refusal says nothing about the tag that the new map
            // gave the node.
            return false;
        }
        let pause = match refused {
            Refused::Elsewhere => MOVED_FOR,
            Refused::Denied | Refused::Ended => DENIED_FOR,
            Refused::Absent => ABSENT_FOR,
        };
        self.refused = Some((refused, now + pause));
        refused == Refused::Denied && !std::mem::replace(&mut self.has_told, true)
    }

    /// When a shard channel is tried again after a refusal.
    pub(super) fn tried_again_at(&self, now: Moment) -> Option<Moment> {
        self.refused.map(|(_, until)| until).filter(|until| *until > now)
    }

    /// Notes that the connection ended.
    pub(super) fn disconnected(&mut self) {
        self.subscribed.clear();
        self.refused = self.refused.filter(|(refused, _)| *refused == Refused::Ended);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(byte: u8) -> ClientId {
        ClientId::from_random([byte; ClientId::CHARS])
    }

    fn at(ms: u64) -> Moment {
        Moment::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn a_client_has_one_channel_that_follows_the_tag_of_the_node() {
        let (mut shards, anna, bert) = (Shards::default(), client(1), client(2));
        assert_eq!((shards.named(&anna, at(0)), shards.wanted(&anna, at(0))), (None, None));
        assert!(shards.live_at(Some(3)) && !shards.live_at(Some(3)));
        assert_eq!(shards.named(&anna, at(0)), Some(3), "it is about to subscribe");
        assert_eq!(shards.wanted(&anna, at(0)), Some(3));
        assert_eq!(shards.confirmed(&anna, 3), None);
        assert_eq!((shards.wanted(&anna, at(0)), shards.wanted(&bert, at(0))), (None, Some(3)));
        assert!(shards.live_at(Some(1)));
        assert_eq!(shards.named(&anna, at(0)), Some(3), "where it listens");
        assert_eq!(shards.named(&bert, at(0)), Some(1));
        assert_eq!(shards.wanted(&anna, at(0)), Some(1));
        assert_eq!(shards.confirmed(&anna, 1), Some(3), "to be left");
        assert!(!shards.left(&anna, 3), "it was not in use");
        assert!(shards.left(&anna, 1) && !shards.left(&anna, 1));
        assert_eq!(shards.wanted(&anna, at(0)), Some(1));
        shards.confirmed(&anna, 1);
        shards.disconnected();
        assert_eq!(shards.wanted(&anna, at(0)), Some(1));
        assert!(shards.live_at(None));
        assert_eq!((shards.named(&anna, at(0)), shards.wanted(&anna, at(0))), (None, None));
    }

    #[test]
    fn after_a_refusal_no_channel_is_tried_for_a_while() {
        let moved = "MOVED 3999 127.0.0.1:6381";
        let down = "CLUSTERDOWN Hash slot not served";
        let denied = "NOPERM User app has no permissions to run the 'ssubscribe' command";
        let absent = "ERR unknown command `SSUBSCRIBE`, with args beginning with: `c`";
        let table = [(moved, 1_000), (down, 1_000), (denied, 60_000), (absent, 3_600_000)];
        for (text, ms) in table {
            let (mut shards, anna) = (Shards::default(), client(1));
            shards.live_at(Some(3));
            let is_told = shards.refused(Refused::read(text), 3, at(0));
            assert_eq!(is_told, text == denied);
            assert!(!shards.refused(Refused::read(text), 3, at(0)), "it is logged once");
            for (now, expected) in [(ms - 1, None), (ms, Some(3))] {
                assert_eq!(shards.named(&anna, at(now)), expected, "{text}");
                assert_eq!(shards.wanted(&anna, at(now)), expected, "{text}");
            }
            assert_eq!(shards.tried_again_at(at(0)), Some(at(ms)), "{text}");
            assert_eq!(shards.tried_again_at(at(ms)), None, "{text}");
            shards.live_at(Some(4));
            assert_eq!(shards.wanted(&anna, at(0)), Some(4), "at another tag");
            shards.refused(Refused::read(text), 4, at(0));
            shards.disconnected();
            assert_eq!(shards.wanted(&anna, at(0)), Some(4), "on another connection");
        }
    }

    /// The map is read on another thread.
    #[test]
    fn a_refusal_that_comes_after_another_tag_is_not_about_that_one() {
        let (mut shards, anna) = (Shards::default(), client(1));
        shards.live_at(Some(3));
        shards.live_at(Some(4));
        assert!(!shards.refused(Refused::Elsewhere, 3, at(0)));
        assert_eq!(shards.wanted(&anna, at(0)), Some(4));
        shards.refused(Refused::Denied, 3, at(0));
        assert_eq!(shards.wanted(&anna, at(0)), None, "the right is about the node");
    }

    /// Otherwise every connection would end at this command, and the client could not listen.
    #[test]
    fn a_channel_at_which_the_connection_ends_is_not_tried_on_the_next_one() {
        let (mut shards, anna) = (Shards::default(), client(1));
        shards.live_at(Some(3));
        assert!(!shards.refused(Refused::Ended, 3, at(0)));
        shards.disconnected();
        assert_eq!(shards.wanted(&anna, at(59_999)), None);
        assert_eq!(shards.wanted(&anna, at(60_000)), Some(3));
    }
}
