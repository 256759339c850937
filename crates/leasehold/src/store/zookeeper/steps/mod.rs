//! The steps of the contract, and the work between them: places that move up, and nodes whose time
//! is over.

mod acquire;
mod release;
mod renew;
mod tending;
#[cfg(test)]
mod tests;
mod tools;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::connect::ZookeeperConnector;
use super::error::Fault;
use super::line::Line;
use super::mine::{Mine, Node, Of};
use super::names::Names;
use super::rpc::{Acl, Stat, children, exists, get_data, read_children, read_data, set_data, sync};
use super::session::{Session, margin};
use super::wire::Wire;
use crate::core::error::{Error, ErrorKind};
use crate::core::key::Key;
use crate::core::moment::Moment;
use crate::core::token::{FencingBlock, FencingToken};
use crate::core::ttl::Ttl;
use crate::host::Host;
use crate::store::entry::Entry;
use crate::store::{Revocation, Sinks};

/// The data that Apache Curator writes into the node of a holder to ask it to let go.
const ASKED_BY_CURATOR: &[u8] = b"__REVOKE__";

/// How often a step starts again before it gives up. Each time, another client was faster.
const ROUNDS_MAX: usize = 16;

/// How many fencing tokens each change of the ensemble stands for. A change has the number of the
/// leader's term in its upper half. So tokens suffice for 131 071 terms.
const TOKENS_EACH: u32 = 16;

/// The part that all steps of a store share.
pub(super) struct Core {
    pub(super) wire: Wire,
    names: Names,
    acl: Acl,
    mine: Arc<Mine>,
    pub(super) sinks: Arc<Sinks>,
    me: Weak<Self>,
    /// Whether a task looks after the nodes.
    is_tended: AtomicBool,
}

/// A grant or a renewal.
struct Granted {
    fencing: Option<FencingBlock>,
    is_new: bool,
    /// Whether somebody waits, as far as a renewal found out.
    is_wanted: bool,
}

impl Core {
    pub(super) fn new(connector: ZookeeperConnector, host: Arc<dyn Host>) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            names: connector.names(),
            acl: connector.acl(),
            wire: Wire::new(connector, host),
            mine: Arc::default(),
            sinks: Arc::default(),
            me: Weak::clone(me),
            is_tended: AtomicBool::new(false),
        })
    }

    /// Reads the line of a lock, as it is at the leader.
    async fn look(&self, session: &Session, key: &Key) -> Result<Line, Fault> {
        let path = self.names.lock(key);
        let synced = session.ask(sync(&path), |_| Ok(()));
        let read = session.ask(children(&path, false), read_children);
        synced.await?;
        line_of(read.await)
    }

    /// Reads the line of a lock and the numbers of a node of this session. Both are as new as the
    /// last answer to this session.
    async fn glance(&self, node: &Node) -> Result<(Line, Stat), Fault> {
        let read = node.session.ask(children(node.parent(), false), read_children);
        let stat = node.session.ask(exists(&node.path), Stat::read);
        let line = line_of(read.await)?;
        Ok((line, stat.await?))
    }

    /// Gives the lock to its first node, or renews it if it has the lock. `fresh` are the numbers
    /// of a node that was alone when it was made.
    ///
    /// A node that came while others had the lock is written again. So its number is higher than
    /// that of any change by earlier holders.
    async fn grant(
        &self,
        node: &Arc<Node>,
        span: Duration,
        fresh: Option<Stat>,
    ) -> Result<Granted, Fault> {
        let _turn = node.turn.lock().await;
        let now = self.wire.host.now();
        if !node.lengthen(now, Duration::ZERO) {
            return Err(Fault::NoNode);
        }
        let (held, is_shorter) = {
            let mut state = node.state.lock();
            let (before, until) = (state.until, now + span);
            // A lease never becomes shorter. A place that becomes a lease may.
            state.until = if state.held.is_some() { before.max(until) } else { until };
            (state.held, state.until < before)
        };
        if let Some(fencing) = held {
            let (_, is_wanted) = self.write(node, None).await?;
            return Ok(Granted { fencing, is_new: false, is_wanted });
        }
        if is_shorter && self.mine.shortened(node) {
            self.tend();
        }
        let changed = match fresh {
            Some(stat) => stat.created,
            None => {
                let entry = node.state.lock().entry().clone().handed(self.wire.host.wall());
                let entry = Entry { fence: None, ..entry };
                self.write(node, Some(entry)).await?.0.modified
            }
        };
        let numbers = tokens(changed);
        let mut state = node.state.lock();
        if numbers.is_none() && state.entry().reserve > 0 {
            return Err(too_many_terms().into());
        }
        let fencing = state.hold(numbers);
        Ok(Granted { fencing, is_new: true, is_wanted: false })
    }

    /// Writes the data of a node, with the time that it has left: `changed`, or else the data of
    /// the last write. Keeps a request to let go that came meanwhile. Without `changed`, also
    /// returns whether somebody waits.
    async fn write(&self, node: &Node, mut changed: Option<Entry>) -> Result<(Stat, bool), Fault> {
        for _ in 0..ROUNDS_MAX {
            let writing = {
                let mut state = node.state.lock();
                let (version, lasts) = (state.version, self.lasts(state.until));
                match &mut changed {
                    None => set_data(&node.path, state.text(lasts), version),
                    Some(entry) => {
                        entry.lasts = lasts;
                        set_data(&node.path, &entry.write(), version)
                    }
                }
            };
            let writing = node.session.ask(writing, Stat::read);
            // A renewal asks whether somebody waits. The server answers in order, so this answer is
            // no older than the change.
            let looking =
                changed.is_none().then(|| node.session.ask(exists(node.parent()), Stat::read));
            match writing.await {
                Ok(stat) => {
                    {
                        let mut state = node.state.lock();
                        state.version = stat.version;
                        if let Some(entry) = changed {
                            *state.entry_mut() = entry;
                        }
                    }
                    let is_wanted = match looking {
                        // The renewal counts, even if the other answer is lost.
                        Some(looking) => looking.await.is_ok_and(|parent| parent.children > 1),
                        None => false,
                    };
                    return Ok((stat, is_wanted));
                }
                // Somebody else wrote the node, or this store wrote it and the answer was lost.
                Err(Fault::OtherVersion) => {
                    let (data, stat) = node.session.ask(get_data(&node.path), read_data).await?;
                    let revoked = match &data[..] {
                        ASKED_BY_CURATOR => Some(Arc::new(self.asked_by_curator())),
                        _ => Entry::read(&data).and_then(|entry| entry.revoked),
                    };
                    // Set both, version and request. Otherwise a later write would replace a
                    // request that it does not know.
                    let mut state = node.state.lock();
                    state.version = stat.version;
                    if state.entry().revoked.is_none() {
                        state.entry_mut().revoked.clone_from(&revoked);
                    }
                    if let Some(entry) = &mut changed {
                        entry.revoked.clone_from(&state.entry().revoked);
                    }
                }
                Err(fault) => return Err(fault),
            }
        }
        let message = "somebody else writes to the node of this lock again and again; it was not \
                       written; try again";
        Err(Error::new(ErrorKind::Unavailable, message).into())
    }

    /// How many milliseconds are left until then, rounded up, so that a renewal for the same ttl
    /// writes the same text.
    fn lasts(&self, until: Moment) -> i64 {
        millis(until.since(self.wire.host.now()) + Duration::from_nanos(999_999))
    }

    /// A request to let go of a client of Curator, which names neither itself nor a reason.
    fn asked_by_curator(&self) -> Revocation {
        Revocation::new("a client of Curator", "it asks to let go", self.wire.host.wall())
    }

    /// Refuses a ttl that may be longer than the server certainly keeps the session.
    fn check(&self, session: &Session, ttl: Ttl) -> Result<(), Error> {
        let (granted, ttl) = (session.timeout, ttl.get());
        if ttl + margin(granted) <= granted {
            return Ok(());
        }
        let wanted = self.wire.connector.address.session;
        let needed = needed(ttl).as_secs() + 1;
        let (is, advice) = if granted < wanted {
            let is = format!("the server granted {granted:?} of the {wanted:?} that the URL wants");
            (is, format!("raise `maxSessionTimeout` of the servers to {needed} s or more"))
        } else {
            let is = format!("the session of this client lasts {granted:?}");
            (is, format!("write `session_timeout={needed}s` in the URL"))
        };
        let longest = granted.saturating_sub(margin(granted));
        let message = format!(
            "a ttl of {ttl:?}, with the lock delay, is too long for a session: {is}, of which a \
             lease may have {longest:?}; no lock was changed; shorten the ttl, or {advice}"
        );
        Err(Error::new(ErrorKind::Config, message))
    }
}

/// The shortest session for leases of a ttl.
fn needed(ttl: Duration) -> Duration {
    (ttl + margin(Duration::ZERO)).max(ttl / 3 * 4)
}

impl Drop for Core {
    fn drop(&mut self) {
        // Lets the task that looks after the nodes end.
        self.wire.board.reader.notify_one();
    }
}

/// The line in an answer. A lock without a node is free.
fn line_of(read: Result<(Vec<String>, Stat), Fault>) -> Result<Line, Fault> {
    match read {
        Ok(read) => Ok(Line::of(read)?),
        Err(Fault::NoNode) => Ok(Line::default()),
        Err(fault) => Err(fault),
    }
}

/// The result of a delete. The node may be gone already, perhaps with its session.
fn gone(deleted: Result<(), Fault>) -> Result<(), Fault> {
    match deleted {
        Err(Fault::NoNode | Fault::SessionOver) => Ok(()),
        deleted => deleted,
    }
}

/// The fencing tokens that a change of the ensemble stands for. `None` if they are too high.
fn tokens(change: i64) -> Option<FencingBlock> {
    let count = TOKENS_EACH;
    let first = u64::try_from(change).ok()?.checked_mul(u64::from(count))?;
    // All tokens of the block are within bounds.
    FencingToken::new(first.checked_add(u64::from(count))?)?;
    Some(FencingBlock { first: FencingToken::new(first)?, count })
}

fn too_many_terms() -> Error {
    let message = "the leader of this ensemble changed more than 131071 times, so its changes have \
                   too high numbers for fencing tokens; the lock is free when its ttl has passed, \
                   or sooner; use locks without fencing tokens, or an ensemble with new data";
    Error::new(ErrorKind::Config, message)
}

fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}

/// The error for a lease of another handle.
fn bound(of: &Of) -> Error {
    let message = "a lock in ZooKeeper ends with the process that took it, so no other process can \
                   use it; the lock is unchanged; keep it in one process, as `leasehold run` does";
    Error::new(ErrorKind::Unsupported, message).with_name(of.0.as_str())
}
