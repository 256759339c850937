//! Any store behind one type.

use std::fmt;
use std::sync::{Arc, Weak};

use super::{
    Acquired, Ask, BoxAnswer, Browse, Capabilities, HintSink, LeaseId, OnRelease, Released,
    Renewal, Renewed, Snapshot, Store,
};
use crate::core::key::Key;
use crate::core::token::ClientId;

/// A store of a type known only at run time. It is a [`Store`] itself, so it can be wrapped like
/// any other.
#[derive(Clone)]
pub struct AnyStore(Arc<dyn Store>);

impl AnyStore {
    /// Wraps a store.
    pub fn new(store: impl Store) -> Self {
        Self(Arc::new(store))
    }
}

impl fmt::Debug for AnyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AnyStore({})", self.label())
    }
}

impl Store for AnyStore {
    fn acquire(&self, ask: Ask) -> BoxAnswer<Acquired> {
        self.0.acquire(ask)
    }
    fn renew(&self, renewal: Renewal) -> BoxAnswer<Renewed> {
        self.0.renew(renewal)
    }
    fn release(&self, lease: LeaseId, on_release: OnRelease) -> BoxAnswer<Released> {
        self.0.release(lease, on_release)
    }
    fn inspect(&self, key: Key) -> BoxAnswer<Snapshot> {
        self.0.inspect(key)
    }
    fn watch(&self, inbox: &ClientId, sink: Weak<dyn HintSink>) {
        self.0.watch(inbox, sink);
    }
    fn listen(&self, inbox: &ClientId) {
        self.0.listen(inbox);
    }
    fn tell_when_free(&self, key: &Key, inbox: &ClientId) {
        self.0.tell_when_free(key, inbox);
    }
    fn let_go(&self, lease: &LeaseId) {
        self.0.let_go(lease);
    }
    fn shard(&self, key: &Key) -> u64 {
        self.0.shard(key)
    }
    fn resize(&self, key: Key, of: u32) -> BoxAnswer<Option<u32>> {
        self.0.resize(key, of)
    }
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }
    fn browse(&self) -> Option<&dyn Browse> {
        self.0.browse()
    }
    fn label(&self) -> String {
        self.0.label()
    }
}
