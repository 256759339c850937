//! What the keys of a lock and the channels of clients are called on the server, and the way back.
//!
//! The lock is the name as given, so that other libraries meet us on it. Its companions hash to the
//! same slot of a cluster, by the cluster's rule: what stands between the first `{` and the first
//! `}` after it decides, if that is anything, and else the whole name.

use super::link::Command;
use crate::core::key::Key;
use crate::core::token::ClientId;

/// What the companions of a lock end in, in the order of KEYS in every script.
const COMPANIONS: [&str; 5] = ["fence", "grant", "line", "ends", "places"];

/// How many keys a script is given: the lock and its companions.
const KEYS: u64 = 1 + COMPANIONS.len() as u64;

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
        // `t:` keeps the companions of `{a}` apart from those of `a`.
        let (before, after) =
            if hash_tag(lock).is_some() { ("", ":lh:t:") } else { ("{", "}:lh:") };
        Self { lock, before, after }
    }

    /// Adds how many keys there are, and the keys, as EVAL takes them.
    pub(super) fn add_to(self, command: Command) -> Command {
        let companions = [self.before, self.lock, self.after];
        command.number(KEYS).arg(self.lock).branching(&companions, &COMPANIONS)
    }

    /// Whether all of them hash to one slot of a cluster, whatever the slots. Only odd names with a
    /// `}` and no hash tag do not.
    #[cfg_attr(not(test), expect(dead_code, reason = "only a cluster has slots"))]
    pub(super) fn one_slot(self) -> bool {
        self.before.is_empty() || !self.lock.contains('}')
    }
}

/// The lock beside which a key is kept; `None` if it is no companion of ours.
pub(super) fn lock_of(companion: &str) -> Option<Key> {
    // The mark comes last: nothing after it contains another.
    let (lock, name) = companion.rsplit_once(":lh:")?;
    let (lock, name, tagged) = match name.strip_prefix("t:") {
        Some(name) => (lock, name, true),
        None => (lock.strip_prefix('{')?.strip_suffix('}')?, name, false),
    };
    let key = Key::new(lock).ok()?;
    (COMPANIONS.contains(&name) && hash_tag(lock).is_some() == tagged).then_some(key)
}

/// The channel at which a client takes hints.
pub(super) fn inbox(client: &ClientId) -> String {
    [INBOX, client.as_str()].concat()
}

/// Whose inbox a channel is.
pub(super) fn client_of_inbox(channel: &str) -> Option<ClientId> {
    ClientId::new(channel.strip_prefix(INBOX)?)
}

/// Adds the key of a client's record.
pub(super) fn add_record(command: Command, client: &ClientId) -> Command {
    command.joined(&[RECORD, client.as_str()])
}

/// What decides the slot of a name, if that is not the whole name.
fn hash_tag(name: &str) -> Option<&str> {
    let (tag, _) = name.split_once('{')?.1.split_once('}')?;
    (!tag.is_empty()).then_some(tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(name: &str) -> Vec<String> {
        let key = Key::new(name).expect(name);
        let command = Keys::of(&key).add_to(Command::new("X"));
        command.args().skip(2).map(|key| String::from_utf8_lossy(key).into_owned()).collect()
    }

    /// The rule of Redis Cluster: CRC16 (XMODEM) of the tag, modulo 16384.
    fn slot(name: &str) -> u16 {
        let tag = hash_tag(name).unwrap_or(name);
        let crc = tag.bytes().fold(0_u16, |crc, byte| {
            (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| {
                if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
            })
        });
        crc % 16_384
    }

    /// Names of the characters that decide, from a small generator of our own.
    fn odd_names() -> impl Iterator<Item = String> {
        let mut state = 1_u64;
        let mut draw = move |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            usize::try_from((state >> 33) % below).expect("small")
        };
        (0..20_000).map(move |_| {
            let parts = ["{", "}", "a", "b", ":", "lh", "t:", "ü", " ", "fence"];
            (0..=draw(9)).map(|_| parts[draw(10)]).collect::<String>()
        })
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
                "{order:42}:lh:places"
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

    #[test]
    fn all_keys_of_a_lock_share_a_slot_or_its_name_says_that_they_do_not() {
        assert_eq!(slot("123456789"), 12_739, "the check value of the checksum");
        assert_eq!(slot("{user1000}.following"), slot("user1000"));
        for name in odd_names() {
            let Ok(key) = Key::new(&name) else { continue };
            let names = all(&name);
            let lock = hash_tag(&name).unwrap_or(&name);
            if Keys::of(&key).one_slot() {
                for companion in &names[1..] {
                    assert_eq!(slot(companion), slot(&name), "{companion} of {name}");
                }
            } else {
                for companion in &names[1..] {
                    assert_ne!(hash_tag(companion).unwrap_or(companion), lock, "{name}");
                }
            }
        }
    }

    #[test]
    fn no_two_locks_share_a_key_and_each_companion_leads_back_to_its_lock() {
        let mut owners = std::collections::HashMap::new();
        for name in odd_names() {
            let Ok(key) = Key::new(&name) else { continue };
            for (at, kept) in all(&name).into_iter().enumerate() {
                let found = lock_of(&kept);
                assert_eq!(found, (at > 0).then(|| key.clone()), "{kept}");
                let owner = owners.entry(kept).or_insert_with(|| name.clone());
                assert_eq!(*owner, name, "a key of both");
            }
        }
    }

    #[test]
    fn other_keys_lead_to_no_lock() {
        for other in [
            "",
            "a",
            ":lh:",
            ":lh:client:AAAAAAAAAAAA",
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
    }
}
