use std::future::pending;

use super::*;
use crate::host::SystemHost;
use crate::store::redis::connector::Opening;

/// A server that never answers.
struct Silent;

impl Connector for Silent {
    fn open(&self) -> Opening {
        Box::pin(pending())
    }

    fn label(&self) -> String {
        "silent".to_owned()
    }
}

fn inbox() -> ClientId {
    ClientId::new("Nn23PXTR8zL5").expect("an id")
}

/// The task has decided that nobody wants hints, but it has not ended yet.
#[test]
fn who_listens_while_the_task_ends_is_listened_to() {
    let hints = Hints::new(Arc::new(SystemHost), Arc::new(Silent), Arc::default(), None);
    hints.state().running = true;
    let (weak, news) = (Arc::downgrade(&hints), Arc::clone(&hints.news));
    let task = Running { hints: weak, news, has_ended: true };
    assert!(!hints.disconnected(), "nobody wants to be told");
    hints.listen(&inbox());
    drop(task);
    let state = hints.state();
    assert!(state.inboxes.contains_key(&inbox()) && state.running);
}
