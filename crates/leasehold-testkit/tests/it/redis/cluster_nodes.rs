//! Nodes of a cluster that leave or disagree, and slots that take long to move. The test plays the
//! nodes.

use std::collections::VecDeque;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use leasehold::core::token::ClientId;
use leasehold::host::Host as _;
use leasehold::store::redis::RedisStore;
use leasehold::store::{HintSink, Store as _};
use leasehold::{Error, ErrorKind};
use leasehold_testkit::protocol::{Refused, Value};
use leasehold_testkit::{Deaf, VirtualHost};

use super::cluster_order::{Nodes, SLOT, ask, pass, play, sent};
use crate::on_event::OnEvent;

impl Nodes {
    /// The second node has all slots from now on.
    fn first_leaves(&self) {
        let mut state = self.state();
        (state.owner, state.has_one_node, state.epoch) = (2, true, 1);
    }

    /// The second node has all slots from now on, and the first does not know that.
    fn first_is_cut_off(&self) {
        let mut state = self.state();
        (state.owner, state.has_one_node, state.is_first_cut_off) = (2, true, true);
    }

    /// Grants a fenced lock. Returns what the nodes saw.
    async fn grant_a_fenced_lock(&self, store: &RedisStore) -> Vec<(i64, String)> {
        let granted = Value::Array([1, 0, 7].map(Value::Int).into());
        self.state().answers = VecDeque::from([Ok(granted)]);
        let mut fenced = ask("anna");
        fenced.reserve = 1;
        let _granted = store.acquire(fenced).await;
        self.seen()
    }
}

/// The request for a fenced lock whose counter the client does not know, and knows.
const COLD: &str = "anna acquires";
const WARM: &str = "anna acquires by a warm counter";

/// A pause ends the count, because only redirections without a pause between them are limited.
#[test]
fn a_request_is_passed_on_however_often_it_has_paused() {
    let nodes = Nodes::new();
    play(&nodes, async |_, store| {
        let to_and_fro = || {
            let ask = Err(Refused(format!("ASK {SLOT} node:2")));
            [ask, Err(Refused("TRYAGAIN Multiple keys request".to_owned()))]
        };
        let last = [Err(Refused(format!("ASK {SLOT} node:2"))), Ok(Value::Int(1))];
        nodes.state().answers.extend((0..6).flat_map(|_| to_and_fro()).chain(last));
        store.acquire(ask("anna")).await.expect("granted in the end");
        assert_eq!(nodes.seen().last(), Some(&sent(2, "anna acquires")));
    });
}

#[test]
fn hints_are_listened_for_at_another_node_when_theirs_has_left() {
    let nodes = Nodes::new();
    play(&nodes, async |host, store| {
        let client = ClientId::from_random([7; ClientId::CHARS]);
        let sink: Arc<dyn HintSink> = Arc::new(Deaf);
        store.watch(&client, Arc::downgrade(&sink));
        store.listen(&client);
        pass(host, Duration::from_millis(100)).await;
        assert!(nodes.seen().contains(&sent(1, "SUBSCRIBE")));
        nodes.first_leaves();
        // The ask is told that the slot has moved, so the client reads the map again.
        let _granted = store.acquire(ask("anna")).await;
        pass(host, Duration::from_secs(2)).await;
        assert!(nodes.seen().contains(&sent(2, "SUBSCRIBE")));
    });
}

/// The old primary and the new one may tell the same epoch, since the old one hears of nothing.
#[test]
fn a_primary_that_is_cut_off_does_not_tell_where_the_slots_are() {
    let nodes = Nodes::new();
    play(&nodes, async |host, store| {
        store.acquire(ask("anna")).await.expect("granted");
        assert_eq!(nodes.seen().last(), Some(&sent(1, "anna acquires")));
        nodes.first_is_cut_off();
        // A request that is refused makes the client read the map again.
        let _refused = store.acquire(ask("bert")).await;
        pass(host, Duration::from_secs(2)).await;
        store.acquire(ask("carl")).await.expect("granted by the node that took over");
        assert_eq!(nodes.seen().last(), Some(&sent(2, "carl acquires")));
    });
}

/// A replica that lacks the last grants may have been the primary meanwhile. With a warm counter,
/// its fencing tokens would go on from its own last token.
#[test]
fn a_counter_is_warm_only_while_no_node_has_failed_over() {
    let nodes = Nodes::new();
    play(&nodes, async |host, store| {
        let next = async || nodes.grant_a_fenced_lock(&store).await;
        assert_eq!(next().await, [sent(1, COLD)]);
        assert_eq!(next().await, [sent(1, WARM)]);
        // These are a failover there and a failover back, which the next reading of the map
        // notices.
        nodes.state().epoch += 2;
        pass(host, Duration::from_secs(6)).await;
        assert_eq!(next().await, [sent(1, COLD)]);
        assert_eq!(next().await, [sent(1, WARM)]);
        // The client does not read the map while it is idle.
        pass(host, Duration::from_secs(20)).await;
        assert_eq!(next().await, [sent(1, COLD)]);
    });
}

/// The log panics when it is told that no node says which node has which slot.
#[test]
fn a_failover_is_noticed_although_the_log_panicked_at_an_earlier_reading_of_the_map() {
    let panics = Arc::<AtomicUsize>::default();
    let counted = Arc::clone(&panics);
    let broken = OnEvent::any(move |event| {
        if event.metadata().target().ends_with("::cluster::reading") {
            counted.fetch_add(1, Ordering::SeqCst);
            resume_unwind(Box::new("a defect of the user"));
        }
    });
    let nodes = Nodes::new();
    tracing::subscriber::with_default(broken, || {
        play(&nodes, async |host, store| {
            let next = async || nodes.grant_a_fenced_lock(&store).await;
            assert_eq!(next().await, [sent(1, COLD)]);
            assert_eq!(next().await, [sent(1, WARM)]);
            // The next reading of the map has no answer.
            nodes.state().is_mute = true;
            pass(host, Duration::from_secs(8)).await;
            assert_eq!(panics.load(Ordering::SeqCst), 1);
            nodes.state().is_mute = false;
            nodes.state().epoch += 2;
            pass(host, Duration::from_secs(8)).await;
            assert_eq!(next().await, [sent(1, COLD)]);
        });
    });
}

/// The waker of a caller whose executor is gone.
struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        resume_unwind(Box::new("a defect of the user"));
    }
}

#[test]
fn a_panic_of_a_callers_waker_delays_no_other_caller_that_waits_for_the_map() {
    let nodes = Nodes::new();
    let host = VirtualHost::new(1);
    host.run(async {
        let store = RedisStore::open(nodes.clone(), host.clone());
        let list = || store.browse().expect("it can").list("*", None);
        let waker = Waker::from(Arc::new(Panics));
        let mut parked = list();
        assert!(parked.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        assert!(host.within(Duration::from_secs(5), list()).await.is_some());
    });
    host.drop_tasks();
}

/// All nodes of the map were replaced, and the URL still names a node.
#[test]
fn the_node_of_the_url_is_asked_when_no_node_of_the_map_answers() {
    let nodes = Nodes::new();
    play(&nodes, async |host, store| {
        nodes.first_leaves();
        // The client is told that the slot has moved, so it reads the map again.
        let _granted = store.acquire(ask("anna")).await;
        pass(host, Duration::from_secs(6)).await;
        {
            let mut state = nodes.state();
            (state.owner, state.has_one_node, state.epoch) = (1, false, 2);
            (state.is_second_mute, state.is_second_down) = (true, true);
        }
        for _ in 0..20 {
            let _granted = store.acquire(ask("bert")).await;
            pass(host, Duration::from_secs(1)).await;
        }
        assert!(nodes.seen().contains(&sent(1, "bert acquires")));
    });
}

/// The first node may have lost numbers in between, as by two failovers.
#[test]
fn a_node_that_has_a_slot_again_is_not_trusted_with_its_counter() {
    let nodes = Nodes::new();
    play(&nodes, async |host, store| {
        let granted = || Ok(Value::Array([1, 7, 1].map(Value::Int).into()));
        for (before, owner) in [(1, 1), (1, 1), (1, 2), (2, 1), (1, 1)] {
            let moved = (before != owner).then(|| format!("MOVED {SLOT} node:{owner}"));
            nodes.state().owner = owner;
            nodes.state().answers = moved.map(|text| Err(Refused(text))).into_iter().collect();
            nodes.state().answers.push_back(granted());
            let mut ask = ask("anna");
            ask.reserve = 1;
            store.acquire(ask).await.expect("granted");
            // The map is read meanwhile, and says nothing new.
            pass(host, Duration::from_millis(200)).await;
        }
        let seen = nodes.seen();
        let warm: Vec<_> = seen.iter().filter(|(_, what)| what.ends_with("warm counter")).collect();
        // These are the second ask, and the ask that is told that the slot has moved.
        let by_warm = sent(1, "anna acquires by a warm counter");
        assert_eq!(warm, [&by_warm; 2], "{seen:?}");
    });
}

/// Only a refused request is sent alone. Otherwise a busy lock would be slow for ever after one
/// move.
#[test]
fn requests_that_only_waited_are_sent_together() {
    let nodes = Nodes::new();
    play(&nodes, async |host, store| {
        nodes.state().answers.push_back(Err(Refused("TRYAGAIN no".to_owned())));
        drop(store.acquire(ask("anna")));
        pass(host, Duration::from_millis(5)).await;
        nodes.state().keep_answers_back();
        for name in ["bert", "carl", "dora"] {
            drop(store.acquire(ask(name)));
        }
        pass(host, Duration::from_millis(100)).await;
        let acquires = |name: &str| sent(1, &format!("{name} acquires"));
        assert_eq!(nodes.seen(), [acquires("anna"), acquires("anna")], "it is alone");
        nodes.say_granted();
        pass(host, Duration::from_millis(1)).await;
        assert_eq!(nodes.seen(), ["bert", "carl", "dora"].map(acquires));
    });
}

#[test]
fn a_request_that_cannot_be_passed_on_holds_no_other_up() {
    let nodes = Nodes::new();
    play(&nodes, async |host, store| {
        (nodes.state().owner, nodes.state().is_second_down) = (2, true);
        let parked = store.acquire(ask("anna"));
        pass(host, Duration::from_millis(100)).await;
        nodes.state().is_second_down = false;
        pass(host, Duration::from_millis(500)).await;
        nodes.seen();
        let begun = host.now();
        let _acquired = store.acquire(ask("bert")).await;
        assert_eq!(nodes.seen(), [sent(2, "bert acquires")]);
        assert!(host.now().since(begun) < Duration::from_millis(10));
        drop(parked);
    });
}

async fn refused(store: &RedisStore) -> Error {
    store.acquire(ask("anna")).await.expect_err("nobody serves it")
}

#[test]
fn nodes_that_refer_to_each_other_for_ever_hold_nobody_up() {
    let nodes = Nodes::new();
    play(&nodes, async |host, store| {
        let unnamed = ["MOVED 15495 ?:6379", "MOVED 15495 node:0", "MOVED", "MOVED 99999 node:2"];
        let named = ["MOVED 15495 node:2", "ASK 15495 node:1", "TRYAGAIN no"];
        for says in named.into_iter().chain(unnamed) {
            let begun = host.now();
            let answers = std::iter::repeat_with(|| Err(Refused(says.to_owned()))).take(100_000);
            nodes.state().answers = answers.collect();
            let error = refused(&store).await;
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{says}: {error}");
            assert!(error.to_string().contains("just moving the slot"), "{says}: {error}");
            assert!(host.now().since(begun) <= Duration::from_secs(1), "{says}");
            let requests = nodes.seen().len();
            assert!(requests < 1_000, "{says}: {requests} requests");
        }
        nodes.state().answers = VecDeque::from([Err(Refused("CLUSTERDOWN no".to_owned()))]);
        refused(&store).await;
        assert_eq!(nodes.seen().len(), 1);
    });
}
