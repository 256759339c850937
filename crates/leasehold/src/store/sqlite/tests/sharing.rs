//! Holders that share a key: in several processes, over a restart of the machine, and in the rows
//! of the file.

use super::*;
use crate::core::line::PLACES_MAX;
use crate::store::PermitsTaken;
use crate::store::sqlite::waits::LOOK_EVERY_MIN;

const READ: Claim = Claim::Shared;

const fn permits(want: u32, of: u32) -> Claim {
    Claim::Permits { want, of }
}

fn shared(name: &str, owner: OwnerToken, claim: Claim) -> Ask {
    Ask { claim, reserve: 0, ..ask(name, owner) }
}

#[track_caller]
fn is_shared(answer: Result<Acquired, Error>) {
    assert!(matches!(answer, Ok(Acquired::Granted { .. })), "{answer:?}");
}

#[test]
fn readers_of_several_processes_keep_a_writer_of_another_one_out() {
    let world = World::new();
    let stores = [world.open(), world.open(), world.open()];
    is_shared(run(stores[0].acquire(shared("a", owner(1, 1), READ))));
    is_shared(run(stores[1].acquire(shared("a", owner(2, 1), READ))));
    is_taken(run(stores[2].acquire(ask("a", owner(3, 1)))));
    for (number, store) in (1..).zip(&stores[..2]) {
        is_taken(run(stores[2].acquire(ask("a", owner(3, 1)))));
        let left = LeaseId { claim: READ, ..lease("a", owner(number, 1)) };
        let released = run(store.release(left, OnRelease::Free)).expect("an answer");
        assert_eq!(released, Released::Freed);
    }
    granted(run(stores[2].acquire(ask("a", owner(3, 1)))));
    is_taken(run(stores[0].acquire(shared("a", owner(1, 2), READ))));
}

/// The row of an owner whose lease ended would be subtracted from what later owners take.
#[test]
fn a_forgotten_semaphore_gives_no_permit_twice() {
    let world = World::new();
    let store = world.open();
    let long = shared("a", owner(1, 1), permits(2, 2));
    is_shared(run(store.acquire(Ask { ttl: ttl(1_200_000), ..long })));
    // Nobody has written the lock for longer than the ttl, and the lease ended a second ago.
    world.clock.advance(Duration::from_secs(1_201));
    for _ in 0..2 {
        run(store.inspect(key("x"))).expect("the purge runs after a request");
    }
    is_shared(run(store.acquire(shared("a", owner(2, 1), permits(2, 2)))));
    is_taken(run(store.acquire(shared("a", owner(3, 1), permits(1, 2)))));
}

/// Earlier versions forgot a lock without the rows of its owners.
#[test]
fn permits_that_an_earlier_version_left_are_not_given_twice() {
    let world = World::new();
    let store = world.open();
    is_shared(run(store.acquire(shared("a", owner(1, 1), permits(2, 2)))));
    // Otherwise the purge may remove the rows first.
    run_sql(&store, "UPDATE meta SET purge_due = 9000000000000000000");
    run_sql(&store, "DELETE FROM locks");
    world.clock.advance(Duration::from_secs(11));
    granted(run(store.acquire(ask("a", owner(2, 1)))));
    let freed = run(store.release(lease("a", owner(2, 1)), OnRelease::Free));
    assert_eq!(freed.expect("an answer"), Released::Freed);
    is_shared(run(store.acquire(shared("a", owner(2, 2), permits(2, 2)))));
    is_taken(run(store.acquire(shared("a", owner(3, 1), permits(1, 2)))));
}

/// Both readers that got the key are told, and no reader behind the next writer.
#[test]
fn readers_in_another_process_are_told_that_they_share_the_key() {
    let world = World::new();
    let (here, there) = (world.open(), world.open());
    let (_sink, hints) = watch(&there, &client(2));
    granted(run(here.acquire(ask("a", owner(1, 1)))));
    for number in 1..3 {
        let place = join("a", owner(2, number), 1);
        is_taken(run(there.acquire(Ask { claim: READ, reserve: 0, ..place })));
    }
    is_taken(run(here.acquire(join("a", owner(1, 2), 1))));
    is_taken(run(there.acquire(Ask { claim: READ, ..join("a", owner(2, 3), 1) })));
    let released = run(here.release(lease("a", owner(1, 1)), OnRelease::Free));
    assert_eq!(released.expect("an answer"), Released::HandedOver);
    world.clock.advance(LOOK_EVERY_MIN);
    for number in 1..3 {
        let hint = hints.recv_timeout(EVENTUALLY).expect("a hint");
        let to = owner(2, number);
        assert_eq!(hint, Hint::Granted { key: key("a"), owner: to, fencing: None, ask_no: 1 });
    }
    assert_eq!(hints.try_recv().ok(), None);
}

#[test]
fn the_permits_of_holders_that_died_are_free_when_their_leases_end() {
    let world = World::new();
    let store = world.open();
    let mut holders = (1..4).map(|number| shared("a", owner(number, 1), permits(2, 6)));
    let short = Ask { ttl: ttl(1_000), ..holders.next().expect("three") };
    is_shared(run(store.acquire(short)));
    for ask in holders {
        is_shared(run(store.acquire(ask)));
    }
    is_taken(run(store.acquire(shared("a", owner(4, 1), permits(1, 6)))));
    world.clock.advance(Duration::from_secs(1));
    is_taken(run(store.acquire(shared("a", owner(4, 1), permits(3, 6)))));
    let seen = run(store.inspect(key("a"))).expect("an answer");
    assert_eq!((seen.holders.len(), seen.permits), (2, Some(PermitsTaken::new(4, 6))));
    is_shared(run(store.acquire(shared("a", owner(4, 2), permits(2, 6)))));
    is_taken(run(store.acquire(shared("a", owner(4, 3), permits(1, 6)))));
}

/// The step that finds the line full has removed leases that ended.
#[test]
fn a_full_line_forgets_no_free_permit() {
    let world = World::new();
    let store = world.open();
    let of = permits(1, 2);
    is_shared(run(store.acquire(Ask { ttl: ttl(1_000), ..shared("a", owner(1, 1), of) })));
    is_shared(run(store.acquire(Ask { ttl: Ttl::MAX, ..shared("a", owner(2, 1), of) })));
    let line = |owner: OwnerToken| Ask { claim: permits(2, 2), ..join("a", owner, 1) };
    let Line::Join { handed_ttl, ask_no, inbox, .. } = line(owner(3, 1)).line else { panic!() };
    let place = Line::Join { waiter_ttl: Ttl::MAX, handed_ttl, ask_no, inbox };
    is_taken(run(store.acquire(Ask { line: place, ..line(owner(3, 1)) })));
    let more = format!(
        "WITH RECURSIVE counted(number) AS
            (SELECT 2 UNION ALL SELECT number + 1 FROM counted WHERE number < {PLACES_MAX})
        INSERT INTO places SELECT key, number, 'owner' || number, stance, expires, handed_ttl,
            reserve, ask_no, inbox, why, since_wall, claim FROM counted, places WHERE seq = 1"
    );
    run_sql(&store, more.leak());
    world.clock.advance(Duration::from_secs(1));
    refused(run(store.acquire(line(owner(4, 1)))), ErrorKind::Unavailable, "line");
    run_sql(&store, "DELETE FROM places");
    is_shared(run(store.acquire(shared("a", owner(5, 1), of))));
    is_taken(run(store.acquire(shared("a", owner(6, 1), of))));
}

#[test]
fn shares_of_an_earlier_boot_run_out_on_our_own_clock() {
    let world = World::new();
    let before = world.open_in_boot("first");
    is_shared(run(before.acquire(shared("a", owner(1, 1), permits(2, 3)))));
    world.clock.advance(Duration::from_secs(4));
    is_shared(run(before.acquire(shared("a", owner(2, 1), permits(1, 3)))));
    drop(before);

    let world = world.restart(Duration::from_secs(5), TODAY + 7_200_000_000);
    let after = world.open_in_boot("second");
    let left = |store: &SqliteStore| -> Vec<_> {
        let seen = run(store.inspect(key("a"))).expect("an answer");
        seen.holders.iter().map(|holder| holder.ttl_left.expect("it ends").as_secs()).collect()
    };
    assert_eq!(left(&after), [6, 10]);
    is_taken(run(after.acquire(shared("a", owner(3, 1), permits(1, 3)))));
    world.clock.advance(Duration::from_secs(6));
    is_shared(run(after.acquire(shared("a", owner(3, 1), permits(2, 3)))));
    is_taken(run(after.acquire(shared("a", owner(4, 1), permits(1, 3)))));
}

#[test]
fn a_lease_that_shares_a_key_is_renewed_and_released_by_its_token_alone() {
    let world = World::new();
    let store = world.open();
    is_shared(run(store.acquire(shared("a", owner(1, 1), READ))));
    // A handle for another process does not know the claim.
    let renewal = crate::store::Renewal::new(lease("a", owner(1, 1)), ttl(30_000));
    let renewed = run(store.renew(renewal)).expect("an answer");
    assert!(matches!(renewed, crate::store::Renewed::Renewed { .. }), "{renewed:?}");
    world.clock.advance(Duration::from_secs(29));
    is_taken(run(store.acquire(ask("a", owner(2, 1)))));
    let released = run(store.release(lease("a", owner(1, 1)), OnRelease::Free));
    assert_eq!(released.expect("an answer"), Released::Freed);
    granted(run(store.acquire(ask("a", owner(2, 1)))));
}
