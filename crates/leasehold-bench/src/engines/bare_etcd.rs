//! The least client of etcd: gRPC requests that are written once, and answers that are not read.

use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use h2::client::{SendRequest, handshake};
use h2::{RecvStream, SendStream};
use http::Request;
use leasehold::Error;
use tokio::net::TcpStream;

use super::refused;

/// Field numbers of `rpc.proto`, each with the wire type *length-delimited*.
const FIELD_1: u8 = 1 << 3 | 2;
const FIELD_2: u8 = 2 << 3 | 2;
const FIELD_3: u8 = 3 << 3 | 2;

/// `Compare { result: EQUAL, target: VERSION, key, version }`, as far as the key.
const TARGET_VERSION: [u8; 2] = [2 << 3, 0];
const VERSION_IS: u8 = 4 << 3;

/// One connection.
#[derive(Clone)]
pub(super) struct Channel(SendRequest<Bytes>);

impl Channel {
    pub(super) async fn open(port: u16) -> Result<Self, Error> {
        let stream = TcpStream::connect(("127.0.0.1", port)).await.map_err(refused)?;
        stream.set_nodelay(true).map_err(refused)?;
        let (send, connection) = handshake(stream).await.map_err(refused)?;
        tokio::spawn(connection);
        Ok(Self(send))
    }

    /// `Txn { if version(key) == 0 then put(key, "me") }`.
    pub(super) async fn put_if_absent(&self, key: &[u8]) -> Result<(), Error> {
        let put = nested(FIELD_2, &put(key));
        self.call("KV/Txn", &txn(key, 0, &put)).await
    }

    /// `Txn { if version(key) == 1 then delete(key) }`.
    pub(super) async fn delete_if_there(&self, key: &[u8]) -> Result<(), Error> {
        let delete = nested(FIELD_3, &nested(FIELD_1, key));
        self.call("KV/Txn", &txn(key, 1, &delete)).await
    }

    async fn put(&self, key: &[u8]) -> Result<(), Error> {
        self.call("KV/Put", &put(key)).await
    }

    async fn call(&self, method: &str, message: &[u8]) -> Result<(), Error> {
        let (mut sending, answer) = self.begin(method).await?;
        sending.send_data(frame(message), true).map_err(refused)?;
        let mut answer = answer.await.map_err(refused)?.into_body();
        next(&mut answer).await?;
        // The status is in the trailers.
        let trailers = answer.trailers().await.map_err(refused)?.unwrap_or_default();
        match trailers.get("grpc-status").map(|it| it.as_bytes()) {
            Some(b"0") => Ok(()),
            _ => Err(refused(format!("{trailers:?}"))),
        }
    }

    async fn begin(
        &self,
        method: &str,
    ) -> Result<(SendStream<Bytes>, h2::client::ResponseFuture), Error> {
        let request = Request::post(format!("http://etcd/etcdserverpb.{method}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers");
        let request = request.body(()).map_err(refused)?;
        let mut ready = self.0.clone().ready().await.map_err(refused)?;
        let (answer, sending) = ready.send_request(request, false).map_err(refused)?;
        Ok((sending, answer))
    }
}

/// A watch of one key.
pub(super) struct Watch {
    _sending: SendStream<Bytes>,
    events: RecvStream,
    key: &'static [u8],
}

impl Watch {
    pub(super) async fn open(channel: Channel, key: &'static [u8]) -> Result<Self, Error> {
        let (mut sending, answer) = channel.begin("Watch/Watch").await?;
        // `WatchRequest { create_request: WatchCreateRequest { key } }`
        let create = nested(FIELD_1, &nested(FIELD_1, key));
        sending.send_data(frame(&create), false).map_err(refused)?;
        let mut events = answer.await.map_err(refused)?.into_body();
        // The watch was created.
        next(&mut events).await?;
        Ok(Self { _sending: sending, events, key })
    }

    /// Changes the key over that channel. Returns how long it took until the event came.
    pub(super) async fn hop(&mut self, by: &Channel) -> Result<Duration, Error> {
        let called = Instant::now();
        let (put, seen) = tokio::join!(by.put(self.key), async {
            next(&mut self.events).await.map(|()| Instant::now())
        });
        put?;
        Ok(seen?.saturating_duration_since(called))
    }
}

/// Takes the next part of an answer. Answers this short come in one part.
async fn next(answer: &mut RecvStream) -> Result<(), Error> {
    let data = answer.data().await.ok_or_else(|| refused("no answer"))?.map_err(refused)?;
    answer.flow_control().release_capacity(data.len()).map_err(refused)
}

/// A message of gRPC: not compressed, the length, and the message.
fn frame(message: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(5 + message.len());
    frame.extend_from_slice(&[0]);
    let length = u32::try_from(message.len()).expect("a short message");
    frame.extend_from_slice(&length.to_be_bytes());
    frame.extend_from_slice(message);
    frame.freeze()
}

/// A field with a message or bytes in it.
fn nested(field: u8, what: &[u8]) -> Vec<u8> {
    let length = u8::try_from(what.len()).ok().filter(|it| *it < 0x80).expect("a short message");
    [&[field, length], what].concat()
}

/// `PutRequest { key, value: "me" }`
fn put(key: &[u8]) -> Vec<u8> {
    [nested(FIELD_1, key), nested(FIELD_2, b"me")].concat()
}

/// `TxnRequest { compare: [version(key) == version], success: [operation] }`
fn txn(key: &[u8], version: u8, operation: &[u8]) -> Vec<u8> {
    let compare = [&TARGET_VERSION, &*nested(FIELD_3, key), &[VERSION_IS, version]].concat();
    [nested(FIELD_1, &compare), nested(FIELD_2, operation)].concat()
}

#[cfg(test)]
mod tests {
    use leasehold_testkit::servers::etcd::EtcdServer;

    use super::*;

    #[tokio::test]
    async fn the_bare_steps_do_what_they_say_on_etcd() {
        let server = EtcdServer::start();
        let bare = Channel::open(server.port(0)).await.expect("a channel");
        bare.put_if_absent(b"a").await.expect("a put");
        assert_eq!(server.count("a"), 1);
        bare.delete_if_there(b"a").await.expect("a deletion");
        assert_eq!(server.count("a"), 0);
        let watched = Channel::open(server.port(0)).await.expect("a channel");
        let mut watch = Watch::open(watched, b"b").await.expect("a watch");
        watch.hop(&bare).await.expect("an event");
        assert_eq!(server.count("b"), 1);
    }
}
