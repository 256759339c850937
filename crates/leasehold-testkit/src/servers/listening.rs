//! Listens on a reserved port until it is dropped.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use super::port::Port;

/// A thread that accepts connections. After it is dropped, connections are refused.
#[derive(Debug)]
pub(super) struct Listening {
    port: u16,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Listening {
    /// Calls `take` with every connection. `take` must not block.
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
                // A client that gave up before it was accepted does not matter.
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
        // Only a new connection ends the blocking accept.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
