//! A store refuses everything that it does not promise, and leaves nothing behind.

use leasehold::ErrorKind;
use leasehold::store::{Capabilities, Claim, Reach, Released, Store};

use crate::check::{granted, refused, released, renewed, taken, whole};
use crate::world::{World, key};

pub(crate) const PROMISE: &str = "a store refuses what it does not promise";
pub(crate) const CONTRACT: &str = "`Capabilities`, and `Store::capabilities`";

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
        let before = whole(world.inspect(&key("a")).await);
        let answer = anna.ask(&key("a")).claim(claim).send().await;
        if promised {
            granted(answer);
            released(anna.release_as(&key("a"), claim).await, Released::Freed);
        } else {
            refused(answer, ErrorKind::Unsupported);
            let after = whole(world.inspect(&key("a")).await);
            assert_eq!(after, before, "nothing was left");
            granted(world.actor().ask(&key(&format!("{claim:?}"))).send().await);
        }
    }
    if !world.capabilities().permits {
        refused(world.store().resize(key("a"), 2).await, ErrorKind::Unsupported);
    }
}

/// A client that has no tokens knows that it needs other means against a late writer.
pub(crate) async fn fencing_tokens_that_are_not_promised_are_not_given(world: &World) {
    if world.capabilities().fencing {
        return;
    }
    let anna = world.actor();
    assert_eq!(granted(anna.ask(&key("a")).reserve(3).send().await), None);
    assert_eq!(renewed(anna.renew_at_least(&key("a"), 10_000, Some(7), 2).await).0, None);
    assert_eq!(world.inspect(&key("a")).await.fencing, None);
}

/// An operator must not wait for a holder that never hears of the request.
pub(crate) async fn a_request_to_let_go_that_is_not_promised_is_refused(world: &World) {
    let Some(tools) = world.store().browse() else { return };
    if world.capabilities().revoke {
        return;
    }
    let anna = world.actor();
    granted(anna.ask(&key("a")).send().await);
    let seen = anna.owner().as_str().as_bytes().to_vec();
    let answer = tools.revoke(key("a"), seen, "ada".to_owned(), "a test".to_owned()).await;
    refused(answer, ErrorKind::Unsupported);
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

/// The holder keeps its lease, and may release it in another way.
pub(crate) async fn a_release_that_frees_is_refused_if_it_is_not_promised(world: &World) {
    if world.capabilities().frees || !world.capabilities().line {
        return;
    }
    let (anna, bert) = (world.actor(), world.actor());
    granted(anna.ask(&key("a")).send().await);
    refused(anna.free(&key("a")).await, ErrorKind::Unsupported);
    taken(bert.ask(&key("a")).send().await);
    released(anna.release(&key("a")).await, Released::Freed);
}

/// The capabilities belong to the store, not to the handle.
pub(crate) async fn every_handle_promises_the_same(world: &World) {
    let (one, other) = (world.store().capabilities(), world.other_store().capabilities());
    assert_eq!(one, other, "two handles promise different things");
    let tools = world.store().browse().is_some();
    assert_eq!(one.browse, tools, "the tools are there exactly if they are promised");
    assert!(one.reach >= Reach::Process, "a lock reaches somebody");
    assert!(one.hints <= one.reach, "nobody is woken beyond the reach of the locks");
}

/// People must be able to tell which store it is.
pub(crate) async fn a_store_has_a_label(world: &World) {
    let label = world.store().label();
    assert!(!label.is_empty() && !label.chars().any(char::is_control), "{label:?}");
}
