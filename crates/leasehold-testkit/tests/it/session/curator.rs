//! The documented behaviour of Curator's `LeaderSelector`, with the means of Leasehold.

use leasehold::{Client, Election, Leadership, Lost, Release};
use leasehold_testkit::faults::Fault;
use leasehold_testkit::virtual_host::Joined;

use super::{Scene, TOLD, ms, play};

fn election(client: &Client, who: &str) -> Election {
    client.election("selector").why(who)
}

async fn candidate(scene: &Scene, client: &Client, who: &str) -> Joined<Leadership> {
    let election = election(client, who);
    let task = scene.host.task(async move { election.campaign().await.expect("in its turn") });
    scene.host.settle().await;
    task
}

/// `autoRequeue`: a leader that gives up leadership and wants it again waits behind all others.
#[test]
fn a_leader_that_resigns_and_campaigns_again_is_the_last_in_line() {
    play(0..2, async |scene| {
        let clients = [scene.client().await, scene.client().await, scene.client().await];
        let names = ["a", "b", "c"];
        let mut leader = election(&clients[0], "a").campaign().await.expect("nobody leads");
        let mut line = Vec::new();
        for at in [1, 2] {
            line.push((at, candidate(scene, &clients[at], names[at]).await));
        }
        let mut led = Vec::new();
        let mut leads = 0;
        for _ in 0..7 {
            led.push(names[leads]);
            drop(leader);
            line.push((leads, candidate(scene, &clients[leads], names[leads]).await));
            let (next, told) = line.remove(0);
            (leader, leads) = (told.await, next);
        }
        assert_eq!(led, ["a", "b", "c", "a", "b", "c", "a"]);
    });
}

/// In Curator, a listener must give up leadership on `SUSPENDED`. Here, the leader is always told
/// before another one leads.
#[test]
fn a_leader_without_its_store_is_told_before_another_one_leads_and_may_campaign_again() {
    play(0..2, async |scene| {
        let (ours, other) = (scene.client().await, scene.calm_client().await);
        let leader = election(&ours, "a").campaign().await.expect("nobody leads");
        let next = candidate(scene, &other, "b").await;
        scene.faults.all_from_now_on(Fault::LoseRequest);
        assert_eq!(scene.host.within(ms(3_000), leader.lost()).await, Some(Lost::Deadline));
        assert!(!next.is_finished(), "nobody else leads yet");
        let following = next.await;
        scene.faults.heal();
        assert_eq!(leader.resign().await.expect("asked"), Release::NotHeld);
        assert!(following.is_leader(), "the late client takes nothing away");
        let again = candidate(scene, &ours, "a").await;
        drop(following);
        assert!(again.await.is_leader());
    });
}

/// `getLeader` and `getParticipants`.
#[test]
fn everybody_sees_who_leads_and_how_many_want_to() {
    play(0..2, async |scene| {
        let clients = [scene.client().await, scene.client().await, scene.calm_client().await];
        let observer = &clients[2];
        assert_eq!(election(observer, "").leader().await.expect("asked"), None);
        let leader = election(&clients[0], "a").campaign().await.expect("nobody leads");
        let waiting = candidate(scene, &clients[1], "b").await;
        let seen = election(observer, "").leader().await.expect("asked").expect("one leads");
        assert_eq!((seen.why.as_deref(), seen.term), (Some("a"), Some(leader.term())));
        assert_eq!(observer.inspect("selector").await.expect("asked").waiting, 1);
        drop(leader);
        let _leader = waiting.await;
        assert_eq!(observer.inspect("selector").await.expect("asked").waiting, 0);
    });
}

/// `interruptLeadership`: here any operator may end the leadership, and the leader is told.
#[test]
fn a_leader_that_an_operator_ends_is_told() {
    play(0..2, async |scene| {
        let (ours, other) = (scene.client().await, scene.calm_client().await);
        let leader = election(&ours, "a").campaign().await.expect("nobody leads");
        let seen = leader.guard().token().as_str().as_bytes().to_vec();
        let _evicted = other.evict("selector", &seen, "a test").await.expect("asked");
        assert!(scene.host.within(TOLD, leader.lost()).await.is_some());
        assert!(election(&other, "b").campaign().await.expect("free").term() > leader.term());
    });
}
