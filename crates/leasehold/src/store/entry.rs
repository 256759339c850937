//! The record of a holder or a waiter in a store, as one text.
//!
//! It is like the options of a URL, so that people can read it: `owner=…&ttl=10`.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use crate::core::moment::WallTime;
use crate::core::token::{ClientId, FencingBlock, FencingToken, OwnerToken};
use crate::store::net::decode;
use crate::store::{Ask, Claim, ClientRecord, Holder, Note, Revocation, Waiter};

/// The characters that are percent-encoded.
const SPECIAL: &AsciiSet = &CONTROLS.add(b' ').add(b'%').add(b'&').add(b'=');

/// A holder or a waiter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) owner: OwnerToken,
    /// How long the lease lasts without a renewal: seconds in etcd, milliseconds in ZooKeeper.
    pub(crate) lasts: i64,
    /// Since when the client holds or waits.
    pub(crate) since: WallTime,
    /// How many fencing tokens the client wants.
    pub(crate) reserve: u32,
    /// The first fencing token, if the text was written again after the grant.
    pub(crate) fence: Option<FencingToken>,
    pub(crate) is_idle: bool,
    pub(crate) is_plain: bool,
    pub(crate) why: Option<String>,
    pub(crate) client: Option<ClientRecord>,
    pub(crate) revoked: Option<Arc<Revocation>>,
}

impl Entry {
    /// The entry of an ask that is granted, or takes a place.
    pub(crate) fn of(ask: &Ask, lasts: i64, since: WallTime) -> Self {
        let note = ask.note.as_ref();
        Self {
            owner: ask.owner.clone(),
            lasts,
            since,
            reserve: ask.reserve,
            fence: None,
            is_idle: false,
            is_plain: ask.claim == Claim::Plain,
            why: note.and_then(|note| note.why.as_deref()).map(cut),
            client: note.and_then(|note| note.client.as_deref()).cloned(),
            revoked: None,
        }
    }

    /// The entry of a waiter that becomes the holder.
    pub(crate) fn handed(self, since: WallTime) -> Self {
        Self { since, ..self }
    }

    /// The fencing tokens, if these are the numbers of the last change.
    pub(crate) fn block(&self, of: Option<FencingBlock>) -> Option<FencingBlock> {
        let of = of?;
        let (first, count) = (self.fence.unwrap_or(of.first), self.reserve.min(of.count));
        (count > 0).then_some(FencingBlock { first, count })
    }

    /// The same entry, which keeps its fencing tokens when it is written again.
    pub(crate) fn kept(mut self, of: Option<FencingBlock>) -> Self {
        self.fence = self.block(of).map(|block| block.first);
        self
    }

    pub(crate) fn write(&self) -> Vec<u8> {
        let mut text = format!("owner={}", utf8_percent_encode(self.owner.as_str(), SPECIAL));
        let mut add = |name: &str, value: &str| {
            let value = utf8_percent_encode(value, SPECIAL);
            write!(text, "&{name}={value}").expect("a string takes any text");
        };
        add("ttl", &self.lasts.to_string());
        add("since", &self.since.as_unix_millis().to_string());
        add("reserve", &self.reserve.to_string());
        if let Some(fence) = self.fence {
            add("fence", &fence.to_string());
        }
        for (name, flag) in [("idle", self.is_idle), ("plain", self.is_plain)] {
            if flag {
                add(name, "yes");
            }
        }
        if let Some(why) = &self.why {
            add("why", why);
        }
        if let Some(client) = &self.client {
            add("client", client.id.as_str());
            add("host", &client.host);
            add("pid", &client.pid.to_string());
            add("user", &client.user);
            add("command", &client.command);
            if let Some(ttl) = client.ttl {
                add("ttl_ms", &ttl.as_millis().to_string());
            }
        }
        if let Some(revoked) = &self.revoked {
            let at = revoked.at.as_unix_micros();
            add("revoked", &format!("{at}|{}", revoked.words()));
        }
        text.into_bytes()
    }

    /// Reads a value. `None` if it was not written by Leasehold.
    pub(crate) fn read(value: &[u8]) -> Option<Self> {
        let text = str::from_utf8(value).ok()?;
        let mut parts = text.split('&').map(|part| part.split_once('='));
        let ("owner", owner) = parts.next()?? else { return None };
        let mut entry = Self {
            owner: OwnerToken::new(decode(owner).ok()?).ok()?,
            lasts: 0,
            since: WallTime::default(),
            reserve: 0,
            fence: None,
            is_idle: false,
            is_plain: false,
            why: None,
            client: None,
            revoked: None,
        };
        for part in parts {
            let (name, value) = part?;
            entry.set(name, decode_any(value)?)?;
        }
        Some(entry)
    }

    fn set(&mut self, name: &str, value: String) -> Option<()> {
        match name {
            "ttl" => self.lasts = value.parse().ok()?,
            "since" => {
                let millis: u64 = value.parse().ok()?;
                self.since = WallTime::from_unix_micros(millis.saturating_mul(1_000));
            }
            "reserve" => self.reserve = value.parse().ok()?,
            "fence" => self.fence = Some(value.parse().ok()?),
            "idle" => self.is_idle = true,
            "plain" => self.is_plain = true,
            "why" => self.why = Some(value),
            "client" => self.client = Some(ClientRecord::new(ClientId::new(&value)?)),
            "revoked" => self.revoked = Revocation::read(&value).map(Arc::new),
            _ => {
                // A later version may write more.
                let Some(client) = &mut self.client else { return Some(()) };
                match name {
                    "host" => client.host = value,
                    "pid" => client.pid = value.parse().ok()?,
                    "user" => client.user = value,
                    "command" => client.command = value,
                    // This is for people only. No strange number may hide who holds the key.
                    "ttl_ms" => client.ttl = value.parse().ok().map(Duration::from_millis),
                    _ => {}
                }
            }
        }
        Some(())
    }

    /// Adds the known facts about a holder, for people.
    pub(crate) fn show(&self, holder: &mut Holder, of: Option<FencingBlock>) {
        holder.client.clone_from(&self.client);
        holder.why.clone_from(&self.why);
        holder.since = Some(self.since);
        holder.fencing = self.block(of);
        holder.idle = self.is_idle;
        holder.revoked.clone_from(&self.revoked);
    }

    /// The waiter, for people.
    pub(crate) fn waiter(&self) -> Waiter {
        let mut waiter = Waiter::new(self.owner.client());
        waiter.client.clone_from(&self.client);
        waiter.since = Some(self.since);
        waiter
    }
}

/// Shortens a reason to the length that the contract allows.
fn cut(why: &str) -> String {
    why[..why.floor_char_boundary(Note::WHY_BYTES_MAX)].to_owned()
}

/// Decodes any text, also with the character NUL.
fn decode_any(text: &str) -> Option<String> {
    let decoded = percent_encoding::percent_decode_str(text).decode_utf8().ok()?;
    Some(decoded.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> Entry {
        Entry {
            owner: OwnerToken::new("a&b=c%d").expect("printable"),
            lasts: 10,
            since: WallTime::from_unix_micros(7_000),
            reserve: 5,
            fence: None,
            is_idle: true,
            is_plain: false,
            why: Some("nightly & \0 ü".to_owned()),
            client: Some(ClientRecord {
                host: "h=1".to_owned(),
                pid: 7,
                user: "ada".to_owned(),
                command: "a b".to_owned(),
                ttl: Some(Duration::from_secs(3)),
                id: ClientId::from_random([7; ClientId::CHARS]),
            }),
            revoked: Some(Arc::new(Revocation::new("x", "y", WallTime::from_unix_micros(9)))),
        }
    }

    fn of(change: u64) -> Option<FencingBlock> {
        Some(FencingBlock { first: FencingToken::new(100 * change)?, count: 100 })
    }

    #[test]
    fn an_entry_reads_back_and_other_values_do_not() {
        let bare = Entry {
            why: None,
            client: None,
            revoked: None,
            fence: FencingToken::new(7),
            ..entry()
        };
        for entry in [entry(), bare] {
            assert_eq!(Entry::read(&entry.write()), Some(entry));
        }
        for value in [&b""[..], b"x", b"\xff", b"owner=", b"ttl=7", b"owner=a&ttl=x", b"owner=a&b"]
        {
            assert_eq!(Entry::read(value), None, "{value:?}");
        }
        assert!(Entry::read(b"owner=a&later=x").is_some(), "a later version may write more");
    }

    /// Another version may have written it.
    #[test]
    fn an_entry_with_a_strange_ttl_of_its_client_still_names_its_owner() {
        let mut strange = entry();
        strange.client.as_mut().expect("it has one").ttl = Some(Duration::MAX);
        let read = Entry::read(&strange.write()).expect("it is ours");
        assert_eq!(read.owner, strange.owner);
        assert_eq!(read.client.expect("it has one").ttl, None);
    }

    #[test]
    fn a_grant_keeps_its_tokens_when_its_key_is_written_again() {
        let before = entry().block(of(41)).expect("it wants some");
        assert_eq!((before.first.get(), before.count), (4_100, 5));
        let again = entry().kept(of(41));
        assert_eq!(again.block(of(43)), Some(before));
        assert_eq!(again.kept(of(43)).block(of(50)), Some(before), "twice");
        // Another grant has higher ones than any block of an earlier change.
        let many = Entry { reserve: 1_000, ..entry() }.block(of(41)).expect("it wants some");
        let next = entry().block(of(42)).expect("it wants some");
        assert!(next.first.get() == many.first.get() + u64::from(many.count));
        assert_eq!(Entry { reserve: 0, ..entry() }.block(of(41)), None);
    }
}
