//! A client that a forked process opens by itself works fully.

use std::time::Duration;

use leasehold::{Guard, Release};

use crate::both::holder_pid;
use crate::process::Child;
use crate::{connect, runtime, use_once};

/// A short ttl, so that only renewals keep the lease.
const TTL: Duration = Duration::from_millis(600);

/// The child has its own renewal thread and its own name, waits in line, and is handed the lock.
pub(crate) fn child_works(url: &str) {
    use_once(url);
    let ours = runtime();
    let (client, guard) = ours.block_on(async {
        let client = connect(url).await;
        let guard = client.mutex("a").lock().await.expect("it is free");
        (client, guard)
    });
    let mut child = Child::fork(|line| {
        let here = runtime();
        let client = here.block_on(connect(url));
        let guard = here.block_on(client.mutex("own").ttl(TTL).lock()).expect("it is free");
        assert_eq!(here.block_on(holder_pid(url, "own")), std::process::id());
        // The executor stands still, so only a thread of the library can renew.
        until_renewed_twice(&guard);
        assert_eq!(here.block_on(guard.release()).expect("an answer"), Release::Released);
        line.say("waits");
        let guard = here.block_on(client.mutex("a").lock()).expect("its turn comes");
        assert_eq!(here.block_on(guard.release()).expect("an answer"), Release::Released);
    });
    assert_eq!(child.line().hear(), "waits");
    ours.block_on(async {
        while client.inspect("a").await.expect("an answer").waiters.is_empty() {
            tokio::task::yield_now().await;
        }
        assert_eq!(guard.release().await.expect("an answer"), Release::Released);
    });
    child.join();
}

fn until_renewed_twice(guard: &Guard) {
    for _ in 0..2 {
        let mut left = guard.remaining();
        loop {
            assert!(guard.is_held(), "nobody renewed it");
            let now = guard.remaining();
            if now > left {
                break;
            }
            left = now;
            std::thread::yield_now();
        }
    }
}

/// Forks inside a fork: every process works, with its own random numbers.
pub(crate) fn grandchild_works(url: &str) {
    use_once(url);
    let child = Child::fork(|_| {
        use_once(url);
        let grandchild = Child::fork(|_| child_works(url));
        use_once(url);
        grandchild.join();
    });
    use_once(url);
    child.join();
}

/// A copied memory store refuses to work. If the child opens a store with the same name, it is a
/// new store.
pub(crate) fn memory_is_not_shared() {
    let url = "memory:shop";
    let ours = runtime();
    let client = ours.block_on(connect(url));
    let guard = ours.block_on(client.mutex("a").lock()).expect("it is free");
    let child = Child::fork(|_| {
        let here = runtime();
        let error = here.block_on(client.mutex("b").try_lock()).expect_err("a copy");
        assert_eq!(error.kind(), leasehold::ErrorKind::Config, "{error}");
        let fresh = here.block_on(connect(url));
        let guard = here.block_on(fresh.mutex("a").ttl(TTL).try_lock()).expect("an answer");
        until_renewed_twice(&guard.expect("it is free in the store of this process"));
    });
    child.join();
    assert!(guard.is_held());
    assert_eq!(ours.block_on(guard.release()).expect("an answer"), Release::Released);
}
