//! Work that starts at most so often: `RateLimit`.

use std::sync::{Arc, Mutex};

use leasehold::core::Moment;
use leasehold::host::Host;
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

/// Until `at`, nobody may start. From then on, `client` may.
async fn may_start_at(scene: &Scene, client: &Client, at: Moment) {
    let before = at.minus(ms(20));
    while scene.host.now() < before {
        scene.pass(before.since(scene.host.now()).min(ms(2_000))).await;
        assert!(!starts(client, 1).await, "too early by {:?}", at.since(scene.host.now()));
    }
    scene.pass((at + ms(60)).since(scene.host.now())).await;
    assert!(starts(client, 1).await, "the period is over");
}

/// However many wait, and whoever waits.
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
            // A start is granted at most one delayed answer before it returns.
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
        assert!(!starts(&ours, 1).await, "whoever started is no exception");
        assert_eq!(ours.shutdown(ms(1_000)).await.left_to_expire, 0);
        may_start_at(scene, &other, began + PER).await;
    });
}

#[test]
fn a_start_counts_for_its_period_if_leases_are_longer_than_that() {
    play(0..3, async |scene| {
        let limit = scene.client().await.rate_limit("calls", 2, ms(1_000));
        for round in 0..3 {
            for _ in 0..2 {
                assert!(limit.try_start().await.expect("the store answers"), "round {round}");
            }
            assert!(!limit.try_start().await.expect("the store answers"), "round {round}");
            scene.pass(ms(1_060)).await;
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
fn a_start_that_is_confirmed_late_must_not_happen_since_the_next_one_may_follow_at_once() {
    // Not before the command limit, and within it.
    let table = [
        (Fault::LoseReply, ms(8_500), "did not confirm the start"),
        (Fault::Late(ms(2_600)), ms(2_500), "confirmed the start too late"),
    ];
    for (fault, lasts, why) in table {
        play(0..3, async |scene| {
            let (ours, other) = (scene.client().await, scene.calm_client().await);
            let per = ms(10_000);
            let (limit, next) =
                (ours.rate_limit("calls", 1, per), other.rate_limit("calls", 1, per));
            let began = scene.host.now();
            scene.faults.from_now_on(Request::Renew, fault);
            let late = scene.host.task(async move { limit.start().await });
            scene.pass(lasts).await;
            scene.faults.heal();
            let failed = scene.host.within(ms(2_000), late).await.expect("it ends");
            let failed = failed.expect_err("too late").to_string();
            assert!(failed.contains(why) && failed.contains("do not start"), "{failed}");
            scene.pass((began + ms(10_500)).since(scene.host.now())).await;
            assert!(next.try_start().await.expect("an answer"), "the period of the grant is over");
        });
    }
}

/// The same client may start at once, or one start counts. Nothing lasts longer than the period.
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
