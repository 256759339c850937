//! The hints of all nodes, merged into one stream.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::core::Moment;
use leasehold::core::token::ClientId;
use leasehold::host::Host;
use leasehold::store::{Hint, HintSink, Store as _};
use leasehold::{Client, OwnerToken};
use leasehold_testkit::VirtualHost;
use leasehold_testkit::faults::{Hints, Request};

use super::{Scene, TTL, key, ms, play};

/// Records every hint with its time.
struct Notes {
    host: Arc<VirtualHost>,
    heard: Mutex<Vec<(Moment, Hint)>>,
}

impl HintSink for Notes {
    fn hint(&self, hint: Hint) {
        self.heard.lock().expect("no panic").push((self.host.now(), hint));
    }
}

impl Notes {
    fn take(&self) -> Vec<(Moment, Hint)> {
        std::mem::take(&mut self.heard.lock().expect("no panic"))
    }
}

/// Makes nodes send these hints. Returns the time of sending, and the hints that a listener gets.
async fn heard(scene: &Scene, hints: &[(usize, Hint)]) -> (Moment, Vec<(Moment, Hint)>) {
    let quorum = scene.quorum(scene.faulty()).await;
    let heard = Mutex::default();
    let notes = Arc::new(Notes { host: scene.host.clone(), heard });
    let sink: Arc<dyn HintSink> = notes.clone();
    quorum.watch(&ClientId::from_random([5; ClientId::CHARS]), Arc::downgrade(&sink));
    let sent = scene.host.now();
    for (node, hint) in hints {
        scene.faults[*node].forge(hint);
    }
    scene.pass(ms(1_000)).await;
    (sent, notes.take())
}

fn free() -> Hint {
    Hint::MaybeFree { key: key("a") }
}

#[test]
fn a_hint_of_a_majority_is_passed_on_once_and_at_once() {
    for hint in [free(), Hint::Missed] {
        play(&[3, 5], 0..3, async |scene| {
            let hints: Vec<_> = (0..scene.nodes.len()).map(|node| (node, hint.clone())).collect();
            let (sent, heard) = heard(scene, &hints).await;
            assert_eq!(heard, [(sent, hint.clone())]);
        });
    }
}

#[test]
fn a_hint_of_one_node_is_passed_on_after_about_a_round_trip() {
    for hint in [free(), Hint::Missed] {
        play(&[3, 5], 0..10, async |scene| {
            // The delays let the quorum learn the usual round trip.
            scene.faults.iter().for_each(|faults| faults.delay_up_to(ms(20)));
            let twice = [(0, hint.clone()), (0, hint.clone())];
            let (sent, heard) = heard(scene, &twice).await;
            let [(at, what)] = &heard[..] else { panic!("heard {heard:?}") };
            assert_eq!(*what, hint);
            assert!(at.since(sent) <= ms(40), "{:?}", at.since(sent));
        });
    }
}

#[test]
fn a_hint_that_is_repeated_later_is_passed_on_again() {
    play(&[3], 0..3, async |scene| {
        let quorum = scene.quorum(scene.faulty()).await;
        let notes = Arc::new(Notes { host: scene.host.clone(), heard: Mutex::default() });
        let sink: Arc<dyn HintSink> = notes.clone();
        quorum.watch(&ClientId::from_random([5; ClientId::CHARS]), Arc::downgrade(&sink));
        for _ in 0..3 {
            scene.faults.iter().for_each(|faults| faults.forge(&free()));
            scene.faults[1].forge(&free());
            scene.pass(ms(100)).await;
            // A repeated hint of one node is new information, and must not be dropped.
            let heard = notes.take();
            assert!((1..=2).contains(&heard.len()), "{heard:?}");
        }
    });
}

/// The key may have been taken and freed again since the hints of the majority came.
#[test]
fn a_hint_that_a_node_repeats_at_once_is_passed_on_again() {
    play(&[3], 0..10, async |scene| {
        scene.faults.iter().for_each(|faults| faults.delay_up_to(ms(20)));
        let hints = [(0, free()), (1, free()), (1, free())];
        let (sent, heard) = heard(scene, &hints).await;
        let [(at, _), (again, _)] = &heard[..] else { panic!("heard {heard:?}") };
        assert_eq!(*at, sent);
        assert!(again.since(sent) <= ms(40), "{:?}", again.since(sent));
    });
}

/// No single node can give away a lock that takes a majority.
#[test]
fn a_grant_that_a_node_speaks_of_is_no_grant() {
    play(&[3], 0..3, async |scene| {
        let owner = OwnerToken::new("ABCDEFGHIJKLMNOPQRSTUV").expect("a good token");
        let granted = Hint::Granted { key: key("a"), owner, fencing: None, ask_no: 1 };
        let hints: Vec<_> = (0..3).map(|node| (node, granted.clone())).collect();
        let (sent, heard) = heard(scene, &hints).await;
        assert_eq!(heard, [(sent, free())]);
    });
}

/// If all nodes report missed hints at the same time, the client asks once, and not once for each
/// node.
#[test]
fn hints_that_may_have_been_missed_at_all_nodes_cost_one_ask() {
    play(&[3, 5], 0..3, async |scene| {
        let (client, other) = (scene.client().await, scene.calm_client().await);
        let _held = other.mutex("a").ttl(TTL * 100).lock().await.expect("free");
        let waiting = scene.host.task(async move { client.mutex("a").lock().await.map(drop) });
        scene.pass(ms(100)).await;
        let before = scene.counts(Request::Acquire);
        scene.faults.iter().for_each(|faults| faults.forge(&Hint::Missed));
        scene.pass(ms(100)).await;
        let after = scene.counts(Request::Acquire);
        for (after, before) in after.iter().zip(before) {
            assert_eq!(after - before, 1);
        }
        drop(waiting);
    });
}

/// A client that keeps a lock without a guard, and another one that finds it taken.
async fn idle(scene: &Scene) -> (Client, Client) {
    let (client, other) = (scene.client().await, scene.calm_client().await);
    let kept = client.mutex("a").keep_idle(Duration::from_hours(1));
    drop(kept.lock().await.expect("free"));
    // By now a renewal has shown the lock as idle. The next one is due much later.
    scene.pass(ms(300)).await;
    assert!(other.mutex("a").try_lock().await.expect("asked").is_none(), "it is kept");
    (client, other)
}

#[test]
fn an_idle_lock_is_given_up_as_soon_as_its_nodes_say_that_another_client_waits() {
    play(&[3, 5], 0..3, async |scene| {
        let (client, other) = idle(scene).await;
        let renewals = scene.counts(Request::Renew);
        let waiting = other.mutex("a");
        let guard = scene.host.within(ms(50), waiting.lock()).await;
        assert!(guard.expect("soon").expect("in turn").is_held());
        assert_eq!(scene.counts(Request::Renew), renewals, "a renewal told the client");
        drop(client);
    });
}

/// Without hints, only the answers to renewals tell that another client waits.
#[test]
fn an_idle_lock_of_a_client_that_hears_no_hints_is_given_up_at_its_next_renewal() {
    play(&[3, 5], 0..3, async |scene| {
        let (client, other) = idle(scene).await;
        scene.faults.iter().for_each(|faults| faults.hints(Hints::AreLost));
        let waiting = other.mutex("a");
        // This is a third of the ttl, and a tick of the driver.
        let guard = scene.host.within(TTL / 3 + ms(100), waiting.lock()).await;
        assert!(guard.expect("at a renewal").expect("in turn").is_held());
        drop(client);
    });
}

/// A quorum gathers hints about 4096 keys at a time. It passes further ones on at once.
#[test]
fn hints_about_more_keys_than_are_gathered_are_heard_too() {
    play(&[3], 0..1, async |scene| {
        let hint = |number: u32| (0, Hint::MaybeFree { key: key(&format!("k{number}")) });
        let hints: Vec<_> = (0..4_200).map(hint).collect();
        let (_, heard) = heard(scene, &hints).await;
        let keys: BTreeSet<_> = heard.iter().map(|(_, hint)| format!("{hint:?}")).collect();
        assert_eq!((heard.len(), keys.len()), (hints.len(), hints.len()));
    });
}
