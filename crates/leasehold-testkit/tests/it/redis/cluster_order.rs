//! The order of requests in a cluster whose nodes the test plays, and nodes that disagree.

use std::collections::VecDeque;
use std::future::ready;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use leasehold::host::Host as _;
use leasehold::store::redis::{Connector, Opening, RedisStore};
use leasehold::store::{Ask, Claim, LeaseId, OnRelease, Renewal, Store as _};
use leasehold::{Error, ErrorKind, Key, OwnerToken, Ttl};
use leasehold_testkit::VirtualHost;
use leasehold_testkit::protocol::{self, Command, Later, Line, Refused, Value, greeting, served};

/// The slot of the key `a`.
const SLOT: i64 = 15_495;

/// Two nodes, with ports 1 and 2.
#[derive(Clone, Default)]
struct Nodes(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// The node that has all slots, as both say.
    owner: i64,
    /// What the nodes say to scripts. With nothing left, they redirect to the owner or answer 1.
    answers: VecDeque<Result<Value, Refused>>,
    /// Whether the first node keeps its answers back.
    is_slow: bool,
    later: Vec<Later>,
    /// For each script, the node, and what is asked of it.
    seen: Vec<(i64, String)>,
}

/// One node.
struct Node {
    nodes: Nodes,
    port: u16,
}

impl Nodes {
    fn new() -> Self {
        let nodes = Self::default();
        nodes.state().owner = 1;
        nodes
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no test panics under it")
    }

    fn serve(&self, port: u16, line: &Line, command: &Command) {
        let words: Vec<_> = command.args().map(String::from_utf8_lossy).collect();
        let mut state = self.state();
        let owner = state.owner;
        let bytes = |text: &str| Value::Bytes(text.into());
        let answer = match &*words[0] {
            "CLUSTER" if words[1] == "INFO" => Ok(bytes("cluster_current_epoch:1\r\n")),
            "CLUSTER" => {
                let node = Value::Array(vec![bytes("node"), Value::Int(owner)]);
                let range = vec![Value::Int(0), Value::Int(16_383), node];
                Ok(Value::Array(vec![Value::Array(range)]))
            }
            "ASKING" => {
                state.seen.push((port.into(), "ASKING".to_owned()));
                Ok(bytes("OK"))
            }
            "EVAL" | "EVALSHA" => {
                let keys: usize = words[2].parse().expect("a number");
                // The owner token is the first argument behind the keys.
                let what = match words[3 + keys..] {
                    [ref owner] => format!("{owner} releases"),
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

    /// The first node gives the answers that it kept back.
    fn say_moved(&self) {
        let later = std::mem::take(&mut self.state().later);
        for later in later {
            later.say(protocol::answer(&Err(Refused(format!("MOVED {SLOT} node:2")))));
        }
    }

    fn seen(&self) -> Vec<(i64, String)> {
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
        let (stream, _line) = served(move |line, command| nodes.serve(port, line, &command));
        Box::pin(ready(Ok(stream)))
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

fn ask(owner: &str) -> Ask {
    let LeaseId { key, owner, claim } = lease(owner);
    Ask::new(key, owner, claim, Ttl::DEFAULT)
}

/// Plays with a connected store, on virtual time.
fn play(nodes: &Nodes, run: impl AsyncFnOnce(&Arc<VirtualHost>, RedisStore)) {
    let host = VirtualHost::new(1);
    host.run(async {
        let store = RedisStore::connect_with(nodes.clone(), host.clone()).await;
        run(&host, store.expect("the nodes answer")).await;
    });
    host.drop_tasks();
}

async fn pass(host: &VirtualHost, span: Duration) {
    host.sleep_until(host.now() + span).await;
}

fn sent(node: i64, what: &str) -> (i64, String) {
    (node, what.to_owned())
}

/// Or a lease would be left behind that nobody knows of.
#[test]
fn a_release_never_overtakes_the_request_before_it_though_the_map_has_changed_meanwhile() {
    let nodes = Nodes::new();
    play(&nodes, async |host, store| {
        nodes.state().is_slow = true;
        // Its future is dropped at once.
        drop(store.acquire(ask("anna")));
        pass(host, Duration::from_millis(1)).await;
        assert_eq!(nodes.seen(), [sent(1, "anna acquires")]);
        // A renewal, which may travel apart from the others, learns that the slot has moved.
        nodes.state().owner = 2;
        nodes.state().is_slow = false;
        let _renewed = store.renew(Renewal::new(lease("bert"), Ttl::DEFAULT)).await;
        assert_eq!(nodes.seen(), [sent(1, "bert renews"), sent(2, "bert renews")]);
        nodes.state().is_slow = true;
        drop(store.release(lease("anna"), OnRelease::Free));
        pass(host, Duration::from_millis(1)).await;
        nodes.say_moved();
        pass(host, Duration::from_millis(1)).await;
        let seen: Vec<_> = nodes.seen().into_iter().filter(|(node, _)| *node == 2).collect();
        assert_eq!(seen, [sent(2, "anna acquires"), sent(2, "anna releases")]);
        // From now on, requests go to the new node at once.
        nodes.state().is_slow = false;
        let _acquired = store.acquire(ask("carl")).await;
        assert_eq!(nodes.seen(), [sent(2, "carl acquires")]);
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
        // The third one was under way when the others were refused.
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

async fn refused(store: &RedisStore) -> Error {
    store.acquire(ask("anna")).await.expect_err("nobody serves it")
}

#[test]
fn nodes_that_refer_to_each_other_for_ever_hold_nobody_up() {
    let nodes = Nodes::new();
    play(&nodes, async |host, store| {
        for says in ["MOVED 15495 node:2", "ASK 15495 node:1", "TRYAGAIN no"] {
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
        for says in ["CLUSTERDOWN Hash slot not served", "MOVED 99999 node:2"] {
            nodes.state().answers = VecDeque::from([Err(Refused(says.to_owned()))]);
            refused(&store).await;
            assert_eq!(nodes.seen().len(), 1, "{says}");
        }
    });
}
