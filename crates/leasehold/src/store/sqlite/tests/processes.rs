//! Two handles of one file. They share nothing else, like two processes.

use super::*;
use crate::store::sqlite::waits::LOOK_EVERY_MIN;
use crate::store::{Browse, Evicted};

#[test]
fn a_waiter_in_another_process_is_told_that_it_was_handed_the_key() {
    let world = World::new();
    let (here, there) = (world.open(), world.open());
    let (_sink, hints) = watch(&there, &client(2));
    let token = granted(run(here.acquire(ask("a", owner(1, 1)))));
    is_taken(run(there.acquire(join("a", owner(2, 1), 1))));
    is_taken(run(there.acquire(join("a", owner(2, 1), 2))));

    let released = run(here.release(lease("a", owner(1, 1)), OnRelease::Free));
    assert_eq!(released.expect("an answer"), Released::HandedOver);
    world.clock.advance(LOOK_EVERY_MIN);
    let hint = hints.recv_timeout(EVENTUALLY).expect("a hint");
    let Hint::Granted { key: named, owner: to, fencing, ask_no } = hint else {
        panic!("{hint:?}");
    };
    assert_eq!((named, to, ask_no), (key("a"), owner(2, 1), 2));
    assert_eq!(fencing.expect("a token").first.get(), token + 1);
    assert_eq!(granted(run(there.acquire(join("a", owner(2, 1), 3)))), token + 1);
}

#[test]
fn a_hand_over_after_many_looks_that_saw_nothing_is_noticed() {
    let world = World::new();
    let (here, there) = (world.open(), world.open());
    let (_sink, hints) = watch(&there, &client(2));
    granted(run(here.acquire(ask("a", owner(1, 1)))));
    is_taken(run(there.acquire(join("a", owner(2, 1), 1))));
    for _ in 0..5 {
        world.clock.advance(LOOK_EVERY_MIN);
        // The store checks the file after the first answer, so the second answer comes after that
        // check.
        run(there.inspect(key("a"))).expect("an answer");
        run(there.inspect(key("a"))).expect("an answer");
        assert_eq!(hints.try_recv().ok(), None);
    }
    run(here.release(lease("a", owner(1, 1)), OnRelease::Free)).expect("an answer");
    world.clock.advance(LOOK_EVERY_MIN);
    let hint = hints.recv_timeout(EVENTUALLY).expect("a hint");
    assert!(matches!(hint, Hint::Granted { .. }), "{hint:?}");
}

#[test]
fn a_new_waiter_beside_an_old_one_is_told_as_soon_as_if_it_were_alone() {
    let world = World::new();
    let (here, there) = (world.open(), world.open());
    let (_sink, hints) = watch(&there, &client(2));
    for name in ["a", "b"] {
        granted(run(here.acquire(ask(name, owner(1, 1)))));
    }
    is_taken(run(there.acquire(join("a", owner(2, 1), 1))));
    world.clock.advance(Duration::from_secs(1));
    // Answered after the check that schedules the next one late.
    run(there.inspect(key("a"))).expect("an answer");
    run(there.inspect(key("a"))).expect("an answer");
    is_taken(run(there.acquire(join("b", owner(2, 2), 1))));
    run(here.release(lease("b", owner(1, 1)), OnRelease::Free)).expect("an answer");
    world.clock.advance(LOOK_EVERY_MIN);
    let hint = hints.recv_timeout(EVENTUALLY).expect("a hint");
    assert!(matches!(hint, Hint::Granted { .. }), "{hint:?}");
}

#[test]
fn a_watcher_in_another_process_is_told_that_the_key_may_be_free() {
    let world = World::new();
    let (here, there) = (world.open(), world.open());
    let (_sink, hints) = watch(&there, &client(2));
    granted(run(here.acquire(ask("a", owner(1, 1)))));
    let line = Line::Watch { waiter_ttl: ttl(3_000), ask_no: 1, inbox: client(2) };
    is_taken(run(there.acquire(Ask { line, ..ask("a", owner(2, 1)) })));
    let released = run(here.release(lease("a", owner(1, 1)), OnRelease::Free));
    assert_eq!(released.expect("an answer"), Released::Freed);
    world.clock.advance(LOOK_EVERY_MIN);
    let hint = hints.recv_timeout(EVENTUALLY).expect("a hint");
    assert_eq!(hint, Hint::MaybeFree { key: key("a") });
}

#[test]
fn a_renewal_by_the_holder_wakes_nobody_in_another_process() {
    let world = World::new();
    let (here, there) = (world.open(), world.open());
    let (_sink, hints) = watch(&there, &client(2));
    granted(run(here.acquire(ask("a", owner(1, 1)))));
    is_taken(run(there.acquire(join("a", owner(2, 1), 1))));
    granted(run(here.acquire(ask("a", owner(1, 1)))));
    world.clock.advance(LOOK_EVERY_MIN);
    // Answered after the check that is due now.
    run(there.inspect(key("a"))).expect("an answer");
    run(there.inspect(key("a"))).expect("an answer");
    assert_eq!(hints.try_recv().ok(), None);
}

#[test]
fn within_one_process_hints_need_no_look() {
    let world = World::new();
    let store = world.open();
    let (_holder_sink, holder_hints) = watch(&store, &client(1));
    let (_sink, hints) = watch(&store, &client(2));
    granted(run(store.acquire(ask("a", owner(1, 1)))));
    is_taken(run(store.acquire(join("a", owner(2, 1), 1))));
    let hint = holder_hints.recv_timeout(EVENTUALLY).expect("a hint");
    assert_eq!(hint, Hint::Wanted { key: key("a") });
    run(store.release(lease("a", owner(1, 1)), OnRelease::Free)).expect("an answer");
    let hint = hints.recv_timeout(EVENTUALLY).expect("a hint");
    assert!(matches!(hint, Hint::Granted { ask_no: 1, .. }), "{hint:?}");
}

#[test]
fn an_evicted_lease_goes_to_the_waiter_in_another_process() {
    let world = World::new();
    let (here, there) = (world.open(), world.open());
    let (_sink, hints) = watch(&there, &client(2));
    let token = granted(run(here.acquire(ask("a", owner(1, 1)))));
    is_taken(run(there.acquire(join("a", owner(2, 1), 1))));
    let seen = owner(1, 1).as_str().as_bytes().to_vec();
    let wrong = run(there.evict(key("a"), b"another".to_vec(), "stuck".to_owned()));
    assert_eq!(wrong.expect("an answer"), Evicted::Changed);
    let evicted = run(here.evict(key("a"), seen, "stuck".to_owned()));
    assert_eq!(evicted.expect("an answer"), Evicted::Evicted);
    world.clock.advance(LOOK_EVERY_MIN);
    let hint = hints.recv_timeout(EVENTUALLY).expect("a hint");
    let Hint::Granted { fencing, .. } = hint else { panic!("{hint:?}") };
    assert_eq!(fencing.expect("a token").first.get(), token + 2, "evicting takes a number too");
}

#[test]
fn contending_processes_never_share_a_lease_or_a_fencing_token() {
    let world = World::new();
    let inside = AtomicU64::new(0);
    let contend = |number: u8| -> Vec<u64> {
        let store = world.open();
        let mut tokens = Vec::new();
        for turn in (0..64).cycle() {
            let owner = owner(number, turn);
            if let Ok(Acquired::Granted { fencing }) = run(store.acquire(ask("a", owner.clone()))) {
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "one holder at a time");
                tokens.push(fencing.expect("a token").first.get());
                inside.fetch_sub(1, Ordering::SeqCst);
                let freed = run(store.release(lease("a", owner), OnRelease::Free));
                assert_eq!(freed.expect("an answer"), Released::Freed);
            }
            if tokens.len() == 100 {
                break;
            }
        }
        tokens
    };
    let mut tokens: Vec<u64> = std::thread::scope(|scope| {
        let threads: Vec<_> = (1..=3).map(|n| scope.spawn(move || contend(n))).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("it ends")).collect()
    });
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), 300);
}

/// The head of the line gets it, although it does not know yet that the key is free.
#[test]
fn nobody_passes_the_line_of_a_lease_that_ended_by_itself() {
    let world = World::new();
    let (store, other) = (world.open(), world.open());
    granted(run(store.acquire(ask("a", owner(1, 1)))));
    world.clock.advance(Duration::from_secs(8));
    is_taken(run(store.acquire(join("a", owner(2, 1), 1))));
    world.clock.advance(Duration::from_millis(2_500));
    is_taken(run(other.acquire(ask("a", owner(3, 1)))));
    granted(run(store.acquire(join("a", owner(2, 1), 2))));
}
