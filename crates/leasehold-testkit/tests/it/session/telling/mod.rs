//! The spans and events of a lock that a subscriber of `tracing` is told.

mod listener;

use std::time::Duration;

use leasehold::{ErrorKind, Lost, Release};
use leasehold_testkit::faults::{Fault, Request};
use tracing::Level;

use self::listener::{Heard, Listener};
use super::{Scene, TOLD, ms, play_on, stores_here};

/// Plays the scene once for every store, with a listener of this level.
fn play(level: Level, scene: impl AsyncFn(&Scene, &Listener)) {
    for &setup in stores_here() {
        let listener = Listener::new(level);
        tracing::subscriber::with_default(listener.clone(), || {
            play_on(setup, 0, async |set| scene(set, &listener).await);
        });
        let open = listener.spans().into_iter().filter(|span| !span.is_closed()).count();
        assert_eq!(open, 0, "spans outlive their acquisition");
    }
}

impl Heard {
    #[track_caller]
    fn field(&self, name: &str) -> &str {
        self.fields.get(name).unwrap_or_else(|| panic!("no `{name}` in {self:?}"))
    }

    #[track_caller]
    fn number(&self, name: &str) -> u64 {
        self.field(name).parse().expect("a number")
    }
}

#[test]
fn an_acquisition_is_one_span_from_the_ask_to_the_release() {
    play(Level::TRACE, async |scene, listener| {
        let (other, client) = (scene.calm_client().await, scene.client().await);
        let theirs = other.mutex("a").lock().await.expect("free");
        let asking = client.mutex("a");
        let waiting = scene.host.task(async move { asking.lock().await.expect("in turn") });
        scene.pass(ms(700)).await;
        drop(theirs);
        let guard = waiting.await;
        scene.pass(ms(5_000)).await;
        assert_eq!(guard.release().await.expect("asked"), Release::Released);

        let spans = listener.spans();
        let [_theirs, ours] = spans.as_slice() else { panic!("{spans:#?}") };
        assert_eq!((ours.name.as_str(), ours.parent), ("lock", None));
        assert!(ours.is_closed(), "it ends with the guard");
        assert_eq!((ours.fields["key"].as_str(), ours.fields["ended"].as_str()), ("a", "released"));
        let waited: u64 = ours.fields["waited_ms"].parse().expect("a number");
        let held: u64 = ours.fields["held_ms"].parse().expect("a number");
        assert!((700..800).contains(&waited) && (5_000..5_100).contains(&held), "{ours:#?}");
        let renewals = scene.faults.count(Request::Renew).to_string();
        assert_eq!(ours.fields["renewals"], renewals);
        let told: Vec<_> =
            listener.events().into_iter().filter(|event| event.span == Some(1)).collect();
        let (first, last) = (&told[0], &told[told.len() - 1]);
        assert_eq!((first.message.as_str(), first.level), ("acquired", Level::DEBUG));
        assert_eq!(first.field("from"), "store");
        assert_eq!((last.message.as_str(), last.level), ("released", Level::DEBUG));
        assert_eq!(last.field("renewals"), renewals);
        for renewed in &told[1..told.len() - 1] {
            assert_eq!((renewed.message.as_str(), renewed.level), ("renewed", Level::TRACE));
        }
    });
}

#[test]
fn the_span_of_a_lock_lies_in_the_span_of_the_caller() {
    play(Level::INFO, async |scene, listener| {
        let client = scene.client().await;
        let request = tracing::info_span!(target: "leasehold::lock", "request");
        let inside = request.enter();
        let guard = client.mutex("a").lock().await.expect("free");
        drop(inside);
        drop(guard);
        let spans = listener.spans();
        assert_eq!((spans[1].name.as_str(), spans[1].parent), ("lock", Some(0)));
    });
}

#[test]
fn a_loss_is_told_once_with_its_reason() {
    play(Level::TRACE, async |scene, listener| {
        let client = scene.client().await;
        let guard = client.mutex("a").lock().await.expect("free");
        scene.faults.from_now_on(Request::Renew, Fault::Refuse);
        assert_eq!(guard.lost().await, Lost::Deadline);
        assert_eq!(guard.release().await.expect("asked"), Release::NotHeld);

        let (failed, lost) = (&listener.events()[1], listener.event("lost"));
        assert_eq!((failed.message.as_str(), failed.level), ("a renewal failed", Level::WARN));
        assert!(failed.fields.contains_key("left_ms") && failed.fields.contains_key("error"));
        assert_eq!(lost.level, Level::WARN);
        assert_eq!(lost.field("reason"), Lost::Deadline.to_string());
        assert_eq!(u128::from(lost.number("held_ms")), TOLD.as_millis());
        assert_eq!(lost.number("renewals"), 0);
        let span = &listener.spans()[0];
        assert_eq!((span.fields["ended"].as_str(), span.is_closed()), ("lost", true));
        assert!(!listener.messages().contains(&"released".to_owned()));
    });
}

/// The driver does not run while a process sleeps, so the guard notices the loss first.
#[test]
fn a_guard_that_ends_past_its_deadline_tells_of_the_loss() {
    for detaches in [false, true] {
        play(Level::WARN, async |scene, listener| {
            let client = scene.client().await;
            let guard = client.mutex("a").lock().await.expect("free");
            let lost = scene.host.task(guard.lost());
            scene.host.settle().await;
            scene.host.suspend(Duration::from_secs(60));
            if detaches {
                drop(guard.detach());
            } else {
                drop(guard);
            }
            scene.pass(ms(1_000)).await;
            assert!(lost.is_finished(), "the task that waits for the loss is woken");
            let lost = listener.event("lost");
            assert_eq!(lost.field("reason"), Lost::Deadline.to_string());
        });
    }
}

#[test]
fn a_loss_names_the_lock_where_only_warnings_are_wanted() {
    play(Level::WARN, async |scene, listener| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        let guard = client.mutex("a").lock().await.expect("free");
        let seen = other.inspect("a").await.expect("asked").holders[0].token.clone();
        let _ended = other.evict("a", &seen, "a test").await.expect("asked");
        assert_eq!(guard.lost().await, Lost::NotOurs);
        let lost = listener.event("lost");
        assert_eq!((lost.field("key"), lost.span), ("a", None), "no span is wanted");
        assert_eq!(lost.field("token_hint"), guard.token().hint());
        assert!(lost.number("held_ms") > 0, "{lost:?}");
        assert!(listener.spans().is_empty());
    });
}

#[test]
fn the_end_of_a_guard_says_what_becomes_of_the_lease() {
    play(Level::DEBUG, async |scene, listener| {
        let client = scene.client().await;
        // Use no fencing tokens, since they limit how often a lease is passed on.
        let mutex = client.mutex("a").fencing(false).keep_idle(ms(500));
        let guard = mutex.lock().await.expect("free");
        let asking = mutex.clone();
        let next = scene.host.task(async move { asking.lock().await.expect("in turn") });
        scene.pass(ms(10)).await;
        drop(guard);
        drop(next.await);
        drop(client.mutex("b").lock().await.expect("free"));
        let _token = client.mutex("c").lock().await.expect("free").detach();

        let events = listener.events();
        let all = |message| events.iter().filter(move |event| event.message == message);
        let released: Vec<_> =
            all("released").map(|event| (event.field("ended"), event.field("lease"))).collect();
        let ends = [("dropped", "passed"), ("dropped", "idle"), ("dropped", "freed")];
        assert_eq!(released, ends);
        let from: Vec<_> = all("acquired").map(|event| event.field("from")).collect();
        assert_eq!(from, ["store", "client", "store", "store"]);
        assert_eq!(listener.event("detached").field("key"), "c");
    });
}

#[test]
fn the_end_of_a_guard_whose_lock_stays_taken_says_so() {
    play(Level::DEBUG, async |scene, listener| {
        let client = scene.client().await;
        let mutex = |name: &str| client.mutex(name).min_hold(ms(10_000));
        drop(mutex("a").lock().await.expect("free"));
        let _kept = mutex("b").lock().await.expect("free").release().await.expect("confirmed");
        let guard = client.mutex("c").lock().await.expect("free");
        guard.keep_for(ms(10_000)).await.expect("confirmed");
        let events = listener.events();
        let released = events.iter().filter(|event| event.message == "released");
        let told: Vec<_> = released
            .map(|event| (event.field("key"), event.field("ended"), event.field("lease")))
            .collect();
        let expected =
            [("a", "dropped", "kept"), ("b", "released", "kept"), ("c", "released", "kept")];
        assert_eq!(told, expected);
    });
}

#[test]
fn an_ask_that_gets_no_lock_says_why_and_how_long_it_waited() {
    play(Level::DEBUG, async |scene, listener| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        let _held = other.mutex("a").lock().await.expect("free");
        let mutex = client.mutex("a");
        assert!(mutex.try_lock().await.expect("asked").is_none());
        let error = mutex.lock_timeout(ms(300)).await.expect_err("it is held");
        assert_eq!(error.kind(), ErrorKind::WaitElapsed);
        assert!(scene.host.within(ms(200), mutex.lock()).await.is_none());
        for (message, waited_ms, ended) in [
            ("taken", 0..100, "taken"),
            ("not acquired", 300..310, "failed"),
            ("stopped waiting", 200..210, "cancelled"),
        ] {
            let event = listener.event(message);
            assert!(waited_ms.contains(&event.number("waited_ms")), "{event:?}");
            let span = &listener.spans()[event.span.expect("in its span")];
            assert_eq!((span.fields["ended"].as_str(), span.is_closed()), (ended, true));
            assert_eq!(span.fields["waited_ms"], event.field("waited_ms"));
        }
    });
}

/// The store no longer knows the lease, so the release comes too late. Another client may have held
/// the lock.
#[test]
fn a_release_that_finds_another_holder_is_warned_of() {
    play(Level::WARN, async |scene, listener| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        for asks in [true, false] {
            let guard = client.mutex("a").lock().await.expect("free");
            let seen = other.inspect("a").await.expect("asked").holders[0].token.clone();
            let _ended = other.evict("a", &seen, "a test").await.expect("asked");
            if asks {
                assert_eq!(guard.release().await.expect("asked"), Release::NotHeld);
            } else {
                drop(guard);
                scene.pass(ms(500)).await;
            }
        }
        assert_eq!(listener.messages(), ["lost before its release"; 2]);
    });
}

/// The first request of the release ended the lease, so the second finds none.
#[test]
fn a_release_that_is_repeated_is_no_loss() {
    play(Level::WARN, async |scene, listener| {
        let client = scene.client().await;
        let guard = client.mutex("a").lock().await.expect("free");
        scene.faults.next(Request::Release, Fault::LoseReply);
        let error = guard.release().await.expect_err("no answer");
        assert_eq!(error.kind(), ErrorKind::Unknown);
        scene.pass(ms(500)).await;
        assert_eq!(scene.faults.count(Request::Release), 2);
        assert_eq!(listener.messages(), [""; 0]);
    });
}

/// The driver learns that the first request got no answer, and repeats it.
#[test]
fn a_release_of_a_dropped_guard_that_is_repeated_is_no_loss() {
    play(Level::WARN, async |scene, listener| {
        let client = scene.client().await;
        let guard = client.mutex("a").lock().await.expect("free");
        scene.faults.next(Request::Release, Fault::LoseReply);
        drop(guard);
        scene.pass(ms(2_000)).await;
        assert_eq!(scene.faults.count(Request::Release), 2);
        assert_eq!(listener.messages(), [""; 0]);
    });
}

#[test]
fn a_log_holds_no_owner_token() {
    play(Level::TRACE, async |scene, listener| {
        let (client, other) = (scene.client().await, scene.client().await);
        let guard = client.mutex("a").lock().await.expect("free");
        let token = guard.token().clone();
        let asking = other.mutex("a");
        let waiting = scene.host.task(async move { asking.lock().await.expect("in turn") });
        scene.pass(ms(2_000)).await;
        drop(guard);
        drop(waiting.await);
        let text = format!("{:?} {:?}", listener.events(), listener.spans());
        let (secret, _client) = token.as_str().split_once('.').expect("one of ours");
        assert!(!text.contains(secret), "{text}");
        assert!(
            text.contains(&format!("{:?}", token.hint())),
            "its first characters tell it apart"
        );
    });
}

#[test]
fn a_subscriber_that_wants_errors_only_is_told_nothing() {
    play(Level::ERROR, async |scene, listener| {
        let client = scene.client().await;
        let guard = client.mutex("a").lock().await.expect("free");
        scene.faults.from_now_on(Request::Renew, Fault::Refuse);
        guard.lost().await;
        assert!(listener.events().is_empty() && listener.spans().is_empty());
    });
}

#[test]
fn a_downgrade_of_a_lost_lock_tells_the_loss() {
    play(Level::INFO, async |scene, listener| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        let lock = client.rwlock("a");
        let writer = lock.write().await.expect("free");
        let token = writer.token().as_str().as_bytes().to_vec();
        let _ended = other.evict("a", &token, "a test").await.expect("asked");
        let error = lock.downgrade(writer).await.expect_err("it was evicted");
        assert_eq!(error.kind(), ErrorKind::Lost);
        let lost = listener.events().iter().filter(|event| event.message == "lost").count();
        assert_eq!(lost, 1, "{:#?}", listener.events());
        assert_eq!(listener.spans()[0].fields["ended"], "lost");
    });
}

#[test]
fn a_downgrade_that_is_dropped_ends_its_span() {
    play(Level::INFO, async |scene, listener| {
        let client = scene.client().await;
        let lock = client.rwlock("a");
        let writer = lock.write().await.expect("free");
        scene.faults.next(Request::Release, Fault::Late(ms(50)));
        assert!(scene.host.within(ms(10), lock.downgrade(writer)).await.is_none());
        assert_eq!(listener.spans()[0].fields["ended"], "dropped");
    });
}
