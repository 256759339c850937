//! The work between steps: a place comes to the front, and nodes whose time is over are deleted.
//! One task looks after all nodes of a store.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::{Core, ROUNDS_MAX, gone, line_of};
use crate::core::backoff::Backoff;
use crate::core::error::Error;
use crate::core::moment::Moment;
use crate::host::{Host, random_u32};
use crate::store::Hint;
use crate::store::zookeeper::error::Fault;
use crate::store::zookeeper::mine::Node;
use crate::store::zookeeper::rpc::{children, delete, read_children};
use crate::store::zookeeper::session::Board;

impl Core {
    /// Begins to look after the nodes, or looks again, because a node ends before all others.
    pub(super) fn tend(&self) {
        if self.is_tended.swap(true, Ordering::AcqRel) {
            self.wire.board.reader.notify_one();
            return;
        }
        let (me, board) = (Weak::clone(&self.me), Arc::clone(&self.wire.board));
        let host = Arc::clone(&self.wire.host);
        self.wire.host.spawn(Box::pin(tend(me, board, host)));
    }

    /// Does what is due. Returns when to look again.
    fn look_after(self: &Arc<Self>) -> Option<Moment> {
        let news = self.wire.board.take();
        if news.are_watches_lost {
            self.tell_all();
        }
        for node in self.mine.behind(&news.gone) {
            let ours = Arc::clone(self);
            self.wire.host.spawn(Box::pin(async move { ours.advance(node).await }));
        }
        let (nodes, doubts, next) = self.mine.ended(self.wire.host.now());
        nodes.into_iter().for_each(|node| self.delete_later(node));
        for doubt in doubts {
            let ours = Arc::clone(self);
            self.wire.host.spawn(Box::pin(async move {
                // If it fails, another task tries it soon.
                if ours.settle(&doubt.of, None).await.is_err()
                    && ours.mine.doubt_again(doubt, ours.wire.host.now() + AGAIN_IN)
                {
                    ours.tend();
                }
            }));
        }
        next
    }

    /// Lets all waiters ask again, because watches are lost, or the places with their session.
    fn tell_all(&self) {
        for inbox in self.mine.inboxes() {
            self.sinks.send(&inbox, Hint::Missed);
        }
    }

    /// Moves a place up, because the node ahead of it is gone.
    async fn advance(self: Arc<Self>, node: Arc<Node>) {
        let place = node.state.lock().place.clone();
        let Some(place) = place else { return };
        let key = node.of.0.clone();
        if self.try_advance(&node).await.is_err() {
            // Let the client of the place find out.
            self.sinks.send(&place.inbox, Hint::MaybeFree { key });
        }
    }

    async fn try_advance(&self, node: &Arc<Node>) -> Result<(), Fault> {
        for _ in 0..ROUNDS_MAX {
            if node.state.lock().is_ended || node.state.lock().held.is_some() {
                return Ok(());
            }
            // This server sent the event, so it knows of the change.
            let read = node.session.ask(children(node.parent(), false), read_children);
            let line = line_of(read.await)?;
            match line.position(&node.name) {
                None => return Ok(()),
                Some(0) => return self.hand_over(node).await,
                Some(_) => {
                    if self.watch(node, &line).await? {
                        return Ok(());
                    }
                }
            }
        }
        Err(Fault::NoNode)
    }

    /// Gives the lock to a place that came to the front.
    async fn hand_over(&self, node: &Arc<Node>) -> Result<(), Fault> {
        // This place is from an ask that certainly came before.
        let Some(place) = node.state.lock().place.clone() else { return Ok(()) };
        let granted = self.grant(node, place.handed, None).await?;
        if granted.is_new {
            let (key, owner) = node.of.clone();
            let (fencing, ask_no) = (granted.fencing, place.ask_no);
            let hint = Hint::Granted { key, owner, fencing, ask_no };
            self.sinks.send(&place.inbox, hint);
        }
        Ok(())
    }

    /// Deletes a node of this store. If that has no answer, or nobody waits for it, the node is
    /// deleted later.
    pub(super) async fn end(&self, node: &Arc<Node>) -> Result<(), Fault> {
        let ending = self.begin_to_end(node);
        gone(ending.answered(node.session.ask(delete(&node.path), |_| Ok(())).await))
    }

    /// Makes a node count as ended from now on. The caller deletes it, or else a task does.
    pub(super) fn begin_to_end<'a>(&'a self, node: &'a Arc<Node>) -> Ending<'a> {
        self.mine.condemn(node);
        Ending { core: self, node, is_gone: false }
    }

    /// Deletes a node that [`Mine`] has condemned, now or when there is a connection again. The end
    /// of the session deletes it too.
    ///
    /// [`Mine`]: crate::store::zookeeper::mine::Mine
    fn delete_later(&self, node: Arc<Node>) {
        let (host, mine) = (Arc::clone(&self.wire.host), Arc::clone(&self.mine));
        self.wire.host.spawn(Box::pin(async move {
            let (mut delays, mut is_told) = (Backoff::DEFAULT.delays(), false);
            while !node.session.is_over() {
                let deleted = gone(node.session.ask(delete(&node.path), |_| Ok(())).await);
                let pause = match deleted {
                    Ok(()) => break,
                    Err(Fault::Error(error)) if !error.is_retryable() => {
                        if !std::mem::replace(&mut is_told, true) {
                            tell_of_refused_end(&node, &error);
                        }
                        REFUSED_AGAIN_IN
                    }
                    Err(_) => delays.next(random_u32(&*host)),
                };
                host.sleep_until(host.now() + pause).await;
            }
            mine.deleted(&node);
        }));
    }
}

fn tell_of_refused_end(node: &Node, error: &Error) {
    tracing::warn!(
        key = %node.of.0, %error,
        "a lock stays taken after its end: the server does not let this client delete its node; \
         allow it, delete the node, or end this process"
    );
}

/// A node that is being deleted. If this is dropped before the node is [gone](Self::answered), a
/// task goes on with it.
pub(super) struct Ending<'a> {
    core: &'a Core,
    node: &'a Arc<Node>,
    is_gone: bool,
}

impl Ending<'_> {
    /// Notes whether the node is gone, and returns the answer.
    pub(super) fn answered<T>(mut self, deleted: Result<T, Fault>) -> Result<T, Fault> {
        self.is_gone = !matches!(deleted, Err(Fault::Error(_)));
        deleted
    }
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        if self.is_gone {
            self.core.mine.deleted(self.node);
        } else {
            self.core.delete_later(Arc::clone(self.node));
        }
    }
}

/// When something that failed is tried again.
const AGAIN_IN: Duration = Duration::from_millis(200);

/// When to try again to delete a node, if the server refused to delete it. Somebody has to allow it
/// first.
const REFUSED_AGAIN_IN: Duration = Duration::from_secs(60);

/// The task that looks after the nodes, while the store lives.
async fn tend(core: Weak<Core>, board: Arc<Board>, host: Arc<dyn Host>) {
    loop {
        let Some(core) = core.upgrade() else { return };
        let next = core.look_after();
        drop(core);
        match next {
            None => board.reader.notified().await,
            Some(at) => {
                tokio::select! {
                    () = board.reader.notified() => {}
                    () = host.sleep_until(at) => {}
                }
            }
        }
    }
}
