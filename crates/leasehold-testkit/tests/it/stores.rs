//! The stores of this repository, each on the clock of a virtual host.

use std::future::ready;
use std::sync::Arc;

use leasehold::host::Host;
use leasehold::store::{AnyStore, MemoryStore, from_url};
use leasehold_testkit::VirtualHost;
use leasehold_testkit::conformance::Opener;

pub(crate) fn memory(host: &Arc<VirtualHost>) -> Opener {
    let store = MemoryStore::new(host.clone());
    Box::new(move || Box::pin(ready(AnyStore::new(store.clone()))))
}

/// A file of its own, which is gone with the case.
pub(crate) fn sqlite(host: &Arc<VirtualHost>) -> Opener {
    let directory = tempfile::tempdir().expect("a directory for the file");
    let host: Arc<dyn Host> = host.clone();
    Box::new(move || {
        let url = format!("sqlite:{}", directory.path().join("locks.db").display());
        let host = Arc::clone(&host);
        Box::pin(async move { from_url(&url, host).await.expect("the file is opened") })
    })
}
