//! Any store behind one type.

use std::fmt;
use std::sync::{Arc, Weak};

use super::{
    Acquired, Ask, BoxAnswer, Browse, Capabilities, HintSink, LeaseId, OnRelease, Released,
    Renewal, Renewed, Snapshot, Store,
};
use crate::core::key::Key;
use crate::core::token::ClientId;

/// The methods of the contract, for a store that is a field of this one.
macro_rules! forward {
    ($field:tt) => {
        fn acquire(&self, ask: Ask) -> BoxAnswer<Acquired> {
            self.$field.acquire(ask)
        }
        fn renew(&self, renewal: Renewal) -> BoxAnswer<Renewed> {
            self.$field.renew(renewal)
        }
        fn release(&self, lease: LeaseId, on_release: OnRelease) -> BoxAnswer<Released> {
            self.$field.release(lease, on_release)
        }
        fn inspect(&self, key: Key) -> BoxAnswer<Snapshot> {
            self.$field.inspect(key)
        }
        fn watch(&self, inbox: &ClientId, sink: Weak<dyn HintSink>) {
            self.$field.watch(inbox, sink);
        }
        fn listen(&self, inbox: &ClientId) {
            self.$field.listen(inbox);
        }
        fn tell_when_free(&self, key: &Key, inbox: &ClientId) {
            self.$field.tell_when_free(key, inbox);
        }
        fn let_go(&self, lease: &LeaseId) {
            self.$field.let_go(lease);
        }
        fn shard(&self, key: &Key) -> u64 {
            self.$field.shard(key)
        }
        fn resize(&self, key: Key, of: u32) -> BoxAnswer<Option<u32>> {
            self.$field.resize(key, of)
        }
        fn capabilities(&self) -> Capabilities {
            self.$field.capabilities()
        }
        fn browse(&self) -> Option<&dyn Browse> {
            self.$field.browse()
        }
        fn label(&self) -> String {
            self.$field.label()
        }
    };
}

#[cfg(any(feature = "_members", feature = "_sql"))]
pub(super) use forward;

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
    forward!(0);
}
