//! Any store behind one type.

use std::fmt;
use std::sync::{Arc, Weak};

use super::{
    Acquired, Ask, BoxAnswer, Browse, Capabilities, HintSink, LeaseId, OnRelease, Released,
    Renewal, Renewed, Snapshot, Store,
};
use crate::core::error::Error;
use crate::core::key::Key;
use crate::core::token::ClientId;

/// A store of a type known only at run time. It is a [`Store`] itself, so it can be wrapped like
/// any other.
#[derive(Clone)]
pub struct AnyStore(Arc<dyn DynStore>);

impl AnyStore {
    /// Wraps a store.
    pub fn new(store: impl Store) -> Self {
        Self(Arc::new(store))
    }
}

impl fmt::Debug for AnyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AnyStore({})", Store::label(self))
    }
}

/// [`Store`] with boxed answers, for every store.
trait DynStore: Send + Sync + 'static {
    fn acquire(&self, ask: Ask) -> BoxAnswer<Acquired>;
    fn renew(&self, renewal: Renewal) -> BoxAnswer<Renewed>;
    fn release(&self, lease: LeaseId, on_release: OnRelease) -> BoxAnswer<Released>;
    fn inspect(&self, key: Key) -> BoxAnswer<Snapshot>;
    fn watch(&self, inbox: &ClientId, sink: Weak<dyn HintSink>);
    fn listen(&self, inbox: &ClientId);
    fn tell_when_free(&self, key: &Key, inbox: &ClientId);
    fn let_go(&self, lease: &LeaseId);
    fn shard(&self, key: &Key) -> u64;
    fn resize(&self, key: Key, of: u32) -> BoxAnswer<Option<u32>>;
    fn capabilities(&self) -> Capabilities;
    fn browse(&self) -> Option<&dyn Browse>;
    fn label(&self) -> String;
}

impl<S: Store> DynStore for S {
    fn acquire(&self, ask: Ask) -> BoxAnswer<Acquired> {
        Box::pin(Store::acquire(self, ask))
    }
    fn renew(&self, renewal: Renewal) -> BoxAnswer<Renewed> {
        Box::pin(Store::renew(self, renewal))
    }
    fn release(&self, lease: LeaseId, on_release: OnRelease) -> BoxAnswer<Released> {
        Box::pin(Store::release(self, lease, on_release))
    }
    fn inspect(&self, key: Key) -> BoxAnswer<Snapshot> {
        Box::pin(Store::inspect(self, key))
    }
    fn watch(&self, inbox: &ClientId, sink: Weak<dyn HintSink>) {
        Store::watch(self, inbox, sink);
    }
    fn listen(&self, inbox: &ClientId) {
        Store::listen(self, inbox);
    }
    fn tell_when_free(&self, key: &Key, inbox: &ClientId) {
        Store::tell_when_free(self, key, inbox);
    }
    fn let_go(&self, lease: &LeaseId) {
        Store::let_go(self, lease);
    }
    fn shard(&self, key: &Key) -> u64 {
        Store::shard(self, key)
    }
    fn resize(&self, key: Key, of: u32) -> BoxAnswer<Option<u32>> {
        Store::resize(self, key, of)
    }
    fn capabilities(&self) -> Capabilities {
        Store::capabilities(self)
    }
    fn browse(&self) -> Option<&dyn Browse> {
        Store::browse(self)
    }
    fn label(&self) -> String {
        Store::label(self)
    }
}

impl Store for AnyStore {
    fn acquire(&self, ask: Ask) -> impl Future<Output = Result<Acquired, Error>> + Send + 'static {
        self.0.acquire(ask)
    }
    fn renew(
        &self,
        renewal: Renewal,
    ) -> impl Future<Output = Result<Renewed, Error>> + Send + 'static {
        self.0.renew(renewal)
    }
    fn release(
        &self,
        lease: LeaseId,
        on_release: OnRelease,
    ) -> impl Future<Output = Result<Released, Error>> + Send + 'static {
        self.0.release(lease, on_release)
    }
    fn inspect(&self, key: Key) -> impl Future<Output = Result<Snapshot, Error>> + Send + 'static {
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
