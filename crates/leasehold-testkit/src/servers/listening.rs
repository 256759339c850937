//! Listening on a port of one's own, until told to stop.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use super::port::Port;

/// A thread that takes connections. When this is dropped nobody listens any more: who connects is
/// refused.
#[derive(Debug)]
pub(super) struct Listening {
    port: u16,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Listening {
    /// Has `take` called with every connection. It must not block.
    pub(super) fn on(port: &Port, take: impl Fn(TcpStream) + Send + 'static) -> Self {
        let port = port.number();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).expect("the port is ours");
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let listen = move || {
            for stream in listener.incoming() {
                if stopped.load(Ordering::Acquire) {
                    return;
                }
                // Whoever gave up before it was taken is not missed.
                if let Ok(stream) = stream {
                    take(stream);
                }
            }
        };
        let thread = std::thread::Builder::new().name(format!("port {port}")).spawn(listen);
        Self { port, stop, thread: Some(thread.expect("the process may start one more thread")) }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // Accepting ends with a connection only.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
