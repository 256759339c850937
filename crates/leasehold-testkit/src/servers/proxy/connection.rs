//! One connection through a proxy: two threads, one for each direction.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use super::super::frames::Frames;
use super::{Lane, Shared, State};

pub(super) struct Connection {
    client: TcpStream,
    server: TcpStream,
    closed: AtomicBool,
    /// How many of its two directions are still open.
    ways: AtomicUsize,
}

impl Connection {
    pub(super) fn begin(shared: &Arc<Shared>, client: TcpStream, server: TcpStream) {
        // A small request is not to wait for the next one.
        let _ = client.set_nodelay(true);
        let _ = server.set_nodelay(true);
        let closed = AtomicBool::new(false);
        let connection = Arc::new(Self { client, server, closed, ways: AtomicUsize::new(2) });
        let mut state = shared.state();
        state.counts.connections += 1;
        state.counts.open += 1;
        state.connections.push(Arc::clone(&connection));
        drop(state);
        shared.changed.notify_all();
        type Way = fn(&Shared, &Connection);
        for way in [pass_requests as Way, pass_replies as Way] {
            let (shared, connection) = (Arc::clone(shared), Arc::clone(&connection));
            std::thread::spawn(move || {
                way(&shared, &connection);
                if connection.ways.fetch_sub(1, Ordering::AcqRel) == 1 {
                    connection.end(&shared);
                }
            });
        }
    }

    /// Closes both sides at once.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        // They may be closed already.
        let _ = self.client.shutdown(Shutdown::Both);
        let _ = self.server.shutdown(Shutdown::Both);
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Both directions have ended.
    fn end(&self, shared: &Shared) {
        self.close();
        let mut state = shared.state();
        state.counts.open -= 1;
        state.connections.retain(|other| !std::ptr::eq(&**other, self));
        drop(state);
        shared.changed.notify_all();
    }
}

fn pass_requests(shared: &Shared, connection: &Connection) {
    let (mut client, mut server) = (&connection.client, &connection.server);
    let (mut frames, mut buffer) = (Frames::default(), vec![0; 64 * 1024]);
    while let Ok(length @ 1..) = client.read(&mut buffer) {
        let bytes = &buffer[..length];
        if !may_pass(shared, connection, |state| state.to_server)
            || server.write_all(bytes).is_err()
        {
            return connection.close();
        }
        let ended = frames.count(bytes);
        shared.count(|counts| {
            counts.requests += ended;
            counts.request_bytes += bytes.len() as u64;
        });
    }
    // The client has said all, and may still listen.
    let _ = server.shutdown(Shutdown::Write);
}

fn pass_replies(shared: &Shared, connection: &Connection) {
    let (mut client, mut server) = (&connection.client, &connection.server);
    let (mut frames, mut buffer) = (Frames::default(), vec![0; 64 * 1024]);
    let mut cut = None;
    while let Ok(length @ 1..) = server.read(&mut buffer) {
        let (length, ends) = passable(shared, &mut frames, &mut cut, &buffer[..length]);
        if !may_pass(shared, connection, |state| state.to_client) {
            return connection.close();
        }
        // A client that has gone does not keep the server from being read: what it answered counts.
        let _ = client.write_all(&buffer[..length]);
        if ends {
            return connection.close();
        }
    }
    // A server that has said all does not listen either.
    connection.close();
}

/// How many of these bytes may pass, and whether the connection ends then. `left` is how many bytes
/// of the reply under way may pass if it is to be cut off.
fn passable(
    shared: &Shared,
    frames: &mut Frames,
    left: &mut Option<usize>,
    bytes: &[u8],
) -> (usize, bool) {
    for (at, byte) in bytes.iter().enumerate() {
        if frames.is_between() {
            *left = shared.state().cut.take();
        }
        if *left == Some(0) {
            shared.count(|counts| counts.replies += 1);
            return (at, true);
        }
        let ended = frames.take(*byte);
        if ended {
            shared.count(|counts| counts.replies += 1);
        }
        if let Some(left) = left {
            *left -= 1;
            if ended {
                return (at + 1, true);
            }
        }
    }
    (bytes.len(), false)
}

/// Waits for as long as bytes are held back or delayed; false if the connection was closed.
fn may_pass(shared: &Shared, connection: &Connection, lane: impl Fn(&State) -> Lane) -> bool {
    let came = Instant::now();
    let mut state = shared.state();
    loop {
        if connection.is_closed() {
            return false;
        }
        let lane = lane(&state);
        let left = lane.delay.saturating_sub(came.elapsed());
        if lane.held {
            state = shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        } else if left.is_zero() {
            return true;
        } else {
            let waited = shared.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
