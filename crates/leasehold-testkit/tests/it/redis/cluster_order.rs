//! The order of requests in a cluster whose nodes the test plays.

use std::collections::VecDeque;
use std::future::Future as _;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Poll;
use std::time::Duration;

use leasehold::host::Host as _;
use leasehold::store::redis::{Connector, Opening, RedisStore};
use leasehold::store::{Ask, Claim, LeaseId, OnRelease, Renewal, Store as _};
use leasehold::{Error, ErrorKind, Key, OwnerToken, Ttl};
use leasehold_testkit::VirtualHost;
use leasehold_testkit::protocol::{self, Command, Later, Line, Refused, Value, greeting, served};

/// The slot of the key `a`.
pub(super) const SLOT: i64 = 15_495;

/// Two nodes, with ports 1 and 2.
#[derive(Clone, Default)]
pub(super) struct Nodes(Arc<Mutex<State>>);

#[derive(Default)]
pub(super) struct State {
    /// The node that has the slot of `a`, as both say. The second has slot 0, and the first has the
    /// rest.
    pub(super) owner: i64,
    /// Whether the first node has left, so that the second has all slots.
    pub(super) has_one_node: bool,
    /// The answers of the nodes to scripts. If none are left, they redirect to the owner or answer
    /// 1.
    pub(super) answers: VecDeque<Result<Value, Refused>>,
    /// Whether the first node keeps its answers back.
    is_slow: bool,
    later: Vec<Later>,
    /// Whether both nodes answer nothing.
    pub(super) is_mute: bool,
    pub(super) epoch: u32,
    /// Whether the first node is cut off from the second, which has all slots. The first does not
    /// know that.
    pub(super) is_first_cut_off: bool,
    /// Whether the second node answers nothing.
    pub(super) is_second_mute: bool,
    /// Whether the second node refuses connections.
    pub(super) is_second_down: bool,
    /// How long connecting to the second node takes.
    connects_within: Option<(Arc<VirtualHost>, Duration)>,
    /// For each script, the node, and the request.
    seen: Vec<(i64, String)>,
}

impl State {
    /// Makes the first node keep its answers back from now on.
    pub(super) const fn keep_answers_back(&mut self) {
        self.is_slow = true;
    }
}

/// One node.
struct Node {
    nodes: Nodes,
    port: u16,
}

impl Nodes {
    pub(super) fn new() -> Self {
        let nodes = Self::default();
        nodes.state().owner = 1;
        nodes
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no test panics under it")
    }

    fn serve(&self, port: u16, line: &Line, command: &Command) {
        let words: Vec<_> = command.args().map(String::from_utf8_lossy).collect();
        let mut state = self.state();
        let is_cut_off = state.is_first_cut_off && port == 1;
        let knows_one_node = state.has_one_node && !is_cut_off;
        let owner = if is_cut_off { 1 } else { state.owner };
        if state.is_mute || state.is_second_mute && port == 2 {
            state.later.push(line.later());
            return;
        }
        let health = if is_cut_off { "fail" } else { "ok" };
        let epoch = format!("cluster_state:{health}\r\ncluster_current_epoch:{}\r\n", state.epoch);
        let bytes = |text: &str| Value::Bytes(text.into());
        let answer = match &*words[0] {
            "CLUSTER" if words[1] == "INFO" => Ok(bytes(&epoch)),
            "CLUSTER" => {
                let range = |(first, last, port)| {
                    let node = Value::Array(vec![bytes("node"), Value::Int(port)]);
                    Value::Array(vec![Value::Int(first), Value::Int(last), node])
                };
                let rest = if knows_one_node { 2 } else { 1 };
                let ranges =
                    [(0, 0, 2), (1, SLOT - 1, rest), (SLOT, SLOT, owner), (SLOT + 1, 16_383, rest)];
                Ok(Value::Array(ranges.map(range).into()))
            }
            "ASKING" | "SUBSCRIBE" => {
                state.seen.push((port.into(), words[0].clone().into_owned()));
                Ok(bytes("OK"))
            }
            "EVAL" | "EVALSHA" if is_cut_off => {
                Err(Refused("CLUSTERDOWN The cluster is down".to_owned()))
            }
            "EVAL" | "EVALSHA" => {
                let keys: usize = words[2].parse().expect("a number");
                // The owner token is the first argument behind the keys.
                let what = match words[3 + keys..] {
                    [ref owner, ref word] if word == "hand" => format!("{owner} releases"),
                    // The fencing tokens that it reserves, and whether the counter is cold.
                    [ref owner, _, ref reserve, ref cold, _] if reserve != "0" && cold == "0" => {
                        format!("{owner} acquires by a warm counter")
                    }
                    [ref owner, _, _, _, _] => format!("{owner} acquires"),
                    ref rest => format!("{} renews", rest[0]),
                };
                state.seen.push((port.into(), what));
                if port == 1 && state.is_slow {
                    state.later.push(line.later());
                    return;
                }
                let moved = Err(Refused(format!("MOVED {SLOT} node:{owner}")));
                let usual = if owner == i64::from(port) { Ok(Value::Int(1)) } else { moved };
                state.answers.pop_front().unwrap_or(usual)
            }
            _ => match greeting(command, ["", ""]) {
                Some(greeting) => return line.answer(greeting),
                None => Ok(bytes("OK")),
            },
        };
        line.answer(protocol::answer(&answer));
    }

    /// Makes the first node say that the slot has moved, in the answers that it kept back.
    fn say_moved(&self) {
        self.say(&Err(Refused(format!("MOVED {SLOT} node:2"))));
    }

    /// Makes the first node grant, in the answers that it kept back.
    pub(super) fn say_granted(&self) {
        self.say(&Ok(Value::Int(1)));
    }

    fn say(&self, answer: &Result<Value, Refused>) {
        let later = std::mem::take(&mut self.state().later);
        later.into_iter().for_each(|later| later.say(protocol::answer(answer)));
    }

    pub(super) fn seen(&self) -> Vec<(i64, String)> {
        std::mem::take(&mut self.state().seen)
    }
}

impl Connector for Nodes {
    fn open(&self) -> Opening {
        unreachable!("only nodes are connected to")
    }

    fn label(&self) -> String {
        "redis+cluster://node:1".to_owned()
    }

    fn seeds(&self) -> Vec<(String, u16)> {
        vec![("node".to_owned(), 1)]
    }

    fn node(&self, _host: &str, port: u16) -> Option<Arc<dyn Connector>> {
        Some(Arc::new(Node { nodes: self.clone(), port }))
    }
}

impl Connector for Node {
    fn open(&self) -> Opening {
        let (nodes, port) = (self.nodes.clone(), self.port);
        let connects_within = nodes.state().connects_within.clone().filter(|_| port == 2);
        let is_down = nodes.state().is_second_down && port == 2;
        let (stream, _line) = served(move |line, command| nodes.serve(port, line, &command));
        Box::pin(async move {
            if let Some((host, span)) = connects_within {
                pass(&host, span).await;
            }
            if is_down {
                let why = "nobody can connect to the second node";
                return Err(Error::new(ErrorKind::Unavailable, why));
            }
            Ok(stream)
        })
    }

    fn label(&self) -> String {
        format!("redis://node:{}", self.port)
    }
}

fn lease(owner: &str) -> LeaseId {
    LeaseId {
        key: Key::new("a").expect("a name"),
        owner: OwnerToken::new(owner).expect("a token"),
        claim: Claim::Exclusive,
    }
}

pub(super) fn ask(owner: &str) -> Ask {
    let LeaseId { key, owner, claim } = lease(owner);
    Ask::new(key, owner, claim, Ttl::DEFAULT)
}

/// Plays with a connected store, on virtual time.
pub(super) fn play(nodes: &Nodes, run: impl AsyncFnOnce(&Arc<VirtualHost>, RedisStore)) {
    let host = VirtualHost::new(1);
    host.run(async {
        let store = RedisStore::connect_with(nodes.clone(), host.clone()).await;
        run(&host, store.expect("the nodes answer")).await;
    });
    host.drop_tasks();
}

pub(super) async fn pass(host: &VirtualHost, span: Duration) {
    host.sleep_until(host.now() + span).await;
}

pub(super) fn sent(node: i64, what: &str) -> (i64, String) {
    (node, what.to_owned())
}

/// If it did, a lease that no client knows of would be left behind.
#[test]
fn a_release_never_overtakes_the_request_before_it_though_the_map_has_changed_meanwhile() {
    let nodes = Nodes::new();
    play(&nodes, async |host, store| {
        nodes.state().is_slow = true;
        // The future is dropped at once.
        drop(store.acquire(ask("anna")));
        pass(host, Duration::from_millis(1)).await;
        assert_eq!(nodes.seen(), [sent(1, "anna acquires")]);
        // A renewal, which may be sent apart from other requests, learns that the slot has moved.
        nodes.state().owner = 2;
        nodes.state().is_slow = false;
        let _renewed = store.renew(Renewal::new(lease("bert"), Ttl::DEFAULT)).await;
        assert_eq!(nodes.seen(), [sent(1, "bert renews"), sent(2, "bert renews")]);
        nodes.state().is_slow = true;
        drop(store.release(lease("anna"), OnRelease::Free));
        pass(host, Duration::from_millis(1)).await;
        nodes.say_moved();
        pass(host, Duration::from_millis(50)).await;
        let seen: Vec<_> = nodes.seen().into_iter().filter(|(node, _)| *node == 2).collect();
        assert_eq!(seen, [sent(2, "anna acquires"), sent(2, "anna releases")]);
        // From now on, requests go to the new node at once.
        nodes.state().is_slow = false;
        let _acquired = store.acquire(ask("carl")).await;
        assert_eq!(nodes.seen(), [sent(2, "carl acquires")]);
    });
}

#[test]
fn a_release_never_overtakes_the_request_before_it_however_busy_the_slot_is() {
    let nodes = Nodes::new();
    play(&nodes, async |host, store| {
        nodes.state().is_slow = true;
        drop(store.acquire(ask("other")));
        pass(host, Duration::from_millis(1)).await;
        nodes.state().owner = 2;
        nodes.state().is_slow = false;
        let _renewed = store.renew(Renewal::new(lease("bert"), Ttl::DEFAULT)).await;
        nodes.state().is_slow = true;
        nodes.seen();
        // The first node answers each request after 180 ms.
        for number in 0..15 {
            pass(host, Duration::from_millis(90)).await;
            match number {
                11 => drop(store.acquire(ask("anna"))),
                12 => drop(store.release(lease("anna"), OnRelease::Free)),
                _ => drop(store.acquire(ask("other"))),
            }
            let oldest = (number > 0).then(|| nodes.state().later.pop()).flatten();
            if let Some(oldest) = oldest {
                oldest.say(protocol::answer(&Err(Refused(format!("MOVED {SLOT} node:2")))));
            }
        }
        nodes.say_moved();
        pass(host, Duration::from_millis(100)).await;
        let seen = nodes.seen();
        let anna: Vec<_> = seen.iter().filter(|(_, what)| what.starts_with("anna")).collect();
        assert_eq!(anna, [&sent(2, "anna acquires"), &sent(2, "anna releases")], "{seen:?}");
    });
}

#[test]
fn the_target_of_an_ask_gets_requests_in_order_though_the_map_is_read_meanwhile() {
    let nodes = Nodes::new();
    play(&nodes, async |host, store| {
        let ask_two = || Err(Refused(format!("ASK {SLOT} node:2")));
        let unserved = Err(Refused("CLUSTERDOWN no".to_owned()));
        nodes.state().answers.extend([ask_two(), unserved]);
        nodes.state().connects_within = Some((host.clone(), Duration::from_millis(500)));
        drop(store.acquire(ask("anna")));
        pass(host, Duration::from_millis(5)).await;
        nodes.state().connects_within = None;
        // The refusal makes the client read the map again.
        let _refused = store.renew(Renewal::new(lease("bert"), Ttl::DEFAULT)).await;
        pass(host, Duration::from_millis(150)).await;
        drop(store.release(lease("anna"), OnRelease::Free));
        nodes.state().answers.extend([Ok(Value::Int(1)), ask_two(), Ok(Value::Int(1))]);
        pass(host, Duration::from_millis(700)).await;
        let seen: Vec<_> = nodes.seen().into_iter().filter(|(node, _)| *node == 2).collect();
        let two = |what| [sent(2, "ASKING"), sent(2, what)];
        assert_eq!(seen, [two("anna acquires"), two("anna releases")].concat());
    });
}

/// A node that takes a slot over may refuse one request and serve the next.
#[test]
fn while_a_request_is_behind_asking_all_others_of_its_lock_wait() {
    let nodes = Nodes::new();
    play(&nodes, async |host, store| {
        let ask_two = || Err(Refused(format!("ASK {SLOT} node:2")));
        let try_again = Err(Refused("TRYAGAIN no".to_owned()));
        nodes.state().answers.extend([ask_two(), ask_two(), try_again]);
        drop(store.acquire(ask("anna")));
        drop(store.release(lease("anna"), OnRelease::Free));
        // The second node is the owner from now on.
        pass(host, Duration::from_millis(1)).await;
        nodes.state().owner = 2;
        drop(store.acquire(ask("bert")));
        pass(host, Duration::from_millis(200)).await;
        let seen: Vec<_> = nodes.seen().into_iter().filter(|(node, _)| *node == 2).collect();
        let acquires = "anna acquires";
        let first = [sent(2, "ASKING"), sent(2, acquires), sent(2, acquires)];
        let others = [sent(2, "anna releases"), sent(2, "bert acquires")];
        assert_eq!(seen, [&first[..], &others].concat());
    });
}

/// The same holds for a node that was named by `MOVED`, or that has the slot after a pause.
#[test]
fn a_request_that_was_refused_once_is_alone_when_it_is_sent_again() {
    let nodes = Nodes::new();
    play(&nodes, async |host, store| {
        let try_again = || Err(Refused("TRYAGAIN no".to_owned()));
        let moved = |node| Err(Refused(format!("MOVED {SLOT} node:{node}")));
        let (acquires, releases) = ("anna acquires", "anna releases");
        for (first, second, node) in [(try_again(), try_again(), 1), (moved(2), moved(1), 2)] {
            nodes.state().answers.extend([first.clone(), first, second, Ok(Value::Int(1))]);
            drop(store.acquire(ask("anna")));
            drop(store.release(lease("anna"), OnRelease::Free));
            pass(host, Duration::from_millis(200)).await;
            let seen = nodes.seen();
            let refused = [sent(1, acquires), sent(1, releases)];
            assert_eq!(seen[..3], [&refused[..], &[sent(node, acquires)]].concat());
            assert_eq!(seen[3..], [sent(1, acquires), sent(1, releases)]);
        }
    });
}

#[test]
fn a_request_waits_for_none_about_another_lock_of_its_slot() {
    let nodes = Nodes::new();
    play(&nodes, async |host, store| {
        nodes.state().answers.push_back(Err(Refused("TRYAGAIN no".to_owned())));
        drop(store.acquire(ask("anna")));
        pass(host, Duration::from_millis(5)).await;
        let mut other = ask("bert");
        other.key = Key::new("{a}b").expect("a name");
        let begun = host.now();
        let _acquired = store.acquire(other).await;
        assert!(host.now().since(begun) < Duration::from_millis(10));
        let seen: Vec<_> = nodes.seen().into_iter().map(|(_, what)| what).collect();
        assert_eq!(seen, ["anna acquires", "bert acquires"]);
    });
}

#[test]
fn an_answered_request_that_nobody_polls_holds_no_other_up() {
    let nodes = Nodes::new();
    play(&nodes, async |host, store| {
        let parked = store.acquire(ask("anna"));
        pass(host, Duration::from_millis(10)).await;
        nodes.state().owner = 2;
        let _renewed = store.renew(Renewal::new(lease("bert"), Ttl::DEFAULT)).await;
        nodes.seen();
        let begun = host.now();
        let _acquired = store.acquire(ask("carl")).await;
        assert_eq!(nodes.seen(), [sent(2, "carl acquires")]);
        assert!(host.now().since(begun) < Duration::from_millis(10));
        drop(parked);
    });
}

#[test]
fn a_new_request_queues_behind_one_that_pauses() {
    let nodes = Nodes::new();
    play(&nodes, async |host, store| {
        nodes.state().answers.push_back(Err(Refused("TRYAGAIN no".to_owned())));
        drop(store.acquire(ask("anna")));
        pass(host, Duration::from_millis(5)).await;
        drop(store.release(lease("anna"), OnRelease::Free));
        pass(host, Duration::from_millis(100)).await;
        let seen: Vec<_> = nodes.seen().into_iter().map(|(_, what)| what).collect();
        assert_eq!(seen, ["anna acquires", "anna acquires", "anna releases"]);
    });
}

#[test]
fn a_reading_of_the_map_that_nobody_waits_for_holds_nobody_up() {
    let nodes = Nodes::new();
    let host = VirtualHost::new(1);
    host.run(async {
        nodes.state().is_mute = true;
        let store = RedisStore::open(nodes.clone(), host.clone());
        let list = || store.browse().expect("it can").list("*", None);
        let mut parked = list();
        let mut polled = std::pin::pin!(std::future::poll_fn(|cx| {
            Poll::Ready(Pin::new(&mut parked).poll(cx).is_pending())
        }));
        assert!(polled.as_mut().await);
        let begun = host.now();
        let all = futures_util::future::join_all((0..30).map(|_| list())).await;
        assert!(all.iter().all(Result::is_err));
        let took = host.now().since(begun);
        assert!(took <= Duration::from_secs(3), "{took:?}");
        nodes.state().is_mute = false;
        pass(&host, Duration::from_millis(500)).await;
        let found = host.within(Duration::from_secs(5), list()).await;
        assert!(found.is_some(), "the parked one is still there");
    });
    host.drop_tasks();
}

#[test]
fn a_request_is_passed_on_within_its_limit_or_not_at_all() {
    let nodes = Nodes::new();
    play(&nodes, async |host, store| {
        nodes.state().connects_within = Some((host.clone(), Duration::from_millis(1_900)));
        nodes.state().answers.push_back(Err(Refused(format!("MOVED {SLOT} node:2"))));
        let _late = store.acquire(ask("anna")).await;
        pass(host, Duration::from_secs(5)).await;
        assert_eq!(nodes.seen(), [sent(1, "anna acquires")]);
    });
}

#[test]
fn requests_that_pause_ask_again_ever_more_slowly() {
    let nodes = Nodes::new();
    play(&nodes, async |_, store| {
        let try_again = || Err(Refused("TRYAGAIN no".to_owned()));
        nodes.state().answers = std::iter::repeat_with(try_again).take(10_000).collect();
        let renewals = (0..100)
            .map(|number| store.renew(Renewal::new(lease(&format!("o{number}")), Ttl::DEFAULT)));
        let renewed = futures_util::future::join_all(renewals).await;
        assert!(renewed.iter().all(Result::is_err));
        let requests = nodes.seen().len();
        assert!((500..1_000).contains(&requests), "{requests} requests");
    });
}

#[test]
fn requests_queue_behind_one_that_pauses() {
    let nodes = Nodes::new();
    play(&nodes, async |host, store| {
        let try_again = || Err(Refused("TRYAGAIN Multiple keys request".to_owned()));
        nodes.state().answers.extend([try_again(), try_again()]);
        drop(store.acquire(ask("anna")));
        drop(store.release(lease("anna"), OnRelease::Free));
        drop(store.acquire(ask("bert")));
        pass(host, Duration::from_millis(100)).await;
        let seen: Vec<_> = nodes.seen().into_iter().map(|(_, what)| what).collect();
        // The third request was under way when the others were refused.
        let twice = ["anna acquires", "anna releases"];
        assert_eq!(seen, [&twice[..], &["bert acquires"], &twice].concat());
    });
}

#[test]
fn a_node_is_asked_right_behind_asking() {
    let nodes = Nodes::new();
    play(&nodes, async |_, store| {
        nodes.state().answers.push_back(Err(Refused(format!("ASK {SLOT} node:2"))));
        nodes.state().answers.push_back(Ok(Value::Int(1)));
        let _acquired = store.acquire(ask("anna")).await;
        let acquires = "anna acquires";
        assert_eq!(nodes.seen(), [sent(1, acquires), sent(2, "ASKING"), sent(2, acquires)]);
        let _acquired = store.acquire(ask("bert")).await;
        assert_eq!(nodes.seen(), [sent(1, "bert acquires")], "the slot is still there");
    });
}
