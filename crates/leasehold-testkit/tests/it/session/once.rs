//! Work that is done once per period, and guards that leave their key taken.

use leasehold::core::Moment;
use leasehold::host::Host;
use leasehold::store::Store;
use leasehold::{Client, ErrorKind, Lost, Once, Run};
use leasehold_testkit::faults::{Fault, Request};

use super::{Scene, ms, play, play_on, stores_here};
use crate::stores;

const PERIOD: std::time::Duration = ms(60_000);

fn report(client: &Client) -> Once {
    client.once("report", PERIOD).why("the report")
}

async fn start(client: &Client) -> Option<Run> {
    report(client).start().await.expect("the store answers")
}

/// Asserts that nobody can start the work until `at`, and that `client` can from then on.
async fn may_start_at(scene: &Scene, client: &Client, at: Moment) -> Run {
    let before = at.minus(ms(20));
    while scene.host.now() < before {
        let span = before.since(scene.host.now()).min(ms(7_000));
        scene.pass(span).await;
        assert!(start(client).await.is_none(), "too early by {:?}", at.since(scene.host.now()));
    }
    scene.pass((at + ms(60)).since(scene.host.now())).await;
    start(client).await.expect("the time is over")
}

#[test]
fn done_work_starts_again_when_its_period_is_over_and_not_before() {
    play(0..3, async |scene| {
        let (ours, other) = (scene.client().await, scene.calm_client().await);
        let run = start(&ours).await.expect("nobody did it");
        let began = scene.host.now();
        assert!(start(&other).await.is_none(), "it is being done");
        // This is longer than the ttl.
        scene.pass(ms(10_000)).await;
        assert!(run.guard().is_held());
        let lost = run.lost();
        run.done().await.expect("confirmed");
        assert!(start(&ours).await.is_none(), "the runner is not an exception");

        let seen = other.inspect("report").await.expect("asked");
        let holder = seen.holders.first().expect("it is taken");
        assert_eq!((holder.idle, holder.why.as_deref()), (true, Some("the report")));
        assert!(holder.ttl_left.expect("it ends") > ms(49_000));

        // The process that did it ends.
        let report = ours.shutdown(ms(1_000)).await;
        assert_eq!(report.not_released, 0);
        let next = may_start_at(scene, &other, began + PERIOD).await;
        assert!(next.guard().is_held());
        assert!(scene.host.within(ms(0), lost).await.is_none(), "a run that ended is not lost");
    });
}

#[test]
fn done_work_stays_done_on_several_nodes_with_copies_and_on_a_store_without_a_line() {
    for setup in [stores::quorum, stores::cluster, stores::copies, stores::own] {
        play_on(setup, 0, async |scene| {
            let (ours, other) = (scene.client().await, scene.calm_client().await);
            let run = start(&ours).await.expect("nobody did it");
            let began = scene.host.now();
            scene.pass(ms(5_000)).await;
            run.done().await.expect("confirmed");
            let _report = ours.shutdown(ms(1_000)).await;
            let _next = may_start_at(scene, &other, began + PERIOD).await;
        });
    }
}

#[test]
fn failed_work_and_a_dropped_run_let_others_start_at_once() {
    play(0..3, async |scene| {
        let (ours, other) = (scene.client().await, scene.calm_client().await);
        let run = start(&ours).await.expect("nobody did it");
        let _released = run.failed().await.expect("confirmed");
        drop(start(&other).await.expect("it failed"));
        scene.pass(ms(10)).await;
        assert!(start(&ours).await.is_some(), "it was dropped");
    });
}

#[test]
fn work_whose_runner_died_starts_again_after_the_ttl() {
    play(0..3, async |scene| {
        let (ours, other) = (scene.client().await, scene.calm_client().await);
        let run = start(&ours).await.expect("nobody did it");
        let died_at = scene.host.now();
        scene.faults.all_from_now_on(Fault::LoseRequest);
        assert_eq!(run.lost().await, Lost::Deadline);
        let next = may_start_at(scene, &other, died_at + ms(3_000)).await;
        let refused = run.done().await.expect_err("another one does it");
        assert_eq!(refused.kind(), ErrorKind::Lost);
        scene.faults.heal();
        scene.pass(ms(10_000)).await;
        assert!(next.guard().is_held(), "the late report changes nothing for the next run");
        next.guard().renew().await.expect("it is held at the store too");
    });
}

#[test]
fn work_that_takes_longer_than_its_period_starts_again_at_its_end() {
    play(0..3, async |scene| {
        let (ours, other) = (scene.client().await, scene.calm_client().await);
        let run = start(&ours).await.expect("nobody did it");
        scene.pass(PERIOD + ms(1)).await;
        assert!(start(&other).await.is_none(), "it is still being done");
        run.done().await.expect("confirmed");
        assert!(start(&other).await.is_some());
    });
}

#[test]
fn a_report_whose_request_or_answer_is_lost_is_repeated() {
    for fault in [Fault::LoseRequest, Fault::LoseReply, Fault::Refuse] {
        play(0..3, async |scene| {
            let (ours, other) = (scene.client().await, scene.calm_client().await);
            let run = start(&ours).await.expect("nobody did it");
            let began = scene.host.now();
            scene.faults.next(Request::Renew, fault);
            scene.faults.next(Request::Renew, fault);
            run.done().await.expect("confirmed in the end");
            let _next = may_start_at(scene, &other, began + PERIOD).await;
        });
    }
}

#[test]
fn a_report_that_nobody_waits_for_arrives_and_a_shutdown_waits_for_it() {
    play(0..3, async |scene| {
        let (ours, other) = (scene.client().await, scene.calm_client().await);
        let run = start(&ours).await.expect("nobody did it");
        let began = scene.host.now();
        scene.faults.next(Request::Renew, Fault::LoseRequest);
        drop(run.done());
        let ended = ours.shutdown(ms(10_000)).await;
        assert_eq!(ended.not_released, 0);
        let _next = may_start_at(scene, &other, began + PERIOD).await;
    });
}

#[test]
fn a_report_that_finds_no_store_fails_and_the_work_starts_again_after_the_ttl() {
    play(0..3, async |scene| {
        let (ours, other) = (scene.client().await, scene.calm_client().await);
        let run = start(&ours).await.expect("nobody did it");
        let began = scene.host.now();
        scene.faults.all_from_now_on(Fault::LoseRequest);
        let failed = run.done().await.expect_err("no answer");
        assert_eq!(failed.kind(), ErrorKind::Unknown);
        assert!(failed.to_string().contains("did not confirm"), "{failed}");
        assert!(scene.host.now() <= began + ms(6_000), "it does not try for ever");
        scene.faults.heal();
        assert!(start(&other).await.is_some());
    });
}

/// A retry cannot help.
#[test]
fn a_report_that_is_denied_says_so_and_is_not_repeated() {
    play(0..2, async |scene| {
        let ours = scene.client().await;
        let run = start(&ours).await.expect("nobody did it");
        scene.faults.next(Request::Renew, Fault::Deny);
        let failed = run.done().await.expect_err("denied");
        assert_eq!(failed.kind(), ErrorKind::Denied);
        assert!(failed.to_string().contains("did not confirm"), "{failed}");
        assert_eq!(scene.faults.count(Request::Renew), 1);
    });
}

#[test]
fn a_run_that_an_operator_ended_keeps_nothing() {
    play(0..3, async |scene| {
        let (ours, other) = (scene.client().await, scene.calm_client().await);
        let run = start(&ours).await.expect("nobody did it");
        let seen = other.inspect("report").await.expect("asked").holders[0].token.clone();
        let _ended = other.evict("report", &seen, "a test").await.expect("asked");
        let next = start(&other).await.expect("it is free");
        assert_eq!(run.done().await.expect_err("it is lost").kind(), ErrorKind::Lost);
        next.guard().renew().await.expect("the next run goes on");
        let _released = next.failed().await.expect("confirmed");
        assert!(start(&ours).await.is_some(), "nothing was kept");
    });
}

#[test]
fn steps_of_the_wall_clock_change_no_period() {
    for step_us in [7_200_000_000, -7_200_000_000] {
        for &setup in stores_here() {
            play_on(setup, 0, async |scene| {
                let ours = scene.client().await;
                // A whole day is far longer than the period.
                let once = ours.once("report", ms(24 * 3_600_000));
                let run = once.start().await.expect("asked").expect("nobody did it");
                scene.host.step_wall(step_us);
                run.done().await.expect("confirmed");
                scene.host.step_wall(step_us);
                // The other client opens the store anew, with the other clock.
                let other = scene.calm_client().await;
                let once = other.once("report", ms(24 * 3_600_000));
                for _ in 0..3 {
                    assert!(once.start().await.expect("asked").is_none());
                    scene.pass(ms(7 * 3_600_000)).await;
                }
                scene.pass(ms(3 * 3_600_000 + 60)).await;
                assert!(once.start().await.expect("asked").is_some(), "the day is over");
            });
        }
    }
}

/// Tasks of one client pass a lease on. If they did so here, the next task would start within the
/// period.
#[test]
fn a_task_of_the_same_client_that_waits_for_the_lock_waits_until_the_period_is_over() {
    play(0..3, async |scene| {
        let ours = scene.client().await;
        let mutex = ours.mutex("report");
        let guard = mutex.lock().await.expect("free");
        let began = scene.host.now();
        let waits = scene.host.task({
            let mutex = mutex.clone();
            async move { mutex.lock().await.expect("in its turn") }
        });
        scene.pass(ms(1_000)).await;
        guard.keep_for(PERIOD).await.expect("confirmed");
        scene.pass((began + PERIOD).since(scene.host.now()).saturating_sub(ms(20))).await;
        assert!(!waits.is_finished());
        scene.pass(ms(2_000)).await;
        assert!(waits.is_finished(), "it looks when the lease ends");
    });
}

#[test]
fn a_period_out_of_bounds_is_refused_before_anything_is_asked() {
    play(0..1, async |scene| {
        let ours = scene.client().await;
        for (period, text) in [
            (ms(0), "plus the lock delay (3s)"),
            (ms(2_999), "plus the lock delay (3s)"),
            (ms(24 * 3_600_000 + 1), "at most 24 h"),
        ] {
            let refused = ours.once("report", period).start().await.expect_err(text);
            assert_eq!((refused.kind(), refused.name()), (ErrorKind::Config, Some("report")));
            assert!(refused.to_string().contains(text), "{refused}");
        }
        let refused = ours.once("report", PERIOD).ttl(ms(60_001)).start().await;
        assert_eq!(refused.expect_err("the ttl is longer").kind(), ErrorKind::Config);
        assert_eq!(scene.faults.count(Request::Acquire), 0);

        for period in [ms(3_000), ms(24 * 3_600_000)] {
            assert!(ours.once("report", period).start().await.expect("within bounds").is_some());
        }

        let guard = ours.mutex("other").lock().await.expect("free");
        let refused = guard.keep_for(ms(24 * 3_600_000 + 1)).await.expect_err("too long");
        assert_eq!(refused.kind(), ErrorKind::Config);
        assert!(ours.mutex("other").try_lock().await.expect("asked").is_some(), "released");
    });
}

#[test]
fn a_strict_store_refuses_work_that_is_done_once() {
    play_on(stores::strict, 0, async |scene| {
        let client = scene.client().await;
        assert_eq!(scene.store().await.capabilities().strict, Some(true));
        let refused = report(&client).start().await.expect_err("it is strict");
        assert_eq!(refused.kind(), ErrorKind::Unsupported);
        assert_eq!(scene.faults.count(Request::Acquire), 0);
    });
}

/// The store keeps a lease for its lock delay too, and no renewal shortens it.
#[test]
fn done_work_starts_again_when_its_period_is_over_though_leases_have_a_lock_delay() {
    play(0..3, async |scene| {
        let ours = scene.client_with_delay(ms(17_000)).await;
        for period in [ms(3_000), ms(19_999)] {
            let refused = ours.once("report", period).start().await.expect_err("too short");
            assert_eq!((refused.kind(), refused.name()), (ErrorKind::Config, Some("report")));
        }
        assert_eq!(scene.faults.count(Request::Acquire), 0);
        let once = ours.once("report", ms(20_000));
        let run = once.start().await.expect("asked").expect("nobody did it");
        let began = scene.host.now();
        run.done().await.expect("confirmed");
        scene.pass((began + ms(19_980)).since(scene.host.now())).await;
        assert!(once.start().await.expect("asked").is_none(), "too early");
        scene.pass(ms(80)).await;
        assert!(once.start().await.expect("asked").is_some(), "the period is over");
    });
}
