//! One connection: two ends, and everything on its way between them.

use std::collections::{BTreeMap, VecDeque};
use std::task::Waker;
use std::time::Duration;

use leasehold::core::Moment;

use super::Delivery;
use crate::history::event::{Name, ProcessId};
use crate::protocol::Command;
use crate::simulation::redis::Wait;

/// Identifies a connection. The server also uses it as the id of a subscriber.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) struct ConnectionId(pub(super) u64);

/// A request on its way.
pub(in super::super) struct Request {
    pub(super) command: Command,
    /// When it left its process.
    pub(super) sent: Moment,
    /// If the answer gets lost, how long after the request took effect the connection ends.
    pub(super) loses_reply: Option<Duration>,
    /// If the request takes effect twice, the time in between.
    pub(super) again_after: Option<Duration>,
}

/// Bytes on their way to a client: one answer, or one message.
pub(in super::super) struct Bytes {
    pub(super) bytes: Vec<u8>,
    /// The key of a hint that another client waits.
    pub(super) hints_at: Option<Name>,
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self { bytes, hints_at: None }
    }
}

/// One connection. It lives as long as either end or a delivery refers to it.
pub(super) struct Connection {
    pub(super) process: ProcessId,
    /// Bytes that have arrived and that the client has not read yet.
    pub(super) arrived: Vec<u8>,
    /// Wakes the task that reads.
    pub(super) reader: Option<Waker>,
    /// Whether the client speaks the third version of the protocol, to receive messages.
    pub(super) is_subscriber: bool,
    /// Whether the server tracks the keys that the client reads.
    pub(super) tracks: bool,
    pub(super) last_to_server: Moment,
    pub(super) last_to_client: Moment,
    /// The deliveries that a partition holds back.
    pub(super) held: Vec<Delivery>,
    /// How many requests still arrive after the connection broke.
    pub(super) arriving: Option<usize>,
    /// Whether the client's end is closed.
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
        self.has_ended = true;
        self.wake();
    }

    /// Bytes arrive at the client's end.
    pub(super) fn bring(&mut self, bytes: &[u8]) {
        if !self.has_ended {
            self.arrived.extend_from_slice(bytes);
            self.wake();
        }
    }

    fn wake(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }

    /// Breaks the connection. `arriving` of the requests on their way still arrive.
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
    pub(super) fn open(&mut self, process: ProcessId) -> ConnectionId {
        self.numbered += 1;
        let id = ConnectionId(self.numbered);
        let connection = Connection {
            process,
            arrived: Vec::new(),
            reader: None,
            is_subscriber: false,
            tracks: false,
            last_to_server: Moment::default(),
            last_to_client: Moment::default(),
            held: Vec::new(),
            arriving: None,
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

    /// Forgets a connection that neither end uses any more.
    pub(super) fn forget(&mut self, id: ConnectionId) {
        self.known.remove(&id);
    }

    /// Loses everything that is on its way on this connection. The client can still read what has
    /// arrived, as on Linux.
    pub(super) fn lose_all(&mut self, id: ConnectionId) {
        let Some(connection) = self.known.get_mut(&id) else { return };
        if connection.arrived.is_empty() {
            return self.forget(id);
        }
        connection.break_after(0);
        connection.waits = None;
        connection.behind.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_ends_takes_back_nothing_that_has_arrived() {
        let mut all = Connections::default();
        let (read, unread) = (all.open(ProcessId(1)), all.open(ProcessId(1)));
        all.find_mut(unread).expect("it is open").bring(b"+OK\r\n");
        all.lose_all(read);
        all.lose_all(unread);
        assert!(all.find(read).is_none(), "nothing is left to read");
        let left = all.find_mut(unread).expect("it has bytes that nobody has read");
        left.bring(b"too late");
        assert_eq!(left.arrived, b"+OK\r\n");
        assert!(left.has_ended && !left.lets_through(), "no request reaches the server any more");
    }
}
