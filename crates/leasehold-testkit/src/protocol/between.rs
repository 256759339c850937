//! Streams on which a test sees everything that passes, and may change it.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::task::{Context, Poll};

use leasehold::store::redis::Stream;

use super::{Answer, Command, Requests, Sent, take_sent};
use crate::protocol;

/// Sees the requests and the answers of one connection, and may change them.
pub trait Onlooker: Send + 'static {
    /// A request leaves. Returns what the server gets. Default: the same.
    fn leaves(&mut self, request: Command) -> Command {
        request
    }

    /// The answer to the request that the server got arrives. Returns the answer that the client
    /// gets instead, if it is another one. Default: `None`.
    fn arrives(&mut self, request: &Command, answer: &Answer) -> Option<Answer> {
        let _any = (request, answer);
        None
    }

    /// Returns a request of the onlooker itself. The stream calls this whenever it is polled. Its
    /// answer goes to [`hears`](Self::hears). Default: none.
    fn asks(&mut self, cx: &Context<'_>) -> Option<Command> {
        let _never = cx;
        None
    }

    /// The answer to a request of the onlooker itself arrives.
    fn hears(&mut self) {}

    /// The connection ends, or the client closes it.
    fn ends(&mut self) {}
}

/// A stream with an onlooker. Requests and answers pass as soon as they are whole.
pub struct Between<O: Onlooker> {
    stream: Box<dyn Stream>,
    onlooker: O,
    requests: Requests,
    /// Requests on their way to the server.
    writing: Vec<u8>,
    /// The requests without an answer. `None` is a request of the onlooker.
    asked: VecDeque<Option<Command>>,
    arrived: Vec<u8>,
    /// Bytes that the client may read.
    read: VecDeque<u8>,
}

impl<O: Onlooker> fmt::Debug for Between<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Between({} requests without an answer)", self.asked.len())
    }
}

impl<O: Onlooker> Between<O> {
    /// Puts an onlooker on a stream.
    #[must_use]
    pub fn over(stream: Box<dyn Stream>, onlooker: O) -> Box<dyn Stream> {
        let (requests, asked) = (Requests::default(), VecDeque::new());
        let (writing, arrived, read) = (Vec::new(), Vec::new(), VecDeque::new());
        Box::new(Self { stream, onlooker, requests, writing, asked, arrived, read })
    }

    /// Passes on the requests of the client and of the onlooker.
    fn write(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if let Some(own) = self.onlooker.asks(cx) {
            self.writing.extend(own.bytes());
            self.asked.push_back(None);
        }
        while !self.writing.is_empty() {
            match self.stream.poll_write(cx, &self.writing) {
                Poll::Ready(count) => drop(self.writing.drain(..count?)),
                Poll::Pending => return Ok(()),
            }
        }
        match self.stream.poll_flush(cx) {
            Poll::Ready(flushed) => flushed,
            Poll::Pending => Ok(()),
        }
    }

    /// Sorts the answers and messages that have arrived.
    fn sort(&mut self) {
        let mut rest = &self.arrived[..];
        loop {
            let before = rest;
            let Some(sent) = take_sent(&mut rest) else { break };
            let bytes = &before[..before.len() - rest.len()];
            let instead = match &sent {
                Sent::News(_) => None,
                Sent::Answer(answer) => match self.asked.pop_front() {
                    Some(Some(request)) => self.onlooker.arrives(&request, answer),
                    Some(None) => {
                        self.onlooker.hears();
                        continue;
                    }
                    // A server that has too many clients says so without a request.
                    None => None,
                },
            };
            match instead {
                Some(instead) => self.read.extend(protocol::answer(&instead)),
                None => self.read.extend(bytes),
            }
        }
        self.arrived = rest.to_vec();
    }
}

impl<O: Onlooker> Stream for Between<O> {
    fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        // The reader sees the error after the bytes that arrived before it.
        let _failed = self.write(cx);
        while self.read.is_empty() {
            let mut piece = [0; 4096];
            let Poll::Ready(count) = self.stream.poll_read(cx, &mut piece) else {
                return Poll::Pending;
            };
            let Ok(count @ 1..) = count else {
                self.onlooker.ends();
                return Poll::Ready(count);
            };
            self.arrived.extend_from_slice(&piece[..count]);
            self.sort();
        }
        let count = into.len().min(self.read.len());
        into.iter_mut().zip(self.read.drain(..count)).for_each(|(room, byte)| *room = byte);
        Poll::Ready(Ok(count))
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.requests.push(bytes);
        while let Some(request) = self.requests.take() {
            let request = self.onlooker.leaves(request);
            self.writing.extend(request.bytes());
            self.asked.push_back(Some(request));
        }
        self.write(cx)?;
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.write(cx))
    }
}

impl<O: Onlooker> Drop for Between<O> {
    fn drop(&mut self) {
        self.onlooker.ends();
    }
}
