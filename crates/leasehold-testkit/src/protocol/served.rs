//! A server that a test plays. It needs no I/O. Its streams only use wakers.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use leasehold::store::redis::Stream;

use super::{Command, Requests};

/// The server's end of a stream. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Line(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// Bytes that the client has not read yet.
    arrived: VecDeque<u8>,
    /// The answers in order. `None` stands for an answer that the server has not given yet.
    answers: VecDeque<Option<Vec<u8>>>,
    /// How many answers have left.
    left: usize,
    has_ended: bool,
    reader: Option<Waker>,
}

/// The place of an answer that is given later. The answers behind it wait.
#[derive(Debug)]
pub struct Later {
    line: Line,
    number: usize,
}

impl Line {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers the next request.
    pub fn answer(&self, bytes: Vec<u8>) {
        self.later().say(bytes);
    }

    /// Takes the next request, and answers it later or never.
    #[must_use]
    pub fn later(&self) -> Later {
        let mut state = self.state();
        let number = state.left + state.answers.len();
        state.answers.push_back(None);
        drop(state);
        Later { line: self.clone(), number }
    }

    /// Sends a message without a request.
    pub fn tell(&self, bytes: &[u8]) {
        let mut state = self.state();
        state.arrived.extend(bytes);
        state.wake();
    }

    /// Ends the connection. Answers that were given before still arrive.
    pub fn close(&self) {
        let mut state = self.state();
        state.has_ended = true;
        state.wake();
    }

    /// Whether the connection was ended, by either side.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.state().has_ended
    }
}

impl State {
    fn wake(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

impl Later {
    /// Gives the answer.
    pub fn say(self, bytes: Vec<u8>) {
        let mut state = self.line.state();
        let place = self.number - state.left;
        state.answers[place] = Some(bytes);
        while let Some(Some(_)) = state.answers.front() {
            let bytes = state.answers.pop_front().flatten().unwrap_or_default();
            state.left += 1;
            state.arrived.extend(bytes);
        }
        state.wake();
    }
}

/// A stream to a server that is told of each request and answers it, at once or
/// [later](Line::later).
pub fn served(serve: impl FnMut(&Line, Command) + Send + 'static) -> (Box<dyn Stream>, Line) {
    let line = Line::default();
    let requests = Requests::default();
    (Box::new(Served { line: line.clone(), requests, serve }), line)
}

/// The client's end.
struct Served<S> {
    line: Line,
    requests: Requests,
    serve: S,
}

impl<S: FnMut(&Line, Command) + Send + 'static> Stream for Served<S> {
    fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut state = self.line.state();
        if state.arrived.is_empty() && !state.has_ended {
            state.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let count = into.len().min(state.arrived.len());
        into.iter_mut().zip(state.arrived.drain(..count)).for_each(|(room, byte)| *room = byte);
        Poll::Ready(Ok(count))
    }

    fn poll_write(&mut self, _cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.requests.push(bytes);
        while !self.line.has_ended()
            && let Some(command) = self.requests.take()
        {
            (self.serve)(&self.line, command);
        }
        Poll::Ready(Ok(bytes.len()))
    }
}

impl<S> Drop for Served<S> {
    fn drop(&mut self) {
        self.line.close();
    }
}
