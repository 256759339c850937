//! Opens streams, over TCP and to sockets of this machine.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
#[cfg(any(feature = "mysql", feature = "postgres", feature = "redis"))]
use std::path::Path;
use std::time::Duration;

use tokio::net::TcpStream;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "redis"))]
use tokio::net::UnixStream;

#[cfg(any(feature = "mysql", feature = "postgres", feature = "redis"))]
use super::Stream;
#[cfg(feature = "redis")]
use super::Tls;
use crate::core::error::{Error, ErrorKind};
use crate::host::beside;

/// How long a connection is silent before it is probed.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(5);
/// The time between probes.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);
/// How many probes without an answer end the connection.
const KEEPALIVE_PROBES: u32 = 3;

/// Opens a stream over TCP, with TLS or without.
#[cfg(feature = "redis")]
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
    let mut failure = io::Error::from(io::ErrorKind::NotFound);
    for address in addresses {
        match TcpStream::connect(address).await.and_then(configured) {
            Ok(stream) => return Ok(stream),
            Err(error) => failure = error,
        }
    }
    let what = match failure.kind() {
        io::ErrorKind::ConnectionRefused => "no server listens there",
        io::ErrorKind::TimedOut => "the host does not answer",
        _ => "the host cannot be reached",
    };
    Err(unreachable(what, "start the server, or correct host and port in the URL", failure))
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
#[cfg(any(feature = "mysql", feature = "postgres", feature = "redis"))]
pub(crate) async fn open_unix(path: &Path) -> Result<Box<dyn Stream>, Error> {
    let opened = UnixStream::connect(path).await;
    let stream = opened.map_err(|cause| match cause.kind() {
        io::ErrorKind::PermissionDenied => Error::new(
            ErrorKind::Denied,
            "this user has no right to use the socket; no request was sent; check its permissions \
             (`unixsocketperm`) and those of its directory",
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
}
