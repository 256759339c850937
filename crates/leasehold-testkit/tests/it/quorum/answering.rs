//! Nodes that answer requests for locks, and promise things, in ways that only some stores do.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leasehold::core::Ttl;
use leasehold::core::token::{ClientId, OwnerToken};
use leasehold::host::Host;
use leasehold::store::{
    Acquired, Afterwards, Ask, BoxAnswer, Capabilities, Claim, Line, MemoryStore, Quorum, Reach,
    Refusal, Store, Why,
};
use leasehold::{Error, ErrorKind};

use super::{Scene, key, ms, play};

/// A store that answers requests for locks in its own way. `None`: as the store behind it.
#[derive(Clone)]
struct Answering {
    store: MemoryStore,
    answer: fn(&Ask) -> Option<Result<Acquired, Error>>,
    promises: Capabilities,
}

impl Store for Answering {
    fn acquire(&self, ask: Ask) -> BoxAnswer<Acquired> {
        match (self.answer)(&ask) {
            Some(answer) => Box::pin(async move { answer }),
            None => self.store.acquire(ask),
        }
    }

    fn capabilities(&self) -> Capabilities {
        self.promises
    }

    leasehold_testkit::forward!(store: renew, release, inspect, watch);
    leasehold_testkit::forward!(store: listen, let_go, browse, label);
}

/// The nodes of the scene, which answer requests for locks like this.
fn answering(scene: &Scene, answer: fn(&Ask) -> Option<Result<Acquired, Error>>) -> Vec<Answering> {
    let node = |store: &MemoryStore| {
        let (store, promises) = (store.clone(), store.capabilities());
        Answering { store, answer, promises }
    };
    scene.nodes.iter().map(node).collect()
}

fn ask() -> Ask {
    let owner = OwnerToken::new("anna").expect("a token");
    Ask::new(key("a"), owner, Claim::Exclusive, Ttl::DEFAULT)
}

fn short(ask: &Ask) -> Option<Refusal> {
    let cause = || Error::new(ErrorKind::Unavailable, "too few copies");
    (ask.key == key("a")).then(|| Refusal::too_few_copies(cause()))
}

/// The nodes have released the grants of that token, so a later grant must have another one.
#[test]
fn a_token_whose_grants_had_too_few_copies_at_the_nodes_is_not_used_again() {
    play(&[1, 3, 4], 0..1, async |scene| {
        let nodes = answering(scene, |ask| Some(Ok(short(ask)?.into())));
        let in_vain = answering(scene, |ask| {
            Some(Ok(short(ask)?.at_once().with_token(Afterwards::Leave).into()))
        });
        for (nodes, retry_in) in [(nodes, None), (in_vain, Some(Duration::ZERO))] {
            let quorum = scene.quorum(nodes).await;
            let answer = quorum.acquire(ask()).await.expect("an answer");
            let Acquired::Refused(refusal) = answer else { panic!("granted") };
            assert!(matches!(refusal.why, Why::TooFewCopies(_)), "{refusal:?}");
            assert_eq!((refusal.retry_in, refusal.token), (retry_in, Afterwards::Leave));
        }
    });
}

/// A late copy of the release of the spent token would end a later lease of it.
#[test]
fn a_waiter_leaves_a_token_that_one_node_has_spent_although_the_lock_is_taken() {
    play(&[3], 0..1, async |scene| {
        let mut nodes = answering(scene, |_| None);
        let holder = scene.quorum(nodes.clone()).await;
        let mut held = ask();
        held.owner = OwnerToken::new("bert").expect("a token");
        let granted = holder.acquire(held).await.expect("an answer");
        assert!(matches!(granted, Acquired::Granted { .. }), "{granted:?}");
        nodes[0].answer = |ask| Some(Ok(short(ask)?.into()));
        let quorum = scene.quorum(nodes).await;
        let inbox = ClientId::from_random([1; ClientId::CHARS]);
        let mut waits = ask();
        waits.line = Line::Watch { waiter_ttl: Ttl::DEFAULT, ask_no: 1, inbox };
        let answer = quorum.acquire(waits).await.expect("an answer");
        let Acquired::Refused(refusal) = answer else { panic!("granted") };
        assert!(refusal.is_taken(), "{refusal:?}");
        assert_eq!(refusal.token, Afterwards::Spent);
        scene.host.settle().await;
        for node in &scene.nodes[1..] {
            let seen = node.inspect(key("a")).await.expect("it is in memory");
            assert_eq!((seen.holders.len(), seen.waiting), (1, 0), "its places are left");
        }
    });
}

#[test]
fn a_node_that_has_spent_the_token_of_a_lease_is_not_asked_for_it_again() {
    static ASKED_AGAIN: AtomicUsize = AtomicUsize::new(0);
    /// The lock is taken at first. The lease has fencing tokens, and is asked for again without.
    fn answer(ask: &Ask) -> Option<Result<Acquired, Error>> {
        let spent = short(ask)?;
        if ask.reserve > 0 {
            return Some(Ok(Refusal::taken(Some(ms(10)), 0).into()));
        }
        ASKED_AGAIN.fetch_add(1, Ordering::SeqCst);
        Some(Ok(spent.into()))
    }
    play(&[3], 0..1, async |scene| {
        let mut nodes = answering(scene, |_| None);
        nodes[0].answer = answer;
        let quorum = scene.quorum(nodes).await;
        let mut fenced = ask();
        fenced.reserve = 1;
        let granted = quorum.acquire(fenced).await.expect("an answer");
        assert!(matches!(granted, Acquired::Granted { .. }), "{granted:?}");
        scene.pass(ms(5_000)).await;
        assert_eq!(ASKED_AGAIN.load(Ordering::SeqCst), 1);
    });
}

/// Trying again does not help, so somebody has to change something although the others work.
#[test]
fn a_quorum_is_not_opened_while_one_node_refuses_for_good() {
    use ErrorKind::{Config, Denied, Unavailable, Unsupported};
    type Answer = Option<Result<Acquired, Error>>;
    type Case = (ErrorKind, fn(&Ask) -> Answer);
    fn refuse(kind: ErrorKind) -> Answer {
        Some(Err(Error::new(kind, "it refuses")))
    }
    play(&[3, 5], 0..1, async |scene| {
        let host = || -> std::sync::Arc<dyn Host> { scene.host.clone() };
        let answers: [Case; 4] = [
            (Denied, |_| refuse(Denied)),
            (Config, |_| refuse(Config)),
            (Unsupported, |_| refuse(Unsupported)),
            (Unavailable, |_| refuse(Unavailable)),
        ];
        for (kind, answer) in answers {
            let mut nodes = answering(scene, |_| None);
            nodes[1].answer = answer;
            let opened = Quorum::connect(nodes, host()).await;
            if kind == Unavailable {
                assert!(opened.is_ok(), "a minority may be out of reach");
                continue;
            }
            let error = opened.expect_err("it will not go away by itself");
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.to_string().contains("memory:n1: it refuses"), "{error}");
        }
    });
}

/// A quorum cannot promise anything that one of its nodes does not do.
#[test]
fn a_quorum_promises_what_each_of_its_nodes_does_and_no_more() {
    play(&[3], 0..1, async |scene| {
        let mut nodes = answering(scene, |_| None);
        for node in &mut nodes {
            (node.promises.durable, node.promises.reach) = (true, Reach::Network);
        }
        let promised = scene.quorum(nodes.clone()).await.capabilities();
        assert!(promised.detached && promised.durable && promised.frees && promised.watching);
        assert_eq!((promised.reach, promised.hints), (Reach::Network, Reach::Process));
        let less = &mut nodes[1].promises;
        (less.detached, less.durable, less.frees) = (false, false, false);
        (less.watching, less.fencing, less.revoke) = (false, false, false);
        (less.reach, less.hints) = (Reach::Machine, Reach::Nobody);
        let promised = scene.quorum(nodes).await.capabilities();
        assert!(!(promised.detached || promised.durable || promised.frees));
        assert!(!(promised.watching || promised.fencing || promised.revoke));
        assert_eq!((promised.reach, promised.hints), (Reach::Machine, Reach::Nobody));
    });
}
