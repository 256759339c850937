//! Which types and futures may cross threads.

use std::future::Future;
use std::time::Duration;

use leasehold::{
    Client, ClientBuilder, Coexist, CountDown, Election, Error, ErrorKind, FencingToken, Guard,
    Guarded, GuardedRef, Identity, Key, Latch, Leader, Leadership, Lease, Listing, Lost,
    MultiGuard, MultiLock, MultiRelease, Mutex, Observer, Once, OwnerToken, RateLimit, Release,
    Run, RwLock, Semaphore, Shutdown, Snapshot, Ttl,
};

fn is_shareable<T: Send + Sync + 'static>() {}
fn is_spawnable<F: Future + Send + 'static>(_: F) {}

#[test]
fn all_public_types_cross_threads() {
    is_shareable::<Client>();
    is_shareable::<ClientBuilder>();
    is_shareable::<Coexist>();
    is_shareable::<CountDown>();
    is_shareable::<Election>();
    is_shareable::<Error>();
    is_shareable::<ErrorKind>();
    is_shareable::<FencingToken>();
    is_shareable::<Guard>();
    is_shareable::<Guarded<u32>>();
    is_shareable::<GuardedRef<'static, u32>>();
    is_shareable::<Identity>();
    is_shareable::<Key>();
    is_shareable::<Latch>();
    is_shareable::<Leader>();
    is_shareable::<Leadership>();
    is_shareable::<Lease>();
    is_shareable::<Listing>();
    is_shareable::<Lost>();
    is_shareable::<MultiGuard>();
    is_shareable::<MultiLock>();
    is_shareable::<MultiRelease>();
    is_shareable::<Mutex>();
    is_shareable::<Observer>();
    is_shareable::<Once>();
    is_shareable::<OwnerToken>();
    is_shareable::<RateLimit>();
    is_shareable::<Release>();
    is_shareable::<Run>();
    is_shareable::<RwLock>();
    is_shareable::<Semaphore>();
    is_shareable::<Shutdown>();
    is_shareable::<Snapshot>();
    is_shareable::<Ttl>();
}

const WAIT: Duration = Duration::ZERO;

/// Asserts that the future of a call can be spawned. The call owns a clone of what it is made on.
macro_rules! assert_spawnable {
    ($value:ident: $($call:expr),+ $(,)?) => {$({
        let $value = $value.clone();
        // A reference to guarded data must not outlive its `Guarded`.
        is_spawnable(async move { drop($call.await) });
    })+};
}

#[tokio::test]
async fn the_futures_of_all_locks_can_be_spawned() -> Result<(), Error> {
    let client = Client::connect("memory:").await?;
    let (mutex, rwlock) = (client.mutex("a"), client.rwlock("b"));
    assert_spawnable!(
        mutex: mutex.lock(),
        mutex.try_lock(),
        mutex.lock_timeout(WAIT),
        mutex.with(async |guard| guard.fencing_token()),
    );
    assert_spawnable!(
        rwlock: rwlock.read(),
        rwlock.try_read(),
        rwlock.read_timeout(WAIT),
        rwlock.write(),
        rwlock.try_write(),
        rwlock.write_timeout(WAIT),
    );
    let writer = rwlock.write().await?;
    is_spawnable(async move { rwlock.downgrade(writer).await });
    let (semaphore, all) = (client.semaphore("c", 2), client.lock_all(["d", "e"]));
    assert_spawnable!(
        semaphore: semaphore.acquire(),
        semaphore.try_acquire(),
        semaphore.acquire_timeout(WAIT),
        semaphore.resize(3),
    );
    assert_spawnable!(all: all.lock(), all.try_lock(), all.lock_timeout(WAIT));
    let (latch, limit) = (client.latch("f", 2), client.rate_limit("g", 2, Duration::from_mins(1)));
    assert_spawnable!(
        latch: latch.count_down(),
        latch.remaining(),
        latch.wait(),
        latch.wait_timeout(WAIT),
        latch.arrive_and_wait(),
    );
    assert_spawnable!(limit: limit.start(), limit.try_start(), limit.start_timeout(WAIT));
    let (once, election) = (client.once("h", Duration::from_mins(1)), client.election("i"));
    assert_spawnable!(once: once.start());
    assert_spawnable!(election: election.campaign(), election.leader());
    let mut leaders = election.observe();
    is_spawnable(async move { leaders.next().await });
    let data = std::sync::Arc::new(Guarded::new(mutex, 3));
    assert_spawnable!(data: data.lock(), data.try_lock(), data.lock_timeout(WAIT));
    Ok(())
}

#[tokio::test]
async fn the_futures_of_clients_and_guards_can_be_spawned() -> Result<(), Error> {
    let client = Client::connect("memory:").await?;
    is_spawnable(Client::connect("memory:"));
    is_spawnable(Client::builder("memory:").connect());
    let guard = client.mutex("a").lock().await?;
    is_spawnable(guard.lost());
    is_spawnable(guard.revoked());
    is_spawnable(async move { (guard.renew().await, guard.release().await) });
    is_spawnable(client.mutex("a").lock().await?.keep_for(Duration::from_mins(1)));
    let guards = client.lock_all(["b", "c"]).lock().await?;
    is_spawnable(guards.lost());
    is_spawnable(guards.revoked());
    is_spawnable(async move { (guards.renew().await, guards.release().await) });
    let leadership = client.election("d").campaign().await?;
    is_spawnable(leadership.lost());
    is_spawnable(leadership.resign());
    let once = client.once("e", Duration::from_mins(1));
    let run = once.start().await?.expect("nobody did it");
    is_spawnable(run.lost());
    is_spawnable(run.failed());
    is_spawnable(once.start().await?.expect("it failed").done());
    let token = client.mutex("f").lock().await?.detach();
    let lease = client.lease("f", token);
    is_spawnable(async move { (lease.renew(Duration::from_mins(1)).await, lease.release().await) });
    assert_spawnable!(
        client: client.inspect("a"),
        client.list("*"),
        client.evict("a", b"", "a test"),
        client.revoke("a", b"", "a test"),
    );
    is_spawnable(client.shutdown(WAIT));
    Ok(())
}

#[cfg(feature = "redis")]
#[test]
fn the_futures_of_the_doctor_and_of_strict_mode_can_be_spawned() {
    use leasehold::host::SystemHost;

    const URLS: &[&str] = &["memory:"];
    let host = SystemHost::shared();
    is_spawnable(leasehold::doctor::diagnose(URLS, None, Duration::from_secs(1), host.clone()));
    is_spawnable(leasehold::strict::status(URLS, host));
}
