//! Bells: waiters in other processes are woken, and dead waiters are skipped.

use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use super::*;
use crate::core::line::NEAR;
use crate::store::sqlite::bells::{self, Belfry, Bells};
use crate::store::sqlite::waits::LOOK_EVERY_MIN;
use crate::store::{ClientRecord, Note};

/// A host that can wait for pipes. Its clock stands still, so nobody looks at the file on a timer.
struct Belled(OnClock);

impl Host for Belled {
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
        self.0.spawn(task);
    }
    fn spawn_blocking(&self, _: &str, task: Task) -> Result<(), Error> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
        let runtime = runtime.expect("a runtime");
        std::thread::spawn(move || runtime.block_on(task));
        Ok(())
    }
    fn has_threads(&self) -> bool {
        true
    }
    fn random(&self, bytes: &mut [u8]) {
        self.0.random(bytes);
    }
}

impl World {
    fn open_belled(&self) -> SqliteStore {
        let host = Arc::new(Belled(OnClock(Arc::clone(&self.clock))));
        SqliteStore::open_in_boot(&self.path(), host, "this boot").expect("it opens")
    }

    fn bell(&self, inbox: &ClientId) -> PathBuf {
        self.dir.path().join("locks.db-bells").join(inbox.as_str())
    }
}

/// Waits until the store's thread has applied the effects of the last request.
fn settle(store: &SqliteStore) {
    run(store.inspect(key("x"))).expect("an answer");
    run(store.inspect(key("x"))).expect("an answer");
}

#[test]
fn a_bell_wakes_a_waiter_in_another_process_and_exists_only_while_somebody_waits() {
    let world = World::new();
    let (here, there) = (world.open_belled(), world.open_belled());
    let (_sink, hints) = watch(&there, &client(2));
    for turn in 1..=3 {
        granted(run(here.acquire(ask("a", owner(1, turn)))));
        assert!(!world.bell(&client(2)).exists(), "nobody waits");
        is_taken(run(there.acquire(join("a", owner(2, turn), 1))));
        assert!(world.bell(&client(2)).exists());
        run(here.release(lease("a", owner(1, turn)), OnRelease::Free)).expect("an answer");
        let hint = hints.recv_timeout(EVENTUALLY).expect("a hint");
        assert!(matches!(hint, Hint::Granted { .. }), "{hint:?}");
        let freed = run(there.release(lease("a", owner(2, turn)), OnRelease::Free));
        assert_eq!(freed.expect("an answer"), Released::Freed);
        settle(&there);
    }
    assert!(!world.bell(&client(2)).exists());
}

/// Like every client of the library. The record is written with the first ask.
#[test]
fn the_first_ask_of_a_client_that_says_who_it_is_hangs_its_bell_up() {
    let world = World::new();
    let (here, there) = (world.open_belled(), world.open_belled());
    let (_sink, hints) = watch(&there, &client(2));
    granted(run(here.acquire(ask("a", owner(1, 1)))));
    let record = Arc::new(ClientRecord::new(client(2)));
    let note = Some(Note::new(Some(record), None));
    is_taken(run(there.acquire(Ask { note, ..join("a", owner(2, 1), 1) })));
    run(here.release(lease("a", owner(1, 1)), OnRelease::Free)).expect("an answer");
    let hint = hints.recv_timeout(EVENTUALLY).expect("a hint");
    assert!(matches!(hint, Hint::Granted { .. }), "{hint:?}");
}

#[test]
fn clients_of_one_handle_have_a_bell_each() {
    let world = World::new();
    let (here, there) = (world.open_belled(), world.open_belled());
    granted(run(here.acquire(ask("c", owner(1, 9)))));
    is_taken(run(there.acquire(join("c", owner(4, 1), 1))));
    for (number, name) in [(2, "a"), (3, "b")] {
        let (_sink, hints) = watch(&there, &client(number));
        granted(run(here.acquire(ask(name, owner(1, number)))));
        is_taken(run(there.acquire(join(name, owner(number, 1), 1))));
        run(here.release(lease(name, owner(1, number)), OnRelease::Free)).expect("an answer");
        let hint = hints.recv_timeout(EVENTUALLY).expect("a hint");
        assert!(matches!(hint, Hint::Granted { .. }), "{hint:?}");
    }
}

#[test]
fn a_bell_that_was_taken_away_is_hung_up_again_by_the_next_ask() {
    let world = World::new();
    let (here, there) = (world.open_belled(), world.open_belled());
    let (_sink, hints) = watch(&there, &client(2));
    granted(run(here.acquire(ask("a", owner(1, 1)))));
    is_taken(run(there.acquire(join("a", owner(2, 1), 1))));
    std::fs::remove_dir_all(world.dir.path().join("locks.db-bells")).expect("it was there");
    is_taken(run(there.acquire(join("a", owner(2, 1), 2))));
    run(here.release(lease("a", owner(1, 1)), OnRelease::Free)).expect("an answer");
    let hint = hints.recv_timeout(EVENTUALLY).expect("a hint");
    assert!(matches!(hint, Hint::Granted { .. }), "{hint:?}");
}

/// Without a bell, its place would live on for seconds.
#[test]
fn the_turn_of_a_dead_waiter_costs_no_time() {
    let world = World::new();
    let here = world.open_belled();
    granted(run(here.acquire(ask("a", owner(1, 1)))));
    // The first purge also removes dead bells. It must not come while the bells hang.
    settle(&here);
    for number in [2, 3] {
        let dead = world.open_belled();
        is_taken(run(dead.acquire(join("a", owner(number, 1), 1))));
        drop(dead);
        // Like a process that died before it could remove its bell.
        let bell = world.bell(&client(number));
        while bell.exists() {
            std::thread::yield_now();
        }
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mkfifoat(rustix::fs::CWD, &bell, mode).expect("a pipe");
    }
    let living = world.open_belled();
    is_taken(run(living.acquire(join("a", owner(4, 1), 1))));
    let released = run(here.release(lease("a", owner(1, 1)), OnRelease::Free));
    assert_eq!(released.expect("an answer"), Released::HandedOver);
    granted(run(living.acquire(join("a", owner(4, 1), 2))));
    for number in [2, 3] {
        assert!(!world.bell(&client(number)).exists(), "nobody else has to try it");
    }
}

#[test]
fn waiters_poll_the_file_if_no_bell_can_be_made() {
    let world = World::new();
    std::fs::write(world.dir.path().join("locks.db-bells"), "in the way").expect("written");
    let (here, there) = (world.open_belled(), world.open_belled());
    let (_sink, hints) = watch(&there, &client(2));
    granted(run(here.acquire(ask("a", owner(1, 1)))));
    is_taken(run(there.acquire(join("a", owner(2, 1), 1))));
    run(here.release(lease("a", owner(1, 1)), OnRelease::Free)).expect("an answer");
    world.clock.advance(LOOK_EVERY_MIN);
    let hint = hints.recv_timeout(EVENTUALLY).expect("a hint");
    assert!(matches!(hint, Hint::Granted { .. }), "{hint:?}");
}

#[test]
fn waiters_that_come_near_the_front_are_told_to_ask_and_no_others() {
    let world = World::new();
    let (here, other, there) = (world.open_belled(), world.open_belled(), world.open_belled());
    let (_sink, hints) = watch(&there, &client(3));
    let (_last_sink, last_hints) = watch(&there, &client(4));
    granted(run(here.acquire(ask("a", owner(1, 1)))));
    for number in 0..NEAR as u8 {
        is_taken(run(other.acquire(join("a", owner(2, number), 1))));
    }
    is_taken(run(there.acquire(join("a", owner(3, 1), 1))));
    is_taken(run(there.acquire(join("a", owner(4, 1), 1))));
    settle(&there);
    assert_eq!(hints.try_recv().ok(), None);
    run(here.release(lease("a", owner(1, 1)), OnRelease::Free)).expect("an answer");
    let hint = hints.recv_timeout(EVENTUALLY).expect("a hint");
    assert_eq!(hint, Hint::CalledUp { key: key("a"), owner: owner(3, 1) });
    assert_eq!(last_hints.try_recv().ok(), None, "its turn is further away");
    // It is also told when a waiter ahead goes away.
    run(other.release(lease("a", owner(2, 9)), OnRelease::Free)).expect("an answer");
    let hint = last_hints.recv_timeout(EVENTUALLY).expect("a hint");
    assert_eq!(hint, Hint::CalledUp { key: key("a"), owner: owner(4, 1) });
}

#[test]
fn each_waiter_that_comes_near_the_front_is_told_when_several_places_die() {
    let world = World::new();
    let other = world.open_belled();
    let there = [3, 4, 5].map(|number| (number, world.open_belled()));
    let watched = there.each_ref().map(|(number, store)| watch(store, &client(*number)));
    let held = Ask { ttl: ttl(60_000), ..ask("a", owner(1, 1)) };
    granted(run(other.acquire(held)));
    for number in 0..3 {
        is_taken(run(other.acquire(join("a", owner(2, number), 1))));
    }
    world.clock.advance(Duration::from_secs(2));
    for number in 3..NEAR as u8 {
        is_taken(run(other.acquire(join("a", owner(2, number), 1))));
    }
    for (number, store) in &there {
        is_taken(run(store.acquire(join("a", owner(*number, 1), 1))));
        settle(store);
    }
    world.clock.advance(Duration::from_secs(1));
    is_taken(run(other.acquire(join("a", owner(2, 3), 2))));
    for ((number, _), (_sink, hints)) in there.iter().zip(&watched) {
        let hint = hints.recv_timeout(EVENTUALLY).expect("a hint");
        assert_eq!(hint, Hint::CalledUp { key: key("a"), owner: owner(*number, 1) });
    }
}

/// The client pauses longer than the place life it requested.
#[test]
fn a_place_far_back_lives_until_its_client_asks_again() {
    let world = World::new();
    let store = world.open();
    granted(run(store.acquire(ask("a", owner(1, 1)))));
    for number in 0..40 {
        is_taken(run(store.acquire(join("a", owner(2, number), 1))));
    }
    world.clock.advance(Duration::from_secs(4));
    let waiting = run(store.inspect(key("a"))).expect("an answer").waiting;
    assert_eq!(waiting, 40 - NEAR, "those near the front live for 3 s");
    // A client gets back a place that ended, if nobody has dropped it yet.
    is_taken(run(store.acquire(join("a", owner(2, 0), 2))));
    let waiting = run(store.inspect(key("a"))).expect("an answer").waiting;
    assert_eq!(waiting, 41 - NEAR);
}

#[test]
fn a_pipe_whose_maker_was_killed_before_its_rename_is_removed_after_a_minute() {
    let world = World::new();
    let belfry = Belfry::beside(&world.path(), 0o600);
    belfry.open().expect("a directory");
    let first_name = |number| {
        let inbox = client(number);
        world.bell(&inbox).with_file_name(format!(".{}", inbox.as_str()))
    };
    let (abandoned, in_work) = (first_name(1), first_name(2));
    for pipe in [&abandoned, &in_work] {
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mkfifoat(rustix::fs::CWD, pipe, mode).expect("a pipe");
    }
    let reader = bells::options().read(true).open(&in_work).expect("our pipe");
    let made = std::fs::metadata(&abandoned).expect("our pipe").mtime();
    let made = u64::try_from(made).expect("after 1970");
    let bells = Bells::new(belfry, false);
    let sweep_after = |seconds| {
        bells.sweep(WallTime::from_unix_micros((made + seconds) * 1_000_000));
        (abandoned.exists(), in_work.exists())
    };
    assert_eq!(sweep_after(0), (true, true));
    assert_eq!(sweep_after(60), (true, true));
    assert_eq!(sweep_after(62), (false, true), "somebody reads the other one");
    drop(reader);
    assert_eq!(sweep_after(62), (false, false));
}

/// Root may be the first who waits. As root, this test gives the file to another user.
#[test]
fn the_bells_belong_to_the_owner_of_the_file() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("locks.db");
    std::fs::write(&path, "").expect("a file");
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&path, Some(65_534), Some(65_534)).expect("root may");
    }
    let mut bells = Bells::new(Belfry::beside(&path, 0o100_600), true);
    bells.hang(&client(1));
    let owner = |path: &std::path::Path| {
        let made = std::fs::metadata(path).expect("it was made");
        (made.uid(), made.gid())
    };
    let beside = folder.path().join("locks.db-bells");
    for made in [beside.join(client(1).as_str()), beside] {
        assert_eq!(owner(&made), owner(&path), "{}", made.display());
    }
}

/// Otherwise the waiters of other users learn of a hand-over only when they look.
#[test]
fn every_user_of_a_file_may_ring_the_bells_beside_it() {
    for (file, directory) in [(0o600, 0o700), (0o640, 0o750), (0o660, 0o770), (0o666, 0o777)] {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("locks.db");
        let mut bells = Bells::new(Belfry::beside(&path, 0o100_000 | file), true);
        bells.hang(&client(1));
        let mode = |path: PathBuf| {
            let made = std::fs::metadata(path).expect("it was made");
            made.mode() & 0o777
        };
        let beside = folder.path().join("locks.db-bells");
        assert_eq!(mode(beside.join(client(1).as_str())), file, "{file:o}");
        assert_eq!(mode(beside), directory, "{file:o}");
    }
}
