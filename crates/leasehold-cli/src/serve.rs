//! `--serve`: tells load balancers over HTTP whether this instance leads.
//!
//! Everything here runs on the thread that also watches over the command. So each connection has
//! limits, and no answer asks the store.

use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::board::Board;
use crate::exit::Failure;
use crate::http::{self, Answer, HEAD_MAX, Page};

/// The most connections at a time. One more connection ends the oldest, so slow clients keep nobody
/// out.
const CONNECTIONS_MAX: usize = 64;

/// How long a connection may take.
const TIME_LIMIT: Duration = Duration::from_secs(5);

/// How long to wait if the system gives no connection, for example for lack of descriptors.
const AFTER_FAILURE: Duration = Duration::from_millis(100);

/// How much is read after the answer. Closing a socket with unread bytes could destroy the answer
/// on its way.
const REST_MAX: usize = 64 * 1024;

/// Reads the address of `--serve`: an IP address with a port, or a port of this machine alone.
pub(crate) fn parse(text: &str) -> Result<SocketAddr, String> {
    let port = || text.parse().ok().map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    text.parse().ok().or_else(port).ok_or_else(|| {
        format!(
            "`{}` is not an address; write a port for this machine alone (8080), or an IP address \
             and a port (0.0.0.0:8080, [::]:8080)",
            text.escape_debug()
        )
    })
}

/// Answers requests until it is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    /// Where it listens.
    pub(crate) address: SocketAddr,
    _accepting: Task,
}

impl Server {
    /// Listens at `address`, and answers what the board says.
    pub(crate) async fn start(address: SocketAddr, board: &Arc<Board>) -> Result<Self, Failure> {
        let refused = |error: io::Error| {
            Failure::config(format!(
                "cannot listen at {address}: {error}; the store was not contacted; use another \
                 address for --serve, or end the program that listens there"
            ))
        };
        let listener = TcpListener::bind(address).await.map_err(refused)?;
        let address = listener.local_addr().map_err(refused)?;
        let accepting = Task(tokio::spawn(accept(listener, Arc::clone(board))));
        Ok(Self { address, _accepting: accepting })
    }
}

/// A task that ends when this is dropped.
#[derive(Debug)]
struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The connections that are served.
#[derive(Debug, Default)]
struct Connections(VecDeque<Task>);

impl Connections {
    /// Adds one. If too many are open, the oldest ends.
    fn add(&mut self, new: Task) {
        self.0.retain(|task| !task.0.is_finished());
        if self.0.len() == CONNECTIONS_MAX {
            drop(self.0.pop_front());
        }
        self.0.push_back(new);
    }
}

async fn accept(listener: TcpListener, board: Arc<Board>) {
    let mut connections = Connections::default();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(AFTER_FAILURE).await;
            continue;
        };
        connections.add(Task(tokio::spawn(serve(stream, Arc::clone(&board)))));
    }
}

async fn serve(mut stream: TcpStream, board: Arc<Board>) {
    // A client that is too slow, or goes away, gets no answer.
    let _ = tokio::time::timeout(TIME_LIMIT, converse(&mut stream, &board)).await;
}

async fn converse(stream: &mut TcpStream, board: &Board) -> io::Result<()> {
    let mut bytes = [0; HEAD_MAX];
    let mut length = 0;
    let request = loop {
        if let Some(request) = http::read(&bytes[..length]) {
            break request;
        }
        match stream.read(&mut bytes[length..]).await? {
            0 => return Ok(()),
            more => length += more,
        }
    };
    // An answer to HEAD has no body, also if it is a refusal.
    let head_only = bytes.trim_ascii_start().starts_with(b"HEAD ");
    let answer = match request {
        Ok(Page::Leader) => board.leader(),
        Ok(Page::Ready) => board.ready(),
        Err(refusal) => Answer::refusal(refusal),
    };
    stream.write_all(&answer.bytes(head_only)).await?;
    stream.shutdown().await?;
    let mut rest = 0;
    while rest < REST_MAX {
        match stream.read(&mut bytes).await? {
            0 => break,
            more => rest += more,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    #[tokio::test]
    async fn only_connections_that_are_open_count_and_the_oldest_makes_room() {
        let mut connections = Connections::default();
        let held = Arc::new(());
        let oldest = Arc::clone(&held);
        connections.add(Task(tokio::spawn(async move {
            pending::<()>().await;
            drop(oldest);
        })));
        for _ in 0..2 * CONNECTIONS_MAX {
            let ended = Task(tokio::spawn(async {}));
            while !ended.0.is_finished() {
                tokio::task::yield_now().await;
            }
            connections.add(ended);
        }
        for _ in 1..CONNECTIONS_MAX {
            connections.add(Task(tokio::spawn(pending())));
        }
        tokio::task::yield_now().await;
        assert_eq!(Arc::strong_count(&held), 2, "all connections that are open are served");
        connections.add(Task(tokio::spawn(pending())));
        tokio::task::yield_now().await;
        assert_eq!(Arc::strong_count(&held), 1, "the oldest of too many is still served");
    }

    #[test]
    fn an_address_is_a_port_of_this_machine_or_names_an_interface() {
        for (text, address) in [
            ("8080", "127.0.0.1:8080"),
            ("0", "127.0.0.1:0"),
            ("127.0.0.1:8080", "127.0.0.1:8080"),
            ("0.0.0.0:80", "0.0.0.0:80"),
            ("[::1]:80", "[::1]:80"),
        ] {
            assert_eq!(parse(text).map(|it| it.to_string()), Ok(address.to_owned()), "{text}");
        }
        for text in ["", ":8080", "localhost:8080", "127.0.0.1", "65536", "-1", "1.2.3.4:x"] {
            assert!(parse(text).expect_err(text).contains("0.0.0.0:8080"), "{text}");
        }
    }
}
