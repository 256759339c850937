//! A store refuses everything that it does not promise, and leaves nothing behind.

use leasehold::ErrorKind;
use leasehold::store::{Capabilities, Claim, Reach, Released, Snapshot, Store};

use crate::check::{granted, refused, released, whole};
use crate::world::{World, key};

pub(crate) const PROMISE: &str = "what a store does not promise it refuses";

pub(crate) fn needs(_: &Capabilities) -> bool {
    true
}

/// A store must not emulate a shared lock.
pub(crate) async fn a_claim_that_is_not_promised_is_refused(world: &World) {
    let anna = world.actor();
    let claims = [
        (Claim::Shared, world.capabilities().shared),
        (Claim::Permits { want: 1, of: 3 }, world.capabilities().permits),
    ];
    for (claim, promised) in claims {
        let answer = anna.ask(&key("a")).claim(claim).send().await;
        if promised {
            granted(answer);
            released(anna.release_as(&key("a"), claim).await, Released::Freed);
        } else {
            refused(answer, ErrorKind::Unsupported);
            assert_eq!(
                whole(world.inspect(&key("a")).await),
                Snapshot::default(),
                "nothing was left"
            );
            granted(world.actor().ask(&key(&format!("{claim:?}"))).send().await);
        }
    }
}

/// Without a line, no client may believe that it has a turn.
pub(crate) async fn a_line_that_is_not_promised_is_refused(world: &World) {
    let anna = world.actor();
    if !world.capabilities().line {
        refused(anna.ask(&key("a")).join().send().await, ErrorKind::Unsupported);
    }
    if !world.capabilities().watching {
        refused(anna.ask(&key("a")).watch(1_000).send().await, ErrorKind::Unsupported);
    }
}

/// The capabilities belong to the store, not to the handle.
pub(crate) async fn every_handle_promises_the_same(world: &World) {
    let (one, other) = (world.store().capabilities(), world.other_store().capabilities());
    assert_eq!(one, other);
    assert_eq!(one.browse, world.store().browse().is_some());
    assert!(one.reach >= Reach::Process, "a lock reaches somebody");
    assert!(one.hints <= one.reach, "nobody is woken beyond the reach of the locks");
}

/// People must be able to tell which store it is.
pub(crate) async fn a_store_has_a_label(world: &World) {
    let label = world.store().label();
    assert!(!label.is_empty() && !label.chars().any(char::is_control), "{label:?}");
}
