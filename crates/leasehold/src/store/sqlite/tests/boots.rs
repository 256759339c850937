//! Clocks: a restart of the machine, and how idle locks are forgotten.

use super::*;
use crate::core::token::FencingToken;
use crate::store::{ClientRecord, FENCE_IDLE, Note, Renewal, Renewed, Snapshot};

#[test]
fn leases_of_an_earlier_boot_run_out_on_our_own_clock() {
    let world = World::new();
    let before = world.open_in_boot("first");
    let token = granted(run(before.acquire(ask("a", owner(1, 1)))));
    is_taken(run(before.acquire(join("a", owner(2, 1), 1))));
    drop(before);

    // The steady clock restarts, two hours of the wall clock later.
    let later = TODAY + 7_200_000_000;
    let world = world.restart(Duration::from_secs(5), later);
    let after = world.open_in_boot("second");
    let seen = run(after.inspect(key("a"))).expect("an answer");
    assert_eq!(seen.holders[0].ttl_left, Some(Duration::from_secs(10)));
    assert_eq!(seen.waiting, 0, "no waiter of the last boot is left");
    is_taken(run(after.acquire(ask("a", owner(3, 1)))));

    // A second handle of the new boot restarts nothing.
    world.clock.advance(Duration::from_secs(4));
    let second = world.open_in_boot("second");
    let seen = run(second.inspect(key("a"))).expect("an answer");
    assert_eq!(seen.holders[0].ttl_left, Some(Duration::from_secs(6)));

    world.clock.advance(Duration::from_secs(6));
    let next = granted(run(second.acquire(ask("a", owner(3, 2)))));
    assert!(next > token && next > later, "a write that the power cut took is never repeated");
}

#[test]
fn a_restart_of_the_machine_revives_no_lease_that_had_ended() {
    let world = World::new();
    let before = world.open_in_boot("first");
    granted(run(before.acquire(ask("ended", owner(1, 1)))));
    world.clock.advance(Duration::from_secs(6));
    granted(run(before.acquire(ask("running", owner(1, 2)))));
    // A renewal with a shorter ttl does not shorten a lease, now or later. A renewal that reserves
    // fencing tokens is another statement.
    let renew = |name, number, reserve| {
        let renewal = Renewal::new(lease(name, owner(1, number)), ttl(10));
        let renewed = run(before.renew(Renewal { reserve, ..renewal })).expect("an answer");
        assert!(matches!(renewed, Renewed::Renewed { .. }), "{renewed:?}");
    };
    renew("running", 2, 0);
    world.clock.advance(Duration::from_secs(5));
    // The last moment of the first boot that the file knows. `ended` had ended by then.
    granted(run(before.acquire(ask("last", owner(1, 3)))));
    renew("last", 3, 1);
    drop(before);

    let world = world.restart(Duration::from_secs(5), TODAY + 7_200_000_000);
    let after = world.open_in_boot("second");
    let left = |name| {
        let seen = run(after.inspect(key(name))).expect("an answer");
        seen.holders.first().and_then(|holder| holder.ttl_left)
    };
    assert_eq!(left("ended"), None);
    assert_eq!(left("running"), Some(Duration::from_secs(5)), "the time that it had left");
    assert_eq!(left("last"), Some(Duration::from_secs(10)));
    granted(run(after.acquire(ask("ended", owner(2, 1)))));
    is_taken(run(after.acquire(ask("running", owner(2, 2)))));
}

#[test]
fn containers_that_show_boot_ids_of_their_own_share_one_clock() {
    let world = World::new();
    let (here, there) = (world.open_in_boot("here"), world.open_in_boot("there"));
    granted(run(here.acquire(ask("a", owner(1, 1)))));
    is_taken(run(there.acquire(join("a", owner(2, 1), 1))));
    for boot in ["here", "there", "here"] {
        world.clock.advance(Duration::from_millis(900));
        world.open_in_boot(boot);
    }
    let seen = run(here.inspect(key("a"))).expect("an answer");
    assert_eq!(seen.holders[0].ttl_left, Some(Duration::from_millis(7_300)));
    assert_eq!(seen.waiting, 1, "a place stays while the one in it lives");
}

/// The longest lease ends two days after its grant, so its end says little about the present.
#[test]
fn the_longest_lease_makes_no_container_think_that_the_machine_restarted() {
    let world = World::new();
    let here = world.open_in_boot("here");
    granted(run(here.acquire(Ask { ttl: Ttl::LONGEST_KEPT, ..ask("long", owner(1, 1)) })));
    granted(run(here.acquire(ask("a", owner(1, 2)))));
    world.clock.advance(Duration::from_secs(1));
    let there = world.open_in_boot("there");
    let seen = run(there.inspect(key("a"))).expect("an answer");
    assert_eq!(seen.holders[0].ttl_left, Some(Duration::from_secs(9)));
    is_taken(run(there.acquire(ask("a", owner(2, 1)))));
}

#[test]
fn a_boot_id_that_is_the_same_after_a_restart_keeps_no_lease_for_as_long_as_the_last_boot() {
    let world = World::new();
    let before = world.open();
    world.clock.advance(Duration::from_secs(900_000));
    granted(run(before.acquire(ask("a", owner(1, 1)))));
    // Later than the opening of the file, but earlier than the start of the lease.
    let clock = SetClock::at(Duration::from_secs(2_000), TODAY + 7_200_000_000);
    let world = World { clock, ..world };
    let store = world.open();
    world.clock.advance(Duration::from_secs(10));
    granted(run(store.acquire(ask("a", owner(2, 1)))));
}

#[test]
fn a_forgotten_counter_begins_above_where_it_ended() {
    let world = World::new();
    let store = world.open();
    let token = granted(run(store.acquire(ask("a", owner(1, 1)))));
    let freed = run(store.release(lease("a", owner(1, 1)), OnRelease::Free));
    assert_eq!(freed.expect("an answer"), Released::Freed);

    pass_idle_time(&world, &store);
    assert_eq!(run(store.inspect(key("a"))).expect("an answer"), Snapshot::default());

    // Even if the wall clock, from which a new counter begins, was set back.
    world.clock.set_wall(1);
    let next = granted(run(store.acquire(ask("a", owner(1, 2)))));
    assert!(next > token, "{next} after {token}");
}

/// The last lock to be forgotten need not have the highest counter.
#[test]
fn a_new_counter_begins_above_the_highest_that_was_forgotten() {
    let world = World::new();
    let store = world.open();
    granted(run(store.acquire(ask("b", owner(1, 1)))));
    world.clock.advance(Duration::from_secs(1));
    let highest = granted(run(store.acquire(ask("a", owner(1, 1)))));

    pass_idle_time(&world, &store);
    world.clock.set_wall(1);
    let next = granted(run(store.acquire(ask("c", owner(1, 2)))));
    assert!(next > highest, "{next} after {highest}");
}

/// A lock without fencing tokens has no counter until a quorum raises it.
#[test]
fn a_counter_that_a_quorum_raises_never_begins_below_one_that_was_forgotten() {
    let world = World::new();
    let store = world.open();
    let highest = granted(run(store.acquire(ask("a", owner(1, 1)))));

    pass_idle_time(&world, &store);
    world.clock.set_wall(1);
    let unfenced = Ask { reserve: 0, ..ask("b", owner(1, 2)) };
    let answer = run(store.acquire(unfenced)).expect("an answer");
    assert!(matches!(answer, Acquired::Granted { fencing: None }), "{answer:?}");
    let at_least = FencingToken::new(5);
    let renewal = Renewal { at_least, ..Renewal::new(lease("b", owner(1, 2)), ttl(10_000)) };
    let renewed = run(store.renew(renewal)).expect("an answer");
    assert!(matches!(renewed, Renewed::Renewed { .. }), "{renewed:?}");
    let freed = run(store.release(lease("b", owner(1, 2)), OnRelease::Free));
    assert_eq!(freed.expect("an answer"), Released::Freed);
    let next = granted(run(store.acquire(ask("b", owner(2, 1)))));
    assert!(next > highest, "{next} after {highest}");
}

#[test]
fn keys_in_use_are_not_forgotten() {
    let world = World::new();
    let store = world.open();
    let record = ClientRecord {
        id: client(1),
        host: "host".to_owned(),
        pid: 7,
        user: "user".to_owned(),
        command: "command".to_owned(),
        ttl: None,
    };
    let note = Note { client: Some(Arc::new(record.clone())), why: Some("because".into()) };
    let day = Ttl::MAX;
    let held = Ask { ttl: day, note: Some(note.clone()), ..ask("held", owner(1, 1)) };
    let silent = Note {
        client: Some(Arc::new(ClientRecord { id: client(2), ..record.clone() })),
        why: None,
    };
    granted(run(store.acquire(held)));
    granted(run(store.acquire(Ask { note: Some(silent), ..ask("idle", owner(2, 1)) })));

    pass_idle_time(&world, &store);
    let seen = run(store.inspect(key("held"))).expect("an answer");
    assert_eq!(seen.holders[0].client, Some(record));
    assert_eq!(seen.holders[0].why.as_deref(), Some("because"));
    let raw = rusqlite::Connection::open(world.path()).expect("it opens");
    let count = |sql| raw.query_row(sql, [], |row| row.get::<_, i64>(0)).expect("a number");
    assert_eq!(count("SELECT count(*) FROM clients"), 1);
    assert_eq!(count("SELECT count(*) FROM locks WHERE key = 'idle'"), 0);
}

/// The row of their lock names no owner token.
#[test]
fn readers_and_owners_of_permits_are_not_forgotten() {
    let world = World::new();
    let store = world.open();
    let permit = Claim::Permits { want: 1, of: 1 };
    let claims = [("read", Claim::Shared, Claim::Exclusive), ("permit", permit, permit)];
    let shared = |name, claim, number| {
        let asked = ask(name, owner(number, 1));
        let note = Some(Note::new(Some(Arc::new(ClientRecord::new(client(number)))), None));
        run(store.acquire(Ask { claim, reserve: 0, ttl: Ttl::MAX, note, ..asked }))
    };
    for (name, claim, _) in claims {
        let answer = shared(name, claim, 1);
        assert!(matches!(answer, Ok(Acquired::Granted { .. })), "{name}: {answer:?}");
    }

    pass_idle_time(&world, &store);
    for (name, claim, other) in claims {
        let seen = run(store.inspect(key(name))).expect("an answer");
        assert_eq!(seen.holders[0].client, Some(ClientRecord::new(client(1))), "{name}");
        is_taken(shared(name, other, 2));
        let lease = LeaseId { claim, ..lease(name, owner(1, 1)) };
        let answer = run(store.renew(Renewal::new(lease, Ttl::MAX)));
        assert!(matches!(answer, Ok(Renewed::Renewed { .. })), "{name}: {answer:?}");
    }
}

/// The place may live for longer than its client is silent.
#[test]
fn the_record_of_who_waits_is_not_forgotten() {
    let world = World::new();
    let store = world.open();
    let record = ClientRecord {
        id: client(2),
        host: "host".to_owned(),
        pid: 7,
        user: "user".to_owned(),
        command: "command".to_owned(),
        ttl: None,
    };
    granted(run(store.acquire(Ask { ttl: Ttl::MAX, ..ask("a", owner(1, 1)) })));
    let (waiter_ttl, handed_ttl, inbox) = (Ttl::MAX, ttl(3_000), client(2));
    let line = Line::Join { waiter_ttl, handed_ttl, ask_no: 1, inbox };
    let note = Some(Note { client: Some(Arc::new(record.clone())), why: None });
    is_taken(run(store.acquire(Ask { line, note, ..ask("a", owner(2, 1)) })));

    pass_idle_time(&world, &store);
    let seen = run(store.inspect(key("a"))).expect("an answer");
    assert_eq!(seen.waiters[0].client, Some(record));
}

#[test]
fn forgetting_goes_on_where_it_stopped_and_comes_to_an_end() {
    let world = World::new();
    let store = world.open();
    // The first run finds nothing. It has ended when the second of these is answered.
    run(store.inspect(key("x"))).expect("an answer");
    run(store.inspect(key("x"))).expect("an answer");
    let answers: Vec<_> =
        (0..2_500).map(|n| store.acquire(ask(&format!("k{n}"), owner(1, 1)))).collect();
    for answer in answers {
        granted(run(answer));
    }
    world.clock.advance(FENCE_IDLE + Duration::from_secs(10));
    let raw = rusqlite::Connection::open(world.path()).expect("it opens");
    let left = || -> i64 {
        // The requests that follow run only after the purge that this causes.
        run(store.inspect(key("x"))).expect("an answer");
        run(store.inspect(key("x"))).expect("an answer");
        raw.query_row("SELECT count(*) FROM locks", [], |row| row.get(0)).expect("a number")
    };
    let mut counts = Vec::new();
    for _ in 0..4 {
        counts.push(left());
        world.clock.advance(Duration::from_secs(1));
    }
    assert_eq!(counts, [1_500, 500, 0, 0]);
}

#[test]
fn many_clients_are_forgotten_a_few_at_a_time() {
    let world = World::new();
    let store = world.open();
    run(store.inspect(key("x"))).expect("an answer");
    run(store.inspect(key("x"))).expect("an answer");
    run_sql(
        &store,
        "WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 2500)
         INSERT INTO clients SELECT printf('%05d', n), '', 0, '', '', 0 FROM n",
    );
    world.clock.advance(FENCE_IDLE + Duration::from_secs(61));
    let raw = rusqlite::Connection::open(world.path()).expect("it opens");
    let mut counts: Vec<i64> = Vec::new();
    for _ in 0..4 {
        run(store.inspect(key("x"))).expect("an answer");
        run(store.inspect(key("x"))).expect("an answer");
        let count = raw.query_row("SELECT count(*) FROM clients", [], |row| row.get(0));
        counts.push(count.expect("a number"));
        world.clock.advance(Duration::from_secs(1));
    }
    assert_eq!(counts, [1_500, 500, 0, 0]);
}

/// Waits until idle locks are forgotten.
fn pass_idle_time(world: &World, store: &SqliteStore) {
    world.clock.advance(FENCE_IDLE + Duration::from_secs(11));
    // The store purges between two requests.
    run(store.inspect(key("x"))).expect("an answer");
    run(store.inspect(key("x"))).expect("an answer");
}
