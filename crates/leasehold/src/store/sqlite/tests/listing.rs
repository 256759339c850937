//! A listing goes on past everything that is not listed.

use super::{World, ask, granted, owner, run, run_sql};
use crate::store::Store;
use crate::store::sqlite::SqliteStore;

/// All names that a tool finds, page by page.
fn listed(store: &SqliteStore) -> Vec<String> {
    let tools = store.browse().expect("it has tools");
    let mut names = Vec::new();
    let mut cursor = None;
    loop {
        let page = run(tools.list("*", cursor)).expect("answered");
        names.extend(page.keys.iter().map(|key| key.as_str().to_owned()));
        cursor = page.next;
        if cursor.is_none() {
            return names;
        }
    }
}

#[test]
fn a_listing_goes_on_behind_more_idle_names_than_a_page_looks_at() {
    let world = World::new();
    let store = world.open();
    granted(run(store.acquire(ask("z", owner(1, 1)))));
    run_sql(
        &store,
        "WITH RECURSIVE counted(number) AS
            (SELECT 1 UNION ALL SELECT number + 1 FROM counted WHERE number < 25000)
        INSERT INTO locks (key, version, counter, owner, expires, ttl, since_wall, fence_first,
            fence_count, why, idle, touched)
        SELECT printf('idle %05d', number), version, counter, NULL, 0, ttl,
            since_wall, NULL, NULL, NULL, idle, touched FROM counted, locks WHERE key = 'z'",
    );
    assert_eq!(listed(&store), ["z"]);
}

#[test]
fn a_listing_goes_on_behind_more_names_of_other_programs_than_a_page_looks_at() {
    let world = World::new();
    let store = world.open();
    granted(run(store.acquire(ask("z", owner(1, 1)))));
    run_sql(
        &store,
        "WITH RECURSIVE counted(number) AS
            (SELECT 1 UNION ALL SELECT number + 1 FROM counted WHERE number < 25000)
        INSERT INTO locks (key, version, counter, owner, expires, ttl, since_wall, fence_first,
            fence_count, why, idle, touched)
        SELECT char(7) || printf('name %05d', number), version, counter, owner,
            expires, ttl, since_wall, NULL, NULL, NULL, idle, touched
            FROM counted, locks WHERE key = 'z'",
    );
    assert_eq!(listed(&store), ["z"]);
}

#[test]
fn a_listing_goes_on_behind_a_name_that_is_no_text() {
    let world = World::new();
    let store = world.open();
    granted(run(store.acquire(ask("z", owner(1, 1)))));
    run_sql(
        &store,
        "INSERT INTO locks (key, version, counter, owner, expires, ttl, since_wall, idle, touched)
        SELECT CAST(x'61ff' AS TEXT), version, counter, owner, expires, ttl, since_wall, idle,
            touched FROM locks WHERE key = 'z'",
    );
    assert_eq!(listed(&store), ["z"]);
}
