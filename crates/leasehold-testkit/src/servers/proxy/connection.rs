//! One connection through a proxy: two threads, one for each direction.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use super::super::PATIENCE;
use super::super::frames::Frames;
use super::{Cut, Lane, Shared, State, Then};

pub(super) struct Connection {
    client: TcpStream,
    /// The connection to the server. It is replaced when the proxy moves to another server.
    server: Mutex<Arc<TcpStream>>,
    closed: AtomicBool,
    /// Whether the connection is open, but nothing gets through any more.
    silent: AtomicBool,
    /// Whether its requests are held back, whatever happens to other connections.
    stranded: AtomicBool,
    /// How many of its two directions are still open.
    ways: AtomicUsize,
}

impl Connection {
    pub(super) fn begin(shared: &Arc<Shared>, client: TcpStream, server: TcpStream) {
        // Without this, a small request could wait for the next one.
        let _ = client.set_nodelay(true);
        let _ = server.set_nodelay(true);
        let server = Mutex::new(Arc::new(server));
        let closed = AtomicBool::new(false);
        let (silent, stranded) = (AtomicBool::new(false), AtomicBool::new(false));
        let ways = AtomicUsize::new(2);
        let connection = Arc::new(Self { client, server, closed, silent, stranded, ways });
        let mut state = shared.state();
        state.counts.connections += 1;
        state.counts.open += 1;
        state.connections.push(Arc::clone(&connection));
        drop(state);
        shared.changed.notify_all();
        type Way = fn(&Arc<Shared>, &Connection);
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
        // The streams may be closed already.
        let _ = self.client.shutdown(Shutdown::Both);
        let _ = self.server().shutdown(Shutdown::Both);
    }

    fn server(&self) -> Arc<TcpStream> {
        Arc::clone(&self.server.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Moves to another server. The client notices nothing if it has all its answers.
    pub(super) fn move_to(&self, server: TcpStream) {
        let _ = server.set_nodelay(true);
        let mut current = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *current, Arc::new(server));
        drop(current);
        // The thread that reads from the old server learns of the new one when the old stream ends.
        let _ = before.shutdown(Shutdown::Both);
    }

    /// Holds its requests back, or lets them go.
    pub(super) fn strand(&self, stranded: bool) {
        self.stranded.store(stranded, Ordering::Release);
    }

    fn is_stranded(&self) -> bool {
        self.stranded.load(Ordering::Acquire)
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    fn is_silent(&self) -> bool {
        self.silent.load(Ordering::Acquire)
    }

    /// Ends it after both directions have ended.
    fn end(&self, shared: &Shared) {
        self.close();
        let mut state = shared.state();
        state.counts.open -= 1;
        state.connections.retain(|other| !std::ptr::eq(&**other, self));
        drop(state);
        shared.changed.notify_all();
    }
}

fn pass_requests(shared: &Arc<Shared>, connection: &Connection) {
    let mut client = &connection.client;
    let (mut frames, mut buffer) = (Frames::default(), vec![0; 64 * 1024]);
    let mut request = Vec::new();
    while let Ok(length @ 1..) = client.read(&mut buffer) {
        let bytes = &buffer[..length];
        if !may_pass(shared, connection, |state| {
            let held = state.to_server.held || connection.is_stranded();
            Lane { held, ..state.to_server }
        }) {
            return connection.close();
        }
        if connection.is_silent() {
            continue;
        }
        if (&*connection.server()).write_all(bytes).is_err() {
            return connection.close();
        }
        let mut ended = 0;
        for byte in bytes {
            request.push(*byte);
            if frames.take(*byte) {
                ended += 1;
                repeat(shared, std::mem::take(&mut request));
            }
        }
        shared.count(|counts| {
            counts.requests += ended;
            counts.request_bytes += bytes.len() as u64;
        });
    }
    // The client has sent everything, but may still read.
    let _ = connection.server().shutdown(Shutdown::Write);
}

/// Sends a request once more on a new connection, if it is to be repeated.
fn repeat(shared: &Arc<Shared>, request: Vec<u8>) {
    let mut state = shared.state();
    let Some(repeat) = state.repeat.as_mut().filter(|_| runs_a_script(&request)) else { return };
    let later = repeat.later;
    repeat.requests -= 1;
    if repeat.requests == 0 {
        state.repeat = None;
    }
    drop(state);
    let shared = Arc::clone(shared);
    std::thread::spawn(move || {
        let came = Instant::now();
        let mut state = shared.state();
        loop {
            let left = later.saturating_sub(came.elapsed());
            if left.is_zero() {
                break;
            }
            let waited = shared.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(state);
        // The server may be gone, as if it had never received the request.
        let Ok(mut server) = TcpStream::connect((Ipv4Addr::LOCALHOST, shared.server())) else {
            return;
        };
        let _ = server.set_read_timeout(Some(PATIENCE));
        if server.write_all(&request).is_ok() && matches!(server.read(&mut [0]), Ok(1)) {
            shared.count(|counts| counts.repeated += 1);
        }
    });
}

fn runs_a_script(request: &[u8]) -> bool {
    let command = request.split(|byte| *byte == b'\n').nth(2).unwrap_or_default();
    [&b"EVALSHA\r"[..], b"EVAL\r"].iter().any(|name| command.eq_ignore_ascii_case(name))
}

fn pass_replies(shared: &Arc<Shared>, connection: &Connection) {
    let (mut client, mut server) = (&connection.client, connection.server());
    let (mut frames, mut buffer) = (Frames::default(), vec![0; 64 * 1024]);
    let mut cut = None;
    loop {
        let Ok(length @ 1..) = (&*server).read(&mut buffer) else {
            let before = std::mem::replace(&mut server, connection.server());
            if Arc::ptr_eq(&before, &server) {
                break;
            }
            continue;
        };
        if connection.is_silent() {
            continue;
        }
        let (length, ends) = passable(shared, &mut frames, &mut cut, &buffer[..length]);
        if !may_pass(shared, connection, |state| state.to_client) {
            return connection.close();
        }
        // Even if the client is gone, the proxy goes on reading, because it counts the server's
        // answers.
        let _ = client.write_all(&buffer[..length]);
        match ends {
            None => {}
            Some(Then::Closed) => return connection.close(),
            Some(Then::Silent) => connection.silent.store(true, Ordering::Release),
        }
    }
    // A server that has closed its side does not read either.
    connection.close();
}

/// How many of these bytes may pass, and the fate of the connection if some may not. `cut` says how
/// to cut the current reply off, and how many of its bytes may still pass.
fn passable(
    shared: &Shared,
    frames: &mut Frames,
    cut: &mut Option<Cut>,
    bytes: &[u8],
) -> (usize, Option<Then>) {
    for (at, byte) in bytes.iter().enumerate() {
        if frames.is_between() {
            *cut = cut_of_next(&mut shared.state());
        }
        if let Some(Cut { bytes: 0, then, .. }) = cut {
            shared.count(|counts| {
                counts.replies += 1;
                counts.lost += 1;
            });
            return (at, Some(*then));
        }
        let ended = frames.take(*byte);
        if ended {
            shared.count(|counts| counts.replies += 1);
        }
        if let Some(cut) = cut {
            cut.bytes -= 1;
            if ended {
                return (at + 1, Some(cut.then));
            }
        }
    }
    (bytes.len(), None)
}

/// How to cut off the reply that begins now, if at all.
fn cut_of_next(state: &mut State) -> Option<Cut> {
    let cut = state.cut.as_mut()?;
    if cut.replies > 0 {
        cut.replies -= 1;
        return None;
    }
    state.cut.take()
}

/// Waits while bytes are held back or delayed. Returns false if the connection was closed.
fn may_pass(shared: &Shared, connection: &Connection, lane: impl Fn(&State) -> Lane) -> bool {
    let came = Instant::now();
    let mut state = shared.state();
    let share = state.random.below(1_000);
    loop {
        if connection.is_closed() {
            return false;
        }
        let lane = lane(&state);
        let jitter = lane.jitter * u32::try_from(share).expect("below a thousand") / 1_000;
        let left = (lane.delay + jitter).saturating_sub(came.elapsed());
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
