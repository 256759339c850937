//! One of many candidates leads, and every client can see who.

use std::sync::{Arc, Mutex};

use futures_util::FutureExt;
use leasehold::host::Host;
use leasehold::store::{
    AnyStore, BoxAnswer, Browse, Capabilities, LeaseId, OnRelease, Released, Store,
};
use leasehold::{Client, Election, ErrorKind, Leadership, Lost, Release};
use leasehold_testkit::faults::{Fault, Request};
use leasehold_testkit::virtual_host::Joined;

use super::{Scene, ms, play, play_on};
use crate::stores;

fn election(client: &Client, who: &str) -> Election {
    client.election("chores").why(who)
}

/// Starts a candidate, which waits in the line when this returns.
async fn candidate(scene: &Scene, client: &Client, who: &str) -> Joined<Leadership> {
    let election = election(client, who);
    let task =
        scene.host.task(async move { election.campaign().await.expect("elected in its turn") });
    scene.host.settle().await;
    task
}

#[test]
fn candidates_lead_in_the_order_in_which_they_came_each_with_a_higher_term() {
    play(0..3, async |scene| {
        let (ours, other) = (scene.client().await, scene.client().await);
        let mut leader = election(&ours, "0").campaign().await.expect("nobody leads");
        let mut waiting = Vec::new();
        // Two of them are tasks of the leader's own client.
        for (client, who) in [(&ours, "1"), (&other, "2"), (&ours, "3")] {
            waiting.push((candidate(scene, client, who).await, who));
        }
        for (next, who) in waiting {
            let before = leader.term();
            assert_eq!(leader.resign().await.expect("an answer"), Release::Released);
            leader = next.await;
            assert!(leader.is_leader() && leader.term() > before, "{who}");
            let seen = election(&other, "").leader().await.expect("asked").expect("one leads");
            assert_eq!((seen.why.as_deref(), seen.term), (Some(who), Some(leader.term())));
        }
    });
}

#[test]
fn a_resignation_costs_the_next_leader_no_time() {
    play(0..3, async |scene| {
        let (ours, other) = (scene.client().await, scene.client().await);
        let leader = election(&ours, "a").campaign().await.expect("nobody leads");
        let next = candidate(scene, &other, "b").await;
        let resigned_at = scene.host.now();
        drop(leader);
        let _leader = next.await;
        // A waiter at a file learns of the resignation some milliseconds later. The next poll is a
        // second away.
        assert!(scene.host.now() <= resigned_at + ms(10), "it is woken, and does not poll");
    });
}

#[test]
fn a_crashed_leader_knows_before_another_one_leads_and_that_is_within_its_ttl() {
    play(0..3, async |scene| {
        let (ours, other) = (scene.client().await, scene.calm_client().await);
        let leader = election(&ours, "a").campaign().await.expect("nobody leads");
        let next = candidate(scene, &other, "b").await;
        let crashed_at = scene.host.now();
        scene.faults.all_from_now_on(Fault::LoseRequest);
        assert_eq!(leader.lost().await, Lost::Deadline);
        assert!(!leader.is_leader());
        let told_at = scene.host.now();
        let following = next.await;
        assert!(following.term() > leader.term());
        assert!(told_at < scene.host.now() && scene.host.now() <= crashed_at + ms(3_050));
        scene.faults.heal();
    });
}

#[test]
fn an_observer_is_told_who_leads_at_once_and_then_of_each_change_alone() {
    play(0..3, async |scene| {
        let (ours, other) = (scene.client().await, scene.client().await);
        let mut leaders = election(&scene.calm_client().await, "").observe();
        assert_eq!(leaders.next().await.expect("asked"), None);
        let first = election(&ours, "a").campaign().await.expect("nobody leads");
        let seen = leaders.next().await.expect("asked").expect("one leads");
        assert_eq!((seen.why.as_deref(), seen.term), (Some("a"), Some(first.term())));

        let next = candidate(scene, &other, "b").await;
        // Renewals and new candidates do not count as a change.
        let changed = scene.host.task(async move { (leaders.next().await, leaders) });
        scene.pass(ms(30_000)).await;
        assert!(!changed.is_finished());
        let resigned_at = scene.host.now();
        drop(first);
        let second = next.await;
        let (seen, mut leaders) = changed.await;
        assert_eq!(seen.expect("asked").expect("one leads").why.as_deref(), Some("b"));
        assert!(scene.host.now() <= resigned_at + ms(1_000), "it looks every second");

        scene.faults.from_now_on(Request::Inspect, Fault::Refuse);
        let mut unlucky = election(&ours, "").observe();
        assert!(unlucky.next().await.expect_err("an outage").is_retryable());
        scene.faults.heal();
        assert!(unlucky.next().await.expect("it asks again").is_some());
        drop(second);
        assert_eq!(leaders.next().await.expect("asked"), None);
    });
}

#[test]
fn an_observer_of_a_short_ttl_looks_more_often() {
    looks_more_often(async |scene| election(&scene.calm_client().await, "").ttl(ms(300)));
}

#[test]
fn an_observer_of_a_client_with_a_short_ttl_looks_more_often() {
    looks_more_often(async |scene| election(&scene.client_of(ms(300)).await, ""));
}

fn looks_more_often(observed: impl AsyncFn(&Scene) -> Election) {
    play(0..3, async |scene| {
        let (ours, other) = (scene.client().await, scene.client().await);
        let first = election(&ours, "a").ttl(ms(300)).campaign().await.expect("nobody leads");
        let mut leaders = observed(scene).await.observe();
        assert!(leaders.next().await.expect("asked").is_some());
        let changed = scene.host.task(async move { leaders.next().await });
        scene.pass(ms(1_030)).await;
        drop(first);
        let second = election(&other, "b").ttl(ms(300)).campaign().await.expect("it is free");
        let seen = scene.host.within(ms(110), changed).await.expect("it looks every 100 ms");
        assert_eq!(seen.expect("asked").expect("one leads").term, Some(second.term()));
    });
}

/// Otherwise its caller would wait for a whole pause each time, and might never learn of a change.
#[test]
fn an_observer_that_gave_up_before_the_answer_asks_again_at_once() {
    play(0..3, async |scene| {
        let mut leaders = election(&scene.client().await, "").observe();
        for _ in 0..3 {
            scene.faults.next(Request::Inspect, Fault::Late(ms(100)));
            assert!(leaders.next().now_or_never().is_none(), "the answer is late");
        }
        let gave_up_at = scene.host.now();
        assert_eq!(leaders.next().await.expect("asked"), None);
        assert!(scene.host.now() < gave_up_at + ms(50), "it waited for its next request");
    });
}

#[test]
fn an_observer_ends_with_its_client() {
    play(0..3, async |scene| {
        let client = scene.client().await;
        let mut leaders = election(&client, "").observe();
        assert_eq!(leaders.next().await.expect("asked"), None);
        let changed = scene.host.task(async move { (leaders.next().await, leaders) });
        scene.pass(ms(5_000)).await;
        let _report = client.shutdown(ms(10)).await;
        let ended = scene.host.within(ms(100), changed).await.expect("it ends");
        let (ended, mut leaders) = ended;
        let looks = scene.faults.count(Request::Inspect);
        for error in [ended.expect_err("closed"), leaders.next().await.expect_err("closed")] {
            assert_eq!((error.kind(), error.name()), (ErrorKind::Closed, Some("chores")));
        }
        assert_eq!(scene.faults.count(Request::Inspect), looks, "no request was sent");
    });
}

/// With the token, anybody can end the lease of the leader.
#[test]
fn an_observer_does_not_show_the_token_of_the_leader() {
    play(0..1, async |scene| {
        let (ours, other) = (scene.client().await, scene.calm_client().await);
        let leader = election(&ours, "a").campaign().await.expect("nobody leads");
        let mut leaders = election(&other, "").observe();
        assert!(leaders.next().await.expect("asked").is_some());
        let shown = format!("{leaders:?} {leaders:#?}").replace(char::is_whitespace, "");
        let token = leader.guard().token().as_str();
        let bytes = format!("{:?}", token.as_bytes()).replace(char::is_whitespace, "");
        assert!(!shown.contains(token), "{shown}");
        assert!(!shown.contains(bytes.trim_matches(['[', ']'])), "{shown}");
    });
}

#[test]
fn a_candidate_that_gives_up_leaves_the_line() {
    play(0..3, async |scene| {
        let (ours, other) = (scene.client().await, scene.client().await);
        let leader = election(&ours, "a").campaign().await.expect("nobody leads");
        let gives_up = election(&other, "b");
        let mut campaign = Box::pin(gives_up.campaign());
        while ours.inspect("chores").await.expect("asked").waiters.is_empty() {
            assert!(campaign.as_mut().now_or_never().is_none(), "another one leads");
        }
        drop(campaign);
        scene.host.settle().await;
        let waiting = ours.inspect("chores").await.expect("asked").waiters;
        assert!(waiting.is_empty(), "{waiting:?}");
        drop(leader);
    });
}

/// A memory store that hides its fencing tokens.
struct Uncounted(AnyStore);

impl Store for Uncounted {
    fn capabilities(&self) -> Capabilities {
        let mut promised = self.0.capabilities();
        promised.fencing = false;
        promised
    }
    fn browse(&self) -> Option<&dyn Browse> {
        None
    }
    fn label(&self) -> String {
        "uncounted".to_owned()
    }

    leasehold_testkit::forward!(0: acquire, renew, release, inspect, watch, listen);
}

/// A memory store that says that its lines stand aside now and then. It notes the releases.
struct StandsAside(AnyStore, Arc<Mutex<Vec<OnRelease>>>);

impl Store for StandsAside {
    fn release(&self, lease: LeaseId, on_release: OnRelease) -> BoxAnswer<Released> {
        self.1.lock().expect("no panic").push(on_release);
        self.0.release(lease, OnRelease::Free)
    }
    fn capabilities(&self) -> Capabilities {
        let mut promised = self.0.capabilities();
        promised.opens = true;
        promised
    }
    fn browse(&self) -> Option<&dyn Browse> {
        None
    }
    fn label(&self) -> String {
        "stands aside".to_owned()
    }

    leasehold_testkit::forward!(0: acquire, renew, inspect, watch, listen);
}

/// Other libraries have no terms, so they have no turn. Nobody would lead meanwhile.
#[test]
fn the_line_of_an_election_never_stands_aside() {
    play_on(stores::memory, 0, async |scene| {
        let noted = Arc::<Mutex<Vec<OnRelease>>>::default();
        let store = StandsAside(scene.store().await, Arc::clone(&noted));
        let client = scene.client_on(AnyStore::new(store)).await;
        drop(client.mutex("chores").lock().await.expect("free"));
        let leader = election(&client, "a").campaign().await.expect("nobody leads");
        assert_eq!(leader.resign().await.expect("asked"), Release::Released);
        let noted = std::mem::take(&mut *noted.lock().expect("no panic"));
        assert_eq!(noted, [OnRelease::Open, OnRelease::Free]);
    });
}

/// An owner of permits has a fencing token too, but it leads nobody.
#[test]
fn a_name_that_others_share_has_no_leader() {
    play(0..1, async |scene| {
        let (ours, other) = (scene.client().await, scene.calm_client().await);
        let reader = other.rwlock("chores").read().await.expect("free");
        let permit = other.semaphore("jobs", 2).acquire().await.expect("free");
        for (name, word) in [("chores", "share this lock"), ("jobs", "permits")] {
            let election = ours.election(name);
            for error in [election.leader().await, election.observe().next().await] {
                let error = error.expect_err("no election");
                assert_eq!((error.kind(), error.name()), (ErrorKind::Config, Some(name)));
                assert!(error.to_string().contains(word), "{error}");
            }
        }
        drop((reader, permit));
    });
}

#[test]
fn a_store_without_fencing_tokens_elects_nobody_and_says_why() {
    play_on(stores::memory, 0, async |scene| {
        let client = scene.client_on(AnyStore::new(Uncounted(scene.store().await))).await;
        let error = election(&client, "a").campaign().await.expect_err("there are no terms");
        assert_eq!((error.kind(), error.name()), (ErrorKind::Unsupported, Some("chores")));
        assert!(client.mutex("chores").try_lock().await.expect("asked").is_some(), "it is free");
    });
}
