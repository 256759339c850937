//! Keys, their values and their expiry.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::reply::Refusal;
use super::sorted_set::SortedSet;
use super::tracking::Tracking;

/// All keys of a server at one moment, with their expiry.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Dataset {
    keys: Arc<Keys>,
}

type Keys = BTreeMap<Vec<u8>, Entry>;

/// The fields of a hash. A real server returns them in another order, which no client may rely on.
pub(super) type Hash = BTreeMap<Vec<u8>, Vec<u8>>;

/// The value of a key, and its expiry.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    pub(super) stored: Stored,
    /// The last millisecond of the server's clock in which the key is there.
    pub(super) ends_ms: Option<i64>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Stored {
    Text(Vec<u8>),
    Hash(Hash),
    Sorted(SortedSet),
}

/// The keys of a server, and its current time. An expired key is removed when a command touches it.
/// A clock that is set back later does not bring it back.
#[derive(Debug, Default)]
pub(super) struct Keyspace {
    dataset: Dataset,
    now_ms: u64,
    tracking: Tracking,
    /// How many changes were made. It never goes back.
    written: u64,
}

impl Entry {
    /// Whether the key still exists. It exists during the millisecond in which it ends.
    fn is_living(&self, now_ms: u64) -> bool {
        self.ends_ms.is_none_or(|ends_ms| i128::from(now_ms) <= i128::from(ends_ms))
    }

    pub(super) fn left_ms(&self, now_ms: u64) -> Option<u64> {
        let left = |ends_ms| i128::from(ends_ms) - i128::from(now_ms);
        self.ends_ms.map(|ends_ms| u64::try_from(left(ends_ms)).unwrap_or(0))
    }
}

impl Stored {
    pub(super) const fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) => "string",
            Self::Hash(_) => "hash",
            Self::Sorted(_) => "zset",
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::Text(_) => false,
            Self::Hash(fields) => fields.is_empty(),
            Self::Sorted(members) => members.is_empty(),
        }
    }
}

impl Keyspace {
    pub(super) fn set_now(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
    }

    pub(super) fn dataset(&self) -> Dataset {
        self.dataset.clone()
    }

    /// The write position. A copy made at this position or later has all the data.
    pub(super) fn written(&self) -> u64 {
        self.written
    }

    /// Replaces all data. No client is told, because all of them have lost their connections.
    pub(super) fn restore(&mut self, dataset: Dataset) {
        self.written += 1;
        self.dataset = dataset;
        self.tracking = Tracking::default();
    }

    /// The clients that track keys, and the changes that they were not told yet.
    pub(super) fn tracking(&mut self) -> &mut Tracking {
        &mut self.tracking
    }

    pub(super) fn len(&self) -> usize {
        self.dataset.keys.len()
    }

    /// A key as it is. It stays even if it has expired.
    pub(super) fn peek(&self, now_ms: u64, key: &[u8]) -> Option<&Entry> {
        self.dataset.keys.get(key).filter(|entry| entry.is_living(now_ms))
    }

    /// The keys that have not expired, without removing any.
    pub(super) fn living(&self, now_ms: u64) -> impl Iterator<Item = (&Vec<u8>, &Entry)> {
        self.dataset.keys.iter().filter(move |(_, entry)| entry.is_living(now_ms))
    }

    /// Every key, including expired ones.
    pub(super) fn all(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.dataset.keys.keys()
    }

    pub(super) fn remove_expired(&mut self, now_ms: u64) {
        let expired = |(_, entry): &(_, &Entry)| !entry.is_living(now_ms);
        let expired: Vec<_> =
            self.dataset.keys.iter().filter(expired).map(|(key, _)| key.clone()).collect();
        for key in expired {
            self.keys_mut().remove(&key);
            self.tracking.changed(&key);
        }
    }

    pub(super) fn clear(&mut self) {
        self.written += 1;
        self.dataset = Dataset::default();
        self.tracking.all_changed();
    }

    /// A key, if it is there.
    pub(super) fn get(&mut self, key: &[u8]) -> Option<&Entry> {
        self.drop_if_expired(key);
        self.dataset.keys.get(key)
    }

    /// Returns a key to change, if it exists. Reports the change to the clients that track the key.
    pub(super) fn get_mut(&mut self, key: &[u8]) -> Option<&mut Entry> {
        if self.get(key).is_some() {
            self.tracking.changed(key);
        }
        self.find_mut(key)
    }

    /// Like [`get_mut`](Self::get_mut), but tells no client.
    fn find_mut(&mut self, key: &[u8]) -> Option<&mut Entry> {
        self.drop_if_expired(key);
        // The data is copied on write. A write that finds no key copies nothing.
        self.dataset
            .keys
            .contains_key(key)
            .then(|| self.keys_mut().get_mut(key).expect("it was just there"))
    }

    /// Sets the value of a key, in place of its old value.
    pub(super) fn put(&mut self, key: &[u8], entry: Entry) {
        self.tracking.changed(key);
        match self.keys_mut().get_mut(key) {
            Some(before) => *before = entry,
            None => {
                self.keys_mut().insert(key.to_vec(), entry);
            }
        }
    }

    /// Removes a key. Returns whether it was there.
    pub(super) fn remove(&mut self, key: &[u8]) -> bool {
        let was_there = self.get(key).is_some() && self.keys_mut().remove(key).is_some();
        if was_there {
            self.tracking.changed(key);
        }
        was_there
    }

    pub(super) fn text(&mut self, key: &[u8]) -> Result<Option<&[u8]>, Refusal> {
        match self.get(key).map(|entry| &entry.stored) {
            None => Ok(None),
            Some(Stored::Text(text)) => Ok(Some(text)),
            Some(_) => Err(Refusal::WRONG_TYPE),
        }
    }

    pub(super) fn hash(&mut self, key: &[u8]) -> Result<Option<&Hash>, Refusal> {
        match self.get(key).map(|entry| &entry.stored) {
            None => Ok(None),
            Some(Stored::Hash(fields)) => Ok(Some(fields)),
            Some(_) => Err(Refusal::WRONG_TYPE),
        }
    }

    pub(super) fn sorted(&mut self, key: &[u8]) -> Result<Option<&SortedSet>, Refusal> {
        match self.get(key).map(|entry| &entry.stored) {
            None => Ok(None),
            Some(Stored::Sorted(members)) => Ok(Some(members)),
            Some(_) => Err(Refusal::WRONG_TYPE),
        }
    }

    /// Changes the fields of a key. A key without fields does not exist, before or after.
    pub(super) fn change_hash<T>(
        &mut self,
        key: &[u8],
        change: impl FnOnce(&mut Hash) -> T,
    ) -> Result<T, Refusal> {
        self.change(key, Stored::Hash(Hash::new()), |stored| match stored {
            Stored::Hash(fields) => Ok(change(fields)),
            _ => Err(Refusal::WRONG_TYPE),
        })
    }

    /// Changes the members of a key. A key without members does not exist, before or after.
    pub(super) fn change_sorted<T>(
        &mut self,
        key: &[u8],
        change: impl FnOnce(&mut SortedSet) -> T,
    ) -> Result<T, Refusal> {
        self.change(key, Stored::Sorted(SortedSet::default()), |stored| match stored {
            Stored::Sorted(members) => Ok(change(members)),
            _ => Err(Refusal::WRONG_TYPE),
        })
    }

    fn change<T>(
        &mut self,
        key: &[u8],
        mut fresh: Stored,
        change: impl FnOnce(&mut Stored) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let Some(entry) = self.find_mut(key) else {
            let changed = change(&mut fresh)?;
            if !fresh.is_empty() {
                self.put(key, Entry { stored: fresh, ends_ms: None });
            }
            return Ok(changed);
        };
        let changed = change(&mut entry.stored)?;
        if entry.stored.is_empty() {
            self.keys_mut().remove(key);
        }
        self.tracking.changed(key);
        Ok(changed)
    }

    fn drop_if_expired(&mut self, key: &[u8]) {
        let now_ms = self.now_ms;
        if self.dataset.keys.get(key).is_some_and(|entry| !entry.is_living(now_ms)) {
            self.keys_mut().remove(key);
            self.tracking.changed(key);
        }
    }

    fn keys_mut(&mut self) -> &mut Keys {
        self.written += 1;
        Arc::make_mut(&mut self.dataset.keys)
    }
}
