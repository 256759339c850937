//! One connection: two ends, and everything on its way between them.

use std::collections::{BTreeMap, VecDeque};
use std::task::Waker;
use std::time::Duration;

use leasehold::core::Moment;
use leasehold::store::redis::{Command, LinkError, News, Value};
use tokio::sync::{mpsc, oneshot};

use super::Delivery;
use crate::history::event::ProcessId;
use crate::simulation::redis::Wait;

/// Identifies a connection. The server also uses it as the id of a subscriber.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) struct ConnectionId(pub(super) u64);

/// The answer to a request.
pub(in super::super) type Answer = Result<Value, LinkError>;

/// Sends an answer to the task that waits for it.
pub(super) type Answering = oneshot::Sender<Answer>;

/// Tells the task that waits for a subscription.
pub(in super::super) type Confirm = oneshot::Sender<()>;

/// Tells the task that waits for a key to be tracked whether the key exists.
pub(in super::super) type Tracked = oneshot::Sender<bool>;

/// A request on its way.
pub(in super::super) struct Request {
    pub(super) command: Command,
    /// Loses the answer: the connection ends this long after the request took effect.
    pub(super) loses_reply: Option<Duration>,
    /// If the request took effect, it takes effect once more this much later.
    pub(super) again_after: Option<Duration>,
}

/// A message that arrives on a connection for messages.
pub(in super::super) enum Incoming {
    /// The subscription to a channel has begun.
    Confirmed(Confirm),
    /// The tracking of a key has begun.
    Tracked(Tracked, bool),
    /// A message that the server sends unasked.
    News(News),
}

/// One connection. It lives as long as either end or a delivery refers to it.
pub(super) struct Connection {
    pub(super) process: ProcessId,
    /// The tasks that wait for answers, oldest first; `None` once the client's end is closed.
    pub(super) waiting: Option<VecDeque<Answering>>,
    /// Where messages go.
    pub(super) messages: Option<mpsc::UnboundedSender<News>>,
    pub(super) is_subscriber: bool,
    pub(super) last_to_server: Moment,
    pub(super) last_to_client: Moment,
    /// Deliveries that a partition holds back.
    pub(super) held: Vec<Delivery>,
    /// How many requests still arrive after the connection broke.
    pub(super) arriving: Option<usize>,
    /// Wakes the task that waits for the end of the connection.
    pub(super) io: Option<Waker>,
    pub(super) has_ended: bool,
    /// The server's write position after the last command.
    pub(super) written: u64,
    /// The wait (`WAIT`) that delays the commands behind it.
    pub(super) waits: Option<(u64, Wait)>,
    /// Requests that have arrived and that the server has not read yet.
    pub(super) behind: VecDeque<Request>,
}

impl Connection {
    /// Closes the client's end: answers go nowhere.
    pub(super) fn close_here(&mut self) {
        self.waiting = None;
        self.messages = None;
        self.has_ended = true;
        if let Some(io) = self.io.take() {
            io.wake();
        }
    }

    /// Breaks the connection. This many of the requests on their way still arrive.
    pub(super) fn break_after(&mut self, arriving: usize) {
        self.arriving = Some(self.arriving.map_or(arriving, |before| before.min(arriving)));
        self.held.clear();
        self.close_here();
    }

    /// Whether one more request arrives.
    pub(super) fn lets_through(&mut self) -> bool {
        match &mut self.arriving {
            None => true,
            Some(0) => false,
            Some(left) => {
                *left -= 1;
                true
            }
        }
    }
}

#[derive(Default)]
pub(super) struct Connections {
    known: BTreeMap<ConnectionId, Connection>,
    numbered: u64,
}

impl Connections {
    pub(super) fn open(
        &mut self,
        process: ProcessId,
        messages: Option<mpsc::UnboundedSender<News>>,
    ) -> ConnectionId {
        self.numbered += 1;
        let id = ConnectionId(self.numbered);
        let connection = Connection {
            process,
            waiting: Some(VecDeque::new()),
            is_subscriber: messages.is_some(),
            messages,
            last_to_server: Moment::default(),
            last_to_client: Moment::default(),
            held: Vec::new(),
            arriving: None,
            io: None,
            has_ended: false,
            written: 0,
            waits: None,
            behind: VecDeque::new(),
        };
        self.known.insert(id, connection);
        id
    }

    pub(super) fn find(&self, id: ConnectionId) -> Option<&Connection> {
        self.known.get(&id)
    }

    pub(super) fn find_mut(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        self.known.get_mut(&id)
    }

    /// The connections of a process whose client's end is open.
    pub(super) fn of(&self, process: ProcessId) -> Vec<ConnectionId> {
        self.open_ones(|connection| connection.process == process)
    }

    pub(super) fn subscribers(&self) -> Vec<ConnectionId> {
        self.open_ones(|connection| connection.is_subscriber)
    }

    /// The connections on which the server waits for copies.
    pub(super) fn waiting(&self) -> Vec<ConnectionId> {
        self.known.iter().filter(|(_, one)| one.waits.is_some()).map(|(id, _)| *id).collect()
    }

    pub(super) fn all(&self) -> Vec<ConnectionId> {
        self.known.keys().copied().collect()
    }

    fn open_ones(&self, which: impl Fn(&Connection) -> bool) -> Vec<ConnectionId> {
        let open = self.known.iter().filter(|(_, one)| !one.has_ended && which(one));
        open.map(|(id, _)| *id).collect()
    }

    /// Takes the deliveries that were held back for a process, by connection.
    pub(super) fn take_held(&mut self, process: ProcessId) -> Vec<(ConnectionId, Vec<Delivery>)> {
        let mut all = Vec::new();
        for (id, connection) in &mut self.known {
            if connection.process == process && !connection.held.is_empty() {
                all.push((*id, std::mem::take(&mut connection.held)));
            }
        }
        all
    }

    /// Loses everything that is on its way on this connection.
    pub(super) fn lose_all(&mut self, id: ConnectionId) {
        self.known.remove(&id);
    }
}
