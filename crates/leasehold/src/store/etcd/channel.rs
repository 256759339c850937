//! Calls over one HTTP/2 connection: gRPC, as far as etcd needs it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use h2::client::SendRequest;
use h2::{RecvStream, SendStream};
use http::{HeaderMap, Request};

use super::error::code;
use super::message::{Malformed, Message};
use crate::host::Host;
use crate::store::net::{Home, Io, Stream};

/// The longest answer. A longer one answers no request of Leasehold.
const ANSWER_BYTES_MAX: usize = 8 << 20;

/// How many calls are remembered after they ended before their trailers were read. Trailers of
/// forgotten calls count as faults of the server, and too many faults close the connection.
const RESETS_MAX: usize = 16_384;

/// How many bytes a server may send ahead: for one answer, and for the connection.
const WINDOW: u32 = 4 << 20;

/// Why a call has no answer.
#[derive(Debug)]
pub(super) enum Failure {
    /// The request was not sent.
    Unsent(h2::Error),
    /// The connection broke after the request was sent.
    Broken(h2::Error),
    /// The server refused the request: the code and the text of gRPC.
    Refused { code: u32, text: String },
    /// The answer cannot be read.
    Malformed,
    /// There was no answer in time.
    Silent(Duration),
}

impl From<Malformed> for Failure {
    fn from(Malformed: Malformed) -> Self {
        Self::Malformed
    }
}

/// A connection. Clones share it, and it ends with the last of them.
#[derive(Clone)]
pub(super) struct Channel {
    send: SendRequest<Bytes>,
    /// The login, in the header `token`.
    token: Option<Arc<str>>,
    /// Whether the connection is of no use any more.
    is_over: Arc<AtomicBool>,
}

impl Channel {
    /// Speaks HTTP/2 over a stream. The task of the connection runs on the host.
    pub(super) async fn open(
        stream: Box<dyn Stream>,
        host: &Arc<dyn Host>,
    ) -> Result<Self, Failure> {
        let mut builder = h2::client::Builder::new();
        builder
            .initial_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
            .max_concurrent_reset_streams(RESETS_MAX)
            .enable_push(false);
        let (send, connection) = builder.handshake(Io(stream)).await.map_err(Failure::Unsent)?;
        let is_over = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&is_over);
        let task = async move {
            if let Err(error) = connection.await {
                tracing::debug!(cause = %error, "a connection to etcd ended");
            }
            ended.store(true, Ordering::Relaxed);
        };
        Home::Host.spawn(host, Box::pin(task));
        Ok(Self { send, token: None, is_over })
    }

    /// The same connection, with a login.
    pub(super) fn with_token(self, token: String) -> Self {
        Self { token: Some(token.into()), ..self }
    }

    pub(super) fn is_open(&self) -> bool {
        !self.is_over.load(Ordering::Relaxed)
    }

    /// Does not use the connection any more. Calls under way go on.
    pub(super) fn give_up(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// Sends one message, and reads one answer.
    pub(super) async fn call(
        &self,
        path: &'static str,
        message: &Message,
        limit: Duration,
    ) -> Result<Bytes, Failure> {
        let (_sending, mut answers) = self.begin(path, Some(limit), message, true).await?;
        let first = answers.next().await?;
        let first = first.ok_or(Failure::Malformed)?;
        // The status comes after the answer. A stream may have further answers, which are not read.
        Ok(first)
    }

    /// Sends the first message of a stream. Further ones may follow.
    pub(super) async fn stream(
        &self,
        path: &'static str,
        first: &Message,
    ) -> Result<(Sending, Answers), Failure> {
        self.begin(path, None, first, false).await
    }

    async fn begin(
        &self,
        path: &'static str,
        limit: Option<Duration>,
        message: &Message,
        is_only: bool,
    ) -> Result<(Sending, Answers), Failure> {
        let mut request = Request::post(format!("http://etcd{path}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            // A member that is cut off from the others ends its streams.
            .header("hasleader", "true");
        if let Some(limit) = limit {
            // The server need not go on longer than its client waits.
            request = request.header("grpc-timeout", format!("{}m", limit.as_millis()));
        }
        if let Some(token) = &self.token {
            request = request.header("token", &**token);
        }
        let request = request.body(()).map_err(|_| Failure::Malformed)?;
        let ready = self.send.clone().ready().await;
        let (response, sending) = ready
            .and_then(|mut send| send.send_request(request, false))
            .map_err(Failure::Unsent)?;
        let mut sending = Sending(sending);
        sending.send(message, is_only)?;
        Ok((sending, Answers { response: Some(response), body: None, read: BytesMut::new() }))
    }
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Channel(open: {})", self.is_open())
    }
}

/// The sending side of a stream.
pub(super) struct Sending(SendStream<Bytes>);

impl Sending {
    pub(super) fn send(&mut self, message: &Message, is_last: bool) -> Result<(), Failure> {
        let bytes = message.as_bytes();
        let length = u32::try_from(bytes.len()).map_err(|_| Failure::Malformed)?;
        let mut framed = BytesMut::with_capacity(5 + bytes.len());
        // The message is not compressed.
        framed.extend_from_slice(&[0]);
        framed.extend_from_slice(&length.to_be_bytes());
        framed.extend_from_slice(bytes);
        self.0.send_data(framed.freeze(), is_last).map_err(Failure::Broken)
    }
}

/// The answers of a stream.
pub(super) struct Answers {
    response: Option<h2::client::ResponseFuture>,
    body: Option<RecvStream>,
    read: BytesMut,
}

impl Answers {
    /// The next answer; `None` after the last one.
    ///
    /// # Cancel safety
    ///
    /// Nothing that was read gets lost if the future is dropped.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        if let Some(response) = &mut self.response {
            let response = response.await.map_err(Failure::Broken)?;
            self.response = None;
            if let Some(refusal) = refusal(response.headers()) {
                return Err(refusal);
            }
            match response.status().as_u16() {
                200 => {}
                // A proxy that does not reach its member, as gRPC reads these numbers.
                status @ (429 | 502..=504) => {
                    let text = format!("HTTP {status}, as from a proxy");
                    return Err(Failure::Refused { code: code::UNAVAILABLE, text });
                }
                _ => return Err(Failure::Malformed),
            }
            self.body = Some(response.into_body());
        }
        loop {
            if let Some(answer) = self.framed()? {
                return Ok(Some(answer));
            }
            let body = self.body.as_mut().ok_or(Failure::Malformed)?;
            match body.data().await {
                Some(data) => {
                    let data = data.map_err(Failure::Broken)?;
                    body.flow_control().release_capacity(data.len()).map_err(Failure::Broken)?;
                    self.read.extend_from_slice(&data);
                }
                None => {
                    let trailers = body.trailers().await.map_err(Failure::Broken)?;
                    let refusal = trailers.as_ref().and_then(refusal);
                    return refusal.map_or(Ok(None), Err);
                }
            }
        }
    }

    /// Takes an answer that was read whole.
    fn framed(&mut self) -> Result<Option<Bytes>, Failure> {
        let Some(head) = self.read.first_chunk::<5>() else { return Ok(None) };
        let [is_compressed, length @ ..] = *head;
        let length = u32::from_be_bytes(length) as usize;
        if is_compressed != 0 || length > ANSWER_BYTES_MAX {
            return Err(Failure::Malformed);
        }
        if self.read.len() < 5 + length {
            return Ok(None);
        }
        self.read.advance(5);
        Ok(Some(self.read.split_to(length).freeze()))
    }
}

/// The refusal in the headers of an answer, if there is one.
fn refusal(headers: &HeaderMap) -> Option<Failure> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let code = text("grpc-status")?.parse().unwrap_or(2);
    // Special characters of the text stay percent-encoded, which is good enough for people.
    let text = text("grpc-message").unwrap_or_default().to_owned();
    (code != 0).then_some(Failure::Refused { code, text })
}

#[cfg(test)]
mod tests {
    use tokio::io::DuplexStream;

    use super::*;
    use crate::host::SystemHost;
    use crate::store::within;

    /// Together, these answers are longer than `WINDOW`.
    const ANSWERS: usize = 9;
    const ANSWER_BYTES: u32 = 1 << 20;

    /// Answers one call, until the client goes.
    async fn serve(stream: DuplexStream) {
        let mut calls = h2::server::handshake(stream).await.expect("HTTP/2");
        let (_call, mut to) = calls.accept().await.expect("a call").expect("it is whole");
        let mut sending = to.send_response(http::Response::new(()), false).expect("it listens");
        let body = vec![0; ANSWER_BYTES as usize];
        let framed: Bytes = [&[0], &ANSWER_BYTES.to_be_bytes()[..], &body].concat().into();
        for _ in 0..ANSWERS {
            sending.send_data(framed.clone(), false).expect("it listens");
        }
        let _gone = calls.accept().await;
    }

    #[tokio::test]
    async fn a_server_goes_on_when_the_client_has_read_what_it_sent_ahead() {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let host = SystemHost::shared();
        let read = async {
            let channel = Channel::open(Box::new(ours), &host).await.expect("HTTP/2");
            let begun = channel.stream("/etcdserverpb.Watch/Watch", &Message::default()).await;
            let (_sending, mut answers) = begun.expect("sent");
            for _ in 0..ANSWERS {
                let answer = answers.next().await.expect("whole").expect("there are more");
                assert_eq!(answer.len(), ANSWER_BYTES as usize);
            }
            Ok(())
        };
        let read = within(Arc::clone(&host), Duration::from_secs(30), read);
        tokio::select! {
            read = read => read.expect("all answers arrive"),
            () = serve(theirs) => unreachable!("the client goes first"),
        }
    }
}
