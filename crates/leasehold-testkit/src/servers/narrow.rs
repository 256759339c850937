//! A proxy that knows few commands.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

use super::frames::Frames;
use super::listening::Listening;
use super::port::Port;
use super::redis_server::RedisServer;

/// The commands that the proxy passes on to the server.
const KNOWN: [&str; 8] = ["PING", "AUTH", "GET", "SET", "DEL", "HMGET", "EVAL", "EVALSHA"];

/// Passes on the requests that a proxy such as twemproxy knows, and no others. So locks work behind
/// it, and everything else fails. Dropping it ends its connections.
#[derive(Debug)]
pub struct NarrowProxy {
    port: Port,
    shared: Arc<Shared>,
    _listening: Listening,
}

/// How the proxy treats a command that it does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// It closes the connection, as twemproxy does.
    Closes,
    /// It answers with an error, as Envoy does.
    Refuses,
}

#[derive(Debug)]
struct Shared {
    server: u16,
    unknown: Unknown,
    kept: Mutex<Vec<TcpStream>>,
    refused: Mutex<Vec<String>>,
}

impl NarrowProxy {
    /// A proxy in front of this server.
    #[must_use]
    pub fn before(server: &RedisServer, unknown: Unknown) -> Self {
        let port = Port::reserve();
        let (kept, refused) = (Mutex::default(), Mutex::default());
        let shared = Arc::new(Shared { server: server.port(), unknown, kept, refused });
        let of_thread = Arc::clone(&shared);
        let listening = Listening::on(&port, move |client| {
            let copy = client.try_clone().expect("the process may open one more descriptor");
            of_thread.kept.lock().unwrap_or_else(PoisonError::into_inner).push(copy);
            let shared = Arc::clone(&of_thread);
            std::thread::spawn(move || {
                // Either side may go away at any time.
                let _ended = shared.serve(&client);
                let _closed = client.shutdown(Shutdown::Both);
            });
        });
        Self { port, shared, _listening: listening }
    }

    /// Its URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port.number())
    }

    /// The commands that it did not pass on, in their order.
    #[must_use]
    pub fn refused(&self) -> Vec<String> {
        self.shared.refused.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Shared {
    /// Serves one client, one request after the other.
    fn serve(&self, mut client: &TcpStream) -> std::io::Result<()> {
        let mut server = TcpStream::connect((Ipv4Addr::LOCALHOST, self.server))?;
        server.set_nodelay(true)?;
        client.set_nodelay(true)?;
        let (mut frames, mut request, mut buffer) = (Frames::default(), Vec::new(), [0; 4096]);
        loop {
            let length = client.read(&mut buffer)?;
            if length == 0 {
                return Ok(());
            }
            for byte in &buffer[..length] {
                request.push(*byte);
                if !frames.take(*byte) {
                    continue;
                }
                let command = command_of(&request);
                if KNOWN.contains(&command.as_str()) {
                    server.write_all(&request)?;
                    client.write_all(&answer(&mut server)?)?;
                } else {
                    let refusal = format!("-ERR unsupported command '{command}'\r\n");
                    self.refused.lock().unwrap_or_else(PoisonError::into_inner).push(command);
                    if self.unknown == Unknown::Closes {
                        return Ok(());
                    }
                    client.write_all(refusal.as_bytes())?;
                }
                request.clear();
            }
        }
    }
}

/// The name of a command: the first word of its request.
fn command_of(request: &[u8]) -> String {
    let name = request.split(|byte| *byte == b'\n').nth(2).unwrap_or_default();
    String::from_utf8_lossy(name).trim_end().to_ascii_uppercase()
}

/// Reads one answer of the server.
fn answer(server: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let (mut frames, mut answer, mut buffer) = (Frames::default(), Vec::new(), [0; 4096]);
    loop {
        let length = server.read(&mut buffer)?;
        if length == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        answer.extend_from_slice(&buffer[..length]);
        if frames.count(&buffer[..length]) > 0 {
            return Ok(answer);
        }
    }
}

impl Drop for NarrowProxy {
    fn drop(&mut self) {
        for stream in self.shared.kept.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            // The connection may be closed already.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}
