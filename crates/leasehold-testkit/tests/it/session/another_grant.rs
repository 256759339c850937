//! A store that lost its data, and answers about a grant of another holder.

use leasehold::core::{FencingBlock, FencingToken};
use leasehold::host::Host;
use leasehold::store::{AnyStore, BoxAnswer, Renewal, Renewed, Store};
use leasehold::{ErrorKind, Lost};

use super::{Scene, TOLD, ms, play_on};
use crate::stores;

/// Changes the fencing tokens with which each renewal is answered.
struct Confused {
    store: AnyStore,
    change: fn(&mut Option<FencingBlock>),
}

impl Store for Confused {
    fn renew(&self, renewal: Renewal) -> BoxAnswer<Renewed> {
        let (answer, change) = (self.store.renew(renewal), self.change);
        Box::pin(async move {
            let mut renewed = answer.await?;
            if let Renewed::Renewed { fencing, .. } = &mut renewed {
                change(fencing);
            }
            Ok(renewed)
        })
    }

    leasehold_testkit::forward!(store: acquire, release, inspect, watch, rest);
}

/// The tokens of the next grant.
fn of_next_grant(fencing: &mut Option<FencingBlock>) {
    let before = fencing.map_or(0, |block| block.first.get());
    let first = FencingToken::new(before + 1).expect("in range");
    *fencing = Some(FencingBlock { first, count: 1 });
}

/// A server that lost its record of such a grant answers with its last token.
#[test]
fn a_renewal_without_fencing_counts_whatever_token_the_store_adds() {
    play_on(stores::memory, 0, async |scene: &Scene| {
        let store = AnyStore::new(Confused { store: scene.store().await, change: of_next_grant });
        let client = scene.client_on(store).await;
        let guard = client.mutex("a").fencing(false).lock().await.expect("free");
        scene.pass(ms(10_000)).await;
        guard.renew().await.expect("it counts");
        assert!(guard.is_held());
    });
}

/// The lease belongs to somebody else, so the holder must not rely on it for longer.
#[test]
fn a_renewal_that_is_answered_about_another_grant_moves_no_deadline() {
    play_on(stores::memory, 0, async |scene: &Scene| {
        let store = AnyStore::new(Confused { store: scene.store().await, change: of_next_grant });
        let client = scene.client_on(store).await;
        let sent = scene.host.now();
        let guard = client.mutex("a").lock().await.expect("free");
        scene.pass(ms(300)).await;
        let before = guard.remaining();
        let error = guard.renew().await.expect_err("it does not count");
        assert_eq!((error.kind(), error.name()), (ErrorKind::Unknown, Some("a")));
        assert!(error.to_string().contains("the renewal does not count"), "{error}");
        assert!(guard.is_held() && guard.remaining() == before);
        assert_eq!(guard.lost().await, Lost::Deadline);
        assert_eq!(scene.host.now(), sent + TOLD);
        let error = guard.renew().await.expect_err("it is over");
        assert_eq!(error.kind(), ErrorKind::Lost);
    });
}
