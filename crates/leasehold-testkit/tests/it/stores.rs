//! The stores of this repository, each on the clock of a virtual host.

use std::future::ready;
use std::sync::Arc;

use leasehold::host::Host;
use leasehold::store::redis::RedisConnector;
use leasehold::store::{AnyStore, MemoryStore, Quorum, RedisStore, from_url};
use leasehold_testkit::VirtualHost;
use leasehold_testkit::conformance::Opener;
use leasehold_testkit::servers::{ServerOutside, pool};

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

/// A server of its own, which keeps virtual time.
pub(crate) fn redis(host: &Arc<VirtualHost>) -> Opener {
    redis_on(&ServerOutside::new(pool::lend()), host)
}

/// That server, whose clock becomes the host's.
pub(crate) fn redis_on(outside: &Arc<ServerOutside>, host: &Arc<VirtualHost>) -> Opener {
    host.attach(outside.clone());
    let (outside, host): (_, Arc<dyn Host>) = (outside.clone(), host.clone());
    Box::new(move || {
        let url = outside.server().url();
        let connector = RedisConnector::new(&url).expect("a URL of a server");
        let opening = RedisStore::connect_with(outside.watch(connector), Arc::clone(&host));
        Box::pin(async move { AnyStore::new(opening.await.expect("the server is there")) })
    })
}

/// Three stores in memory.
pub(crate) fn quorum(host: &Arc<VirtualHost>) -> Opener {
    let nodes: [_; 3] = std::array::from_fn(|_| MemoryStore::new(host.clone()));
    let host: Arc<dyn Host> = host.clone();
    Box::new(move || {
        let (nodes, host) = (nodes.clone(), Arc::clone(&host));
        Box::pin(async move {
            AnyStore::new(Quorum::connect(nodes, host).await.expect("all of them are there"))
        })
    })
}
