//! Data that only a guard reaches: `Guarded`.

use std::sync::Arc;

use leasehold::{ErrorKind, Guarded, Lost, Release};
use leasehold_testkit::faults::Fault;

use super::{ms, play};

#[test]
fn data_is_reached_only_while_the_lock_is_held() {
    play(0..3, async |scene| {
        let (ours, other) = (scene.client().await, scene.calm_client().await);
        let stock = Guarded::new(ours.mutex("stock"), 3);
        let theirs = other.mutex("stock").lock().await.expect("free");
        assert!(stock.try_lock().await.expect("asked").is_none(), "another client has the lock");
        drop(theirs);
        scene.pass(ms(10)).await;

        let mut held = stock.lock().await.expect("free");
        *held.get_mut().expect("held") -= 1;
        assert_eq!(*held.get().expect("held"), 2);
        assert!(other.mutex("stock").try_lock().await.expect("asked").is_none());
        assert_eq!(held.release().await.expect("confirmed"), Release::Released);
        assert!(other.mutex("stock").try_lock().await.expect("asked").is_some());
    });
}

/// A plain reference to the data could still write after the loss.
#[test]
fn a_reference_whose_lock_is_lost_gives_no_data_even_before_the_loss_is_noticed() {
    play(0..3, async |scene| {
        let (ours, other) = (scene.client().await, scene.calm_client().await);
        let stock = Guarded::new(ours.mutex("stock"), 3);
        let mut held = stock.lock().await.expect("free");
        scene.faults.all_from_now_on(Fault::LoseRequest);
        assert_eq!(held.guard().lost().await, Lost::Deadline);
        let _theirs = other.mutex("stock").lock().await.expect("the lease ended");
        for refused in
            [held.get().map(drop).expect_err("lost"), held.get_mut().map(drop).expect_err("lost")]
        {
            assert_eq!((refused.kind(), refused.name()), (ErrorKind::Lost, Some("stock")));
        }
        scene.faults.heal();
        scene.pass(ms(10_000)).await;
        assert!(held.get_mut().is_err(), "once lost, never held again");
        drop(held);
        assert_eq!(stock.into_inner(), 3);
    });
}

/// The data is free after two thirds of the time, and then another client has the lock.
#[test]
fn the_time_to_wait_is_for_the_data_and_the_lock_together() {
    play(0..3, async |scene| {
        let (ours, other) = (scene.client().await, scene.calm_client().await);
        let stock = Arc::new(Guarded::new(ours.mutex("stock"), 3));
        let held = stock.lock().await.expect("free");
        let theirs = scene.host.task(async move { other.mutex("stock").lock().await });
        scene.host.settle().await;
        let waiting = {
            let stock = Arc::clone(&stock);
            scene.host.task(async move { stock.lock_timeout(ms(300)).await.map(drop) })
        };
        scene.pass(ms(200)).await;
        let _released = held.release().await.expect("confirmed");
        let _theirs = theirs.await.expect("its turn");
        let refused = scene.host.within(ms(150), waiting).await.expect("its time is over");
        assert_eq!(refused.expect_err("taken").kind(), ErrorKind::WaitElapsed);
    });
}

/// The task before it has neither the data in its hands nor the lock.
#[test]
fn a_wait_behind_a_task_without_an_answer_of_the_store_does_not_end_as_taken() {
    play(0..3, async |scene| {
        let (ours, other) = (scene.client().await, scene.calm_client().await);
        let _held = other.mutex("stock").lock().await.expect("free");
        let stock = Arc::new(Guarded::new(ours.mutex("stock"), 3));
        let lock = |wait| {
            let stock = Arc::clone(&stock);
            scene.host.task(async move { stock.lock_timeout(wait).await.map(drop) })
        };
        let _first = lock(ms(60_000));
        scene.pass(ms(100)).await;
        scene.faults.all_from_now_on(Fault::Refuse);
        let second = lock(ms(4_000));
        scene.pass(ms(4_000)).await;
        let error = second.await.expect_err("its time is over");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        scene.faults.heal();
        scene.pass(ms(2_000)).await;
        let error = lock(ms(500)).await.expect_err("its time is over");
        assert_eq!(error.kind(), ErrorKind::WaitElapsed, "{error}");
    });
}

#[test]
fn the_next_task_waits_until_a_lost_reference_is_dropped() {
    play(0..3, async |scene| {
        let ours = scene.client().await;
        let stock = Arc::new(Guarded::new(ours.mutex("stock"), 3));
        let held = stock.lock().await.expect("free");
        let refused = stock.lock_timeout(ms(200)).await.expect_err("it is in use");
        assert_eq!((refused.kind(), refused.name()), (ErrorKind::WaitElapsed, Some("stock")));
        assert!(refused.to_string().contains("of this process"), "{refused}");
        assert!(stock.try_lock().await.expect("asked").is_none(), "it is in use");

        scene.faults.all_from_now_on(Fault::LoseRequest);
        let _lost = held.guard().lost().await;
        scene.faults.heal();
        let next = {
            let stock = Arc::clone(&stock);
            scene.host.task(async move {
                let mut held = stock.lock().await.expect("in turn");
                *held.get_mut().expect("held") -= 1;
            })
        };
        scene.pass(ms(5_000)).await;
        assert!(!next.is_finished(), "the old reference may still be in use");
        drop(held);
        scene.host.within(ms(5_000), next).await.expect("its turn");
        assert_eq!(*stock.lock().await.expect("free").get().expect("held"), 2);
    });
}

#[test]
fn a_call_with_wrong_settings_is_refused_before_the_data_is_waited_for() {
    play(0..1, async |scene| {
        let client = scene.client().await;
        let bad = Guarded::new(client.mutex("stock").ttl(ms(1)), 3);
        let refused = bad.lock_timeout(ms(10)).await.expect_err("too short");
        assert_eq!(refused.kind(), ErrorKind::Config);
        let stock = Guarded::new(client.mutex("stock"), 3);
        let held = stock.lock().await.expect("free");
        let _report = client.shutdown(ms(10)).await;
        for refused in [
            stock.lock().await.expect_err("shut down"),
            stock.try_lock().await.expect_err("shut down"),
            stock.lock_timeout(ms(10)).await.expect_err("shut down"),
        ] {
            assert_eq!((refused.kind(), refused.name()), (ErrorKind::Closed, Some("stock")));
        }
        drop(held);
    });
}

/// The reference may never be dropped.
#[test]
fn a_task_that_waits_for_the_data_is_told_of_a_shutdown() {
    play(0..3, async |scene| {
        let client = scene.client().await;
        let stock = Arc::new(Guarded::new(client.mutex("stock"), 3));
        let held = stock.lock().await.expect("free");
        let (first, second) = (Arc::clone(&stock), Arc::clone(&stock));
        let waits = [
            scene.host.task(async move { first.lock().await.map(drop) }),
            scene.host.task(async move { second.lock_timeout(ms(60_000)).await.map(drop) }),
        ];
        scene.pass(ms(100)).await;
        let _report = client.shutdown(ms(10)).await;
        for waiting in waits {
            let ended = scene.host.within(ms(100), waiting).await.expect("it ends");
            let refused = ended.expect_err("shut down");
            assert_eq!((refused.kind(), refused.name()), (ErrorKind::Closed, Some("stock")));
        }
        drop(held);
    });
}
