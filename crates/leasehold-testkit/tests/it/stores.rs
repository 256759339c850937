//! The stores of this repository, each on the clock of a virtual host.

use std::future::ready;
use std::sync::Arc;

use leasehold::store::{AnyStore, MemoryStore};
use leasehold_testkit::VirtualHost;
use leasehold_testkit::conformance::Opener;

pub(crate) fn memory(host: &Arc<VirtualHost>) -> Opener {
    let store = MemoryStore::new(host.clone());
    Box::new(move || Box::pin(ready(AnyStore::new(store.clone()))))
}
