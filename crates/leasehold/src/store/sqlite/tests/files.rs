//! Files: which are accepted, which are refused, and in what state they remain.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::*;
use crate::store::sqlite::schema::APPLICATION_ID;
use crate::store::sqlite::tables::{FIRST, USER_VERSION};

fn open(path: &Path) -> Result<SqliteStore, Error> {
    SqliteStore::open_in_boot(path, World::new().host(), "this boot")
}

#[test]
fn a_new_file_and_what_lies_beside_it_are_for_this_user_only() {
    let world = World::new();
    let path = world.dir.path().join("locks.db");
    let store = open(&path).expect("it opens");
    granted(run(store.acquire(ask("a", owner(1, 1)))));
    let mode = |path: &Path| std::fs::metadata(path).expect("it is there").permissions().mode();
    assert_eq!(mode(&path) & 0o777, 0o600);
    assert_eq!(mode(&path.with_extension("db-wal")) & 0o777, 0o600);
    assert_eq!(store.label(), format!("sqlite:{}", path.display()));
}

#[test]
fn a_file_in_a_directory_that_does_not_exist_is_refused_and_nothing_is_made() {
    let world = World::new();
    let missing = world.dir.path().join("nosuch");
    let refusal = open(&missing.join("dir/locks.db"));
    refused(refusal, ErrorKind::Config, "is in a directory that does not exist");
    assert!(!missing.exists());
}

#[test]
fn an_empty_file_becomes_a_store_and_strange_characters_in_its_path_mean_nothing() {
    let world = World::new();
    let path = world.dir.path().join("50% a?b#c'ü.db");
    std::fs::write(&path, "").expect("written");
    granted(run(open(&path).expect("it opens").acquire(ask("a", owner(1, 1)))));
    is_taken(run(open(&path).expect("it opens again").acquire(ask("a", owner(2, 1)))));
    // The marks of a store are in the file itself while its log exists beside it.
    let raw = rusqlite::Connection::open(&path).expect("it opens");
    let id: i32 = raw.pragma_query_value(None, "application_id", |row| row.get(0)).expect("an id");
    assert_eq!(id, APPLICATION_ID);
}

#[test]
fn a_file_that_is_not_ours_is_refused_and_left_as_it_is() {
    let world = World::new();
    let sql = |sql: &str| {
        let path = world.dir.path().join("foreign.db");
        let _ = std::fs::remove_file(&path);
        rusqlite::Connection::open(&path).and_then(|db| db.execute_batch(sql)).expect("it is made");
        std::fs::read(&path).expect("it is there")
    };
    let newer = format!(
        "PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {}; CREATE TABLE t (a)",
        USER_VERSION + 1
    );
    let table: [(Vec<u8>, &str); 5] = [
        (b"#!/bin/sh\n".to_vec(), "is not a Leasehold store"),
        (vec![7; 10_000], "is not a Leasehold store"),
        (sql("CREATE TABLE t (a)"), "is not a Leasehold store"),
        (sql("PRAGMA application_id = 42"), "is not a Leasehold store"),
        (sql(&newer), "was written by a newer Leasehold"),
    ];
    for (content, complaint) in table {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("locks.db");
        std::fs::write(&path, &content).expect("written");
        refused(open(&path), ErrorKind::Config, complaint);
        refused(open(&path), ErrorKind::Config, "nothing was changed");
        assert_eq!(std::fs::read(&path).expect("it is there"), content);
        let left = std::fs::read_dir(dir.path()).expect("it is there").count();
        assert_eq!(left, 1, "nothing is left beside a file that is not ours");
    }
}

/// Its leases, its waiters and its counters are those of the older build.
#[test]
fn a_file_of_the_first_version_is_brought_up_to_date_and_keeps_what_is_in_it() {
    let world = World::new();
    let (holder, waiter) = (owner(1, 1), owner(2, 1));
    let until = Moment::from_nanos(1_008_000_000_000).as_nanos();
    let raw = rusqlite::Connection::open(world.path()).expect("it opens");
    raw.execute_batch(&format!(
        "PRAGMA journal_mode = WAL; PRAGMA application_id = {APPLICATION_ID};
         PRAGMA user_version = 1; {FIRST}
         INSERT INTO meta VALUES (1, 'this boot', {}, 0, 7, 0, '', NULL);
         INSERT INTO locks (key, version, counter, owner, expires, ttl, since_wall, fence_first,
             fence_count, why, idle, touched)
             VALUES ('a', 1, 41, '{holder}', {until}, 10000000000, 1, 41, 1, NULL, 0, 1);
         INSERT INTO places (key, seq, owner, stance, expires, handed_ttl, reserve, ask_no, inbox,
             why, since_wall)
             VALUES ('a', 1, '{waiter}', 0, {until}, 3000000000, 1, 1, '{inbox}', NULL, 1);",
        TODAY - 1_000_000_000,
        holder = holder.as_str(),
        waiter = waiter.as_str(),
        inbox = client(2).as_str(),
    ))
    .expect("it is made");
    let store = world.open();
    let version: i32 =
        raw.pragma_query_value(None, "user_version", |row| row.get(0)).expect("a version");
    assert_eq!(version, USER_VERSION);
    is_taken(run(store.acquire(ask("a", owner(3, 1)))));
    let left = run(store.release(lease("a", holder), OnRelease::Free)).expect("an answer");
    assert_eq!(left, Released::HandedOver);
    assert_eq!(granted(run(store.acquire(ask("a", waiter.clone())))), 42);
    let share = |number| Ask { claim: Claim::Shared, reserve: 0, ..ask("b", owner(number, 2)) };
    for number in 1..3 {
        let shared = run(store.acquire(share(number))).expect("an answer");
        assert!(matches!(shared, Acquired::Granted { fencing: None }), "{shared:?}");
    }
    // A process of the older build that has the file open finds that key taken.
    let holder: String = raw
        .query_row("SELECT owner FROM locks WHERE key = 'b' AND expires > 0", [], |row| row.get(0))
        .expect("a holder");
    assert!(OwnerToken::new(&holder).is_err(), "{holder:?} is the token of nobody");
    world.open();
}

#[test]
fn a_path_that_is_no_file_is_refused() {
    let world = World::new();
    let dir = world.dir.path();
    refused(open(dir), ErrorKind::Config, "is a directory; name a file in it");
    refused(open(Path::new("/dev/null")), ErrorKind::Config, "is a device");
    std::fs::write(dir.join("file"), "").expect("written");
    refused(open(&dir.join("file/locks.db")), ErrorKind::Config, "check the path");
    refused(open(Path::new("/proc/locks.db")), ErrorKind::Config, "nothing was changed");
}

#[test]
fn a_store_whose_file_was_taken_away_answers_nothing_more() {
    let world = World::new();
    let store = world.open();
    granted(run(store.acquire(ask("a", owner(1, 1)))));
    std::fs::remove_file(world.path()).expect("removed");
    let gone = run(store.acquire(ask("b", owner(1, 2))));
    refused(gone, ErrorKind::Unavailable, "was deleted, moved or replaced");
    // A new process refuses the file while its `-wal` and `-shm` files exist, since it may still
    // contain leases.
    refused(open(&world.path()), ErrorKind::Config, "stop every process that used it");
    for end in ["db-wal", "db-shm"] {
        std::fs::remove_file(world.path().with_extension(end)).expect("removed");
    }
    granted(run(world.open().acquire(ask("a", owner(2, 1)))));
    let gone = run(store.acquire(ask("b", owner(1, 3))));
    refused(gone, ErrorKind::Unavailable, "start this process again");
}

#[test]
fn many_clients_that_open_a_new_file_at_once_meet_in_one_store() {
    let world = World::new();
    let tokens: Vec<u64> = std::thread::scope(|scope| {
        let open = |n: u8| {
            let world = &world;
            scope.spawn(move || run(world.open().acquire(ask("a", owner(n, 1)))))
        };
        let threads: Vec<_> = (0..8).map(open).collect();
        let answers = threads.into_iter().map(|thread| thread.join().expect("it ends"));
        answers
            .filter_map(|answer| match answer.expect("an answer") {
                Acquired::Granted { fencing } => fencing.map(|block| block.first.get()),
                Acquired::Refused(_) => None,
            })
            .collect()
    });
    assert_eq!(tokens.len(), 1, "one of them gets the key");
}

#[test]
fn a_store_whose_log_or_shared_memory_was_taken_away_answers_nothing_more() {
    for end in ["db-wal", "db-shm"] {
        let world = World::new();
        let store = world.open();
        granted(run(store.acquire(ask("a", owner(1, 1)))));
        std::fs::remove_file(world.path().with_extension(end)).expect("removed");
        let gone = run(store.acquire(ask("b", owner(1, 2))));
        refused(gone, ErrorKind::Unavailable, "the -wal or -shm beside it, was deleted");
    }
}

#[test]
fn newcomers_do_not_grant_what_is_held_by_those_whose_shared_memory_was_taken_away() {
    let world = World::new();
    let store = world.open();
    granted(run(store.acquire(ask("a", owner(1, 1)))));
    for end in ["db-wal", "db-shm"] {
        std::fs::remove_file(world.path().with_extension(end)).expect("removed");
    }
    refused(open(&world.path()), ErrorKind::Unavailable, "stop every process that uses it");
    drop(store);
    // The store's thread closes the file a little later.
    let newcomer = (0..60).find_map(|_| open(&world.path()).ok()).expect("it opens");
    granted(run(newcomer.acquire(ask("b", owner(1, 2)))));
}

#[test]
fn a_file_that_has_a_second_path_is_refused_by_either() {
    let world = World::new();
    drop(world.open());
    let other = world.dir.path().join("other.db");
    std::fs::hard_link(world.path(), &other).expect("linked");
    for path in [&other, &world.path()] {
        refused(open(path), ErrorKind::Config, "link its directory instead");
    }
    std::fs::remove_file(&other).expect("removed");
    world.open();
}

#[test]
fn the_log_of_a_new_store_is_begun_before_anybody_locks() {
    let world = World::new();
    let _store = world.open();
    let log = std::fs::metadata(world.path().with_extension("db-wal")).expect("it is there");
    assert!(log.len() > 0, "or the first caller would sync it to the disk");
}

#[test]
fn a_symbolic_link_leads_to_the_same_store() {
    let world = World::new();
    let link = world.dir.path().join("link.db");
    std::os::unix::fs::symlink(world.path(), &link).expect("linked");
    let store = world.open();
    granted(run(store.acquire(ask("a", owner(1, 1)))));
    is_taken(run(open(&link).expect("it opens").acquire(ask("a", owner(2, 1)))));
}
