//! The documented behaviour of Redisson's `RReadWriteLock`, `RPermitExpirableSemaphore`,
//! `RFairLock` and `RMultiLock`, with the means of Leasehold.

use leasehold::store::PermitsTaken;
use leasehold::{Client, ErrorKind, MultiRelease, Mutex, Release};
use leasehold_testkit::faults::{Fault, Faults};

use super::{ms, play};

/// "Multiple `ReadLock` owners and only one `WriteLock` owner are allowed."
#[test]
fn several_read_locks_and_one_write_lock_are_held() {
    play(0..2, async |scene| {
        let clients = [scene.calm_client().await, scene.calm_client().await];
        let locks = clients.each_ref().map(|client| client.rwlock("a"));
        let readers = [locks[0].read().await, locks[1].read().await];
        let readers = readers.map(|reader| reader.expect("shared"));
        assert!(locks[0].try_write().await.expect("asked").is_none());
        drop(readers);
        scene.pass(ms(10)).await;
        let writer = locks[1].try_write().await.expect("asked").expect("free");
        assert!(locks[0].try_read().await.expect("asked").is_none());
        assert!(locks[0].try_write().await.expect("asked").is_none());
        assert_eq!(writer.release().await.expect("asked"), Release::Released);
    });
}

/// `tryLock(waitTime)` of both locks.
#[test]
fn a_try_with_a_time_to_wait_ends_in_time_or_gets_the_lock() {
    play(0..2, async |scene| {
        let (client, other) = (scene.calm_client().await, scene.calm_client().await);
        let writer = client.rwlock("a").write().await.expect("free");
        let error = other.rwlock("a").read_timeout(ms(100)).await.expect_err("taken");
        assert_eq!(error.kind(), ErrorKind::WaitElapsed);
        let lock = other.rwlock("a");
        let reading = scene.host.task(async move { lock.read_timeout(ms(2_000)).await });
        scene.pass(ms(50)).await;
        drop(writer);
        let reader = scene.host.within(ms(1_000), reading).await.expect("it ends");
        let reader = reader.expect("it is its turn");
        let error = client.rwlock("a").write_timeout(ms(100)).await.expect_err("taken");
        assert_eq!(error.kind(), ErrorKind::WaitElapsed);
        drop(reader);
    });
}

/// The watchdog: the lock of a crashed owner ends, and the lock of a living owner is renewed.
/// `leaseTime`: a lock that nobody renews ends by itself.
#[test]
fn a_read_lock_that_nobody_renews_ends_and_another_one_stays() {
    play(0..2, async |scene| {
        let (client, other) = (scene.client_of(ms(600)).await, scene.calm_client().await);
        let _token = client.rwlock("a").read().await.expect("free").detach();
        let living = client.rwlock("a").read().await.expect("shared");
        scene.pass(ms(2_000)).await;
        assert!(living.is_held());
        assert_eq!(other.inspect("a").await.expect("asked").holders.len(), 1);
        assert!(other.rwlock("a").try_write().await.expect("asked").is_none());
        drop(living);
        scene.pass(ms(10)).await;
        assert!(other.rwlock("a").try_write().await.expect("asked").is_some());
    });
}

/// `trySetPermits`, `acquire`, `release(permitId)`, `availablePermits`.
#[test]
fn permits_are_acquired_by_id_and_released_by_id() {
    play(0..2, async |scene| {
        let (client, other) = (scene.calm_client().await, scene.calm_client().await);
        let semaphore = client.semaphore("a", 3);
        let taken = async || {
            let seen = other.inspect("a").await.expect("asked");
            seen.permits.map(|permits: PermitsTaken| (permits.taken, permits.of))
        };
        let ids = [semaphore.acquire().await, semaphore.clone().weight(2).acquire().await];
        let ids = ids.map(|permit| permit.expect("free").detach());
        assert!(semaphore.try_acquire().await.expect("asked").is_none());
        assert_eq!(taken().await, Some((3, 3)));
        // Any process with the id may release it, and only once.
        let lease = other.lease("a", ids[1].clone());
        assert_eq!(lease.release().await.expect("asked"), Release::Released);
        assert_eq!(lease.release().await.expect("asked"), Release::NotHeld);
        assert_eq!(taken().await, Some((1, 3)));
        let error = other.semaphore("a", 4).acquire().await.expect_err("set before");
        assert_eq!(error.kind(), ErrorKind::Config);
    });
}

/// `acquire(leaseTime)` and `updateLeaseTime`: each permit expires alone.
#[test]
fn a_permit_expires_after_its_lease_time_unless_that_is_updated() {
    play(0..2, async |scene| {
        let client = scene.calm_client().await;
        let semaphore = client.semaphore("a", 2).ttl(ms(1_000));
        let ids = [semaphore.acquire().await, semaphore.acquire().await];
        let [first, second] = ids.map(|permit| permit.expect("free").detach());
        scene.pass(ms(500)).await;
        client.lease("a", second.clone()).renew(ms(3_000)).await.expect("it lives");
        scene.pass(ms(600)).await;
        let error = client.lease("a", first).renew(ms(3_000)).await.expect_err("it expired");
        assert_eq!(error.kind(), ErrorKind::Lost);
        let again = semaphore.try_acquire().await.expect("asked");
        assert!(again.is_some(), "the permit of the first");
        assert!(semaphore.try_acquire().await.expect("asked").is_none());
        let lease = client.lease("a", second);
        assert_eq!(lease.release().await.expect("asked"), Release::Released);
    });
}

/// `addPermits`: waiters get the new permits.
#[test]
fn added_permits_go_to_those_that_wait() {
    play(0..2, async |scene| {
        let (client, other) = (scene.calm_client().await, scene.calm_client().await);
        let guard = client.semaphore("a", 1).acquire().await.expect("free");
        let semaphore = other.semaphore("a", 1);
        let waiting = scene.host.task(async move { semaphore.acquire().await });
        scene.pass(ms(50)).await;
        assert_eq!(client.semaphore("a", 1).resize(2).await.expect("asked"), Some(1));
        let second = scene.host.within(ms(1_000), waiting).await.expect("it is told");
        assert!(second.expect("its permit").is_held() && guard.is_held());
    });
}

/// `RFairLock`: the order is that of the requests. "If some thread died, Redisson waits for its
/// return for 5 seconds. For example, if 5 threads died, the delay is 25 seconds." Here, dead
/// waiters cost the life of one place, however many there are.
#[test]
fn five_dead_waiters_cost_no_more_than_the_life_of_a_place() {
    play(0..2, async |scene| {
        let (client, living) = (scene.calm_client().await, scene.calm_client().await);
        let guard = client.mutex("a").lock().await.expect("free");
        for _ in 0..5 {
            let faults = Faults::new(scene.host.clone());
            let mutex = scene.client_with(&faults, ms(3_000)).await.mutex("a");
            let _waits = scene.host.task(async move { mutex.lock().await });
            scene.pass(ms(10)).await;
            faults.all_from_now_on(Fault::LoseRequest);
        }
        let mutex = living.mutex("a");
        let waiting = scene.host.task(async move { mutex.lock().await.expect("in its turn") });
        scene.pass(ms(10)).await;
        assert_eq!(guard.release().await.expect("asked"), Release::Released);
        let granted = scene.host.within(ms(6_100), waiting).await.expect("after the dead");
        assert!(granted.is_held());
    });
}

/// `RMultiLock` of locks of one client: all are taken and renewed, or none. Users who name the
/// locks in another order never wait for each other, see [`super::several`].
#[test]
fn a_lock_of_several_is_taken_renewed_and_released_as_one() {
    play(0..2, async |scene| {
        let (client, other) = (scene.client_of(ms(600)).await, scene.calm_client().await);
        let free = async |name: &str| {
            let mutex: Mutex = Client::mutex(&other, name);
            mutex.try_lock().await.expect("asked").is_some()
        };
        let taken = other.mutex("b").lock().await.expect("free");
        let locks = client.lock_all(["a", "b", "c"]);
        let error = locks.lock_timeout(ms(100)).await.expect_err("one of them is taken");
        assert_eq!(error.kind(), ErrorKind::WaitElapsed);
        // The releases travel over another connection than the next requests.
        scene.host.settle().await;
        assert!(free("a").await && free("c").await, "none is kept");
        drop(taken);
        let guard = locks.lock_timeout(ms(1_000)).await.expect("free");
        for _ in 0..5 {
            scene.pass(ms(600)).await;
            assert!(guard.is_held());
            assert!(!free("a").await && !free("b").await && !free("c").await);
        }
        assert_eq!(guard.release().await.expect("asked"), MultiRelease::Released);
        assert!(free("a").await && free("b").await && free("c").await);
    });
}
