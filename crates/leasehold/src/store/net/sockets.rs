//! Opens streams, over TCP and to sockets of this machine.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::net::TcpStream;
use tokio::net::UnixStream;

use super::Stream;
use super::Tls;
use crate::core::error::{Error, ErrorKind};
use crate::host::{Host as _, SystemHost, beside};

/// How long an address may be silent before the next one is tried as well (RFC 8305, section 5).
const NEXT_ADDRESS_AFTER: Duration = Duration::from_millis(250);
/// How long a connection is silent before it is probed.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(5);
/// The time between probes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);
/// How many probes without an answer end the connection.
const KEEPALIVE_PROBES: u32 = 3;

/// Opens a stream over TCP, with TLS or without.
pub(crate) async fn open_tcp(
    host: &str,
    port: u16,
    tls: Option<&Tls>,
) -> Result<Box<dyn Stream>, Error> {
    let stream = tcp_stream(host, port).await?;
    match tls {
        Some(tls) => tls.secure(stream, host).await,
        None => Ok(Box::new(stream)),
    }
}

/// Connects over TCP.
pub(crate) async fn tcp_stream(host: &str, port: u16) -> Result<TcpStream, Error> {
    let addresses = resolve(host, port).await.map_err(|cause| {
        unreachable("the name of the host cannot be resolved", "correct it in the URL", cause)
    })?;
    connect_to_one(addresses).await.map_err(|failure| {
        let what = match failure.kind() {
            io::ErrorKind::ConnectionRefused => "no server listens there",
            io::ErrorKind::TimedOut => "the host does not answer",
            _ => "the host cannot be reached",
        };
        unreachable(what, "start the server, or correct the host and the port in the URL", failure)
    })
}

/// Connects to the address that answers first. An address that drops packets must not use up the
/// time of the next address.
async fn connect_to_one(addresses: Vec<SocketAddr>) -> io::Result<TcpStream> {
    let (mut addresses, mut tries) = (addresses.into_iter(), FuturesUnordered::new());
    let mut failure = io::Error::from(io::ErrorKind::NotFound);
    loop {
        tries.extend(addresses.next().map(TcpStream::connect));
        let is_last = addresses.as_slice().is_empty();
        let next_is_due = SystemHost.sleep_until(SystemHost.now() + NEXT_ADDRESS_AFTER);
        tokio::select! {
            biased;
            tried = tries.next() => match tried.map(|tried| tried.and_then(configured)) {
                Some(Ok(stream)) => return Ok(stream),
                Some(Err(error)) => failure = error,
                None => return Err(failure),
            },
            () = next_is_due, if !is_last => {}
        }
    }
}

/// Resolves a host name on a thread of its own. If that thread cannot start, this returns an error,
/// where the runtime would panic.
async fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let host = host.to_owned();
    beside("leasehold-dns", move || Ok((host, port).to_socket_addrs()?.collect())).await
}

/// Sends requests without delay, and notices a peer that vanished.
fn configured(stream: TcpStream) -> io::Result<TcpStream> {
    use rustix::net::sockopt;
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(&stream, true)?;
    sockopt::set_tcp_keepidle(&stream, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(&stream, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(&stream, KEEPALIVE_PROBES)?;
    Ok(stream)
}

/// Opens a stream to a socket of this machine.
pub(crate) async fn open_unix(path: &Path) -> Result<Box<dyn Stream>, Error> {
    let opened = UnixStream::connect(path).await;
    let stream = opened.map_err(|cause| match cause.kind() {
        io::ErrorKind::PermissionDenied => Error::new(
            ErrorKind::Denied,
            "this user has no right to use the socket; no request was sent; check its permissions \
             and those of its directory",
        )
        .with_source(cause),
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => unreachable(
            "no server listens at the socket",
            "start the server, or correct the path in the URL",
            cause,
        ),
        _ => unreachable("the socket cannot be opened", "correct the path in the URL", cause),
    })?;
    Ok(Box::new(stream))
}

fn unreachable(what: &str, next: &str, cause: io::Error) -> Error {
    let message = format!("{what} ({cause}); no request was sent; {next}");
    Error::new(ErrorKind::Unavailable, message).with_source(cause)
}

/// A host and a port, as they are written in a URL.
pub(crate) fn host_and_port_text(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "the test brings a listener of its own")]
mod tests {
    use super::*;

    #[tokio::test]
    async fn requests_leave_at_once_and_a_peer_that_vanished_is_noticed() {
        use rustix::net::sockopt;
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let stream = tcp_stream("127.0.0.1", port).await.expect("it listens");
        assert_eq!(stream.nodelay().ok(), Some(true));
        assert_eq!(sockopt::socket_keepalive(&stream), Ok(true));
        assert_eq!(sockopt::tcp_keepidle(&stream), Ok(KEEPALIVE_IDLE));
        assert_eq!(sockopt::tcp_keepintvl(&stream), Ok(KEEPALIVE_INTERVAL));
        assert_eq!(sockopt::tcp_keepcnt(&stream), Ok(KEEPALIVE_PROBES));
    }

    fn listener() -> (std::net::TcpListener, SocketAddr) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        (listener, address)
    }

    /// The queue of such a listener is full, so the kernel drops further requests to connect.
    async fn silent_listener() -> (Vec<TcpStream>, std::net::TcpListener, SocketAddr) {
        let (listener, address) = listener();
        rustix::net::listen(&listener, 0).expect("it listens already");
        let mut queued = Vec::new();
        loop {
            tokio::select! {
                biased;
                stream = TcpStream::connect(address) => queued.push(stream.expect("a place")),
                () = SystemHost.sleep_until(SystemHost.now() + NEXT_ADDRESS_AFTER) => break,
            }
        }
        (queued, listener, address)
    }

    #[tokio::test]
    async fn an_address_that_drops_packets_or_refuses_does_not_keep_us_from_the_next_one() {
        let (_queued, _listener, silent) = silent_listener().await;
        let (_open, open) = listener();
        let (closed, refuses) = listener();
        drop(closed);
        for addresses in [vec![silent, open], vec![refuses, open], vec![refuses, silent, open]] {
            let stream = connect_to_one(addresses.clone()).await.expect("one is open");
            assert_eq!(stream.peer_addr().ok(), Some(open), "{addresses:?}");
        }
        let refused = connect_to_one(vec![refuses, refuses]).await.expect_err("none is open");
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        let none = connect_to_one(Vec::new()).await.expect_err("there is none");
        assert_eq!(none.kind(), io::ErrorKind::NotFound);
    }
}
