//! The connector of the Redis store, for a process of a simulation.

use std::io;
use std::task::{Context, Poll};
use std::time::Duration;

use leasehold::host::Host;
use leasehold::store::redis::{Access, Connector, Opening, Stream};
use leasehold::{Error, ErrorKind};

use super::carrier::REFUSED_AFTER;
use super::connection::{ConnectionId, Request};
use super::{Delivery, Mischief, Network};
use crate::protocol::{Command, Requests};
use crate::simulation::log::Log;
use crate::simulation::process::Process;

/// The pause before a connection attempt is repeated, as TCP repeats it.
const TRIED_AGAIN_AFTER: Duration = Duration::from_millis(50);

/// One read in this many, and one write in this many, moves only some of the bytes.
const CUT_ONE_IN: usize = 8;

/// Connects one process to the server.
#[derive(Clone)]
pub(in super::super) struct SimulatedConnector {
    network: Network,
    process: Process,
}

impl SimulatedConnector {
    pub(super) fn new(network: Network, process: Process) -> Self {
        Self { network, process }
    }

    /// The log of the server.
    pub(in super::super) fn log(&self) -> Log {
        self.network.state().log.clone()
    }
}

/// Whether the server can be reached.
enum Reached {
    Yes,
    NotYet,
    Refused,
}

impl Network {
    fn reached(&self, process: &Process) -> Reached {
        let state = self.state();
        let trouble = &state.troubles[process.id().0 as usize];
        if process.is_dead() || trouble.to_server || trouble.to_client || state.server.is_stopped {
            Reached::NotYet
        } else if state.server.is_up {
            Reached::Yes
        } else {
            Reached::Refused
        }
    }
}

impl Connector for SimulatedConnector {
    fn open(&self) -> Opening {
        let (network, process) = (self.network.clone(), self.process.clone());
        Box::pin(async move {
            let delay = {
                let mut state = network.state();
                state.delay(process.id()) + state.delay(process.id())
            };
            process.sleep_until(process.now() + delay).await;
            loop {
                match network.reached(&process) {
                    Reached::Yes => break,
                    Reached::Refused => {
                        process.sleep_until(process.now() + REFUSED_AFTER).await;
                        return Err(Error::new(
                            ErrorKind::Unavailable,
                            "connection refused; no request was sent",
                        ));
                    }
                    Reached::NotYet => {
                        process.sleep_until(process.now() + TRIED_AGAIN_AFTER).await;
                    }
                }
            }
            let id = network.state().connections.open(process.id());
            let requests = Requests::default();
            let stream: Box<dyn Stream> =
                Box::new(SimulatedStream { network, process, id, requests });
            Ok(stream)
        })
    }

    fn label(&self) -> String {
        "redis://simulated".to_owned()
    }

    fn access(&self) -> Access {
        Access::on_terms(self.network.with_server(|server| server.terms()))
    }
}

/// The client's end of a connection. Dropping it closes the connection.
struct SimulatedStream {
    network: Network,
    process: Process,
    id: ConnectionId,
    requests: Requests,
}

impl Stream for SimulatedStream {
    fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut state = self.network.state();
        let is_cut = state.random.once_in(CUT_ONE_IN);
        let part = state.random.next_u64();
        let Some(connection) = state.connections.find_mut(self.id) else {
            return Poll::Ready(Ok(0));
        };
        if self.process.is_dead() || connection.arrived.is_empty() && !connection.has_ended {
            connection.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let most = into.len().min(connection.arrived.len());
        let count = if is_cut { some_of(most, part) } else { most };
        into[..count].copy_from_slice(&connection.arrived[..count]);
        connection.arrived.drain(..count);
        Poll::Ready(Ok(count))
    }

    fn poll_write(&mut self, _cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.process.is_dead() {
            return Poll::Pending;
        }
        let count = {
            let mut state = self.network.state();
            if state.connections.find(self.id).is_none_or(|connection| connection.has_ended) {
                return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
            }
            let is_cut = state.random.once_in(CUT_ONE_IN);
            if is_cut { some_of(bytes.len(), state.random.next_u64()) } else { bytes.len() }
        };
        self.requests.push(&bytes[..count]);
        while let Some(command) = self.requests.take() {
            self.network.leaves(&self.process, self.id, command);
        }
        Poll::Ready(Ok(count))
    }
}

/// A number from one to `count`, or zero if `count` is zero.
fn some_of(count: usize, random: u64) -> usize {
    let Some(others) = count.checked_sub(1) else { return 0 };
    let others = u64::try_from(others).expect("no more than the memory has");
    1 + usize::try_from(random % (others + 1)).expect("no more than the count")
}

impl Drop for SimulatedStream {
    fn drop(&mut self) {
        let now = self.network.now();
        let mut state = self.network.state();
        let is_open = state.connections.find(self.id).is_some_and(|one| !one.has_ended);
        if is_open {
            state.hang_up(now, self.id);
        }
    }
}

impl Network {
    /// Handles a request that leaves a process.
    fn leaves(&self, process: &Process, id: ConnectionId, command: Command) {
        let now = self.now();
        let mut state = self.state();
        Self::log_sent(&mut state, process, &command);
        let mut request = Request { command, sent: now, loses_reply: None, again_after: None };
        let mut at = now + state.delay(process.id());
        if is_of_a_lock(&request.command) {
            let mischief = &mut state.troubles[process.id().0 as usize].mischief;
            match (!mischief.is_empty()).then(|| mischief.remove(0)) {
                None => {}
                Some(Mischief::LoseReply(after)) => request.loses_reply = Some(after),
                Some(Mischief::Late(late)) => at = at + late,
                Some(Mischief::Twice(later)) => request.again_after = Some(later),
            }
        }
        state.send_at(at, Delivery::Request(id, Box::new(request)));
    }
}

/// Whether a command takes, renews or releases a lock, by a script or without one. Keys that a
/// client keeps in addition to its locks, such as its record, have `:lh:` in their names.
fn is_of_a_lock(command: &Command) -> bool {
    const PLAIN: [&[u8]; 4] = [b"SET", b"DEL", b"DELIFEQ", b"DELEX"];
    let is_beside = |key: &[u8]| key.windows(4).any(|part| part == b":lh:");
    let name = command.name();
    name.starts_with(b"EVAL")
        || PLAIN.contains(&name) && command.args().nth(1).is_some_and(|key| !is_beside(key))
}
