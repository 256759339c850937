//! Copies of clients and guards refuse to work after a fork, and do not disturb the other process.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use futures_util::FutureExt;
use leasehold::{Client, Error, ErrorKind, Guard, Lease, Lost, Mutex, Release};

use crate::process::Child;
use crate::{connect, runtime};

/// A ttl so long that no renewal is needed.
const TTL: Duration = Duration::from_mins(10);

/// A client in use before the fork.
struct Used {
    client: Client,
    mutex: Mutex,
    lease: Lease,
    guards: [Guard; 4],
}

/// Every copy refuses with a clear error, holds nothing, and ends without a request.
pub(crate) fn copies_refuse(url: &str) {
    let ours = runtime();
    let used = ours.block_on(async {
        let client = connect(url).await;
        let mutex = client.mutex("e").ttl(TTL);
        let take = async |name: &str| client.mutex(name).ttl(TTL).lock().await.expect("free");
        let guards = [take("a").await, take("b").await, take("c").await, take("d").await];
        let lease = client.lease("a", guards[0].token().clone());
        Used { client, mutex, lease, guards }
    });
    let mut used = Some(used);
    let requests = Requests::count(url);
    let child = Child::fork(|_| runtime().block_on(end_copies(used.take().expect("copied"))));
    child.join();
    requests.none_since();
    let Used { client, mutex, guards, .. } = used.take().expect("the parent has its own");
    ours.block_on(async {
        for guard in guards {
            assert!(guard.is_held(), "{guard:?}");
            guard.renew().await.expect("the store has it still");
            assert_eq!(guard.release().await.expect("an answer"), Release::Released);
        }
        drop(mutex.try_lock().await.expect("an answer").expect("nobody has it"));
        let shutdown = client.shutdown(Duration::from_secs(9)).await;
        assert_eq!(shutdown.not_released, 0);
    });
}

async fn end_copies(used: Used) {
    let Used { client, mutex, lease, guards } = used;
    for guard in &guards {
        assert!(!guard.is_held() && guard.remaining().is_zero(), "{guard:?}");
    }
    let [asked, released, detached, dropped] = guards;
    assert_eq!(asked.lost().await, Lost::NotOurs);
    assert!(asked.revoked().now_or_never().is_none(), "only the parent can be asked");
    let token = asked.token().as_str().as_bytes().to_vec();
    refused(asked.renew());
    refused(released.release());
    let _token = detached.detach();
    drop((asked, dropped));
    refused(mutex.try_lock());
    refused(mutex.lock());
    refused(mutex.lock_timeout(Duration::from_secs(9)));
    refused(mutex.with(async |_| ()));
    let several = client.lock_all(["e", "f"]);
    refused(several.try_lock());
    refused(several.lock());
    refused(several.lock_timeout(Duration::from_secs(9)));
    refused(lease.renew(TTL));
    refused(lease.release());
    refused(client.inspect("a"));
    refused(client.list("*"));
    refused(client.evict("a", &token, "test"));
    refused(client.revoke("a", &token, "test"));
    let _no_locks = (client.store_label(), client.capabilities(), format!("{client:?}"));
    let shutdown = client.clone().shutdown(Duration::from_secs(9)).await;
    assert_eq!((shutdown.released, shutdown.not_released), (0, 0));
    drop((mutex, lease, client));
}

/// A copied client refuses at once, since only the parent could end a wait.
fn refused<T>(call: impl Future<Output = Result<T, Error>>) {
    let outcome = call.now_or_never().expect("a copied client waits for nothing");
    let Err(error) = outcome else { panic!("it was not refused") };
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
    let text = error.to_string();
    for part in ["fork", "holds no lock", "open a new client"] {
        assert!(text.contains(part), "{text}");
    }
}

/// A child that goes on with its parent's runtime, and ends it, does the parent no harm.
pub(crate) fn runtime_is_left_alone(url: &str) {
    let ours = runtime();
    let (client, guard) = ours.block_on(async {
        let client = connect(url).await;
        let guard = client.mutex("a").ttl(TTL).lock().await.expect("it is free");
        (client, guard)
    });
    let mut used = Some((ours, client, guard));
    let requests = Requests::count(url);
    let child = Child::fork(|_| {
        let (ours, client, guard) = used.take().expect("copied");
        ours.block_on(async {
            refused(client.mutex("a").try_lock());
            for _ in 0..1_000 {
                tokio::task::yield_now().await;
            }
            refused(guard.release());
        });
        drop(client);
        drop(ours);
    });
    child.join();
    requests.none_since();
    let (ours, client, guard) = used.take().expect("the parent has its own");
    let connections = requests.connections();
    ours.block_on(async {
        let other = client.mutex("b").try_lock().await.expect("the connection lives");
        assert_eq!(other.expect("it is free").release().await.ok(), Some(Release::Released));
        assert_eq!(guard.release().await.expect("an answer"), Release::Released);
    });
    // The test itself made one connection.
    assert_eq!(requests.connections() - connections, 1, "the parent had to connect again");
}

/// The child polls and drops futures that wait during the fork. The parent's copies are served.
pub(crate) fn futures_are_left_alone(url: &str) {
    let ours = runtime();
    let (client, guard, others) = ours.block_on(async {
        let (client, others) = (connect(url).await, connect(url).await);
        let guard = client.mutex("a").ttl(TTL).lock().await.expect("it is free");
        (client, guard, others)
    });
    // The first future asks the server. The second waits behind it in the client's own line.
    let mutexes = [others.mutex("a").ttl(TTL), others.mutex("a").ttl(TTL)];
    let mut waiting = mutexes.map(|mutex| Some(Box::pin(async move { mutex.lock().await })));
    ours.block_on(async {
        while client.inspect("a").await.expect("an answer").waiters.is_empty() {
            for waiting in waiting.iter_mut().flatten() {
                assert!(waiting.now_or_never().is_none(), "it is taken");
            }
        }
    });
    let mut released = Some(Box::pin(guard.release()));
    let requests = Requests::count(url);
    let child = Child::fork(|_| {
        for waiting in waiting.iter_mut().flatten() {
            assert!(waiting.now_or_never().is_none(), "a copy does nothing");
        }
        drop(released.take());
        drop(waiting.each_mut().map(Option::take));
    });
    child.join();
    requests.none_since();
    let released = released.take().expect("the parent has its own");
    let [first, second] = waiting.map(|waiting| waiting.expect("the parent has its own"));
    ours.block_on(async {
        let (released, first) = tokio::join!(released, first);
        assert_eq!(released.expect("an answer"), Release::Released);
        let (released, second) = tokio::join!(first.expect("its turn").release(), second);
        assert_eq!(released.expect("an answer"), Release::Released);
        drop(second.expect("its turn"));
    });
}

/// Counts the requests to a server. Only a Redis server counts its requests.
struct Requests(Option<(String, u64)>);

impl Requests {
    fn count(url: &str) -> Self {
        let address = url.strip_prefix("redis://").map(|rest| {
            let address = rest.split(['/', '?']).next().expect("a host").to_owned();
            let asked = stat(&address, "total_commands_processed");
            (address, asked)
        });
        Self(address)
    }

    /// Checks that the server got no request except the one that reads the count.
    fn none_since(&self) {
        let Some((address, before)) = &self.0 else { return };
        let asked = stat(address, "total_commands_processed") - before;
        assert_eq!(asked, 1, "one request is how this is known");
    }

    fn connections(&self) -> u64 {
        let Some((address, _)) = &self.0 else { return 0 };
        stat(address, "total_connections_received")
    }
}

fn stat(address: &str, name: &str) -> u64 {
    let mut stream = TcpStream::connect(address).expect("the server is there");
    stream.write_all(b"INFO stats\r\n").expect("it reads");
    stream.shutdown(std::net::Shutdown::Write).expect("it is open");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("it answers");
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.expect("it counts").trim().parse().expect("a number")
}
