//! Processes that count down, and others that wait for zero: `Latch`.

use leasehold::host::Host;
use leasehold::{Client, CountDown, ErrorKind, Latch};
use leasehold_testkit::cut_after;
use leasehold_testkit::faults::{Fault, Hints, Request};

use super::cancelling::at_every_await;
use super::{ms, play, play_on};
use crate::stores;

fn ready(client: &Client) -> Latch {
    client.latch("ready", 2)
}

async fn counts(client: &Client) {
    assert_eq!(ready(client).count_down().await.expect("asked"), CountDown::Counted);
}

async fn remaining(client: &Client) -> u32 {
    ready(client).remaining().await.expect("asked")
}

#[test]
fn a_latch_opens_when_all_have_counted_and_counts_outlive_their_processes() {
    play(0..3, async |scene| {
        let (ours, other) = (scene.client().await, scene.calm_client().await);
        let latch = ready(&other);
        let waits = scene.host.task(async move { latch.wait().await });
        assert_eq!(remaining(&ours).await, 2);
        counts(&ours).await;
        assert_eq!(remaining(&ours).await, 1);
        assert_eq!(ours.shutdown(ms(1_000)).await.not_released, 0);
        // This is far longer than a ttl.
        scene.pass(ms(60_000)).await;
        assert!(!waits.is_finished());
        assert_eq!(remaining(&other).await, 1);
        counts(&other).await;
        scene.host.within(ms(1_000), waits).await.expect("it looks every second").expect("open");
        assert_eq!(remaining(&other).await, 0);
    });
}

/// Redisson's `RCountDownLatch` looks again only after a message, and hangs without it.
#[test]
fn a_waiter_goes_on_though_every_message_and_some_answers_are_lost() {
    play(0..3, async |scene| {
        let (ours, other) = (scene.client().await, scene.calm_client().await);
        scene.faults.hints(Hints::AreLost);
        let latch = ready(&ours);
        let waits = scene.host.task(async move { latch.wait().await });
        scene.pass(ms(5_000)).await;
        scene.faults.from_now_on(Request::Inspect, Fault::LoseReply);
        counts(&other).await;
        counts(&other).await;
        scene.pass(ms(20_000)).await;
        assert!(!waits.is_finished(), "it sees nothing, and waits the outage out");
        scene.faults.end_outage();
        scene.host.within(ms(3_000), waits).await.expect("it looks again").expect("open");
    });
}

/// Redisson's `countDown` counts twice if it is repeated after its answer was lost.
#[test]
fn a_count_whose_request_or_answer_is_lost_counts_once() {
    for fault in [Fault::LoseRequest, Fault::LoseReply] {
        play(0..3, async |scene| {
            let ours = scene.client().await;
            scene.faults.next(Request::Acquire, fault);
            counts(&ours).await;
            assert_eq!(remaining(&ours).await, 1);
        });
    }
}

#[test]
fn a_count_that_failed_is_taken_back_and_its_repetition_counts_once() {
    for fault in [Fault::LoseRequest, Fault::LoseReply] {
        play(0..3, async |scene| {
            let (ours, other) = (scene.client().await, scene.calm_client().await);
            scene.faults.from_now_on(Request::Acquire, fault);
            let failed = ready(&ours).count_down().await.expect_err("no answer");
            assert_eq!((failed.kind(), failed.name()), (ErrorKind::Unknown, Some("ready")));
            scene.faults.heal();
            counts(&ours).await;
            scene.pass(ms(1_000)).await;
            assert_eq!(remaining(&other).await, 1);
        });
    }
}

/// Otherwise the repetition would find the latch open because of the count that failed. When that
/// count is taken back, nobody would count any more. Otherwise both would count for a while, and
/// the latch would open before all have counted.
#[test]
fn a_count_that_could_not_be_taken_back_is_taken_back_before_its_repetition() {
    for count in [1, 2] {
        play(0..3, async |scene| {
            let client = scene.client().await;
            let latch = client.latch("last", count);
            scene.faults.from_now_on(Request::Acquire, Fault::LoseReply);
            scene.faults.from_now_on(Request::Release, Fault::Refuse);
            let failed = latch.count_down().await.expect_err("no answer came");
            assert_eq!(failed.kind(), ErrorKind::Unknown, "{failed}");
            scene.pass(ms(500)).await;
            let failed = latch.count_down().await.expect_err("no answer came again");
            assert_eq!(failed.kind(), ErrorKind::Unknown, "{failed}");
            // The store answers, but the leftover count cannot be released yet.
            scene.faults.end_outage();
            for _ in 0..4 {
                scene.faults.next(Request::Release, Fault::Refuse);
            }
            let failed = latch.count_down().await.expect_err("it may have counted before");
            assert_eq!(failed.kind(), ErrorKind::Unknown, "{failed}");
            assert!(failed.to_string().contains("could not be released"), "{failed}");
            let left = latch.remaining().await.expect("asked");
            assert_eq!(left, count - 1, "it did not count in addition to the old count");
            scene.faults.heal();
            assert_eq!(latch.count_down().await.expect("asked"), CountDown::Counted);
            assert_eq!(latch.remaining().await.expect("asked"), count - 1);
            scene.pass(ms(20_000)).await;
            let left = latch.remaining().await.expect("asked");
            assert_eq!(left, count - 1, "nothing was taken back later");
        });
    }
}

/// The server has lost the rights of the client for a while, as after a restart without its file of
/// users. Otherwise the party would count twice once they are back.
#[test]
fn a_count_that_was_denied_to_be_taken_back_is_taken_back_once_it_is_allowed() {
    play(0..3, async |scene| {
        let (ours, other) = (scene.client().await, scene.calm_client().await);
        scene.faults.next(Request::Acquire, Fault::LoseReply);
        scene.faults.from_now_on(Request::Acquire, Fault::Deny);
        scene.faults.from_now_on(Request::Release, Fault::Deny);
        let denied = ready(&ours).count_down().await.expect_err("denied");
        assert_eq!(denied.kind(), ErrorKind::Denied, "{denied}");
        assert_eq!(remaining(&other).await, 1, "the store counted, and nobody was told");
        let denied = ready(&ours).count_down().await.expect_err("still denied");
        assert_eq!(denied.kind(), ErrorKind::Denied, "{denied}");
        scene.faults.heal();
        counts(&ours).await;
        assert_eq!(remaining(&other).await, 1, "it counted once");
        scene.pass(ms(20_000)).await;
        assert_eq!(remaining(&other).await, 1, "nothing was taken back later");
    });
}

#[test]
fn a_party_that_has_arrived_waits_for_outages_to_end() {
    // Rights may be missing while a password is changed.
    for fault in [Fault::Refuse, Fault::Deny] {
        play(0..3, async |scene| {
            let (ours, other) = (scene.client().await, scene.calm_client().await);
            scene.faults.from_now_on(Request::Inspect, fault);
            let latch = ready(&ours);
            let arrived = scene.host.task(async move { latch.arrive_and_wait().await });
            scene.pass(ms(5_000)).await;
            assert!(!arrived.is_finished(), "an error would not say that it has counted");
            scene.faults.heal();
            assert_eq!(remaining(&other).await, 1);
            counts(&other).await;
            scene.host.within(ms(3_000), arrived).await.expect("it looks again").expect("open");
        });
    }
}

#[test]
fn a_party_that_has_arrived_is_told_that_its_count_stays_if_others_use_the_name() {
    play(0..3, async |scene| {
        let (ours, other) = (scene.client().await, scene.calm_client().await);
        let latch = ready(&ours);
        let arrived = scene.host.task(async move { latch.arrive_and_wait().await });
        scene.pass(ms(100)).await;
        other.semaphore("ready", 2).resize(3).await.expect("answered");
        let error = scene.host.within(ms(3_000), arrived).await.expect("it looks again");
        let error = error.expect_err("another count");
        assert_eq!((error.kind(), error.name()), (ErrorKind::Config, Some("ready")));
        assert!(error.to_string().contains("the count stays"), "{error}");
    });
}

#[test]
fn a_count_that_is_dropped_at_any_await_is_taken_back() {
    at_every_await(0..3, async |scene, polls| {
        let (ours, other) = (scene.client().await, scene.calm_client().await);
        scene.faults.delay_up_to(ms(50));
        let latch = ready(&ours);
        let ended = cut_after(polls, latch.count_down()).await;
        scene.host.settle().await;
        scene.pass(ms(200)).await;
        let expected = if ended.is_some() { 1 } else { 2 };
        assert_eq!(remaining(&other).await, expected, "after {polls} polls");
        ended.is_some()
    });
}

#[test]
fn a_count_below_zero_changes_nothing_and_says_so() {
    play(0..3, async |scene| {
        let ours = scene.client().await;
        counts(&ours).await;
        counts(&ours).await;
        for _ in 0..3 {
            assert_eq!(ready(&ours).count_down().await.expect("asked"), CountDown::AlreadyOpen);
        }
        assert_eq!(remaining(&ours).await, 0);
        ready(&ours).wait().await.expect("open");
        let refused = ready(&ours).arrive_and_wait().await.expect_err("all are there");
        assert_eq!((refused.kind(), refused.name()), (ErrorKind::Config, Some("ready")));
        assert!(refused.to_string().contains("have arrived already"), "{refused}");
    });
}

#[test]
fn parties_that_arrive_and_wait_go_on_together() {
    play(0..3, async |scene| {
        let clients = [scene.client().await, scene.calm_client().await];
        let mut parties = Vec::new();
        for number in 0..4 {
            assert!(parties.iter().all(|party: &leasehold_testkit::virtual_host::Joined<_>| {
                !party.is_finished()
            }));
            let latch = clients[number % 2].latch("meet", 4);
            parties.push(scene.host.task(async move { latch.arrive_and_wait().await }));
            scene.pass(ms(3_000)).await;
        }
        for party in parties {
            scene.host.within(ms(1_000), party).await.expect("all are there").expect("open");
        }
    });
}

#[test]
fn counts_end_after_their_time_and_the_latch_begins_anew() {
    play(0..3, async |scene| {
        let ours = scene.client().await;
        let latch = ready(&ours).keep(ms(20_000));
        assert_eq!(latch.count_down().await.expect("asked"), CountDown::Counted);
        scene.pass(ms(10_000)).await;
        assert_eq!(latch.count_down().await.expect("asked"), CountDown::Counted);
        assert_eq!(remaining(&ours).await, 0);
        scene.pass(ms(10_100)).await;
        assert_eq!(remaining(&ours).await, 1);
        scene.pass(ms(10_000)).await;
        assert_eq!(remaining(&ours).await, 2);
        counts(&ours).await;
        assert_eq!(remaining(&ours).await, 1);
    });
}

#[test]
fn a_wait_ends_with_its_time_with_its_client_and_at_a_first_look_that_fails() {
    play(0..3, async |scene| {
        let ours = scene.client().await;
        let began = scene.host.now();
        let failed = ready(&ours).wait_timeout(ms(5_000)).await.expect_err("nobody counts");
        assert_eq!((failed.kind(), failed.name()), (ErrorKind::WaitElapsed, Some("ready")));
        assert!(scene.host.now().since(began) < ms(5_050));

        scene.faults.next(Request::Inspect, Fault::Refuse);
        let failed = ready(&ours).wait().await.expect_err("refused");
        assert_eq!(failed.kind(), ErrorKind::Unavailable);

        let latch = ready(&ours);
        let waits = scene.host.task(async move { latch.wait().await });
        scene.pass(ms(2_000)).await;
        let _report = ours.shutdown(ms(1_000)).await;
        let failed = scene.host.within(ms(100), waits).await.expect("it ends").expect_err("closed");
        assert_eq!(failed.kind(), ErrorKind::Closed);
    });
}

#[test]
fn a_wait_that_ends_in_an_outage_returns_the_error_of_the_store() {
    play(0..3, async |scene| {
        let ours = scene.client().await;
        for fault in [Fault::Refuse, Fault::LoseRequest] {
            let latch = ready(&ours);
            let waits = scene.host.task(async move { latch.wait_timeout(ms(5_000)).await });
            scene.pass(ms(100)).await;
            scene.faults.all_from_now_on(fault);
            let failed = scene.host.within(ms(5_050), waits).await.expect("it ends");
            let failed = failed.expect_err("the store is away");
            let is_outage = matches!(failed.kind(), ErrorKind::Unavailable | ErrorKind::Unknown);
            assert!(is_outage, "{failed}");
            scene.faults.end_outage();
        }
    });
}

#[test]
fn an_impossible_latch_is_refused_before_anything_is_asked() {
    play(0..1, async |scene| {
        let ours = scene.client().await;
        for (count, text) in [(0, "not 0"), (1_000_001, "not 1000001")] {
            let latch = ours.latch("ready", count);
            for refused in [
                latch.count_down().await.map(drop).expect_err(text),
                latch.wait().await.expect_err(text),
                latch.remaining().await.map(drop).expect_err(text),
            ] {
                assert_eq!((refused.kind(), refused.name()), (ErrorKind::Config, Some("ready")));
                assert!(refused.to_string().contains(text), "{refused}");
            }
        }
        let refused = ready(&ours).keep(ms(9)).count_down().await.expect_err("too short");
        assert_eq!(refused.kind(), ErrorKind::Config);
        let asked = [Request::Acquire, Request::Inspect].map(|request| scene.faults.count(request));
        assert_eq!(asked, [0, 0]);
    });
}

#[test]
fn another_count_and_a_lock_of_the_same_name_are_refused() {
    play(0..1, async |scene| {
        let (ours, other) = (scene.client().await, scene.calm_client().await);
        counts(&ours).await;
        for refused in [
            other.latch("ready", 3).wait().await.expect_err("another count"),
            other.latch("ready", 3).count_down().await.map(drop).expect_err("another count"),
        ] {
            assert_eq!((refused.kind(), refused.name()), (ErrorKind::Config, Some("ready")));
        }
        let _guard = ours.mutex("lock").lock().await.expect("free");
        let refused = other.latch("lock", 2).wait().await.expect_err("a lock");
        assert_eq!(refused.kind(), ErrorKind::Config);
        assert!(refused.to_string().contains("as a lock"), "{refused}");
        assert_eq!(remaining(&other).await, 1, "nothing was counted");
    });
}

#[test]
fn a_store_without_permits_has_no_latch() {
    play_on(stores::quorum, 0, async |scene| {
        let latch = ready(&scene.client().await);
        for refused in [
            latch.wait().await.expect_err("a quorum"),
            latch.count_down().await.map(drop).expect_err("a quorum"),
        ] {
            assert_eq!(refused.kind(), ErrorKind::Unsupported);
        }
    });
}

#[test]
fn a_count_behind_a_waiter_for_permits_does_not_say_open() {
    play(0..2, async |scene| {
        let (client, other) = (scene.calm_client().await, scene.calm_client().await);
        counts(&client).await;
        let semaphore = other.semaphore("ready", 2).weight(2);
        let _waits = scene.host.task(async move { semaphore.acquire().await });
        scene.pass(ms(10)).await;
        let error = ready(&client).count_down().await.expect_err("another one is first");
        assert_eq!((error.kind(), error.name()), (ErrorKind::Unavailable, Some("ready")));
        assert_eq!(remaining(&client).await, 1);
    });
}

/// Otherwise it would count twice with a new client, or never.
#[test]
fn a_party_of_a_closed_client_is_told_whether_it_has_counted() {
    play(0..3, async |scene| {
        let (ours, other) = (scene.client().await, scene.calm_client().await);
        let latch = ready(&ours);
        let arriving = latch.clone();
        let arrived = scene.host.task(async move { arriving.arrive_and_wait().await });
        scene.pass(ms(2_000)).await;
        let _report = ours.shutdown(ms(1_000)).await;
        let ended = scene.host.within(ms(100), arrived).await.expect("it ends");
        let counted = ended.expect_err("shut down");
        let not_counted = latch.arrive_and_wait().await.expect_err("shut down");
        for error in [&counted, &not_counted] {
            assert_eq!((error.kind(), error.name()), (ErrorKind::Closed, Some("ready")));
        }
        let (counted, not_counted) = (counted.to_string(), not_counted.to_string());
        assert!(counted.contains("the count stays"), "{counted}");
        assert!(!not_counted.contains("the count stays"), "{not_counted}");
        assert!(not_counted.contains("no request was sent"), "{not_counted}");
        assert_eq!(remaining(&other).await, 1);
    });
}
