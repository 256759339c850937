//! A connection that a [`SchemaOutside`] can see. It changes neither requests nor answers.

use std::io;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};

use leasehold::store::postgres::Stream;

use super::{Opened, SchemaOutside, Seen, seen};

/// An empty query.
const PROBE: &[u8] = b"Q\0\0\0\x05\0";

/// The length of a typed message before its body.
const HEAD: usize = 5;

pub(super) struct Watched {
    inner: Box<dyn Stream>,
    outside: Arc<SchemaOutside>,
    seen: Arc<Mutex<Seen>>,
    /// The part of the current message that was written so far.
    written: Vec<u8>,
    has_begun: bool,
    /// The rest of a probe that is being sent.
    probe: Vec<u8>,
    /// How many answers to probes are still to be kept back.
    kept_back: usize,
    /// Bytes of the server, up to the end of the last whole message.
    arrived: Vec<u8>,
    /// Whole messages for the client.
    ready: Vec<u8>,
}

/// Counts while a connection is being opened.
struct OpeningNow(Arc<SchemaOutside>);

impl Drop for OpeningNow {
    fn drop(&mut self) {
        self.0.state().opening -= 1;
        self.0.change();
    }
}

impl Watched {
    pub(super) fn opening(outside: Arc<SchemaOutside>, opening: Opened) -> Opened {
        Box::pin(async move {
            outside.state().opening += 1;
            outside.goes_out();
            let now = OpeningNow(Arc::clone(&outside));
            let inner = opening.await?;
            let seen = Arc::<Mutex<Seen>>::default();
            outside.state().connections.push(Arc::clone(&seen));
            drop(now);
            let stream: Box<dyn Stream> = Box::new(Self {
                inner,
                outside,
                seen,
                written: Vec::new(),
                has_begun: false,
                probe: Vec::new(),
                kept_back: 0,
                arrived: Vec::new(),
                ready: Vec::new(),
            });
            Ok(stream)
        })
    }

    /// Notes the messages that leave. The first message is the login, and has no type.
    fn leaves(&mut self, bytes: &[u8]) {
        self.written.extend_from_slice(bytes);
        loop {
            let head = if self.has_begun { 1 } else { 0 };
            let Some(length) = length(&self.written, head) else { return };
            if self.written.len() < length {
                return;
            }
            let message: Vec<u8> = self.written.drain(..length).collect();
            let is_request = !self.has_begun || message[0] == b'Q';
            let listens = self.has_begun && message[HEAD..].starts_with(b"LISTEN");
            self.has_begun = true;
            let mut seen = seen(&self.seen);
            seen.pending += usize::from(is_request);
            seen.listens |= listens;
            drop(seen);
            self.outside.goes_out();
        }
    }

    /// Sorts the messages that arrived. Keeps back the answers to probes.
    fn arrives(&mut self) {
        while let Some(length) = length(&self.arrived, 1).filter(|it| self.arrived.len() >= *it) {
            let message: Vec<u8> = self.arrived.drain(..length).collect();
            let is_of_probe = self.kept_back > 0 && matches!(message[0], b'I' | b'Z');
            if !is_of_probe {
                self.ready.extend_from_slice(&message);
            }
            if message[0] == b'Z' {
                let mut seen = seen(&self.seen);
                if is_of_probe {
                    self.kept_back -= 1;
                    seen.probes_answered += 1;
                } else {
                    seen.pending = seen.pending.saturating_sub(1);
                }
                drop(seen);
                self.outside.change();
            }
        }
    }

    /// Sends a probe that was asked for, between two messages of the client.
    fn poll_probe(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut seen = seen(&self.seen);
        seen.reader = Some(cx.waker().clone());
        let is_due = seen.probes_sent < seen.probes_asked && self.written.is_empty();
        if is_due && self.probe.is_empty() && seen.pending == 0 {
            seen.probes_sent += 1;
            self.kept_back += 1;
            self.probe = PROBE.to_vec();
        }
        drop(seen);
        while !self.probe.is_empty() {
            let written = ready!(self.inner.poll_write(cx, &self.probe))?;
            self.probe.drain(..written);
        }
        Poll::Ready(Ok(()))
    }
}

/// The length of the message that begins here, if its first bytes are there. `head` bytes come
/// before the number.
fn length(bytes: &[u8], head: usize) -> Option<usize> {
    let number: [u8; 4] = bytes.get(head..head + 4)?.try_into().expect("four bytes");
    Some(head + u32::from_be_bytes(number) as usize)
}

impl Stream for Watched {
    fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        loop {
            if !self.ready.is_empty() {
                let count = self.ready.len().min(into.len());
                into[..count].copy_from_slice(&self.ready[..count]);
                self.ready.drain(..count);
                return Poll::Ready(Ok(count));
            }
            if let Poll::Ready(Err(error)) = self.poll_probe(cx) {
                return Poll::Ready(Err(error));
            }
            let mut bytes = [0; 4096];
            let count = ready!(self.inner.poll_read(cx, &mut bytes))?;
            if count == 0 {
                return Poll::Ready(Ok(0));
            }
            self.arrived.extend_from_slice(&bytes[..count]);
            self.arrives();
        }
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if !self.probe.is_empty() {
            ready!(self.poll_probe(cx))?;
        }
        let count = ready!(self.inner.poll_write(cx, bytes))?;
        self.leaves(&bytes[..count]);
        Poll::Ready(Ok(count))
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.inner.poll_flush(cx)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let mut seen = seen(&self.seen);
        seen.is_closed = true;
        seen.reader = None;
        drop(seen);
        self.outside.change();
    }
}
