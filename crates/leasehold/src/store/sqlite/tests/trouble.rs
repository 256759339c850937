//! Trouble: a locked file, a full disk, a full queue, a batch that fails.

use rusqlite::ffi;

use super::*;
use crate::core::validity::command_limit;
use crate::store::sqlite::lock_row::LockRow;
use crate::store::sqlite::step::{Acquire, Renew};
use crate::store::sqlite::{QUEUE_MAX, limit_of};
use crate::store::{Renewal, Renewed};

#[test]
fn a_file_that_another_process_keeps_locked_is_unavailable_and_unchanged() {
    let world = World::new();
    let store = world.open();
    granted(run(store.acquire(ask("held", owner(1, 1)))));
    let raw = rusqlite::Connection::open(world.path()).expect("it opens");
    raw.execute_batch("BEGIN IMMEDIATE").expect("it is locked");
    let locked = "another process keeps the file locked";
    let short = Ask { ttl: ttl(40), ..ask("a", owner(1, 2)) };
    refused(run(store.acquire(short.clone())), ErrorKind::Unavailable, locked);
    let lease_held = lease("held", owner(1, 1));
    let renewal =
        Renewal { lease: lease_held, ttl: ttl(40), at_least: None, reserve: 0, idle: false };
    refused(run(store.renew(renewal)), ErrorKind::Unavailable, locked);
    // Readers block nobody, and nobody blocks them.
    is_taken(run(store.acquire(ask("held", owner(2, 1)))));
    let seen = run(store.inspect(key("a"))).expect("an answer");
    assert!(seen.holders.is_empty());
    raw.execute_batch("ROLLBACK").expect("it is unlocked");
    granted(run(store.acquire(short)));
}

#[test]
fn in_one_batch_each_request_waits_as_long_as_it_may() {
    let world = World::new();
    let store = world.open();
    run(store.inspect(key("x"))).expect("an answer");
    let raw = rusqlite::Connection::open(world.path()).expect("it opens");
    raw.execute_batch("BEGIN IMMEDIATE").expect("it is locked");
    let held_up = hold_up(&store);
    let patient = store.acquire(ask("patient", owner(1, 1)));
    let hasty = store.acquire(Ask { ttl: ttl(40), ..ask("hasty", owner(1, 2)) });
    drop(held_up);
    refused(run(hasty), ErrorKind::Unavailable, "nothing was changed");
    raw.execute_batch("ROLLBACK").expect("it is unlocked");
    // On a slow machine, the second for which it waits may be over. Then the error says so.
    match run(patient) {
        Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable),
        answer => assert!(granted(answer) > 0),
    }
}

/// Hundreds of processes that start together keep a file locked for seconds. A waiter also waits
/// for the file; a client that only tries gets an answer soon.
#[test]
fn a_client_in_line_waits_longer_for_the_file_than_one_that_only_tries() {
    let limit = |ask| Acquire(ask).busy_limit().as_millis();
    // ttl, the wait of a try, and the wait in line, all in ms
    let table = [(40, 10, 20), (2_000, 500, 1_000), (10_000, 1_000, 5_000), (60_000, 1_000, 5_000)];
    for (ttl_ms, tries, waits) in table {
        let ttl = ttl(ttl_ms);
        assert_eq!(limit(Ask { ttl, ..ask("a", owner(1, 1)) }), tries, "{ttl_ms}");
        assert_eq!(limit(Ask { ttl, ..join("a", owner(1, 1), 1) }), waits, "{ttl_ms}");
        // A renewal that fails must leave time for the next one.
        let renew = Renew(Renewal::new(lease("a", owner(1, 1)), ttl));
        assert_eq!(renew.busy_limit().as_millis(), tries, "{ttl_ms}");
    }
}

/// Otherwise the outcome would be unknown while the request is still about to be served.
#[test]
fn the_answer_is_waited_for_longer_than_the_file() {
    for ttl_ms in [40, 2_000, 10_000, 60_000] {
        let ttl = ttl(ttl_ms);
        let tries = Acquire(Ask { ttl, ..ask("a", owner(1, 1)) });
        let waits = Acquire(Ask { ttl, ..join("a", owner(1, 1), 1) });
        for acquire in [tries, waits] {
            let least = acquire.busy_limit() + command_limit(ttl);
            assert!(limit_of(&acquire) >= least, "{ttl_ms}");
        }
    }
}

/// Only a damaged file has such a moment, and clients would wait for its end.
#[test]
fn a_woken_waiter_is_awaited_for_a_moment_and_no_longer() {
    let now = Moment::from_nanos(1_000_000_000);
    let mut row = LockRow::default();
    for (left_ms, is_awaited) in [(0, false), (1, true), (20, true), (21, false), (9_999, false)] {
        row.awaits_until = now + Duration::from_millis(left_ms);
        assert_eq!(row.awaits_head(now), is_awaited, "{left_ms}");
    }
}

#[test]
fn on_a_full_disk_what_is_held_stays_held_and_renewed() {
    let world = World::new();
    let store = world.open();
    granted(run(store.acquire(ask("held", owner(1, 1)))));
    // SQLite never allows fewer pages than the file has.
    run_sql(&store, "PRAGMA max_page_count = 1");
    let full = (0..200)
        .map(|n| run(store.acquire(ask(&format!("{n}{}", "x".repeat(400)), owner(1, 2)))))
        .find_map(Result::err)
        .expect("the disk is full at some time");
    assert_eq!(full.kind(), ErrorKind::Unavailable);
    assert!(full.to_string().contains("the disk is full; nothing was changed"), "{full}");
    let renewal = Renewal {
        lease: lease("held", owner(1, 1)),
        ttl: ttl(9_000),
        at_least: None,
        reserve: 0,
        idle: false,
    };
    let renewed = run(store.renew(renewal)).expect("an answer");
    assert!(matches!(renewed, Renewed::Renewed { wanted: false, .. }), "{renewed:?}");
    run_sql(&store, "PRAGMA max_page_count = 1000000");
    granted(run(store.acquire(ask(&"y".repeat(400), owner(1, 3)))));
}

#[test]
fn a_request_that_fails_fails_alone() {
    let world = World::new();
    let store = world.open();
    let held_up = hold_up(&store);
    let first = store.acquire(ask("a", owner(1, 1)));
    let broken = store.submit(
        EVENTUALLY,
        Custom(|conn: &rusqlite::Connection| conn.execute_batch("no SQL at all")),
    );
    let last = store.acquire(ask("b", owner(1, 2)));
    drop(held_up);
    granted(run(first));
    refused(run(broken), ErrorKind::Unknown, "see the cause");
    granted(run(last));
}

/// Another program has written to the file, or it is damaged.
#[test]
fn a_row_that_cannot_be_read_costs_no_other_lease() {
    let world = World::new();
    let store = world.open();
    let names = ["a", "b", "bad", "c", "d"];
    for name in names {
        granted(run(store.acquire(ask(name, owner(1, 1)))));
    }
    run_sql(&store, "UPDATE locks SET taken = -1 WHERE key = 'bad'");
    let held_up = hold_up(&store);
    let renewed = names.map(|name| {
        let lease = lease(name, owner(1, 1));
        store.renew(Renewal { lease, ttl: ttl(9_000), at_least: None, reserve: 1, idle: false })
    });
    drop(held_up);
    for (name, renewed) in names.into_iter().zip(renewed) {
        match run(renewed) {
            Ok(renewed) => assert!(matches!(renewed, Renewed::Renewed { .. }), "{name}"),
            Err(error) => {
                assert_eq!(name, "bad", "{error}");
                refused(Err::<(), _>(error), ErrorKind::Unavailable, "nothing was changed");
            }
        }
    }
}

/// Fails with a code of SQLite, and counts how often.
struct Fails(i32, Arc<AtomicU64>);

impl Step for Fails {
    type Answer = ();

    fn busy_limit(&self) -> Duration {
        EVENTUALLY
    }
    fn quick(&self, _: &mut Turn<'_>) -> rusqlite::Result<Option<()>> {
        Ok(None)
    }
    fn full(&self, _: &mut Turn<'_>) -> Result<(), Failure> {
        self.1.fetch_add(1, Ordering::SeqCst);
        Err(rusqlite::Error::SqliteFailure(ffi::Error::new(self.0), None).into())
    }
}

/// A broken disk takes its time for each try, and meanwhile nobody else is served. A full disk may
/// have room for some jobs.
#[test]
fn a_file_that_cannot_be_used_fails_a_whole_batch_in_one_try() {
    let world = World::new();
    let store = world.open();
    for (code, tries) in [
        (ffi::SQLITE_IOERR, 1),
        (ffi::SQLITE_CANTOPEN, 1),
        (ffi::SQLITE_READONLY, 1),
        (ffi::SQLITE_NOTADB, 1),
        (ffi::SQLITE_FULL, 31),
    ] {
        let tried = Arc::new(AtomicU64::new(0));
        let held_up = hold_up(&store);
        let batch = [(); 16].map(|()| store.submit(EVENTUALLY, Fails(code, Arc::clone(&tried))));
        drop(held_up);
        for answer in batch {
            let error = run(answer).expect_err("it fails");
            assert!(error.to_string().contains("nothing was changed"), "{error}");
        }
        assert_eq!(tried.load(Ordering::SeqCst), tries, "code {code}");
    }
}

#[test]
fn requests_of_a_batch_are_served_in_order() {
    let world = World::new();
    let store = world.open();
    let held_up = hold_up(&store);
    let batch: Vec<_> = (0..3_000)
        .map(|n| store.acquire(ask(&format!("k{}", n / 2), owner(1 + n as u8 % 2, 3))))
        .collect();
    drop(held_up);
    for (n, answer) in batch.into_iter().enumerate() {
        let is_granted = matches!(run(answer), Ok(Acquired::Granted { .. }));
        assert_eq!(is_granted, n % 2 == 0, "request {n}");
    }
}

/// A waiter with such a hint would take itself for a holder. The second of two readers cannot be
/// written, after the first one was.
#[test]
fn a_hand_over_that_was_rolled_back_is_told_to_nobody() {
    let world = World::new();
    let store = world.open();
    let (_sink, hints) = watch(&store, &client(2));
    granted(run(store.acquire(ask("a", owner(1, 1)))));
    for number in 1..3 {
        let place = join("a", owner(2, number), 1);
        is_taken(run(store.acquire(Ask { claim: Claim::Shared, reserve: 0, ..place })));
    }
    run_sql(
        &store,
        "CREATE TEMP TRIGGER refuses BEFORE UPDATE ON main.locks
        WHEN (SELECT COUNT(*) FROM main.shares) = 2
        BEGIN SELECT RAISE(ABORT, 'on purpose'); END",
    );
    let release = store.release(lease("a", owner(1, 1)), OnRelease::Free);
    refused(run(release), ErrorKind::Unavailable, "nothing was changed");
    // The next request that runs must not send it either.
    run_sql(&store, "DROP TRIGGER refuses");
    granted(run(store.acquire(ask("b", owner(1, 2)))));
    assert_eq!(hints.try_recv().ok(), None);
    let released = run(store.release(lease("a", owner(1, 1)), OnRelease::Free));
    assert_eq!(released.expect("an answer"), Released::HandedOver);
    for _ in 1..3 {
        let hint = hints.recv_timeout(EVENTUALLY).expect("a hint");
        assert!(matches!(hint, Hint::Granted { .. }), "{hint:?}");
    }
}

/// Panics inside its transaction, but only on this thread.
struct Panics(std::thread::ThreadId);

impl Step for Panics {
    type Answer = ();
    const AT_ONCE: bool = true;

    fn busy_limit(&self) -> Duration {
        EVENTUALLY
    }
    fn quick(&self, _: &mut Turn<'_>) -> rusqlite::Result<Option<()>> {
        Ok(None)
    }
    fn full(&self, _: &mut Turn<'_>) -> Result<(), Failure> {
        assert_ne!(std::thread::current().id(), self.0, "on purpose");
        Ok(())
    }
}

#[test]
fn nothing_is_answered_inside_a_transaction_that_a_panic_left_open() {
    let world = World::new();
    let store = world.open();
    granted(run(store.acquire(ask("a", owner(1, 1)))));
    let freed = run(store.release(lease("a", owner(1, 1)), OnRelease::Free));
    assert_eq!(freed.expect("an answer"), Released::Freed);
    let here = std::thread::current().id();
    let submit = || run(store.submit(EVENTUALLY, Panics(here))).expect("an answer");
    // The store's thread may use the file at that moment, and runs the request instead.
    let panicked = || std::panic::catch_unwind(std::panic::AssertUnwindSafe(submit)).is_err();
    assert!((0..10_000).any(|_| panicked()), "it is carried out on this thread");
    granted(run(store.acquire(ask("a", owner(1, 2)))));
    is_taken(run(world.open().acquire(ask("a", owner(2, 1)))));
}

/// Reports the thread that runs it.
struct WhichThread;

impl Step for WhichThread {
    type Answer = std::thread::ThreadId;
    const AT_ONCE: bool = true;

    fn busy_limit(&self) -> Duration {
        EVENTUALLY
    }
    fn quick(&self, _: &mut Turn<'_>) -> rusqlite::Result<Option<Self::Answer>> {
        Ok(Some(std::thread::current().id()))
    }
    fn full(&self, _: &mut Turn<'_>) -> Result<Self::Answer, Failure> {
        unreachable!("it is always done quickly");
    }
}

#[test]
fn a_thread_of_the_host_leaves_requests_to_that_of_the_store() {
    let world = World::new();
    let store = world.open();
    let (done, end) = mpsc::channel();
    crate::host::SystemHost.spawn(Box::pin(async move {
        let here = std::thread::current().id();
        let there = store.submit(EVENTUALLY, WhichThread).await.expect("an answer");
        let _ = done.send((here, there));
    }));
    let (here, there) = end.recv_timeout(EVENTUALLY).expect("it ends");
    assert_ne!(here, there);
}

#[test]
fn requests_are_served_in_order_whether_or_not_somebody_waits_for_them() {
    let world = World::new();
    let store = world.open();
    for turn in 0..1_000 {
        let owner = owner(1, turn as u8 % 64);
        granted(run(store.acquire(ask("a", owner.clone()))));
        drop(store.release(lease("a", owner), OnRelease::Free));
    }
    let last = store.acquire(ask("a", owner(1, 0)));
    drop(store);
    granted(run(last));
}

#[test]
fn a_request_too_many_is_refused_at_once() {
    let world = World::new();
    let store = world.open();
    let held_up = hold_up(&store);
    for _ in 0..QUEUE_MAX {
        drop(store.inspect(key("a")));
    }
    let refusal = run(store.acquire(ask("a", owner(1, 1))));
    refused(refusal, ErrorKind::Unavailable, "which is the limit; no request was sent");
    drop(held_up);
}

/// A simulation runs the store's task and its callers on one thread.
#[test]
fn the_store_works_where_everything_runs_on_one_thread() {
    struct OneThread(OnClock);
    impl Host for OneThread {
        fn now(&self) -> Moment {
            self.0.now()
        }
        fn wall(&self) -> WallTime {
            self.0.wall()
        }
        fn sleep_until(&self, at: Moment) -> Sleep {
            self.0.sleep_until(at)
        }
        fn spawn(&self, task: Task) {
            tokio::spawn(task);
        }
        fn spawn_blocking(&self, _: &str, task: Task) -> Result<(), Error> {
            tokio::spawn(task);
            Ok(())
        }
        fn random(&self, _: &mut [u8]) {}
    }
    let world = World::new();
    run(async {
        let host = Arc::new(OneThread(OnClock(Arc::clone(&world.clock))));
        let store = SqliteStore::open_in_boot(&world.path(), host, "this boot").expect("it opens");
        for turn in 0..50 {
            granted(store.acquire(ask("a", owner(1, turn))).await);
            let freed = store.release(lease("a", owner(1, turn)), OnRelease::Free).await;
            assert_eq!(freed.expect("an answer"), Released::Freed);
        }
    });
}
