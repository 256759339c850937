//! Nodes that answer requests for locks in ways that only some stores do.

use std::time::Duration;

use leasehold::core::Ttl;
use leasehold::core::token::OwnerToken;
use leasehold::host::Host;
use leasehold::store::{
    Acquired, Afterwards, Ask, BoxAnswer, Claim, MemoryStore, Quorum, Refusal, Store, Why,
};
use leasehold::{Error, ErrorKind};

use super::{Scene, key, play};

/// A store that answers requests for locks in its own way. `None`: as the store behind it.
#[derive(Clone)]
struct Answering {
    store: MemoryStore,
    answer: fn(&Ask) -> Option<Result<Acquired, Error>>,
}

impl Store for Answering {
    fn acquire(&self, ask: Ask) -> BoxAnswer<Acquired> {
        match (self.answer)(&ask) {
            Some(answer) => Box::pin(async move { answer }),
            None => self.store.acquire(ask),
        }
    }

    leasehold_testkit::forward!(store: renew, release, inspect, watch, rest);
}

/// The nodes of the scene, which answer requests for locks like this.
fn answering(scene: &Scene, answer: fn(&Ask) -> Option<Result<Acquired, Error>>) -> Vec<Answering> {
    scene.nodes.iter().map(|node| Answering { store: node.clone(), answer }).collect()
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

/// Trying again does not help, so somebody has to change something although the others work.
#[test]
fn a_quorum_is_not_opened_while_one_node_refuses_for_good() {
    use ErrorKind::{Config, Denied, Unavailable, Unsupported};
    fn refuse(kind: ErrorKind) -> Option<Result<Acquired, Error>> {
        Some(Err(Error::new(kind, "it refuses")))
    }
    play(&[3, 5], 0..1, async |scene| {
        let host = || -> std::sync::Arc<dyn Host> { scene.host.clone() };
        let answers: [(ErrorKind, fn(&Ask) -> _); 4] = [
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
            let error = opened.err().expect("it will not go away by itself");
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.to_string().contains("memory:n1: it refuses"), "{error}");
        }
    });
}
