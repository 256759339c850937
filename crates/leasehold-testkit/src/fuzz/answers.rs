//! Fuzzes the connector with the bytes of a hostile server.

use std::future::Future;
use std::pin::pin;

use leasehold::store::redis::{Command, Connected, LinkConnector as _, RedisConnector, Subscriber};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

/// Runs a server on a port of this machine that sends these bytes and closes the connection. It
/// sends them after the handshake, or instead of it if the bytes begin with `!`. If they begin with
/// `>`, it speaks RESP3 to subscribers. Checks that requests and subscriptions end.
///
/// # Panics
///
/// If the connection panics or accepts requests after its end.
pub fn answers(data: &[u8]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let connector = RedisConnector::new(&format!("redis://127.0.0.1:{port}/3"));
        let connector = connector.expect("a good URL");
        let asking = async {
            if let Ok(connected) = connector.connect().await {
                ask(connected).await;
            }
        };
        serving(asking, &listener, data, None).await;
        let listening = async {
            if let Ok(subscriber) = connector.subscribe().await {
                listen(subscriber).await;
            }
        };
        let speaks = if data.starts_with(b">") { "%0\r\n+OK\r\n" } else { "-ERR\r\n-ERR\r\n" };
        serving(listening, &listener, data, Some(speaks)).await;
    });
}

async fn ask(connected: Connected) {
    let requests = ["GET", "EVALSHA", "SCAN"];
    let mut requests: Vec<_> =
        requests.map(|name| connected.link.submit(Command::new(name).arg("x"))).into();
    // The end of the connection must end all requests.
    connected.io.await;
    for request in requests.drain(..) {
        let _answer = request.await;
    }
    assert!(connected.link.submit(Command::new("GET")).await.is_err(), "the connection had ended");
}

async fn listen(subscriber: Subscriber) {
    let Subscriber { mut channels, mut messages, .. } = subscriber;
    let add = async {
        let _added = channels.add(":lh:inbox:AAAAAAAAAAAA").await;
        let _added = channels.add("other").await;
        if channels.tracks() {
            let _tracked = channels.track("a").await;
        }
    };
    let take = async { while messages.next().await.is_some() {} };
    tokio::join!(add, take);
}

/// Runs `client` beside a server that accepts one connection.
async fn serving(
    client: impl Future<Output = ()>,
    listener: &TcpListener,
    data: &[u8],
    speaks: Option<&str>,
) {
    let serve = async {
        let (mut stream, _) = listener.accept().await.expect("somebody connects");
        let mut buffer = [0; 4096];
        // The client may have gone, so reads and writes may fail.
        if let Some(data) = data.strip_prefix(b"!") {
            let _read = stream.read(&mut buffer).await;
            let _written = stream.write_all(data).await;
        } else {
            let _read = stream.read(&mut buffer).await;
            let _written = stream.write_all(b"+OK\r\n+PONG\r\n").await;
            if speaks.is_none() {
                let _written = stream.write_all(b":0\r\n").await;
            }
            if let Some(speaks) = speaks {
                let _read = stream.read(&mut buffer).await;
                let _written = stream.write_all(speaks.as_bytes()).await;
            }
            let _read = stream.read(&mut buffer).await;
            let _written = stream.write_all(data).await;
        }
        let _closed = stream.shutdown().await;
        // Unread bytes would turn the end of the connection into a reset.
        while matches!(stream.read(&mut buffer).await, Ok(1..)) {}
    };
    let (client, mut serve) = (pin!(client), pin!(serve));
    tokio::select! {
        () = client => {}
        () = &mut serve => {}
    }
}
