//! Listens on a reserved port until it is dropped.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use rustix::net::Shutdown;

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
        Self::with(bind(port), port, take)
    }

    fn with(listener: TcpListener, port: &Port, take: impl Fn(TcpStream) + Send + 'static) -> Self {
        let port = port.number();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let listen = move || {
            for stream in listener.incoming() {
                if stopped.load(Ordering::Acquire) {
                    // A child process has a copy of this socket until its `exec`, and the copy
                    // keeps listening. On Linux, `shutdown` stops all copies. On other systems it
                    // fails, and the error is ignored.
                    let _ = rustix::net::shutdown(&listener, Shutdown::Both);
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

fn bind(port: &Port) -> TcpListener {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port.number())).expect("the port is ours")
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

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn connections_are_refused_although_there_is_a_copy_of_the_socket() {
        let port = Port::reserve();
        let listener = bind(&port);
        let copy = listener.try_clone().expect("one more descriptor");
        drop(Listening::with(listener, &port, drop));
        let refused = TcpStream::connect((Ipv4Addr::LOCALHOST, port.number()));
        assert_eq!(refused.expect_err("nobody listens").kind(), ErrorKind::ConnectionRefused);
        drop(Listening::on(&port, drop));
        drop(copy);
    }
}
