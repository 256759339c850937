//! A limit on how often work starts: `RateLimit`.

use std::sync::{Arc, Mutex};

use futures_util::FutureExt;
use leasehold::core::Moment;
use leasehold::host::Host;
use leasehold::store::Evicted;
use leasehold::{Client, ErrorKind, RateLimit};
use leasehold_testkit::cut_after;
use leasehold_testkit::faults::{Fault, Request};

use super::cancelling::at_every_await;
use super::{Scene, ms, play, play_on};
use crate::stores;

/// Longer than the ttl of the clients, which is 3 s.
const PER: std::time::Duration = ms(10_000);

fn calls(client: &Client, starts: u32) -> RateLimit {
    client.rate_limit("calls", starts, PER)
}

async fn starts(client: &Client, starts: u32) -> bool {
    calls(client, starts).try_start().await.expect("the store answers")
}

/// Asserts that nobody may start until `at`, and that `client` may from then on.
async fn may_start_at(scene: &Scene, client: &Client, at: Moment) {
    let before = at.minus(ms(20));
    while scene.host.now() < before {
        scene.pass(before.since(scene.host.now()).min(ms(2_000))).await;
        assert!(!starts(client, 1).await, "too early by {:?}", at.since(scene.host.now()));
    }
    scene.pass((at + ms(60)).since(scene.host.now())).await;
    assert!(starts(client, 1).await, "the period is over");
}

/// This holds for any number of waiters, of any client.
#[test]
fn no_span_of_the_period_has_more_starts_than_are_allowed() {
    play(0..3, async |scene| {
        let clients = [scene.client().await, scene.calm_client().await];
        scene.faults.delay_up_to(ms(5));
        let moments = Arc::<Mutex<Vec<Moment>>>::default();
        let began = scene.host.now();
        let tasks: Vec<_> = (0..6)
            .map(|number: usize| {
                let limit = calls(&clients[number % 2], 3);
                let (moments, host) = (Arc::clone(&moments), scene.host.clone());
                scene.host.task(async move {
                    for _ in 0..2 {
                        limit.start().await.expect("in turn");
                        moments.lock().expect("no panic").push(host.now());
                    }
                })
            })
            .collect();
        for task in tasks {
            scene.host.within(ms(120_000), task).await.expect("everybody starts");
        }
        let moments = moments.lock().expect("no panic");
        for pair in moments.windows(4) {
            // A start is granted before it returns, earlier by one delayed answer at most.
            let span = pair[3].since(pair[0]) + ms(20);
            assert!(span >= PER, "four starts in {span:?}");
        }
        let took = moments.last().expect("some").since(began);
        assert!(took < PER * 3 + ms(4_000), "12 starts, three per period, took {took:?}");
    });
}

#[test]
fn a_start_counts_for_its_period_after_its_process_has_ended_and_no_longer() {
    play(0..3, async |scene| {
        let (ours, other) = (scene.client().await, scene.calm_client().await);
        assert!(starts(&ours, 1).await);
        let began = scene.host.now();
        assert!(!starts(&ours, 1).await, "the client that started is no exception");
        assert_eq!(ours.shutdown(ms(1_000)).await.not_released, 0);
        may_start_at(scene, &other, began + PER).await;
    });
}

#[test]
fn a_start_counts_for_its_period_if_leases_are_longer_than_that() {
    play(0..3, async |scene| {
        for (name, client) in [
            ("calls", scene.client().await),
            ("of a client with a lock delay", scene.client_with_delay(ms(5_000)).await),
        ] {
            let limit = client.rate_limit(name, 2, ms(1_000));
            for round in 0..3 {
                for _ in 0..2 {
                    assert!(limit.try_start().await.expect("it answers"), "{name}, round {round}");
                }
                assert!(!limit.try_start().await.expect("it answers"), "{name}, round {round}");
                scene.pass(ms(1_060)).await;
            }
        }
    });
}

#[test]
fn a_start_that_waits_comes_when_the_period_is_over() {
    play(0..3, async |scene| {
        let (ours, other) = (scene.client().await, scene.calm_client().await);
        calls(&ours, 1).start().await.expect("the first");
        let began = scene.host.now();
        let refused = calls(&ours, 1).start_timeout(ms(500)).await.expect_err("too early");
        assert_eq!(refused.kind(), ErrorKind::WaitElapsed);
        let limit = calls(&other, 1);
        let waits = scene.host.task(async move { limit.start().await });
        scene.pass((began + PER).since(scene.host.now()).saturating_sub(ms(20))).await;
        assert!(!waits.is_finished());
        scene.pass(ms(1_100)).await;
        assert!(waits.is_finished(), "it looks when the permit is free");
    });
}

#[test]
fn a_start_whose_request_or_answer_is_lost_counts_once() {
    for fault in [Fault::LoseRequest, Fault::LoseReply, Fault::Refuse] {
        play(0..3, async |scene| {
            let (ours, other) = (scene.client().await, scene.calm_client().await);
            scene.faults.next(Request::Renew, fault);
            if fault != Fault::Refuse {
                scene.faults.next(Request::Acquire, fault);
            }
            assert!(starts(&ours, 2).await);
            assert!(starts(&other, 2).await, "one permit is left");
            assert!(!starts(&other, 2).await, "both are taken");
            scene.pass(PER.saturating_sub(ms(1_500))).await;
            assert!(!starts(&other, 2).await, "and stay taken");
        });
    }
}

#[test]
fn a_start_that_the_store_does_not_confirm_must_not_happen() {
    play(0..3, async |scene| {
        let (ours, other) = (scene.client().await, scene.calm_client().await);
        scene.faults.from_now_on(Request::Renew, Fault::LoseRequest);
        let failed = calls(&ours, 1).try_start().await.expect_err("no answer");
        assert_eq!((failed.kind(), failed.name()), (ErrorKind::Unknown, Some("calls")));
        assert!(failed.to_string().contains("do not start"), "{failed}");
        scene.faults.heal();
        scene.pass(PER).await;
        assert!(starts(&other, 1).await, "nothing stays taken for ever");
    });
}

#[test]
fn a_start_that_is_denied_says_so_with_its_cause() {
    play(0..2, async |scene| {
        let ours = scene.client().await;
        scene.faults.next(Request::Renew, Fault::Deny);
        let denied = calls(&ours, 1).start().await.expect_err("denied");
        assert_eq!((denied.kind(), denied.name()), (ErrorKind::Denied, Some("calls")));
        let told = format!("{denied:?}");
        assert!(told.contains("do not start") && told.contains("denied to order"), "{told}");
    });
}

/// If a start came this late, the next start might follow immediately.
#[test]
fn a_start_that_is_not_confirmed_in_time_ends_then_and_must_not_happen() {
    for fault in [Fault::LoseReply, Fault::Late(ms(2_600))] {
        play(0..3, async |scene| {
            let (ours, other) = (scene.client().await, scene.calm_client().await);
            let (limit, next) = (calls(&ours, 1), calls(&other, 1));
            let began = scene.host.now();
            scene.faults.from_now_on(Request::Renew, fault);
            let late = scene.host.task(async move { limit.start().await });
            // The limit is a quarter of the period.
            let failed = scene.host.within(ms(2_550), late).await.expect("it ends");
            let failed = failed.expect_err("too late");
            assert_eq!((failed.kind(), failed.name()), (ErrorKind::Unknown, Some("calls")));
            let failed = failed.to_string();
            assert!(failed.contains("in time") && failed.contains("do not start"), "{failed}");
            scene.faults.heal();
            scene.pass((began + ms(10_500)).since(scene.host.now())).await;
            assert!(next.try_start().await.expect("an answer"), "the period of the grant is over");
        });
    }
}

#[test]
fn a_start_that_does_not_wait_ends_in_time_though_the_lease_is_long() {
    play(0..3, async |scene| {
        let client = scene.client_of(ms(10_000)).await;
        scene.faults.from_now_on(Request::Renew, Fault::LoseRequest);
        let began = scene.host.now();
        let limit = client.rate_limit("calls", 1, ms(60_000));
        let failed = limit.try_start().await.expect_err("not confirmed");
        assert_eq!(failed.kind(), ErrorKind::Unknown, "{failed}");
        assert!(scene.host.now().since(began) <= ms(3_050), "{failed}");
        scene.faults.heal();
    });
}

/// The answer was in time, but the caller learns of it too late.
#[test]
fn a_start_of_a_task_that_did_not_run_for_long_must_not_happen() {
    play(0..3, async |scene| {
        let limit = calls(&scene.client().await, 1);
        scene.faults.next(Request::Renew, Fault::Late(ms(100)));
        let mut late = Box::pin(limit.start());
        while scene.faults.count(Request::Renew) == 0 {
            assert!(late.as_mut().now_or_never().is_none(), "it is not confirmed yet");
            scene.host.settle().await;
        }
        scene.pass(ms(2_600)).await;
        let failed = late.await.expect_err("too late");
        assert_eq!(failed.kind(), ErrorKind::Unknown);
        assert!(failed.to_string().contains("do not start"), "{failed}");
    });
}

/// `Lost` would say that a retry cannot help, and that work must stop.
#[test]
fn a_start_whose_permit_was_taken_away_may_be_tried_again() {
    play(0..3, async |scene| {
        let (ours, other) = (scene.client().await, scene.calm_client().await);
        let limit = ours.rate_limit("calls", 1, ms(60_000));
        scene.faults.next(Request::Renew, Fault::LoseRequest);
        let again = limit.clone();
        let starting = scene.host.task(async move { limit.start().await });
        scene.pass(ms(100)).await;
        let seen = other.inspect("calls").await.expect("asked").holders[0].token.clone();
        let ended = other.evict("calls", &seen, "a test").await.expect("asked");
        assert_eq!(ended, Evicted::Evicted);
        let failed = scene.host.within(ms(2_000), starting).await.expect("the store answers");
        let failed = failed.expect_err("it was taken away");
        assert_eq!((failed.kind(), failed.is_retryable()), (ErrorKind::Unknown, true), "{failed}");
        assert!(again.try_start().await.expect("the store answers"), "and that helps");
    });
}

/// Afterwards, the same client may start at once, or one start counts. No start counts for longer
/// than the period.
#[test]
fn a_start_that_is_dropped_at_any_await_counts_for_one_period_at_most() {
    at_every_await(0..2, async |scene, polls| {
        let (ours, other) = (scene.client().await, scene.calm_client().await);
        scene.faults.delay_up_to(ms(50));
        let began = scene.host.now();
        let limit = calls(&ours, 1);
        let ended = cut_after(polls, limit.start()).await;
        scene.faults.heal();
        if ended.is_some() {
            assert!(!starts(&other, 1).await);
        }
        scene.pass((began + PER + ms(500)).since(scene.host.now())).await;
        assert!(starts(&other, 1).await, "after {polls} polls");
        ended.is_some()
    });
}

#[test]
fn numbers_out_of_bounds_are_refused_before_anything_is_asked() {
    play(0..1, async |scene| {
        let ours = scene.client().await;
        for (starts, per, text) in [
            (0, PER, "not 0"),
            (1_000_001, PER, "not 1000001"),
            (1, ms(0), "not 0ns"),
            (1, ms(9), "not 9ms"),
            (1, ms(24 * 3_600_000 + 1), "between 10 ms and 24 h"),
        ] {
            let refused = ours.rate_limit("calls", starts, per).start().await.expect_err(text);
            assert_eq!((refused.kind(), refused.name()), (ErrorKind::Config, Some("calls")));
            assert!(refused.to_string().contains(text), "{refused}");
        }
        assert_eq!(scene.faults.count(Request::Acquire), 0);
        assert!(starts(&ours, 1).await);
        let refused = calls(&ours, 2).start().await.expect_err("another number");
        assert_eq!(refused.kind(), ErrorKind::Config);
    });
}

#[test]
fn a_store_without_permits_limits_no_rate() {
    play_on(stores::quorum, 0, async |scene| {
        let refused = calls(&scene.client().await, 1).try_start().await.expect_err("a quorum");
        assert_eq!(refused.kind(), ErrorKind::Unsupported);
    });
}

/// Only the first waiter needs to ask. The store serves the waiters behind it in the same step. A
/// file is left out, since it tells each waiter near the front of its line to ask.
#[test]
fn starts_that_wait_do_not_all_ask_when_one_period_ends() {
    const STARTS: u32 = 50;
    for setup in [stores::memory, stores::redis] {
        play_on(setup, 0, async |scene| {
            let client = scene.client().await;
            let limit = client.rate_limit("calls", STARTS, ms(1_000));
            for _ in 0..STARTS {
                assert!(limit.try_start().await.expect("an answer"));
                scene.pass(ms(20)).await;
            }
            let waiting: Vec<_> = (0..2 * STARTS)
                .map(|_| {
                    let limit = limit.clone();
                    scene.host.task(async move { limit.start().await })
                })
                .collect();
            scene.pass(ms(20)).await;
            let before = scene.faults.count(Request::Acquire);
            scene.pass(ms(1_000)).await;
            let asks = scene.faults.count(Request::Acquire) - before;
            assert!(asks < 1_000, "{asks} asks");
            let started = waiting.iter().filter(|start| start.is_finished()).count();
            assert!((45..=51).contains(&started), "{started} starts in one period");
            for start in waiting {
                let started = scene.host.within(ms(3_000), start).await.expect("in turn");
                started.expect("it counts");
            }
        });
    }
}

/// A permit protects no work. Only the request that keeps it taken relies on the rest of its lease.
#[test]
fn a_start_counts_though_most_of_a_short_period_is_over_when_its_grant_arrives() {
    play(0..3, async |scene| {
        let limit = scene.client().await.rate_limit("calls", 2, ms(40));
        scene.faults.from_now_on(Request::Acquire, Fault::Late(ms(20)));
        assert!(limit.try_start().await.expect("it is not too late"));
    });
}
