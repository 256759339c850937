//! The nodes that a store made, and until when they stay.
//!
//! The server knows no ttl. It only deletes the nodes of a session that has ended. So the store
//! deletes each node when its lease or its place ends.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
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

impl State {
    /// A node that was made just now.
    pub(super) fn new(entry: Entry, until: Moment, place: Option<Place>) -> Self {
        // If the node is older, the first write finds out its version.
        Self { entry, version: 0, until, is_ended: false, held: None, place, watched: None }
    }
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
    /// The paths of nodes that are being deleted.
    dying: HashSet<String>,
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
    /// Whether a task settles it, since its time is over.
    is_being_settled: AtomicBool,
}

impl Doubt {
    pub(super) fn new(of: Of, session: Arc<Session>, until: Moment) -> Self {
        let (settling, is_being_settled) = (tokio::sync::Mutex::default(), AtomicBool::new(false));
        Self { of, session, until, settling, is_being_settled }
    }

    /// The task that settled it has failed. Another one may try.
    pub(super) fn reopen(&self) {
        self.is_being_settled.store(false, Ordering::Release);
    }
}

impl All {
    /// Forgets a node, if it is this one.
    fn forget(&mut self, node: &Arc<Node>) {
        node.state().is_ended = true;
        if self.nodes.get(&node.of).is_some_and(|it| Arc::ptr_eq(it, node)) {
            self.nodes.remove(&node.of);
        }
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

    /// Forgets a node that is gone.
    pub(super) fn forget(&self, node: &Arc<Node>) {
        self.all().forget(node);
    }

    /// Forgets a node, but remembers its path until it is deleted.
    pub(super) fn condemn(&self, node: &Arc<Node>) {
        let mut all = self.all();
        all.forget(node);
        all.dying.insert(node.path.clone());
    }

    /// A node was deleted.
    pub(super) fn deleted(&self, node: &Node) {
        self.all().dying.remove(&node.path);
    }

    /// Whether a node is being deleted: it may be there for a while, but nobody may rely on it.
    pub(super) fn is_dying(&self, path: &str) -> bool {
        self.all().dying.contains(path)
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

    /// Takes out the nodes whose time is over, to be deleted, and lists the doubts, to be settled.
    /// Returns also when to look again.
    pub(super) fn ended(&self, now: Moment) -> (Vec<Arc<Node>>, Vec<Arc<Doubt>>, Option<Moment>) {
        let mut all = self.all();
        let nodes: Vec<_> =
            all.nodes.extract_if(|_, node| node.ends(now)).map(|(_, node)| node).collect();
        all.dying.extend(nodes.iter().map(|node| node.path.clone()));
        // Whoever settles a doubt removes it.
        let is_due = |doubt: &&Arc<Doubt>| {
            doubt.until <= now && !doubt.is_being_settled.swap(true, Ordering::AcqRel)
        };
        let doubts: Vec<_> = all.doubts.values().filter(is_due).cloned().collect();
        let next = all.nodes.values().map(|node| node.state().until);
        let later = all.doubts.values().map(|doubt| doubt.until).filter(|until| *until > now);
        (nodes, doubts, next.chain(later).min())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::moment::WallTime;
    use crate::core::ttl::Ttl;
    use crate::store::{Ask, Claim};

    const LATER: Duration = Duration::from_secs(1);

    fn add(mine: &Mine, name: &str, until: Moment) -> Arc<Node> {
        let key = Key::new("a").expect("a name");
        let owner = OwnerToken::new("x").expect("printable");
        let ttl = Ttl::new(LATER).expect("within bounds");
        let ask = Ask::new(key.clone(), owner.clone(), Claim::Exclusive, ttl);
        let entry = Entry::of(&ask, 1_000, WallTime::from_unix_micros(0));
        let state = State::new(entry, until, None);
        mine.add(Node::new((key, owner), "/a", name, Session::unconnected(), state))
    }

    #[test]
    fn a_node_that_has_ended_is_dying_until_it_is_deleted() {
        let (mine, now) = (Mine::default(), Moment::from_nanos(1));
        let late = add(&mine, "1", now + LATER);
        assert!(mine.ended(now).0.is_empty() && !mine.is_dying("/a/1"));
        let (ended, ..) = mine.ended(now + LATER);
        assert_eq!(ended.len(), 1);
        assert!(mine.of(&late.of).is_none() && mine.is_dying("/a/1"));
        let given_up = add(&mine, "2", now + 3 * LATER);
        mine.condemn(&given_up);
        assert!(!given_up.lengthen(now, LATER), "nothing lengthens it");
        assert!(mine.of(&late.of).is_none() && mine.is_dying("/a/2"));
        mine.deleted(&late);
        assert!(!mine.is_dying("/a/1") && mine.is_dying("/a/2"));
    }

    #[test]
    fn a_doubt_is_settled_by_one_task_at_a_time() {
        let (mine, now) = (Mine::default(), Moment::from_nanos(1));
        let of = add(&mine, "1", now + 9 * LATER).of.clone();
        mine.doubt(Doubt::new(of.clone(), Session::unconnected(), now + LATER));
        let due = |at| mine.ended(at).1;
        assert!(due(now).is_empty(), "its caller may still come");
        let doubts = due(now + LATER);
        assert_eq!((doubts.len(), due(now + 2 * LATER).len()), (1, 0));
        doubts[0].reopen();
        assert_eq!(due(now + 2 * LATER).len(), 1, "the task has failed");
        mine.settled(&doubts[0]);
        assert!(mine.doubt_of(&of).is_none());
    }
}
