//! Fake servers.

use std::fmt;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::frames::Frames;
use super::listening::Listening;
use super::port::Port;

/// Listens on a port of 127.0.0.1 and treats every connection the same way, until it is dropped.
pub struct FakeServer {
    port: Port,
    kept: Arc<Mutex<Vec<TcpStream>>>,
    connections: Arc<AtomicU64>,
    _listening: Listening,
}

/// How a fake server treats its connections.
#[derive(Clone, Debug)]
enum Manner {
    Silent,
    Closing,
    Answering(Vec<u8>),
}

impl FakeServer {
    /// A server that accepts connections and never answers.
    #[must_use]
    pub fn silent() -> Self {
        Self::new(Manner::Silent)
    }

    /// A server that closes every connection at once.
    #[must_use]
    pub fn closing() -> Self {
        Self::new(Manner::Closing)
    }

    /// A server that speaks HTTP.
    #[must_use]
    pub fn speaking_http() -> Self {
        Self::answering("HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
    }

    /// A server that answers every request with these bytes, such as `-LOADING the dataset\r\n`.
    #[must_use]
    pub fn answering(bytes: impl Into<Vec<u8>>) -> Self {
        Self::new(Manner::Answering(bytes.into()))
    }

    fn new(manner: Manner) -> Self {
        let port = Port::reserve();
        let (kept, connections) = (Arc::<Mutex<Vec<TcpStream>>>::default(), Arc::default());
        let (keep, counted) = (Arc::clone(&kept), Arc::<AtomicU64>::clone(&connections));
        let listening = Listening::on(&port, move |stream| {
            counted.fetch_add(1, Ordering::AcqRel);
            if matches!(manner, Manner::Closing) {
                return;
            }
            let copy = stream.try_clone().expect("the process may open one more descriptor");
            keep.lock().unwrap_or_else(PoisonError::into_inner).push(copy);
            if let Manner::Answering(bytes) = &manner {
                let bytes = bytes.clone();
                std::thread::spawn(move || answer(stream, &bytes));
            }
        });
        Self { port, kept, connections, _listening: listening }
    }

    /// Its URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port())
    }

    /// Its port on 127.0.0.1.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port.number()
    }

    /// How many connections it has accepted.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.connections.load(Ordering::Acquire)
    }
}

fn answer(mut stream: TcpStream, bytes: &[u8]) {
    let (mut frames, mut buffer) = (Frames::default(), [0; 4096]);
    while let Ok(length @ 1..) = stream.read(&mut buffer) {
        for _ in 0..frames.count(&buffer[..length]) {
            if stream.write_all(bytes).is_err() {
                return;
            }
        }
    }
}

impl fmt::Debug for FakeServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FakeServer(port {})", self.port())
    }
}

impl Drop for FakeServer {
    fn drop(&mut self) {
        for stream in self.kept.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            // The connection may be closed already.
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }
}
