//! The nodes that a store made, and until when they stay.
//!
//! The server knows no ttl. It only deletes the nodes of a session that has ended. So the store
//! deletes each node when its lease or its place ends.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use super::session::Session;
use crate::core::key::Key;
use crate::core::moment::Moment;
use crate::core::token::{ClientId, FencingBlock, OwnerToken};
use crate::store::entry::Entry;
use crate::unpoisoned::Unpoisoned;

/// How long before its end a node is looked at. So many nodes that were renewed meanwhile, and end
/// later, are put off at once.
const EARLY: Duration = Duration::from_millis(20);

/// The lock that a node belongs to, and its owner.
pub(super) type Of = (Key, OwnerToken);

/// A node that this store made.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) of: Of,
    /// The name below the node of the lock, and the whole path.
    pub(super) name: String,
    pub(super) path: String,
    /// The session with which the node ends.
    pub(super) session: Arc<Session>,
    /// Locked for one grant or renewal at a time.
    pub(super) turn: tokio::sync::Mutex<()>,
    pub(super) state: Unpoisoned<State>,
}

/// The state of a node, as far as it is known.
#[derive(Clone, Debug)]
pub(super) struct State {
    /// The node's data, as this store wrote it. A request to let go may have been added since.
    entry: Entry,
    /// The data as text, unless it has changed since it was written.
    text: Option<Vec<u8>>,
    /// The version of the data that the next write replaces.
    pub(super) version: i32,
    /// Until when the node stays.
    pub(super) until: Moment,
    /// When [`Mine`] checks whether the node's time is over. This is not later than `until`.
    due: Moment,
    /// Whether the node is being deleted. Then nothing lengthens its time any more.
    pub(super) is_ended: bool,
    /// The fencing tokens, once its owner has the lock.
    pub(super) held: Option<Option<FencingBlock>>,
    /// `None` if the owner never joined the line.
    pub(super) place: Option<Place>,
    /// The path of the node ahead that is watched, and by which connection.
    pub(super) watched: Option<(String, u64)>,
    /// When the owner last read the line, and how many places were ahead then.
    pub(super) read: Moment,
    pub(super) ahead: u32,
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
        // A new node has version 0. If another version was written, the first write is refused and
        // the store reads the version.
        Self {
            entry,
            text: None,
            version: 0,
            until,
            due: until,
            is_ended: false,
            held: None,
            place,
            watched: None,
            read: Moment::default(),
            ahead: 0,
        }
    }

    pub(super) fn entry(&self) -> &Entry {
        &self.entry
    }

    pub(super) fn entry_mut(&mut self) -> &mut Entry {
        self.text = None;
        &mut self.entry
    }

    /// Notes that the owner has the lock since the change with these numbers. Returns its fencing
    /// tokens.
    pub(super) fn hold(&mut self, numbers: Option<FencingBlock>) -> Option<FencingBlock> {
        let block = self.entry.block(numbers);
        self.entry_mut().fence = block.map(|block| block.first);
        self.held = Some(block);
        block
    }

    /// The text of the data, with this many milliseconds left. A renewal mostly writes the same
    /// text again.
    pub(super) fn text(&mut self, lasts: i64) -> &[u8] {
        if self.entry.lasts != lasts {
            self.entry_mut().lasts = lasts;
        }
        self.text.get_or_insert_with(|| self.entry.write())
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
        let (turn, state) = (tokio::sync::Mutex::default(), Unpoisoned::new(state));
        Self { of, name, path, session, turn, state }
    }

    /// The path of the node of the lock.
    pub(super) fn parent(&self) -> &str {
        &self.path[..self.path.len() - self.name.len() - 1]
    }

    /// Keeps the node for at least this long from now. Returns false if it has ended already.
    pub(super) fn lengthen(&self, now: Moment, span: Duration) -> bool {
        let mut state = self.state.lock();
        if state.is_ended || state.until <= now || self.session.is_over() {
            return false;
        }
        state.until = state.until.max(now + span);
        true
    }

    /// Ends it if its time is over. Returns whether it did.
    fn ends(&self, now: Moment) -> bool {
        let mut state = self.state.lock();
        state.is_ended |= state.until <= now;
        state.is_ended
    }
}

/// All nodes of a store.
#[derive(Debug, Default)]
pub(super) struct Mine(Unpoisoned<All>);

#[derive(Debug, Default)]
struct All {
    nodes: HashMap<Of, Arc<Node>>,
    /// Nodes that may have been made, because the answer was lost.
    doubts: HashMap<Of, Arc<Doubt>>,
    /// When to look at each node and each doubt. A renewal does not change this, so that neither a
    /// renewal nor a grant costs more if there are many nodes.
    due: BTreeMap<(Moment, usize), Due>,
    /// For each watched path, the node of this client that waits behind it.
    behind: HashMap<String, Arc<Node>>,
    /// The paths of nodes that are being deleted.
    dying: HashSet<String>,
}

#[derive(Debug)]
enum Due {
    Node(Arc<Node>),
    Doubt(Arc<Doubt>),
}

/// The position of a check among all that are due. No two have one address.
fn slot<T>(at: Moment, it: &Arc<T>) -> (Moment, usize) {
    (at, Arc::as_ptr(it).addr())
}

/// A node that may have been made.
#[derive(Debug)]
pub(super) struct Doubt {
    pub(super) of: Of,
    pub(super) session: Arc<Session>,
    /// When the node must be gone.
    until: Moment,
    /// Whether the doubt is settled. The first task that finds out tells the others.
    pub(super) settling: tokio::sync::Mutex<bool>,
}

impl Doubt {
    pub(super) fn new(of: Of, session: Arc<Session>, until: Moment) -> Self {
        Self { of, session, until, settling: tokio::sync::Mutex::default() }
    }
}

impl All {
    fn has(&self, node: &Arc<Node>) -> bool {
        self.nodes.get(&node.of).is_some_and(|it| Arc::ptr_eq(it, node))
    }

    /// Schedules a check at that moment. Returns whether it comes before all others.
    fn look_at(&mut self, at: Moment, due: Due) -> bool {
        let is_first = self.due.first_key_value().is_none_or(|((first, _), _)| at < *first);
        let slot = match &due {
            Due::Node(node) => slot(at, node),
            Due::Doubt(doubt) => slot(at, doubt),
        };
        self.due.insert(slot, due);
        is_first
    }

    /// Schedules a check for the end of a node, as far as it is known. Returns whether the check
    /// comes before all others.
    fn look_at_end(&mut self, node: &Arc<Node>) -> bool {
        let (before, until) = {
            let mut state = node.state.lock();
            let until = state.until;
            (std::mem::replace(&mut state.due, until), until)
        };
        self.due.remove(&slot(before, node));
        self.look_at(until, Due::Node(Arc::clone(node)))
    }

    /// Takes out the node of an owner.
    fn remove(&mut self, of: &Of) -> Option<Arc<Node>> {
        let node = self.nodes.remove(of)?;
        let due = node.state.lock().due;
        self.due.remove(&slot(due, &node));
        self.unwatch(&node);
        Some(node)
    }

    /// Forgets a node, if it is this one.
    fn forget(&mut self, node: &Arc<Node>) {
        node.state.lock().is_ended = true;
        if self.has(node) {
            self.remove(&node.of);
        }
    }

    fn unwatch(&mut self, node: &Arc<Node>) {
        let watched = node.state.lock().watched.take();
        let Some((path, _)) = watched else { return };
        if self.behind.get(&path).is_some_and(|it| Arc::ptr_eq(it, node)) {
            self.behind.remove(&path);
        }
    }
}

impl Mine {
    /// The node of an owner, if it has one that its session has not taken along.
    pub(super) fn of(&self, of: &Of) -> Option<Arc<Node>> {
        self.find(of).filter(|node| !node.session.is_over())
    }

    /// The node of an owner. A node that ended with its session is found once more.
    pub(super) fn find(&self, of: &Of) -> Option<Arc<Node>> {
        let mut all = self.0.lock();
        let node = all.nodes.get(of)?;
        if node.session.is_over() { all.remove(of) } else { Some(Arc::clone(node)) }
    }

    /// Remembers a node. Also returns whether it ends before all others.
    pub(super) fn add(&self, node: Node) -> (Arc<Node>, bool) {
        let (node, mut all) = (Arc::new(node), self.0.lock());
        all.remove(&node.of);
        all.nodes.insert(node.of.clone(), Arc::clone(&node));
        let is_first = all.look_at_end(&node);
        (node, is_first)
    }

    /// Notes that a node ends sooner than before. Returns whether it ends before all others.
    pub(super) fn shortened(&self, node: &Arc<Node>) -> bool {
        let mut all = self.0.lock();
        all.has(node) && all.look_at_end(node)
    }

    /// Forgets a node that is gone.
    pub(super) fn forget(&self, node: &Arc<Node>) {
        self.0.lock().forget(node);
    }

    /// Forgets a node, but remembers its path until it is deleted.
    pub(super) fn condemn(&self, node: &Arc<Node>) {
        let mut all = self.0.lock();
        all.forget(node);
        all.dying.insert(node.path.clone());
    }

    /// Notes that a node was deleted.
    pub(super) fn deleted(&self, node: &Node) {
        self.0.lock().dying.remove(&node.path);
    }

    /// Whether a node is being deleted. It may be there for a while, but nobody may rely on it.
    pub(super) fn is_dying(&self, path: &str) -> bool {
        self.0.lock().dying.contains(path)
    }

    /// Remembers a doubt. Returns whether it must be settled before all others.
    pub(super) fn doubt(&self, doubt: Doubt) -> bool {
        let (doubt, mut all) = (Arc::new(doubt), self.0.lock());
        all.doubts.insert(doubt.of.clone(), Arc::clone(&doubt));
        all.look_at(doubt.until, Due::Doubt(doubt))
    }

    /// Lets another task settle a doubt at that moment, because one has failed. Returns whether
    /// that is before all others.
    pub(super) fn doubt_again(&self, doubt: Arc<Doubt>, at: Moment) -> bool {
        self.0.lock().look_at(at, Due::Doubt(doubt))
    }

    /// The doubt whether a node was made for this owner, if there is one.
    pub(super) fn doubt_of(&self, of: &Of) -> Option<Arc<Doubt>> {
        let mut all = self.0.lock();
        let doubt = all.doubts.get(of)?;
        if doubt.session.is_over() {
            all.doubts.remove(of);
            return None;
        }
        Some(Arc::clone(doubt))
    }

    pub(super) fn settled(&self, doubt: &Arc<Doubt>) {
        let mut all = self.0.lock();
        if all.doubts.get(&doubt.of).is_some_and(|it| Arc::ptr_eq(it, doubt)) {
            all.doubts.remove(&doubt.of);
        }
    }

    /// Notes that a node waits behind this path, which is watched from now on. Returns false if the
    /// path is watched already.
    pub(super) fn watch(&self, node: &Arc<Node>, path: &str) -> bool {
        let mut all = self.0.lock();
        let watched = Some((path.to_owned(), node.session.connection()));
        if node.state.lock().watched == watched {
            return false;
        }
        all.unwatch(node);
        if all.has(node) {
            // A node that was behind this path before has ended.
            all.behind.insert(path.to_owned(), Arc::clone(node));
            node.state.lock().watched = watched;
        }
        true
    }

    /// Notes that nothing is watched for a node any more.
    pub(super) fn unwatch(&self, node: &Arc<Node>) {
        self.0.lock().unwatch(node);
    }

    /// The nodes that waited behind one of these paths, which are gone.
    pub(super) fn behind(&self, gone: &[String]) -> Vec<Arc<Node>> {
        let mut all = self.0.lock();
        let behind: Vec<_> = gone.iter().filter_map(|path| all.behind.get(path).cloned()).collect();
        behind.iter().for_each(|node| all.unwatch(node));
        behind
    }

    /// The inboxes of all waiters.
    pub(super) fn inboxes(&self) -> Vec<ClientId> {
        let all = self.0.lock();
        let inbox = |node: &Arc<Node>| {
            let state = node.state.lock();
            state.held.is_none().then(|| Some(state.place.as_ref()?.inbox.clone()))?
        };
        let mut inboxes: Vec<_> = all.nodes.values().filter_map(inbox).collect();
        inboxes.sort_unstable();
        inboxes.dedup();
        inboxes
    }

    /// Takes out the nodes whose time is over, so that they can be deleted. Lists the doubts that
    /// must be settled. Also returns when to look again.
    pub(super) fn ended(&self, now: Moment) -> (Vec<Arc<Node>>, Vec<Arc<Doubt>>, Option<Moment>) {
        let mut all = self.0.lock();
        let mut due = Vec::new();
        while let Some(first) = all.due.first_entry().filter(|it| it.key().0 <= now + EARLY) {
            due.push(first.remove_entry());
        }
        let (mut nodes, mut doubts) = (Vec::new(), Vec::new());
        for ((at, _), due) in due {
            match due {
                Due::Node(node) if node.ends(now) => {
                    all.remove(&node.of);
                    all.dying.insert(node.path.clone());
                    nodes.push(node);
                }
                Due::Node(node) => drop(all.look_at_end(&node)),
                Due::Doubt(doubt) if at > now => drop(all.look_at(at, Due::Doubt(doubt))),
                // The task that settles a doubt removes it.
                Due::Doubt(doubt) => {
                    let is_open =
                        all.doubts.get(&doubt.of).is_some_and(|it| Arc::ptr_eq(it, &doubt));
                    doubts.extend(is_open.then_some(doubt));
                }
            }
        }
        (nodes, doubts, all.due.first_key_value().map(|((at, _), _)| *at))
    }
}

#[cfg(test)]
mod tests;
