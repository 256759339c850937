//! Release: delete the node of a lease or a place. The next node has the lock from then on.

use std::sync::Arc;
use std::time::Duration;

use super::acquire::name_of;
use super::{Core, bound, millis};
use crate::core::error::{Error, ErrorKind};
use crate::core::line::Wish;
use crate::store::entry::Entry;
use crate::store::net::Effect;
use crate::store::zookeeper::error::{Failure, Fault};
use crate::store::zookeeper::line::Line;
use crate::store::zookeeper::mine::{Node, Of};
use crate::store::zookeeper::names::place;
use crate::store::zookeeper::rpc::{
    self, children, create, delete, multi, read_children, read_multi,
};
use crate::store::zookeeper::session::Session;
use crate::store::{Claim, Keep, LeaseId, OnRelease, Released, unsupported_claim};

impl Core {
    pub(in crate::store::zookeeper) async fn release(
        &self,
        lease: LeaseId,
        on_release: OnRelease,
    ) -> Result<Released, Fault> {
        if matches!(on_release, OnRelease::Downgrade { .. }) {
            return Err(unsupported_claim(Claim::Shared, &lease.key).into());
        }
        let keep = match on_release.wish() {
            Wish::Free => None,
            Wish::Keep(keep) => Some(keep),
            Wish::Wake => return Err(frees_nothing().into()),
        };
        let of = (lease.key, lease.owner);
        match self.release_of(&of, keep).await {
            Err(Fault::NoNode | Fault::SessionOver) => Ok(Released::NotHeld),
            released => released,
        }
    }

    async fn release_of(&self, of: &Of, keep: Option<Keep<'_>>) -> Result<Released, Fault> {
        let node = match self.mine.of(of) {
            Some(node) => node,
            None => match self.settle(of, None).await? {
                Some(node) => node,
                None => return self.release_other(of, keep).await,
            },
        };
        if !node.lengthen(self.wire.host.now(), Duration::ZERO) {
            self.end(&node).await?;
            return Ok(Released::NotHeld);
        }
        // A place that came to the front has the lock, even if its owner does not know yet.
        let has_lock = node.state.lock().held.is_some() || {
            let line = self.look(&node.session, &of.0).await?;
            line.first() == Some(&*node.name)
        };
        match keep {
            Some(keep) if has_lock => return self.keep_on(&node, keep).await,
            _ => {}
        }
        let ending = self.begin_to_end(&node);
        let left = ending.answered(self.delete_and_look(&node.session, of, &node.name).await);
        // This holds even if the request was not sent, because the node is deleted as soon as there
        // is a connection.
        Ok(released(has_lock, &left.map_err(Fault::after_a_change)?))
    }

    /// Deletes a node, and reads who is left.
    async fn delete_and_look(&self, session: &Session, of: &Of, name: &str) -> Result<Line, Fault> {
        let parent = self.names.lock(&of.0);
        let deleted = session.ask(delete(&format!("{parent}/{name}")), |_| Ok(()));
        let read = session.ask(children(&parent, false), read_children);
        deleted.await?;
        // The node is deleted, even if the other answer is lost.
        Ok(super::line_of(read.await).unwrap_or_default())
    }

    /// Releases the lease or the place of another handle. Its token is enough.
    async fn release_other(&self, of: &Of, keep: Option<Keep<'_>>) -> Result<Released, Fault> {
        let session = self.wire.session().await?;
        let line = self.look(&session, &of.0).await?;
        let Some(name) = line.node_of(&of.1, "") else { return Ok(Released::NotHeld) };
        if keep.is_some() {
            return Err(bound(of).into());
        }
        let has_lock = line.first() == Some(name);
        let left = self.delete_and_look(&session, of, name).await?;
        Ok(released(has_lock, &left))
    }

    /// Gives the lock to its own client again, under another token, unless somebody waits: makes a
    /// node at the end of the line, and deletes the first one, in one step.
    async fn keep_on(&self, node: &Arc<Node>, keep: Keep<'_>) -> Result<Released, Fault> {
        self.check(&node.session, keep.ttl)?;
        let heir = (node.of.0.clone(), keep.owner.clone());
        let _turn = node.turn.lock().await;
        let now = self.wire.host.now();
        let (before, until) = {
            let state = node.state.lock();
            (state.entry().clone(), state.until)
        };
        let span = keep.ttl.get().max(until.since(now));
        let entry = Entry {
            owner: keep.owner.clone(),
            lasts: millis(span),
            reserve: keep.reserve,
            fence: None,
            is_idle: false,
            revoked: None,
            ..before
        };
        let path = format!("{}/{}", self.names.lock(&heir.0), place(&heir.1));
        let made = create(&path, &entry.write(), self.acl, rpc::Node::Numbered);
        let done = node.session.ask(multi(&[made, delete(&node.path)]), read_multi).await;
        let made = match done {
            Ok(Ok(path)) => path,
            // Nothing was changed, because the node is gone already.
            Ok(Err(code)) => {
                return Err(Failure::Refused(code).fault(Effect::Nothing, &self.label()));
            }
            Err(fault) => return Err(self.doubted(&node.session, &heir, span, fault)),
        };
        self.mine.forget(node);
        let heir = self.keep(&node.session, &heir, &name_of(&made), (entry, None, span));
        self.give_to_heir(&heir, span).await.map_err(Fault::after_a_change)
    }

    async fn give_to_heir(&self, heir: &Arc<Node>, span: Duration) -> Result<Released, Fault> {
        let (line, stat) = self.glance(heir).await?;
        if line.first() != Some(&*heir.name) {
            // Somebody waits, and has the lock now.
            self.end(heir).await?;
            return Ok(Released::HandedOver);
        }
        let fresh = line.is_alone_since(stat).then_some(stat);
        let fencing = self.grant(heir, span, fresh).await?.fencing;
        Ok(Released::Kept { fencing })
    }

    pub(in crate::store::zookeeper) fn label(&self) -> String {
        self.wire.connector.label()
    }
}

/// The answer after a node was deleted.
fn released(had_lock: bool, left: &Line) -> Released {
    match left.first() {
        _ if !had_lock => Released::NotHeld,
        None => Released::Freed,
        Some(_) => Released::HandedOver,
    }
}

fn frees_nothing() -> Error {
    let message = "ZooKeeper gives a lock to the first client in line, so a release cannot skip \
                   that client; nothing was released; release it as usual";
    Error::new(ErrorKind::Unsupported, message)
}
