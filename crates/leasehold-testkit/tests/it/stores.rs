//! The stores of this repository, each on the clock of a virtual host.

#[allow(dead_code, unreachable_pub, reason = "an example is a program too")]
#[path = "../../../leasehold/examples/own_store.rs"]
mod own_store;

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use leasehold::host::Host;
use leasehold::store::redis::{
    Access, Connector, Copies, Opening, RedisConnector, Replicas, Strict,
};
use leasehold::store::{AnyStore, MemoryStore, PostgresStore, Quorum, RedisStore, from_url};
use leasehold_testkit::VirtualHost;
use leasehold_testkit::conformance::Opener;
use leasehold_testkit::protocol::{Answer, Between, Command, Onlooker, Value};
use leasehold_testkit::servers::{RedisServer, Schema, SchemaOutside, ServerOutside, pool};

pub(crate) fn memory(host: &Arc<VirtualHost>) -> Opener {
    let store = MemoryStore::new(host.clone());
    Box::new(move || Box::pin(ready(AnyStore::new(store.clone()))))
}

/// The store of the example `own_store.rs`, which has neither a line nor hints.
pub(crate) fn own(host: &Arc<VirtualHost>) -> Opener {
    let table = own_store::Table::new(host.clone());
    Box::new(move || Box::pin(ready(AnyStore::new(table.store()))))
}

/// A store in its own file, which is deleted after the case.
pub(crate) fn sqlite(host: &Arc<VirtualHost>) -> Opener {
    let directory = tempfile::tempdir().expect("a directory for the file");
    let host: Arc<dyn Host> = host.clone();
    Box::new(move || {
        let url = format!("sqlite:{}", directory.path().join("locks.db").display());
        let host = Arc::clone(&host);
        Box::pin(async move { from_url(&url, host).await.expect("the file is opened") })
    })
}

/// A store in its own schema, which keeps virtual time.
pub(crate) fn postgres(host: &Arc<VirtualHost>) -> Opener {
    let outside = SchemaOutside::new(Schema::lend());
    host.attach(outside.clone());
    let host: Arc<dyn Host> = host.clone();
    Box::new(move || {
        let opening = PostgresStore::connect_with(outside.connector(), Arc::clone(&host));
        Box::pin(async move { AnyStore::new(opening.await.expect("the server is there")) })
    })
}

/// A store on its own server, which keeps virtual time.
pub(crate) fn redis(host: &Arc<VirtualHost>) -> Opener {
    redis_on(&ServerOutside::new(pool::lend()), host)
}

/// A store on its own server, over TLS.
pub(crate) fn tls(host: &Arc<VirtualHost>) -> Opener {
    let (server, ca) = pool::lend_with_tls();
    let outside = ServerOutside::new(server);
    host.attach(outside.clone());
    let host: Arc<dyn Host> = host.clone();
    Box::new(move || {
        let url = format!("{}?ca={}", outside.server().tls_url(), ca.path().display());
        let connector = RedisConnector::new(&url).expect("a URL of a server");
        let opening = RedisStore::connect_with(outside.watch(connector), Arc::clone(&host));
        Box::pin(async move { AnyStore::new(opening.await.expect("the server is there")) })
    })
}

/// A store on a cluster of one node.
pub(crate) fn cluster(host: &Arc<VirtualHost>) -> Opener {
    let outside = ServerOutside::new(pool::lend_cluster());
    host.attach(outside.clone());
    let host: Arc<dyn Host> = host.clone();
    Box::new(move || {
        let url = outside.server().url().replace("redis:", "redis+cluster:");
        let connector = RedisConnector::new(&url).expect("a URL of a cluster");
        let opening = RedisStore::connect_with(outside.watch(connector), Arc::clone(&host));
        Box::pin(async move { AnyStore::new(opening.await.expect("the node is there")) })
    })
}

/// A store on a strict server that has forgotten nothing. Its leases may be as long as those of
/// other stores.
pub(crate) fn strict(host: &Arc<VirtualHost>) -> Opener {
    let outside = ServerOutside::new(pool::lend());
    let run_id = run_id(outside.server());
    outside.server().command(&["HSET", ":lh:epoch", "run", &run_id]);
    host.attach(outside.clone());
    let host: Arc<dyn Host> = host.clone();
    Box::new(move || {
        let longest = Duration::from_hours(48);
        let connector = RedisConnector::new(&outside.server().url()).expect("a URL of a server");
        let connector = outside.watch(connector.on_terms(Strict::new(longest, longest).into()));
        let opening = RedisStore::connect_with(connector, Arc::clone(&host));
        Box::pin(async move { AnyStore::new(opening.await.expect("the server is there")) })
    })
}

/// A store that wants a copy of each grant, with a replica that confirms each one at once.
pub(crate) fn copies(host: &Arc<VirtualHost>) -> Opener {
    let outside = ServerOutside::new(pool::lend());
    host.attach(outside.clone());
    let host: Arc<dyn Host> = host.clone();
    Box::new(move || {
        let connector = RedisConnector::new(&outside.server().url()).expect("a URL of a server");
        let connector = Replicated(outside.watch(connector));
        let opening = RedisStore::connect_with(connector, Arc::clone(&host));
        Box::pin(async move { AnyStore::new(opening.await.expect("the server is there")) })
    })
}

/// Pretends that each server has a replica that is always up to date. A real replica would not keep
/// virtual time.
struct Replicated<C>(C);

impl<C: Connector> Connector for Replicated<C> {
    fn open(&self) -> Opening {
        let opening = self.0.open();
        Box::pin(async move { Ok(Between::over(opening.await?, OneMore)) })
    }

    fn label(&self) -> String {
        self.0.label()
    }

    fn access(&self) -> Access {
        Access::on_terms(Copies::new(Replicas::Count(1), false).into())
    }
}

/// Adds one to the number of replicas.
struct OneMore;

impl Onlooker for OneMore {
    fn leaves(&mut self, request: Command) -> Command {
        if request.name() == b"WAIT" { Command::of(&["WAIT", "0", "1"]) } else { request }
    }

    fn arrives(&mut self, request: &Command, answer: &Answer) -> Option<Answer> {
        match answer {
            Ok(Value::Int(replicas)) if request.name() == b"WAIT" => {
                Some(Ok(Value::Int(replicas + 1)))
            }
            _ => None,
        }
    }
}

/// The id of a server's process.
pub(crate) fn run_id(server: &RedisServer) -> String {
    let info = server.command(&["INFO", "server"]).text();
    let run_id = info.lines().find_map(|line| line.strip_prefix("run_id:"));
    run_id.expect("it says so").to_owned()
}

/// The replication id of a server, which names the history of its data.
pub(crate) fn replid(server: &RedisServer) -> String {
    let info = server.command(&["INFO", "replication"]).text();
    let replid = info.lines().find_map(|line| line.strip_prefix("master_replid:"));
    replid.expect("it says so").to_owned()
}

/// A store on this server, whose clock becomes the host's.
pub(crate) fn redis_on(outside: &Arc<ServerOutside>, host: &Arc<VirtualHost>) -> Opener {
    redis_by(outside, host, "")
}

/// Like [`redis_on`], with `options` at the end of its URL.
pub(crate) fn redis_by(
    outside: &Arc<ServerOutside>,
    host: &Arc<VirtualHost>,
    options: &'static str,
) -> Opener {
    host.attach(outside.clone());
    let (outside, host): (_, Arc<dyn Host>) = (outside.clone(), host.clone());
    Box::new(move || {
        let url = outside.server().url() + options;
        let connector = RedisConnector::new(&url).expect("a URL of a server");
        let opening = RedisStore::connect_with(outside.watch(connector), Arc::clone(&host));
        Box::pin(async move { AnyStore::new(opening.await.expect("the server is there")) })
    })
}

/// A quorum of three stores in memory.
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
