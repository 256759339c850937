//! Acquire: the first node of a lock has it.
//!
//! | the owner's node | the line | what the step does |
//! |---|---|---|
//! | has the lock | any | renews it |
//! | is the first | any | grants it |
//! | waits | any | keeps it, and watches the node ahead |
//! | none | somebody has the lock, and the asker does not wait | refuses, and writes nothing |
//! | none | else | makes a node, and decides again |

use std::sync::Arc;
use std::time::Duration;

use super::{Core, ROUNDS_MAX, bound, gone, line_of, millis};
use crate::core::error::ErrorKind;
use crate::core::key::Key;
use crate::core::line::PLACES_MAX;
use crate::store::entry::Entry;
use crate::store::errors::unsupported_line;
use crate::store::zookeeper::error::Fault;
use crate::store::zookeeper::line::Line;
use crate::store::zookeeper::mine::{Doubt, Node, Of, Place, State};
use crate::store::zookeeper::names::place;
use crate::store::zookeeper::rpc::{
    self, Stat, children, create, delete, exists, fail_below, get_data, read_children, read_data,
    read_path,
};
use crate::store::zookeeper::session::Session;
use crate::store::{Acquired, Ask, Hint, Line as Wish, Refusal, line_is_full, unsupported_claim};

/// How often a waiter reads the whole line. In between, it only checks its own node.
const READ_EVERY: Duration = Duration::from_secs(5);

impl Core {
    pub(in crate::store::zookeeper) async fn acquire(&self, ask: Ask) -> Result<Acquired, Fault> {
        if !ask.claim.is_alone() {
            return Err(unsupported_claim(ask.claim, &ask.key).into());
        }
        if matches!(ask.line, Wish::Watch { .. }) {
            return Err(unsupported_line(&ask.key).into());
        }
        let of = (ask.key.clone(), ask.owner.clone());
        let is_first = self.mine.of(&of).is_none();
        match self.acquire_in_session(&of, &ask).await {
            // The session ended while this machine slept, for example. This owner had nothing in
            // it, and the request was not carried out.
            Err(Fault::SessionOver) if is_first => self.acquire_in_session(&of, &ask).await,
            answered => answered,
        }
    }

    async fn acquire_in_session(&self, of: &Of, ask: &Ask) -> Result<Acquired, Fault> {
        let session = self.wire.session().await?;
        self.check(&session, ask.ttl)?;
        if let Some(terms) = ask.line.place() {
            self.check(&session, terms.handed_ttl)?;
        }
        let node = match self.mine.of(of) {
            Some(node) => Some(node),
            None => self.settle(of, Some(ask)).await?,
        };
        if let Some(node) = node {
            if let Some(answer) = self.ask_again(&node, ask).await? {
                return Ok(answer);
            }
            // The time of the node is over. The next node must not wait behind it.
            self.end(&node).await?;
        }
        self.ask_anew(&session, of, ask).await
    }

    /// Goes on with a node of an earlier ask. `None` if it has ended.
    async fn ask_again(&self, node: &Arc<Node>, ask: &Ask) -> Result<Option<Acquired>, Fault> {
        let waits = place_of(ask);
        let span = {
            let mut state = node.state.lock();
            let place = waits.map(|(place, span)| {
                state.place = Some(place);
                span
            });
            if state.held.is_some() { ask.ttl.get() } else { place.unwrap_or_default() }
        };
        let now = self.wire.host.now();
        if !node.lengthen(now, span) {
            return Ok(None);
        }
        let (is_held, is_watched) = {
            let state = node.state.lock();
            let connection = node.session.connection();
            let is_watched = state.watched.as_ref().is_some_and(|(_, it)| *it == connection);
            (state.held.is_some(), is_watched && now.since(state.read) < READ_EVERY)
        };
        let answer = if is_held {
            self.granted(node, ask, None).await
        } else if is_watched && ask.line != Wish::None {
            // An event tells the node's turn, unless somebody deleted the node.
            let there = node.session.ask(exists(&node.path), Stat::read).await;
            there.map(|_| Refusal::taken(None, node.state.lock().ahead).into())
        } else {
            match self.look(&node.session, &ask.key).await {
                Ok(line) => self.take_or_wait(node, ask, line).await,
                Err(fault) => Err(fault),
            }
        };
        match answer {
            Ok(answer) => Ok(Some(answer)),
            // Somebody deleted the node.
            Err(Fault::NoNode) => Ok(None),
            Err(fault) => Err(fault),
        }
    }

    async fn granted(
        &self,
        node: &Arc<Node>,
        ask: &Ask,
        fresh: Option<Stat>,
    ) -> Result<Acquired, Fault> {
        let fencing = self.grant(node, ask.ttl.get(), fresh).await?.fencing;
        Ok(Acquired::Granted { fencing })
    }

    /// Takes the lock if the node is the first, or else waits.
    async fn take_or_wait(
        &self,
        node: &Arc<Node>,
        ask: &Ask,
        mut line: Line,
    ) -> Result<Acquired, Fault> {
        for _ in 0..ROUNDS_MAX {
            match line.position(&node.name) {
                None => return Err(Fault::NoNode),
                Some(0) => return self.granted(node, ask, None).await,
                Some(at) => {
                    if self.watch(node, &line).await? {
                        let ahead = u32::try_from(at - 1).unwrap_or(u32::MAX);
                        let now = self.wire.host.now();
                        {
                            let mut state = node.state.lock();
                            (state.read, state.ahead) = (now, ahead);
                        }
                        return Ok(self.refuse(&node.session, ask, &line, ahead).await);
                    }
                }
            }
            // The node ahead is gone.
            line = self.glance(node).await?.0;
        }
        let ahead = line.waiting().saturating_sub(1);
        Ok(Refusal::taken(None, ahead).at_once().into())
    }

    /// Watches the node ahead. Returns false if it is gone already.
    pub(super) async fn watch(&self, node: &Arc<Node>, line: &Line) -> Result<bool, Fault> {
        let at = line.position(&node.name).and_then(|at| at.checked_sub(1));
        let Some(ahead) = at.map(|at| &line.nodes()[at]) else { return Ok(false) };
        let path = format!("{}/{ahead}", node.parent());
        // Note the watch before asking for it, because the event may be faster than this task.
        if !self.mine.watch(node, &path) {
            return Ok(true);
        }
        // A node that ends with its session has no children, so its end is the only event. Its data
        // may change without an event.
        match node.session.ask(children(&path, true), read_children).await {
            Ok(_) => Ok(true),
            Err(fault) => {
                self.mine.unwatch(node);
                if matches!(fault, Fault::NoNode) { Ok(false) } else { Err(fault) }
            }
        }
    }

    /// Answers *taken*.
    async fn refuse(&self, session: &Session, ask: &Ask, line: &Line, ahead: u32) -> Acquired {
        let mut retry_in = None;
        if ask.line != Wish::None {
            // A holder of this store hears of the waiter now. Other holders hear of it by their
            // next renewal.
            if let Some(holder) = line.holder().and_then(|holder| holder.client()) {
                self.sinks.send(&holder, Hint::Wanted { key: ask.key.clone() });
            }
        } else if let Some(first) = line.first() {
            let path = format!("{}/{first}", self.names.lock(&ask.key));
            // A waiter has a watch. Only people and timers use the time left, so a failure does not
            // matter.
            if let Ok((data, stat)) = session.ask(get_data(&path), read_data).await {
                let left = Entry::read(&data).map(|entry| self.left(&entry, stat));
                retry_in = left.filter(|left| !left.is_zero());
            }
        }
        Refusal::taken(retry_in, ahead).into()
    }

    /// How long a lease lasts unrenewed, for people and timers, by the clocks of the leader and of
    /// this machine.
    pub(super) fn left(&self, entry: &Entry, stat: Stat) -> Duration {
        let ends = stat.modified_ms.saturating_add(entry.lasts);
        let now = i64::try_from(self.wire.host.wall().as_unix_millis()).unwrap_or(i64::MAX);
        let left = ends.saturating_sub(now).clamp(0, entry.lasts.max(0));
        Duration::from_millis(left.unsigned_abs())
    }

    /// Asks for an owner that has no node.
    async fn ask_anew(
        &self,
        session: &Arc<Session>,
        of: &Of,
        ask: &Ask,
    ) -> Result<Acquired, Fault> {
        let waits = place_of(ask);
        if waits.is_none() {
            let mut line = self.look(session, &ask.key).await?;
            if self.check_alone(session, of, &line, "").await? {
                line = self.look(session, &ask.key).await?;
            }
            if line.first().is_some() {
                return Ok(self.refuse(session, ask, &line, line.waiting()).await);
            }
        }
        let entry = Entry::of(ask, millis(ask.ttl.get()), self.wire.host.wall());
        let name = self.make(session, of, &entry, ask.ttl.get()).await?;
        let (place, span) =
            waits.map_or_else(|| (None, ask.ttl.get()), |(it, span)| (Some(it), span));
        let node = self.keep(session, of, &name, (entry, place, span));
        let answer = self.decide_new(&node, ask).await;
        if let Err(Fault::Error(error)) = &answer
            && !error.is_retryable()
        {
            // No retry follows. If the delete fails, a task repeats it.
            drop(self.end(&node).await);
        }
        let may_be_there = self.mine.of(of).is_some() || self.mine.is_dying(&node.path);
        if may_be_there { answer.map_err(Fault::after_a_change) } else { answer }
    }

    async fn decide_new(&self, node: &Arc<Node>, ask: &Ask) -> Result<Acquired, Fault> {
        let (line, stat) = self.glance(node).await?;
        let checked = self.check_alone(&node.session, &node.of, &line, &node.name).await;
        if let Err(refused) = checked {
            self.end(node).await?;
            return Err(refused);
        }
        let is_waiting = ask.line != Wish::None;
        match line.position(&node.name) {
            Some(0) => self.granted(node, ask, line.is_alone_since(stat).then_some(stat)).await,
            Some(_) if !is_waiting => {
                // Another client was faster.
                self.end(node).await?;
                let ahead = line.waiting().saturating_sub(1);
                Ok(self.refuse(&node.session, ask, &line, ahead).await)
            }
            Some(_) if line.waiting() as usize > PLACES_MAX => {
                self.end(node).await?;
                Err(line_is_full(&ask.key).into())
            }
            _ => self.take_or_wait(node, ask, line).await,
        }
    }

    /// Remembers a node that was made.
    pub(super) fn keep(
        &self,
        session: &Arc<Session>,
        of: &Of,
        name: &str,
        (entry, place, span): (Entry, Option<Place>, Duration),
    ) -> Arc<Node> {
        let until = self.wire.host.now() + span;
        let state = State::new(entry, until, place);
        let parent = self.names.lock(&of.0);
        let node = Node::new(of.clone(), &parent, name, Arc::clone(session), state);
        let (node, is_first) = self.mine.add(node);
        if is_first {
            self.tend();
        }
        node
    }

    /// Makes a node at the end of the line. Returns its name.
    async fn make(
        &self,
        session: &Arc<Session>,
        of: &Of,
        entry: &Entry,
        span: Duration,
    ) -> Result<String, Fault> {
        let path = format!("{}/{}", self.names.lock(&of.0), place(&of.1));
        let data = entry.write();
        for _ in 0..ROUNDS_MAX {
            let making = create(&path, &data, self.acl, rpc::Node::Numbered);
            match session.ask(making, read_path).await {
                // If the node of the lock was deleted meanwhile, its numbers start at zero again.
                // So an old node may have had this path, and a late delete of it must not delete
                // the new node.
                Ok(path) if self.mine.is_dying(&path) => {
                    gone(session.ask(delete(&path), |_| Ok(())).await)?;
                }
                Ok(path) => return Ok(name_of(&path)),
                Err(Fault::NoNode) => self.make_parents(session, of).await?,
                Err(fault) => return Err(self.doubted(session, of, span, fault)),
            }
        }
        Err(Fault::NoNode)
    }

    /// Remembers a node that may have been made.
    pub(super) fn doubted(
        &self,
        session: &Arc<Session>,
        of: &Of,
        span: Duration,
        fault: Fault,
    ) -> Fault {
        if matches!(&fault, Fault::Error(error) if error.kind() == ErrorKind::Unknown) {
            let until = self.wire.host.now() + span;
            if self.mine.doubt(Doubt::new(of.clone(), Arc::clone(session), until)) {
                self.tend();
            }
        }
        fault
    }

    /// Makes the node of a lock, and those above it.
    async fn make_parents(&self, session: &Session, of: &Of) -> Result<(), Fault> {
        let path = self.names.lock(&of.0);
        let make = |path: &str, node| session.ask(create(path, b"", self.acl, node), read_path);
        let made = match make(&path, rpc::Node::Container).await {
            Err(Fault::NoNode) => {
                let mut missing = vec![self.names.root()];
                while let Some(path) = missing.last() {
                    match make(path, rpc::Node::Lasting).await {
                        Ok(_) | Err(Fault::NodeExists) => {
                            missing.pop();
                        }
                        Err(Fault::NoNode) => match path.rsplit_once('/') {
                            Some((parent, _)) if !parent.is_empty() => missing.push(parent),
                            _ => return Err(Fault::NoNode),
                        },
                        Err(fault) => return Err(fault),
                    }
                }
                make(&path, rpc::Node::Container).await
            }
            made => made,
        };
        let made = match made {
            // Before 3.5, no server removes the node of a lock that is free.
            Err(Fault::Unknown) => make(&path, rpc::Node::Lasting).await,
            made => made,
        };
        match made {
            Ok(_) | Err(Fault::NodeExists) => Ok(()),
            Err(fault) => Err(fault),
        }
    }

    /// Checks that the owner has no other node. Deletes a leftover node of this session, or of an
    /// earlier one of this store. A node of any other session belongs to another handle, which is
    /// an error. Returns whether it deleted a node.
    async fn check_alone(
        &self,
        session: &Session,
        of: &Of,
        line: &Line,
        except: &str,
    ) -> Result<bool, Fault> {
        let Some(other) = line.node_of(&of.1, except) else { return Ok(false) };
        let path = format!("{}/{other}", self.names.lock(&of.0));
        match session.ask(exists(&path), Stat::read).await {
            Err(Fault::NoNode) => Ok(true),
            Err(fault) => Err(fault),
            Ok(stat) if !self.is_of(stat, session) => Err(bound(of).into()),
            Ok(_) => gone(session.ask(delete(&path), |_| Ok(())).await).map(|()| true),
        }
    }

    /// Whether a node is of this session, or of an earlier one of this store.
    pub(super) fn is_of(&self, node: Stat, session: &Session) -> bool {
        node.session == session.id || self.wire.has_given_up(node.session)
    }

    /// Finds out whether a node was made for an owner, after the answer to that request was lost.
    /// With an ask, goes on with the node.
    pub(super) async fn settle(
        &self,
        of: &Of,
        ask: Option<&Ask>,
    ) -> Result<Option<Arc<Node>>, Fault> {
        let Some(doubt) = self.mine.doubt_of(of) else { return Ok(None) };
        let mut is_settled = doubt.settling.lock().await;
        if *is_settled {
            return Ok(self.mine.of(of));
        }
        let session = &doubt.session;
        let line = self.look_behind_a_change(session, &of.0).await?;
        let mut node = None;
        let nodes: Vec<_> = line.nodes_of(&of.1).collect();
        for (at, name) in nodes.iter().enumerate() {
            let path = format!("{}/{name}", self.names.lock(&of.0));
            match session.ask(exists(&path), Stat::read).await {
                Ok(stat) if stat.session == session.id => {}
                Ok(_) | Err(Fault::NoNode) => continue,
                Err(fault) => return Err(fault),
            }
            match ask {
                // An earlier node has ended, and may just not be deleted yet.
                Some(ask) if at + 1 == nodes.len() && !self.mine.is_dying(&path) => {
                    let span = ask.ttl.get();
                    let entry = Entry::of(ask, millis(span), self.wire.host.wall());
                    let waits = place_of(ask);
                    let (place, span) = waits.map_or((None, span), |(it, span)| (Some(it), span));
                    node = Some(self.keep(session, of, name, (entry, place, span)));
                }
                _ => gone(session.ask(delete(&path), |_| Ok(())).await)?,
            }
        }
        *is_settled = true;
        self.mine.settled(&doubt);
        Ok(node)
    }

    /// Reads the line of a lock once every earlier request of this session has arrived, or never
    /// will. A server carries out the requests of a session in order, and the leader refuses
    /// requests of an old connection. A change proves this, even if it fails, because a majority
    /// agrees to it. A `sync` does not prove it, since a leader answers it alone, even if it was
    /// replaced.
    async fn look_behind_a_change(&self, session: &Session, key: &Key) -> Result<Line, Fault> {
        let path = self.names.lock(key);
        let changing = session.ask(fail_below(&path), |_| Ok(()));
        let read = session.ask(children(&path, false), read_children);
        match changing.await {
            Ok(()) | Err(Fault::NoNode | Fault::OtherVersion) => line_of(read.await),
            Err(fault) => Err(fault),
        }
    }
}

/// The place that an ask wants, and for how long.
fn place_of(ask: &Ask) -> Option<(Place, Duration)> {
    let terms = ask.line.place()?;
    let (handed, ask_no, inbox) = (terms.handed_ttl.get(), terms.ask_no, terms.inbox.clone());
    Some((Place { handed, ask_no, inbox }, terms.waiter_ttl.get()))
}

pub(super) fn name_of(path: &str) -> String {
    path.rsplit('/').next().unwrap_or_default().to_owned()
}
