//! Who is told that keys change: once, and then no more until the key is read again.

use std::collections::{BTreeMap, BTreeSet};

use leasehold::store::redis::News;

use super::Publication;

/// A real server takes a change of a hash or a sorted set for none where all stays as it was; here
/// that is told too.
#[derive(Debug, Default)]
pub(super) struct Tracking {
    keys: BTreeMap<Vec<u8>, BTreeSet<u64>>,
    /// Who has ever read a key, and is still there.
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
