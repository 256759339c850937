//! The suite on the clocks of this machine.

use std::future::ready;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use leasehold::host::{Host as _, SystemHost};
use leasehold::store::{AnyStore, MemoryStore};
use leasehold_conformance::{Opener, Outcome, cases, ms, run_in_real_time};

use crate::lies::{Lie, case, opener};

fn memory() -> Opener {
    let store = MemoryStore::new(SystemHost::shared());
    Box::new(move || Box::pin(ready(AnyStore::new(store.clone()))))
}

/// Runs all cases that end soon. `LEASEHOLD_CONFORMANCE_ALL=1` runs the others too.
#[test]
fn cases_hold_on_real_time_or_say_what_only_virtual_time_can_show() {
    let all = std::env::var_os("LEASEHOLD_CONFORMANCE_ALL").is_some();
    let quick = [
        "an_expired_lease_is_free",
        "a_lease_lives_for_all_of_its_ttl",
        "a_step_of_the_time_of_day_ends_no_lease_and_keeps_none",
        "a_hand_over_is_told_to_the_new_owner_alone",
        "exactly_one_of_many_asks_at_once_is_granted",
        "tokens_rise_after_a_long_time_without_use",
    ];
    let cases = cases().into_iter().filter(|case| all || quick.contains(&case.name));
    let ran: Vec<_> = thread::scope(|scope| {
        let running =
            cases.map(|case| scope.spawn(move || (case, run_in_real_time(&case, memory))));
        let running: Vec<_> = running.collect();
        running.into_iter().map(|run| run.join().expect("no panic leaves a case")).collect()
    });
    let mut cut = Vec::new();
    for (case, ran) in ran {
        match ran {
            Ok(Outcome::Holds) => {}
            Ok(Outcome::OnVirtualTimeOnly(why)) => cut.push((case.name, why)),
            other => panic!("{}: {other:?}", case.name),
        }
    }
    println!("{cut:#?}");
    let names: Vec<_> = cut.iter().map(|(name, _)| *name).collect();
    if all {
        assert!(names.len() <= 8, "{names:?}");
    } else {
        let expected = [quick[2], quick[5]];
        assert!(expected.iter().all(|name| names.contains(name)) && names.len() == 2, "{names:?}");
    }
}

/// A real server is slow, so each run on it is late. This store sometimes grants a key twice.
#[test]
fn two_holders_or_a_token_that_does_not_rise_are_believed_in_a_late_run() {
    for (lie, name) in [
        (Lie::GrantsAHeldKey, "exactly_one_of_many_asks_at_once_is_granted"),
        (Lie::GrantsAHeldKey, "the_key_is_never_held_twice_and_nobody_is_forgotten"),
        (Lie::RepeatsTokens, "tokens_rise_from_release_to_grant"),
    ] {
        let lies = AtomicBool::new(true);
        let ran = run_in_real_time(&case(name), || {
            let lie = if lies.swap(false, Ordering::Relaxed) { lie } else { Lie::None };
            let open = opener(lie, SystemHost::shared());
            Box::new(move || {
                let (slow, opening) = (SystemHost, open());
                Box::pin(async move {
                    slow.sleep_until(slow.now() + ms(30)).await;
                    opening.await
                })
            })
        });
        let failure = ran.expect_err("one run in many is wrong").to_string();
        assert!(failure.contains("run 1,"), "{failure}");
    }
}
