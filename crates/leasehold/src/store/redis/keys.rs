//! The names of the keys of a lock and of the channels of clients.
//!
//! The lock has the name that the user gave, so that other libraries use the same key. Its
//! companions hash to the same slot of a cluster. By the cluster's rule, the text between the first
//! `{` and the next `}` decides the slot. If there is no such text, the whole name decides.

use super::codec::command::Command;
use crate::core::key::Key;
use crate::core::token::ClientId;

/// The endings of the companion keys of a lock, in the order of KEYS in every script.
const COMPANIONS: [&str; 7] = ["fence", "grant", "line", "ends", "places", "shares", "open"];

/// How many keys a script gets: the lock and its companions.
const KEYS: u64 = 1 + COMPANIONS.len() as u64;

/// The key of the epoch of a strict server. It holds the process that the data was last seen in,
/// and the end of the quarantine. There is one for each database.
pub(super) const EPOCH: &str = ":lh:epoch";

/// The field of the epoch that says who last switched strict mode on or off.
pub(super) const SWITCH: &str = "switch";

const INBOX: &str = ":lh:inbox:";
const RECORD: &str = ":lh:client:";

/// The keys of one lock.
#[derive(Clone, Copy)]
pub(super) struct Keys<'a> {
    lock: &'a str,
    before: &'static str,
    after: &'static str,
}

impl<'a> Keys<'a> {
    pub(super) fn of(key: &'a Key) -> Self {
        let lock = key.as_str();
        // With `t:`, the companions of `{a}` differ from those of `a`.
        let (before, after) =
            if hash_tag(lock).is_some() { ("", ":lh:t:") } else { ("{", "}:lh:") };
        Self { lock, before, after }
    }

    /// The fencing counter.
    pub(super) fn fence(self) -> String {
        [self.before, self.lock, self.after, COMPANIONS[0]].concat()
    }

    /// A key in the slot of the lock that is never written.
    pub(super) fn probe(self) -> String {
        [self.before, self.lock, self.after, "probe"].concat()
    }

    /// Adds the number of keys and the keys, as EVAL expects them.
    pub(super) fn add_to(self, command: Command) -> Command {
        self.add_companions_to(command.number(KEYS))
    }

    /// Adds the lock as the only key.
    pub(super) fn add_lock_to(self, command: Command) -> Command {
        command.number(1).arg(self.lock).lock_is_last()
    }

    /// Like [`add_to`](Self::add_to), with the epoch of a strict server as the last key.
    pub(super) fn add_strictly_to(self, command: Command) -> Command {
        self.add_companions_to(command.number(KEYS + 1)).arg(EPOCH)
    }

    /// Like [`add_lock_to`](Self::add_lock_to), with the epoch of a strict server as the last key.
    pub(super) fn add_lock_strictly_to(self, command: Command) -> Command {
        command.number(2).arg(self.lock).lock_is_last().arg(EPOCH)
    }

    fn add_companions_to(self, command: Command) -> Command {
        let companions = [self.before, self.lock, self.after];
        command.arg(self.lock).lock_is_last().branching(&companions, &COMPANIONS)
    }

    /// Whether all keys hash to the same slot of a cluster. Only the keys of unusual names do not:
    /// of names with a `}` but without a hash tag.
    pub(super) fn one_slot(self) -> bool {
        self.before.is_empty() || !self.lock.contains('}')
    }
}

/// The lock of a companion key; `None` if the key is no companion.
pub(super) fn lock_of(companion: &str) -> Option<Key> {
    // Use the last mark, since the ending does not contain another one.
    let (lock, name) = companion.rsplit_once(":lh:")?;
    let (lock, name, tagged) = match name.strip_prefix("t:") {
        Some(name) => (lock, name, true),
        None => (lock.strip_prefix('{')?.strip_suffix('}')?, name, false),
    };
    let key = Key::new(lock).ok()?;
    (COMPANIONS.contains(&name) && hash_tag(lock).is_some() == tagged).then_some(key)
}

/// The channel on which a client receives hints.
pub(super) fn inbox(client: &ClientId) -> String {
    [INBOX, client.as_str()].concat()
}

/// The client that a channel belongs to.
pub(super) fn client_of_inbox(channel: &str) -> Option<ClientId> {
    ClientId::new(channel.strip_prefix(INBOX)?)
}

/// The shard channel on which a client receives the hints of one node of a cluster. It is in the
/// slot of the number `tag`.
pub(super) fn shard_inbox(tag: u32, client: &ClientId) -> String {
    format!("{INBOX}{{{tag}}}{}", client.as_str())
}

/// The tag and the client of a shard channel.
pub(super) fn client_of_shard_inbox(channel: &str) -> Option<(u32, ClientId)> {
    let (tag, client) = channel.strip_prefix(INBOX)?.strip_prefix('{')?.split_once('}')?;
    let (tag, client) = (tag.parse().ok()?, ClientId::new(client)?);
    (shard_inbox(tag, &client) == channel).then_some((tag, client))
}

/// Adds the key of a client's record.
pub(super) fn add_record(command: Command, client: &ClientId) -> Command {
    command.joined(&[RECORD, client.as_str()])
}

/// The slot of a client's record in a cluster.
pub(super) fn record_slot(client: &ClientId) -> u16 {
    slot(&[RECORD, client.as_str()].concat())
}

/// The slot of a key in a cluster: CRC16 (XMODEM) of its hash tag, modulo 16384.
///
/// Source: <https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/>
pub(super) fn slot(name: &str) -> u16 {
    let tag = hash_tag(name).unwrap_or(name);
    let crc = tag
        .bytes()
        .fold(0_u16, |crc, byte| (crc << 8) ^ CRC16[usize::from((crc >> 8) ^ u16::from(byte))]);
    crc % SLOTS
}

/// How many slots a cluster has.
pub(super) const SLOTS: u16 = 16_384;

/// The CRC16 of each byte.
const CRC16: [u16; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < table.len() {
        let mut crc = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

/// The part of a name that decides its slot, if it is not the whole name.
fn hash_tag(name: &str) -> Option<&str> {
    let (tag, _) = name.split_once('{')?.1.split_once('}')?;
    (!tag.is_empty()).then_some(tag)
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use proptest::collection::vec;
    use proptest::prelude::{
        ProptestConfig, Strategy, any, prop_assert, prop_assert_eq, prop_assert_ne, prop_oneof,
        proptest,
    };
    use proptest::sample::select;

    use super::*;

    fn all(name: &str) -> Vec<String> {
        let key = Key::new(name).expect(name);
        let command = Keys::of(&key).add_to(Command::new("X"));
        command.args().skip(2).map(|key| String::from_utf8_lossy(key).into_owned()).collect()
    }

    /// The slots that a lock is kept in.
    fn slots(name: &str) -> HashSet<u16> {
        all(name).iter().map(|kept| slot(kept)).collect()
    }

    /// Mostly names made of parts that have a meaning in keys, and some arbitrary ones.
    fn name() -> impl Strategy<Value = String> {
        let parts = ["{", "}", "a", "b", ":", "lh", ":lh:", "t:", "ü", " ", "fence"];
        let odd = vec(select(parts.to_vec()), 1..10).prop_map(|parts| parts.concat());
        prop_oneof![9 => odd, 1 => any::<String>()]
    }

    /// Names that a lock can have.
    fn key() -> impl Strategy<Value = Key> {
        name().prop_filter_map("no name of a lock", |name| Key::new(name).ok())
    }

    fn client() -> impl Strategy<Value = ClientId> {
        any::<[u8; ClientId::CHARS]>().prop_map(ClientId::from_random)
    }

    #[test]
    fn companions_carry_the_name_as_their_hash_tag() {
        assert_eq!(
            all("order:42"),
            [
                "order:42",
                "{order:42}:lh:fence",
                "{order:42}:lh:grant",
                "{order:42}:lh:line",
                "{order:42}:lh:ends",
                "{order:42}:lh:places",
                "{order:42}:lh:shares",
                "{order:42}:lh:open"
            ]
        );
        // name, its fencing counter, one slot
        let table = [
            ("{a}", "{a}:lh:t:fence", true),
            ("a{b}c{d}", "a{b}c{d}:lh:t:fence", true),
            ("a{b", "{a{b}:lh:fence", true),
            ("a}b", "{a}b}:lh:fence", false),
            ("{}a", "{{}a}:lh:fence", false),
            ("{}{a}", "{{}{a}}:lh:fence", false),
            ("a:lh", "{a:lh}:lh:fence", true),
            ("{a}:lh", "{a}:lh:lh:t:fence", true),
        ];
        for (name, fence, one_slot) in table {
            assert_eq!(all(name)[1], fence);
            assert_eq!(Keys::of(&Key::new(name).expect(name)).one_slot(), one_slot, "{name}");
        }
    }

    /// The values are from the specification of Redis Cluster, and from the examples for `CLUSTER
    /// KEYSLOT`.
    #[test]
    fn slots_are_those_of_redis_cluster() {
        let table = [
            ("123456789", 0x31c3),
            ("", 0),
            ("somekey", 11_058),
            ("foo{hash_tag}", 2_515),
            ("bar{hash_tag}", 2_515),
            ("hash_tag", 2_515),
        ];
        for (name, expected) in table {
            assert_eq!(slot(name), expected, "{name}");
        }
        for (one, other) in [("{user1000}.following", "user1000"), ("foo{bar}{zap}", "bar")] {
            assert_eq!(slot(one), slot(other));
        }
        // The first `{` and the next `}`, even if there is nothing between them.
        for (name, hashed) in [("foo{}{bar}", "foo{}{bar}"), ("foo{{bar}}zap", "{bar")] {
            assert_eq!(hash_tag(name).unwrap_or(name), hashed);
        }
    }

    /// A companion cannot share the slot of a name with a `}` but without a hash tag.
    #[test]
    fn a_name_that_is_called_scattered_is_scattered() {
        for name in ["a}b", "{}a", "{}{a}", "}", "a}{b"] {
            assert!(slots(name).len() > 1, "{name}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_000))]

        #[test]
        fn all_keys_of_a_lock_share_a_slot_or_its_name_says_that_they_do_not(key in key()) {
            let name = key.as_str();
            let hashed = |name: &str| hash_tag(name).unwrap_or(name).to_owned();
            let names = all(name);
            if Keys::of(&key).one_slot() {
                prop_assert_eq!(slots(name).len(), 1, "{:?}", names);
            } else {
                let is_odd = hash_tag(name).is_none() && name.contains('}');
                prop_assert!(is_odd, "{}", name);
                for companion in &names[1..] {
                    prop_assert_ne!(hashed(companion), hashed(name));
                }
            }
        }

        #[test]
        fn no_two_locks_share_a_key(locks in vec(key(), 2..60)) {
            let mut owners = HashMap::new();
            for lock in &locks {
                for kept in all(lock.as_str()) {
                    let owner = *owners.entry(kept).or_insert(lock);
                    prop_assert_eq!(owner, lock, "a key of both");
                }
            }
        }

        #[test]
        fn each_companion_leads_back_to_its_lock_and_is_the_name_of_none(key in key()) {
            let names = all(key.as_str());
            prop_assert_eq!(lock_of(&names[0]), None);
            for companion in &names[1..] {
                prop_assert_eq!(lock_of(companion), Some(key.clone()));
                prop_assert!(Key::new(companion).is_err(), "{}", companion);
            }
        }

        #[test]
        fn a_key_that_leads_to_a_lock_is_its_companion(name in name(), end in select(&COMPANIONS)) {
            for kept in [format!("{{{name}}}:lh:{end}"), format!("{name}:lh:t:{end}"), name] {
                if let Some(key) = lock_of(&kept) {
                    prop_assert!(all(key.as_str())[1..].contains(&kept), "{} of {}", kept, key);
                }
            }
        }

        #[test]
        fn a_channel_is_the_inbox_of_one_client_and_no_name(
            one in client(), other in client(), text in name(),
        ) {
            prop_assert_eq!(client_of_inbox(&inbox(&one)), Some(one.clone()));
            prop_assert_eq!(inbox(&one) == inbox(&other), one == other);
            prop_assert!(Key::new(inbox(&one)).is_err());
            prop_assert_eq!(lock_of(&inbox(&one)), None);
            for channel in [format!("{INBOX}{text}"), text] {
                if let Some(client) = client_of_inbox(&channel) {
                    prop_assert_eq!(inbox(&client), channel);
                }
            }
        }

        #[test]
        fn a_shard_channel_is_in_the_slot_of_its_tag_and_leads_back_to_its_client(
            tag in any::<u32>(), client in client(), text in name(),
        ) {
            let channel = shard_inbox(tag, &client);
            prop_assert_eq!(slot(&channel), slot(&tag.to_string()));
            prop_assert_eq!(client_of_inbox(&channel), None);
            prop_assert_eq!(client_of_shard_inbox(&inbox(&client)), None);
            for channel in [channel.clone(), format!("{INBOX}{{{tag}}}{text}"), text] {
                if let Some((tag, client)) = client_of_shard_inbox(&channel) {
                    prop_assert_eq!(shard_inbox(tag, &client), channel);
                }
            }
            prop_assert_eq!(client_of_shard_inbox(&channel), Some((tag, client)));
        }
    }

    #[test]
    fn other_keys_lead_to_no_lock() {
        for other in [
            "",
            "a",
            ":lh:",
            ":lh:client:AAAAAAAAAAAA",
            EPOCH,
            "{a}:lh:",
            "{a}:lh:other",
            "{a}:lh:fence2",
            "{}:lh:fence",
            "{{a}}:lh:fence",
            "a:lh:t:fence",
            "a:lh:fence",
            "{a}:lh:t:t:fence",
            "{a:lh:b}:lh:fence",
        ] {
            assert_eq!(lock_of(other), None, "{other}");
        }
    }

    #[test]
    fn a_clients_inbox_leads_back_to_it() {
        let client = ClientId::from_random([3; ClientId::CHARS]);
        assert_eq!(inbox(&client), ":lh:inbox:DDDDDDDDDDDD");
        assert_eq!(client_of_inbox(&inbox(&client)), Some(client));
        for other in ["", ":lh:inbox:", ":lh:inbox:short", "inbox:DDDDDDDDDDDD"] {
            assert_eq!(client_of_inbox(other), None, "{other}");
        }
        let client = ClientId::from_random([3; ClientId::CHARS]);
        assert_eq!(shard_inbox(7, &client), ":lh:inbox:{7}DDDDDDDDDDDD");
        for tag in ["", "07", "+7", "-7", " 7", "4294967296", "x"] {
            let other = format!(":lh:inbox:{{{tag}}}DDDDDDDDDDDD");
            assert_eq!(client_of_shard_inbox(&other), None, "{other}");
        }
    }
}
