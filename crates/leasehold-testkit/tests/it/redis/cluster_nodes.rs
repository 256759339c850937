//! Nodes of a cluster that leave, and slots that take long to move. The test plays the nodes.

use std::sync::Arc;
use std::time::Duration;

use leasehold::core::token::ClientId;
use leasehold::store::{Hint, HintSink, Store as _};
use leasehold_testkit::protocol::{Refused, Value};

use super::cluster_order::{Nodes, SLOT, ask, pass, play, sent};

impl Nodes {
    /// The second node has all slots from now on.
    fn first_leaves(&self) {
        let mut state = self.state();
        (state.owner, state.has_one_node, state.epoch) = (2, true, 1);
    }
}

struct Deaf;

impl HintSink for Deaf {
    fn hint(&self, _: Hint) {}
}

/// Each pause is a new beginning: only redirections without a pause between them are limited.
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
        // It is told that the slot has moved, so the map is read again.
        let _granted = store.acquire(ask("anna")).await;
        pass(host, Duration::from_secs(2)).await;
        assert!(nodes.seen().contains(&sent(2, "SUBSCRIBE")));
    });
}
