//! Clients that are told when a key changes. They are told once, and not again until they read the
//! key again.

use std::collections::{BTreeMap, BTreeSet};

use super::Publication;
use crate::protocol::News;

/// The keys that clients track. Unlike a real server, it also reports changes that leave a hash or
/// a sorted set as it was.
#[derive(Debug, Default)]
pub(super) struct Tracking {
    keys: BTreeMap<Vec<u8>, BTreeSet<u64>>,
    /// The clients that have ever read a key and are still connected.
    readers: BTreeSet<u64>,
    told: Vec<Publication>,
}

impl Tracking {
    pub(super) fn read(&mut self, subscriber: u64, key: &[u8]) {
        self.keys.entry(key.to_vec()).or_default().insert(subscriber);
        self.readers.insert(subscriber);
    }

    pub(super) fn forget(&mut self, subscriber: u64) {
        self.readers.remove(&subscriber);
        self.keys.retain(|_, readers| {
            readers.remove(&subscriber);
            !readers.is_empty()
        });
    }

    pub(super) fn changed(&mut self, key: &[u8]) {
        if let Some(readers) = self.keys.remove(key) {
            let news = || News::Changed(key.to_vec());
            self.told.extend(
                readers.into_iter().map(|subscriber| Publication { subscriber, news: news() }),
            );
        }
    }

    pub(super) fn all_changed(&mut self) {
        self.keys.clear();
        let news =
            |subscriber: &u64| Publication { subscriber: *subscriber, news: News::AllChanged };
        self.told.extend(self.readers.iter().map(news));
    }

    pub(super) fn take_told(&mut self) -> Vec<Publication> {
        std::mem::take(&mut self.told)
    }
}
