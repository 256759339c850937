//! The keys that the server tracks for us, and their waiters.
//!
//! These are keys whose holder uses other client software. Such a holder publishes nothing when it
//! releases.
//!
//! | a key is | an ask finds it taken | the server is asked | it changes |
//! |---|---|---|---|
//! | unknown, or quiet | wanted | - | - |
//! | wanted | - | tracked | - |
//! | tracked | - | - | quiet, and its waiters are told |
//!
//! A key that changes often but stays taken is quiet for a while. Then its waiters poll.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use crate::core::key::Key;
use crate::core::moment::Moment;
use crate::core::token::ClientId;

/// The most tracked keys. The waiters of other keys poll.
const KEYS_MAX: usize = 1_000;

/// After this time without a request for a key, nobody waits for it, because waiters ask at least
/// every second.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(5);

/// How often a change may be reported in [`SPAN`] without a grant. A holder may renew its lease
/// every millisecond, and a server drops tracked keys when it has too many.
const TOLD_MAX: u32 = 8;
const SPAN: Duration = Duration::from_secs(1);

/// The keys of one connection.
#[derive(Default)]
pub(super) struct Tracked {
    keys: HashMap<Key, Waited>,
    wanted: VecDeque<Key>,
}

struct Waited {
    stage: Stage,
    inboxes: BTreeSet<ClientId>,
    asked_at: Moment,
    /// The start of the current count.
    counted_since: Moment,
    told: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Quiet,
    Wanted,
    Tracked,
}

impl Tracked {
    /// A request of `inbox` found a key taken. Returns whether to ask the server to track it.
    pub(super) fn want(&mut self, key: &Key, inbox: &ClientId, now: Moment) -> bool {
        if !self.keys.contains_key(key) && !self.has_room(now) {
            return false;
        }
        let waited = self.keys.entry(key.clone()).or_insert_with(|| Waited {
            stage: Stage::Quiet,
            inboxes: BTreeSet::new(),
            asked_at: now,
            counted_since: now,
            told: 0,
        });
        waited.asked_at = now;
        if now.since(waited.counted_since) >= SPAN {
            (waited.counted_since, waited.told) = (now, 0);
        }
        if waited.stage == Stage::Quiet && waited.told >= TOLD_MAX {
            return false;
        }
        waited.inboxes.insert(inbox.clone());
        if waited.stage != Stage::Quiet {
            return false;
        }
        waited.stage = Stage::Wanted;
        self.wanted.push_back(key.clone());
        true
    }

    /// The next key to track. From now on, its changes are reported.
    pub(super) fn next_wanted(&mut self) -> Option<Key> {
        let key = self.wanted.pop_front()?;
        if let Some(waited) = self.keys.get_mut(&key) {
            waited.stage = Stage::Tracked;
        }
        Some(key)
    }

    /// A key has changed. Returns the clients to tell.
    pub(super) fn changed(&mut self, key: &Key) -> BTreeSet<ClientId> {
        match self.keys.get_mut(key) {
            Some(waited) if waited.stage == Stage::Tracked => {
                waited.stage = Stage::Quiet;
                waited.told += 1;
                std::mem::take(&mut waited.inboxes)
            }
            // The report is late, repeated or forged, or nobody has waited for the key for a long
            // time.
            _ => BTreeSet::new(),
        }
    }

    /// A waiter got the key, so the reports were useful.
    pub(super) fn granted(&mut self, key: &Key) {
        if let Some(waited) = self.keys.get_mut(key) {
            waited.told = 0;
        }
    }

    /// The keys whose changes are reported.
    pub(super) fn tracked(&self) -> Vec<Key> {
        let tracked = self.keys.iter().filter(|(_, waited)| waited.stage == Stage::Tracked);
        tracked.map(|(key, _)| key.clone()).collect()
    }

    fn has_room(&mut self, now: Moment) -> bool {
        if self.keys.len() >= KEYS_MAX {
            self.keys.retain(|_, waited| {
                waited.stage == Stage::Wanted || now.since(waited.asked_at) < FORGOTTEN_AFTER
            });
        }
        self.keys.len() < KEYS_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key::new(name).expect("a name")
    }

    fn inbox(name: &str) -> ClientId {
        ClientId::new(name).expect("twelve characters")
    }

    fn at(ms: u64) -> Moment {
        Moment::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn a_key_is_asked_about_once_until_it_changes_and_all_askers_are_told() {
        let (mut tracked, a) = (Tracked::default(), key("a"));
        let (anna, bert) = (inbox("annaannaanna"), inbox("bertbertbert"));
        assert!(tracked.want(&a, &anna, at(0)));
        assert!(tracked.changed(&a).is_empty(), "nobody was asked about it yet");
        assert!(!tracked.want(&a, &bert, at(1)));
        assert_eq!(tracked.next_wanted(), Some(a.clone()));
        assert_eq!(tracked.next_wanted(), None);
        assert!(!tracked.want(&a, &anna, at(1_000)));
        assert_eq!(tracked.tracked(), std::slice::from_ref(&a));
        assert_eq!(tracked.changed(&a), BTreeSet::from([anna.clone(), bert]));
        assert!(tracked.changed(&a).is_empty() && tracked.tracked().is_empty());
        assert!(tracked.changed(&key("b")).is_empty());
        assert!(tracked.want(&a, &anna, at(1_001)));
        assert_eq!(tracked.next_wanted(), Some(a.clone()));
        assert_eq!(tracked.changed(&a), BTreeSet::from([anna.clone()]));
        assert!(tracked.want(&a, &anna, at(1_002)));
    }

    #[test]
    fn a_key_that_changes_in_vain_all_the_time_is_polled_for_the_rest_of_a_second() {
        let (mut tracked, a, anna) = (Tracked::default(), key("a"), inbox("annaannaanna"));
        for ms in 0..3_000 {
            // In the third second, the key is granted now and then.
            let told = ms >= 2_000 || ms % 1_000 < u64::from(TOLD_MAX);
            if ms >= 2_000 && ms % 5 == 0 {
                tracked.granted(&a);
            }
            assert_eq!(tracked.want(&a, &anna, at(ms)), told, "{ms}");
            assert_eq!(tracked.next_wanted().is_some(), told);
            assert_eq!(tracked.changed(&a).len(), usize::from(told));
        }
    }

    #[test]
    fn beyond_the_limit_keys_are_polled_until_others_are_waited_for_no_more() {
        let (mut tracked, anna) = (Tracked::default(), inbox("annaannaanna"));
        for number in 0..KEYS_MAX {
            assert!(tracked.want(&key(&format!("k{number}")), &anna, at(0)));
            assert!(tracked.next_wanted().is_some());
        }
        assert!(!tracked.want(&key("more"), &anna, at(4_999)));
        assert!(!tracked.want(&key("k0"), &anna, at(4_999)), "it is tracked");
        assert!(tracked.want(&key("more"), &anna, at(5_000)));
        assert_eq!(tracked.keys.len(), 2, "`k0` and `more`");
        assert_eq!(tracked.changed(&key("k0")).len(), 1);
    }

    /// The server is about to be asked about these keys, however long that takes.
    #[test]
    fn a_key_that_the_server_was_not_asked_about_yet_is_not_forgotten() {
        let (mut tracked, anna) = (Tracked::default(), inbox("annaannaanna"));
        for number in 0..KEYS_MAX {
            assert!(tracked.want(&key(&format!("k{number}")), &anna, at(0)));
        }
        assert!(!tracked.want(&key("more"), &anna, at(5_000)));
        assert_eq!(tracked.next_wanted(), Some(key("k0")));
        assert_eq!(tracked.changed(&key("k0")).len(), 1);
    }
}
