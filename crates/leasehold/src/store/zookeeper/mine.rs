//! The nodes that a store made, and until when they stay.
//!
//! The server knows no ttl. It only deletes the nodes of a session that has ended. So the store
//! deletes each node when its lease or its place ends.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::session::Session;
use crate::core::key::Key;
use crate::core::moment::Moment;
use crate::core::token::{ClientId, FencingBlock, OwnerToken};
use crate::store::entry::Entry;

/// Whose node it is.
pub(super) type Of = (Key, OwnerToken);

/// A node that this store made.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) of: Of,
    /// The name below the node of the lock, and the whole path.
    pub(super) name: String,
    pub(super) path: String,
    /// The session that it ends with.
    pub(super) session: Arc<Session>,
    /// One grant or renewal at a time.
    pub(super) turn: tokio::sync::Mutex<()>,
    state: Mutex<State>,
}

/// What is known of a node.
#[derive(Clone, Debug)]
pub(super) struct State {
    /// Its data, as this store wrote it. A request to let go may have been added since then.
    pub(super) entry: Entry,
    /// The version of its data that the next write replaces.
    pub(super) version: i32,
    /// Until when it stays.
    pub(super) until: Moment,
    /// Nothing lengthens it any more: it is being deleted.
    pub(super) is_ended: bool,
    /// The fencing tokens, once its owner has the lock.
    pub(super) held: Option<Option<FencingBlock>>,
    /// `None` if the owner never joined the line.
    pub(super) place: Option<Place>,
    /// The path of the node ahead that is watched, and by which connection.
    pub(super) watched: Option<(String, u64)>,
}

/// A place in the line.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// How long the lock is granted for when its turn comes.
    pub(super) handed: Duration,
    /// The number of the last ask.
    pub(super) ask_no: u32,
    pub(super) inbox: ClientId,
}

impl Node {
    pub(super) fn new(
        of: Of,
        parent: &str,
        name: &str,
        session: Arc<Session>,
        state: State,
    ) -> Self {
        let (path, name) = (format!("{parent}/{name}"), name.to_owned());
        let (turn, state) = (tokio::sync::Mutex::default(), Mutex::new(state));
        Self { of, name, path, session, turn, state }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        // Whole at every moment: single steps change it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the node for so long from now, at least. Returns false if it has ended already.
    pub(super) fn lengthen(&self, now: Moment, span: Duration) -> bool {
        let mut state = self.state();
        if state.is_ended || state.until <= now || self.session.is_over() {
            return false;
        }
        state.until = state.until.max(now + span);
        true
    }

    /// Ends it if its time is over. Returns whether that is so.
    fn ends(&self, now: Moment) -> bool {
        let mut state = self.state();
        state.is_ended |= state.until <= now;
        state.is_ended
    }
}

/// All nodes of a store.
#[derive(Debug, Default)]
pub(super) struct Mine(Mutex<All>);

#[derive(Debug, Default)]
struct All {
    nodes: HashMap<Of, Arc<Node>>,
    /// Nodes that may have been made: the answer was lost.
    doubts: HashMap<Of, Arc<Doubt>>,
}

/// A node that may have been made.
#[derive(Debug)]
pub(super) struct Doubt {
    pub(super) of: Of,
    pub(super) session: Arc<Session>,
    /// When it must be gone.
    until: Moment,
    /// Whoever finds out first tells the others. Whether it is settled.
    pub(super) settling: tokio::sync::Mutex<bool>,
}

impl Doubt {
    pub(super) fn new(of: Of, session: Arc<Session>, until: Moment) -> Self {
        Self { of, session, until, settling: tokio::sync::Mutex::default() }
    }
}

impl Mine {
    fn all(&self) -> MutexGuard<'_, All> {
        // Whole at every moment: single steps change it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The node of an owner, if it has one that its session has not taken along.
    pub(super) fn of(&self, of: &Of) -> Option<Arc<Node>> {
        let mut all = self.all();
        let node = all.nodes.get(of)?;
        if node.session.is_over() {
            all.nodes.remove(of);
            return None;
        }
        Some(Arc::clone(node))
    }

    /// Whether an owner had a node that its session took along. Tells it once.
    pub(super) fn was_lost(&self, of: &Of) -> bool {
        let mut all = self.all();
        let is_lost = all.nodes.get(of).is_some_and(|node| node.session.is_over());
        if is_lost {
            all.nodes.remove(of);
        }
        is_lost
    }

    pub(super) fn add(&self, node: Node) -> Arc<Node> {
        let node = Arc::new(node);
        self.all().nodes.insert(node.of.clone(), Arc::clone(&node));
        node
    }

    /// Forgets a node, if it is this one.
    pub(super) fn forget(&self, node: &Arc<Node>) {
        node.state().is_ended = true;
        let mut all = self.all();
        if all.nodes.get(&node.of).is_some_and(|it| Arc::ptr_eq(it, node)) {
            all.nodes.remove(&node.of);
        }
    }

    pub(super) fn doubt(&self, doubt: Doubt) {
        self.all().doubts.insert(doubt.of.clone(), Arc::new(doubt));
    }

    /// Whether a node may have been made for this owner.
    pub(super) fn doubt_of(&self, of: &Of) -> Option<Arc<Doubt>> {
        let mut all = self.all();
        let doubt = all.doubts.get(of)?;
        if doubt.session.is_over() {
            all.doubts.remove(of);
            return None;
        }
        Some(Arc::clone(doubt))
    }

    pub(super) fn settled(&self, doubt: &Arc<Doubt>) {
        let mut all = self.all();
        if all.doubts.get(&doubt.of).is_some_and(|it| Arc::ptr_eq(it, doubt)) {
            all.doubts.remove(&doubt.of);
        }
    }

    /// The nodes that wait behind one of these paths.
    pub(super) fn behind(&self, gone: &[String]) -> Vec<Arc<Node>> {
        let all = self.all();
        let waits = |node: &&Arc<Node>| {
            node.state().watched.as_ref().is_some_and(|(path, _)| gone.contains(path))
        };
        all.nodes.values().filter(waits).cloned().collect()
    }

    /// The inboxes of all that wait.
    pub(super) fn inboxes(&self) -> Vec<ClientId> {
        let all = self.all();
        let inbox = |node: &Arc<Node>| {
            let state = node.state();
            state.held.is_none().then(|| Some(state.place.as_ref()?.inbox.clone()))?
        };
        let mut inboxes: Vec<_> = all.nodes.values().filter_map(inbox).collect();
        inboxes.sort_unstable();
        inboxes.dedup();
        inboxes
    }

    /// Takes out the nodes and the doubts whose time is over. Returns also when to look again.
    pub(super) fn ended(&self, now: Moment) -> (Vec<Arc<Node>>, Vec<Arc<Doubt>>, Option<Moment>) {
        let mut all = self.all();
        let nodes: Vec<_> =
            all.nodes.extract_if(|_, node| node.ends(now)).map(|(_, node)| node).collect();
        // Whoever settles a doubt removes it.
        let is_due = |doubt: &&Arc<Doubt>| doubt.until <= now;
        let doubts: Vec<_> = all.doubts.values().filter(is_due).cloned().collect();
        let next = all.nodes.values().map(|node| node.state().until);
        let later = all.doubts.values().map(|doubt| doubt.until).filter(|until| *until > now);
        (nodes, doubts, next.chain(later).min())
    }
}
