//! A node that gives false answers.

use std::future::ready;

use leasehold::FencingToken;
use leasehold::core::token::{ClientId, FencingBlock};
use leasehold::store::{
    Acquired, AnyStore, Ask, BoxAnswer, LeaseId, MemoryStore, OnRelease, Released, Renewal,
    Renewed, Store,
};

use super::{Scene, TTL, ms, play};

/// Grants everything to every client, always with the same fencing tokens.
#[derive(Clone)]
struct Liar {
    /// The source of its honest answers.
    store: MemoryStore,
    fencing: Option<FencingBlock>,
}

impl Store for Liar {
    fn acquire(&self, ask: Ask) -> BoxAnswer<Acquired> {
        let fencing = self.fencing.filter(|_| ask.reserve > 0);
        Box::pin(ready(Ok(Acquired::Granted { fencing })))
    }

    fn renew(&self, _: Renewal) -> BoxAnswer<Renewed> {
        Box::pin(ready(Ok(Renewed::Renewed {
            fencing: self.fencing,
            raised_from: self.fencing,
            wanted: true,
            revoked: None,
        })))
    }

    fn release(&self, _: LeaseId, _: OnRelease) -> BoxAnswer<Released> {
        Box::pin(ready(Ok(Released::HandedOver)))
    }

    fn listen(&self, _: &ClientId) {}

    fn label(&self) -> String {
        "a liar".to_owned()
    }

    leasehold_testkit::forward!(store: inspect, watch, capabilities, browse);
}

fn with_a_liar(scene: &Scene, fencing: Option<FencingBlock>) -> Vec<AnyStore> {
    let mut nodes: Vec<_> = scene.nodes.iter().cloned().map(AnyStore::new).collect();
    nodes[0] = AnyStore::new(Liar { store: scene.nodes[0].clone(), fencing });
    nodes
}

fn blocks() -> impl Iterator<Item = Option<FencingBlock>> {
    let block = |(first, count)| {
        Some(FencingBlock { first: FencingToken::new(first).expect("within bounds"), count })
    };
    let odd = [(1, 1), (1, 0), (1, u32::MAX), (7, 64), (1 << 40, 1), (FencingToken::MAX, 1)];
    [None].into_iter().chain(odd.map(block))
}

#[test]
fn one_liar_makes_no_second_holder() {
    for block in blocks() {
        play(&[3, 5], 0..3, async |scene| {
            let client = scene.client_of(scene.quorum(with_a_liar(scene, block)).await, TTL).await;
            let other = scene.client_of(scene.quorum(with_a_liar(scene, block)).await, TTL).await;
            let held = client.mutex("a").fencing(false).lock().await.expect("free");
            for _ in 0..3 {
                assert!(other.mutex("a").try_lock().await.expect("asked").is_none(), "{block:?}");
                scene.pass(TTL).await;
                assert!(held.is_held(), "{block:?}");
            }
            drop(held);
            scene.pass(ms(300)).await;
            // The liar decides whether an ask with fencing succeeds, but fencing tokens always
            // rise.
            let mut last = 0;
            for _ in 0..3 {
                let Ok(Some(guard)) = other.mutex("b").try_lock().await else { break };
                let fence = guard.fencing_token().expect("it has one").get();
                assert!(fence > last, "{fence} after {last}, with {block:?}");
                last = fence;
                assert!(client.mutex("b").try_lock().await.is_ok_and(|got| got.is_none()));
                drop(guard);
                scene.pass(ms(300)).await;
            }
        });
    }
}
