//! Leases in the memory of one process. The reference for every other store, and a store for tests
//! and examples.

mod entry;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::future::ready;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use self::entry::Entry;
use super::sinks::Sinks;
use super::{
    Acquired, Ask, BoxAnswer, Browse, Capabilities, Claim, ClientRecord, Evicted, FENCE_IDLE, Hint,
    HintSink, LeaseId, Line, OnRelease, PAGE_KEYS_MAX, Page, Reach, Released, Renewal, Renewed,
    Revocation, Revoked, Snapshot, Store, impossible_claim, matches_pattern,
};
use crate::core::error::Error;
use crate::core::key::Key;
use crate::core::moment::{Moment, WallTime};
use crate::core::token::{ClientId, client_of};
use crate::host::Host;
use crate::process::{PerProcess, Process};

/// A store in the memory of this process. Clones share it.
///
/// Everything ends with the process, so it only protects tasks of one program from one another.
#[derive(Clone)]
pub struct MemoryStore {
    shared: Arc<Shared>,
}

struct Shared {
    /// The process that made it. A fork makes a separate copy that knows nothing of the original.
    process: Process,
    host: Arc<dyn Host>,
    label: String,
    state: Mutex<State>,
    sinks: Sinks,
}

/// The whole state of the store.
#[derive(Default)]
struct State {
    entries: BTreeMap<Key, Entry>,
    clients: HashMap<ClientId, ClientRecord>,
    /// The highest counter of all forgotten entries. A new counter starts here.
    counter_floor: u64,
    swept: Moment,
}

impl MemoryStore {
    /// A new store on the clock of `host`.
    #[must_use]
    pub fn new(host: Arc<dyn Host>) -> Self {
        Self::labelled(host, "memory:".to_owned())
    }

    /// The store of that name on the clock of `host`. The whole process shares it as long as it is
    /// in use. Each host has its own stores, since clocks must not mix.
    #[must_use]
    pub fn shared(name: &str, host: Arc<dyn Host>) -> Self {
        type Named = Mutex<HashMap<(String, usize), Weak<Shared>>>;
        static NAMED: PerProcess<Named> = PerProcess::new();
        let key = (name.to_owned(), Arc::as_ptr(&host).addr());
        let mut named = NAMED
            .own()
            .lock()
            // The map is valid at every moment, since single insertions change it.
            .unwrap_or_else(PoisonError::into_inner);
        // A living store holds its host, so no other host can have the same address.
        if let Some(shared) = named.get(&key).and_then(Weak::upgrade) {
            return Self { shared };
        }
        let store = Self::labelled(host, format!("memory:{name}"));
        named.retain(|_, shared| shared.strong_count() > 0);
        named.insert(key, Arc::downgrade(&store.shared));
        store
    }

    fn labelled(host: Arc<dyn Host>, label: String) -> Self {
        Self {
            shared: Arc::new(Shared {
                process: Process::this(),
                host,
                label,
                state: Mutex::default(),
                sinks: Sinks::default(),
            }),
        }
    }

    /// Runs one atomic step now, then sends the hints of that step.
    ///
    /// # Errors
    ///
    /// `Config` in the child of a fork.
    fn step<T>(&self, carry_out: impl FnOnce(&mut State, &mut Step) -> T) -> Result<T, Error> {
        self.shared.process.check()?;
        let (mut state, host) = (self.state(), &self.shared.host);
        let mut step = Step { now: host.now(), wall: host.wall(), mail: Vec::new() };
        let answer = carry_out(&mut state, &mut step);
        drop(state);
        for (inbox, hint) in step.mail {
            self.shared.sinks.send(&inbox, hint);
        }
        Ok(answer)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().expect("no step panics while it holds the state")
    }
}

/// When a step takes place, and the hints that it sends.
struct Step {
    now: Moment,
    wall: WallTime,
    mail: Vec<(ClientId, Hint)>,
}

impl State {
    fn acquire(&mut self, step: &mut Step, ask: Ask) -> Result<Acquired, Error> {
        self.sweep(step.now);
        if let Some(client) = ask.note.as_ref().and_then(|note| note.client.as_ref()) {
            self.clients.insert(client.id.clone(), ClientRecord::clone(client));
        }
        let floor = self.counter_floor;
        let entry = self.entries.entry(ask.key.clone()).or_insert_with(|| Entry::new(floor));
        // Only a holder that has the key alone passes it on or keeps it idle.
        let holder = entry.owners(step.now).next().cloned();
        let answer = entry.acquire(step, &ask)?;
        let waits = answer.is_taken() && ask.line != Line::None;
        if let Some(inbox) = holder.filter(|_| waits).and_then(|owner| owner.client()) {
            step.mail.push((inbox, Hint::Wanted { key: ask.key }));
        }
        Ok(answer)
    }

    /// Forgets entries unused for [`FENCE_IDLE`]. Looks at all entries, so it runs only that often.
    fn sweep(&mut self, now: Moment) {
        if now.since(self.swept) < FENCE_IDLE {
            return;
        }
        self.swept = now;
        let mut floor = self.counter_floor;
        self.entries.retain(|_, entry| {
            let keep = entry.is_in_use(now) || now.since(entry.touched()) < FENCE_IDLE;
            if !keep {
                floor = floor.max(entry.counter());
            }
            keep
        });
        self.counter_floor = floor;
        let used: std::collections::HashSet<_> =
            self.entries.values().flat_map(Entry::clients).collect();
        self.clients.retain(|id, _| used.contains(id));
    }

    fn inspect(&self, now: Moment, key: &Key) -> Snapshot {
        let record = |id: Option<ClientId>| id.and_then(|id| self.clients.get(&id).cloned());
        let Some(entry) = self.entries.get(key) else { return Snapshot::default() };
        let mut snapshot = entry.snapshot(now);
        for holder in &mut snapshot.holders {
            holder.client = record(client_of(&holder.token));
        }
        for waiter in &mut snapshot.waiters {
            waiter.client = record(waiter.id.clone());
        }
        snapshot
    }
}

impl Store for MemoryStore {
    fn acquire(&self, ask: Ask) -> BoxAnswer<Acquired> {
        Box::pin(ready(match impossible_claim(ask.claim, &ask.key) {
            None => self.step(|state, step| state.acquire(step, ask)).flatten(),
            Some(error) => Err(error),
        }))
    }

    fn renew(&self, renewal: Renewal) -> BoxAnswer<Renewed> {
        Box::pin(ready(self.step(|state, step| match state.entries.get_mut(&renewal.lease.key) {
            Some(entry) => entry.renew(step.now, &renewal),
            None => Renewed::Lost,
        })))
    }

    fn release(&self, lease: LeaseId, on_release: OnRelease) -> BoxAnswer<Released> {
        Box::pin(ready(self.step(|state, step| match state.entries.get_mut(&lease.key) {
            Some(entry) => entry.release(step, &lease, &on_release),
            None => Released::NotHeld,
        })))
    }

    fn inspect(&self, key: Key) -> BoxAnswer<Snapshot> {
        Box::pin(ready(self.step(|state, step| state.inspect(step.now, &key))))
    }

    fn watch(&self, inbox: &ClientId, sink: Weak<dyn HintSink>) {
        if self.shared.process.is_this() {
            self.shared.sinks.watch(inbox.clone(), sink);
        }
    }

    fn listen(&self, _: &ClientId) {
        // Every watcher gets hints anyway.
    }

    fn resize(&self, key: Key, of: u32) -> BoxAnswer<Option<u32>> {
        if let Some(error) = impossible_claim(Claim::Permits { want: 1, of }, &key) {
            return Box::pin(ready(Err(error)));
        }
        let resized = self.step(|state, step| {
            let floor = state.counter_floor;
            let entry = state.entries.entry(key.clone()).or_insert_with(|| Entry::new(floor));
            entry.resize(step, &key, of)
        });
        Box::pin(ready(resized.flatten()))
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            shared: true,
            permits: true,
            fencing: true,
            line: true,
            watching: true,
            reask: true,
            detached: true,
            frees: true,
            hints: Reach::Process,
            reach: Reach::Process,
            browse: true,
            revoke: true,
            ..Capabilities::NONE
        }
    }

    fn browse(&self) -> Option<&dyn Browse> {
        Some(self)
    }

    fn label(&self) -> String {
        self.shared.label.clone()
    }
}

impl Browse for MemoryStore {
    fn list(&self, pattern: &str, cursor: Option<Key>) -> BoxAnswer<Page> {
        use std::ops::Bound::{Excluded, Unbounded};
        let page = self.step(|state, step| {
            let after = cursor.as_ref().map_or(Unbounded, Excluded);
            let mut keys: Vec<Key> = state
                .entries
                .range::<Key, _>((after, Unbounded))
                .filter(|(key, entry)| {
                    entry.is_in_use(step.now) && matches_pattern(pattern, key.as_str())
                })
                .map(|(key, _)| key.clone())
                .take(PAGE_KEYS_MAX + 1)
                .collect();
            let more = keys.len() > PAGE_KEYS_MAX;
            keys.truncate(PAGE_KEYS_MAX);
            let next = if more { keys.last().cloned() } else { None };
            Page::new(keys, next)
        });
        Box::pin(ready(page))
    }

    fn evict(&self, key: Key, seen: Vec<u8>, reason: String) -> BoxAnswer<Evicted> {
        let evicted = self.step(|state, step| match state.entries.get_mut(&key) {
            Some(entry) => entry.evict(step, &key, &seen),
            None => Evicted::Changed,
        });
        if evicted.as_ref().is_ok_and(|evicted| *evicted == Evicted::Evicted) {
            tracing::warn!(key = %key, reason, "a lease was ended by an operator");
        }
        Box::pin(ready(evicted))
    }

    fn revoke(&self, key: Key, seen: Vec<u8>, by: String, reason: String) -> BoxAnswer<Revoked> {
        Box::pin(ready(self.step(|state, step| match state.entries.get_mut(&key) {
            Some(entry) => entry.revoke(step.now, &seen, Revocation::new(by, reason, step.wall)),
            None => Revoked::Changed,
        })))
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryStore({})", self.shared.label)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::token::OwnerToken;
    use crate::core::ttl::Ttl;
    use crate::store::Note;

    /// They may hold and wait for longer than the record of a silent client is kept.
    #[test]
    fn the_records_of_who_holds_a_key_and_who_waits_for_it_are_not_forgotten() {
        let client = |number| ClientId::from_random([number; ClientId::CHARS]);
        let ask = |number: u8, line: Line| {
            let record = Arc::new(ClientRecord::new(client(number)));
            let owner = OwnerToken::from_random([number; OwnerToken::RANDOM_BYTES], &record.id);
            let key = Key::new("a").expect("a good name");
            let note = Some(Note::new(Some(record), None));
            Ask { line, note, ..Ask::new(key, owner, Claim::Exclusive, Ttl::MAX) }
        };
        let (waiter_ttl, handed_ttl, inbox) = (Ttl::MAX, Ttl::MAX, client(2));
        let join = Line::Join { waiter_ttl, handed_ttl, ask_no: 1, inbox };
        let mut state = State::default();
        let mut step = Step { now: Moment::default(), wall: WallTime::default(), mail: Vec::new() };
        let key = ask(1, Line::None).key;
        let granted = state.acquire(&mut step, ask(1, Line::None)).expect("answered");
        assert!(matches!(granted, Acquired::Granted { .. }), "{granted:?}");
        assert!(state.acquire(&mut step, ask(2, join)).expect("answered").is_taken());

        let later = step.now + FENCE_IDLE * 2;
        state.sweep(later);
        let seen = state.inspect(later, &key);
        assert_eq!(seen.holders[0].client, Some(ClientRecord::new(client(1))));
        assert_eq!(seen.waiters[0].client, Some(ClientRecord::new(client(2))));
    }
}
