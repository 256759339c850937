//! Acquiring, waiting for, handing over and losing a mutex.

use std::time::Duration;

use leasehold::store::{Evicted, Revoked};
use leasehold::{Client, Error, ErrorKind, Release};

#[tokio::test]
async fn a_lock_is_taken_released_and_taken_again() -> Result<(), Error> {
    let client = Client::connect("memory:").await?;
    let mutex = client.mutex("a");
    let first = mutex.lock().await?;
    assert!(first.is_held());
    assert!(mutex.try_lock().await?.is_none());
    let fence = first.fencing_token();
    assert_eq!(first.release().await?, Release::Released);
    let second = mutex.try_lock().await?.expect("it is free");
    assert!(second.fencing_token() > fence);
    Ok(())
}

#[tokio::test]
async fn waiting_tasks_are_served_in_the_order_in_which_they_came() -> Result<(), Error> {
    let client = Client::connect("memory:").await?;
    let mutex = client.mutex("a");
    let held = mutex.lock().await?;
    let (order, mut served) = tokio::sync::mpsc::unbounded_channel();
    for waiter in 0..5 {
        let (mutex, order) = (mutex.clone(), order.clone());
        let task = tokio::spawn(async move {
            let guard = mutex.lock().await.expect("granted in turn");
            order.send(waiter).expect("the test listens");
            drop(guard);
        });
        // The task runs until it waits, before the next one starts.
        tokio::task::yield_now().await;
        assert!(!task.is_finished());
    }
    drop(held);
    for expected in 0..5 {
        assert_eq!(served.recv().await, Some(expected));
    }
    Ok(())
}

#[tokio::test]
async fn a_wait_that_elapses_leaves_nothing_behind() -> Result<(), Error> {
    let client = Client::connect("memory:").await?;
    let mutex = client.mutex("a");
    let held = mutex.lock().await?;
    let error = mutex.lock_timeout(Duration::from_millis(20)).await.expect_err("it is held");
    assert_eq!(error.kind(), ErrorKind::WaitElapsed);
    assert_eq!(error.name(), Some("a"));
    assert_eq!(client.inspect("a").await?.waiting, 0);
    drop(held);
    assert!(mutex.try_lock().await?.is_some());
    Ok(())
}

/// Clones share their settings until one of them changes.
#[tokio::test]
async fn a_setting_of_a_clone_applies_to_the_clone_alone() -> Result<(), Error> {
    let client = Client::connect("memory:").await?;
    let mutex = client.mutex("a").why("first");
    let clone = mutex.clone().why("second");
    for (mutex, why) in [(mutex, "first"), (clone, "second")] {
        let held = mutex.lock().await?;
        let seen = client.inspect("a").await?;
        assert_eq!(seen.holders[0].why.as_deref(), Some(why));
        assert_eq!(held.release().await?, Release::Released);
    }
    Ok(())
}

#[tokio::test]
async fn a_dropped_guard_never_blocks_the_next_try() -> Result<(), Error> {
    let client = Client::connect("memory:").await?;
    let mutex = client.mutex("a");
    for round in 0..10_000 {
        let guard = mutex.try_lock().await?;
        assert!(guard.is_some(), "taken in round {round}");
    }
    Ok(())
}

#[tokio::test]
async fn an_evicted_holder_learns_of_it_at_its_next_renewal() -> Result<(), Error> {
    let client = Client::builder("memory:").ttl(Duration::from_millis(300)).connect().await?;
    let guard = client.mutex("a").lock().await?;
    let seen = client.inspect("a").await?.holders[0].token.clone();
    let _ended = client.evict("a", &seen, "test").await?;
    assert_eq!(guard.lost().await, leasehold::Lost::NotOurs);
    assert!(!guard.is_held());
    assert_eq!(guard.renew().await.expect_err("lost").kind(), ErrorKind::Lost);
    assert_eq!(guard.release().await?, Release::NotHeld);
    Ok(())
}

#[tokio::test]
async fn work_under_a_lost_lock_is_dropped() -> Result<(), Error> {
    let client = Client::builder("memory:").ttl(Duration::from_millis(300)).connect().await?;
    let mutex = client.mutex("a");
    let evicting = client.clone();
    let result = mutex
        .with(async |guard| {
            let seen = guard.token().as_str().as_bytes();
            let _ended = evicting.evict("a", seen, "test").await.expect("it was asked");
            std::future::pending::<()>().await;
        })
        .await;
    assert_eq!(result.expect_err("lost").kind(), ErrorKind::Lost);
    assert_eq!(mutex.with(async |_| 7).await?, 7);
    Ok(())
}

#[tokio::test]
async fn work_that_ends_under_a_lock_that_was_taken_away_is_not_called_done() -> Result<(), Error> {
    let client = Client::connect("memory:").await?;
    let evicting = client.clone();
    let work = async |guard: &leasehold::Guard| {
        let seen = guard.token().as_str().as_bytes();
        let _ended = evicting.evict("a", seen, "test").await.expect("it was asked");
    };
    let error = client.mutex("a").with(work).await.expect_err("lost");
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert!(error.to_string().contains("no longer ours"), "{error}");
    Ok(())
}

#[tokio::test]
async fn namespaces_keep_names_apart() -> Result<(), Error> {
    let url = "memory:namespaces_keep_names_apart";
    let plain = Client::connect(url).await?;
    let ours = Client::builder(url).namespace("a").connect().await?;
    let error = Client::builder(url).namespace("a:b").connect().await.expect_err("ambiguous");
    assert_eq!(error.kind(), ErrorKind::Config);
    let _odd = plain.mutex("a:").lock().await?;
    let _inner = ours.mutex("x").lock().await?;
    let outer = plain.mutex("x").try_lock().await?;
    assert!(outer.is_some(), "another lock");
    let names: Vec<_> = ours.list("*").await?.names().iter().map(ToString::to_string).collect();
    assert_eq!(names, ["x"], "and a name that is not valid here is left out");
    Ok(())
}

#[tokio::test]
async fn an_operator_with_a_namespace_means_the_locks_in_it() -> Result<(), Error> {
    let url = "memory:an_operator_with_a_namespace";
    let plain = Client::connect(url).await?;
    let ours = Client::builder(url).namespace("a").connect().await?;
    let guard = ours.mutex("x").lock().await?;
    let token = guard.token().as_str().as_bytes();
    assert!(plain.inspect("x").await?.holders.is_empty());
    assert_eq!(ours.inspect("x").await?.holders.len(), 1);
    for (client, is_asked) in [(&plain, false), (&ours, true)] {
        let asked = client.revoke("x", token, "noon").await?;
        assert_eq!(asked == Revoked::Asked, is_asked);
        let ended = client.evict("x", token, "noon").await?;
        assert_eq!(ended == Evicted::Evicted, is_asked);
    }
    Ok(())
}

#[test]
fn a_guard_is_renewed_and_dropped_without_any_runtime() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let (client, guard) = runtime.block_on(async {
        let client = Client::builder("memory:").ttl(Duration::from_millis(60)).connect().await;
        let client = client.expect("connected");
        let guard = client.mutex("a").lock().await.expect("free");
        (client, guard)
    });
    drop(runtime);
    let mutex = client.mutex("a");
    drop(client);
    futures_util::future::FutureExt::now_or_never(guard.renew()).expect("ready").expect("held");
    drop(guard);
    let again = futures_util::future::FutureExt::now_or_never(mutex.try_lock());
    assert!(again.expect("ready").expect("asked").is_some());
}

#[tokio::test]
async fn bad_names_and_ttls_surface_at_the_first_call() -> Result<(), Error> {
    let client = Client::connect("memory:").await?;
    // An empty name names no lock.
    let table = [
        (client.mutex(""), None),
        (client.mutex("a\0"), Some("a\0")),
        (client.mutex("a").ttl(Duration::ZERO), Some("a")),
    ];
    for (mutex, name) in table {
        let error = mutex.lock().await.expect_err("bad");
        assert_eq!(error.kind(), ErrorKind::Config);
        assert_eq!(error.name(), name, "{error}");
        assert_eq!(mutex.try_lock().await.expect_err("bad").kind(), ErrorKind::Config);
    }
    let hour = Duration::from_hours(25);
    assert!(client.mutex("a").ttl(hour).lock().await.is_err());
    assert!(Client::builder("memory:").ttl(hour).connect().await.is_err());
    assert!(Client::builder("memory:").lock_delay(hour).connect().await.is_err());
    let error = Client::builder("memory:").namespace("a\nb").connect().await.expect_err("bad");
    assert_eq!(error.to_string().matches("no request was sent").count(), 1, "{error}");
    Ok(())
}

#[tokio::test]
async fn the_last_ttl_counts() -> Result<(), Error> {
    let client = Client::connect("memory:").await?;
    let (bad, good) = (Duration::ZERO, Duration::from_hours(1));
    let mended = client.mutex("a").ttl(bad).ttl(good);
    let held = mended.lock().await?;
    assert!(held.is_held() && held.remaining() <= good);
    let left = client.inspect("a").await?.holders[0].ttl_left;
    assert!(left > Some(Duration::from_secs(10)), "{left:?}: not the ttl of the client");
    assert_eq!(held.release().await?, Release::Released);
    for spoilt in [client.mutex("a").ttl(good).ttl(bad), mended.ttl(bad)] {
        let error = spoilt.lock().await.expect_err("bad");
        assert_eq!((error.kind(), error.name()), (ErrorKind::Config, Some("a")));
        assert_eq!(spoilt.try_lock().await.expect_err("bad").kind(), ErrorKind::Config);
    }
    Ok(())
}

#[tokio::test]
async fn a_lock_delay_is_at_most_a_day() -> Result<(), Error> {
    let day = Duration::from_hours(24);
    let _client = Client::builder("memory:").lock_delay(day).connect().await?;
    let longer = Client::builder("memory:").lock_delay(day + Duration::from_nanos(1));
    let error = longer.connect().await.expect_err("too long");
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("a lock delay must be at most 24 h"), "{error}");
    Ok(())
}

#[tokio::test]
async fn a_shutdown_drains_and_reports() -> Result<(), Error> {
    let client = Client::connect("memory:").await?;
    let guard = client.mutex("a").lock().await?;
    let waiting = tokio::spawn({
        let mutex = client.mutex("a");
        async move { mutex.lock().await }
    });
    tokio::task::yield_now().await;
    let report = client.clone().shutdown(Duration::from_millis(20)).await;
    assert_eq!((report.released, report.not_released), (0, 1));
    assert_eq!(waiting.await.expect("no panic").expect_err("closed").kind(), ErrorKind::Closed);
    assert!(guard.is_held(), "a shutdown does not stop work under a guard");
    assert_eq!(client.mutex("b").lock().await.expect_err("closed").kind(), ErrorKind::Closed);
    let report = tokio::spawn(client.shutdown(Duration::from_secs(60)));
    tokio::task::yield_now().await;
    drop(guard);
    let report = report.await.expect("no panic");
    assert_eq!((report.released, report.not_released), (1, 0));
    Ok(())
}
