//! One connection: requests go out and answers come in, in the same order.
//!
//! Callers write to a buffer, and one task does the I/O. All requests that wait at its turn are
//! sent in one write. [Steps](super::gathering) that may be done together are sent as one command.
//! We do not use a library's connection, because one request through it cost as much as all the
//! rest of a lock.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, MutexGuard};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use tokio::sync::oneshot;

use super::connection_lost;
use super::gathering::{Answered, Gathered, Gathering};
use super::handshake::{ServerFacts, handshake_on_terms, no_run_id};
use super::known::{Known, ServerProcess, Strictly};
use super::redirect::{Answering, Passed, Redirect, Unsent};
use super::waiting::{Reply, Sent, Several, Waiting, answer_all};
use crate::core::error::Error;
use crate::store::redis::codec::command::{Command, NoAnswer};
use crate::store::redis::codec::{self, Frame, Invalid, Reader};
use crate::store::redis::connector::{Access, Connector, Stream};
use crate::store::redis::terms::copies::Confirmation;
use crate::unpoisoned::Unpoisoned;

/// A buffer that has grown beyond this is dropped.
const KEPT_BYTES_MAX: usize = 256 * 1024;

/// A new connection.
pub(in crate::store::redis) struct Connected {
    pub(in crate::store::redis) pipeline: Arc<Pipeline>,
    pub(in crate::store::redis) mover: Mover,
    /// The facts that the server told about itself.
    pub(in crate::store::redis) known: Known,
    /// Whether this client is strict, but the database also lets in clients that are not.
    keeps_nobody_out: bool,
}

/// Connects, logs in, selects the database, and waits for an answer of the server, because an open
/// port alone proves nothing.
///
/// # Errors
///
/// `Unavailable`, `Denied`, `Config` or `Unsupported`. No request was sent.
///
/// # Cancel safety
///
/// Dropping the future closes everything that it has opened.
pub(in crate::store::redis) async fn connect(
    connector: &dyn Connector,
) -> Result<Connected, Error> {
    let access = connector.access();
    let connected = async { establish(connector.open().await?, &access).await };
    let connected = connected.await.map_err(|error| error.at(&connector.label()))?;
    if connected.keeps_nobody_out && access.settled.tell_once() {
        tracing::warn!(
            server = connector.label(),
            "this client is strict, but its database is not switched to strict mode; clients \
             without `strict=yes` are not kept out; `leasehold strict on` switches it"
        );
    }
    if connector.may_change_unnoticed() {
        return Ok(Connected { known: connected.known.unsteady(), ..connected });
    }
    Ok(connected)
}

/// Turns an open stream into a connection.
pub(in crate::store::redis) async fn establish(
    mut stream: Box<dyn Stream>,
    access: &Access,
) -> Result<Connected, Error> {
    let facts = handshake_on_terms(&mut *stream, access).await?;
    let ServerFacts { run_id, replid, replicas, strict, is_off } = facts;
    let process = run_id.zip(replid).map(|(run_id, replid)| ServerProcess { run_id, replid });
    let strictly = match strict {
        Some(strict) => Some(Strictly { process: process.ok_or_else(no_run_id)?, strict }),
        None => None,
    };
    let keeps_nobody_out = is_off && strictly.is_some();
    let (pipeline, mover) = Pipeline::open(stream);
    Ok(Connected { pipeline, mover, known: Known::new(strictly, replicas), keeps_nobody_out })
}

/// The side of a connection that takes requests.
pub(in crate::store::redis) struct Pipeline {
    state: Unpoisoned<State>,
}

#[derive(Default)]
struct State {
    /// Requests that are not written yet.
    out: Vec<u8>,
    /// The steps behind them.
    steps: Gathering,
    /// The requests that wait for answers, the first one first.
    waiting: VecDeque<Sent>,
    /// How many of the waiting requests are still in `out`.
    unsent: usize,
    /// The different requests for copies of the writes in `out`, and who waits for each answer.
    confirming: Vec<(Confirmation, Vec<Answering>)>,
    /// How many questions for copies have no answer. The server serves nothing else of this
    /// connection meanwhile, so nothing is written: what comes leaves together, with one question.
    unconfirmed: usize,
    /// Wakes the task that does the I/O while it has nothing to write.
    writer: Option<Waker>,
    ended: bool,
}

impl State {
    /// Adds a request that the server may do together with others.
    fn place(&mut self, command: Command, waiting: Waiting) {
        if self.steps.come_before(&command) {
            self.write_steps();
        }
        if self.steps.hold_back(&command) {
            self.steps.hold((command, waiting));
        } else if !waiting.may_go_elsewhere() && self.steps.may_have(&command) {
            self.steps.add((command, waiting));
        } else {
            self.add(&command, waiting);
        }
    }

    /// Adds a request behind all others.
    fn add(&mut self, command: &Command, waiting: Waiting) {
        self.write_steps();
        self.write(command, Sent::One(waiting));
    }

    fn write(&mut self, command: &Command, sent: Sent) {
        codec::write(command, &mut self.out);
        self.waiting.push_back(sent);
        self.unsent += 1;
    }

    /// Asks for copies of all earlier writes, behind all requests that are sent together. The
    /// server serves no other request of this connection until the copies are there. Locks of
    /// different ttls may wait for different spans.
    fn confirm(&mut self, asked: Confirmation, answering: Answering) {
        match self.confirming.iter_mut().find(|(same, _)| *same == asked) {
            Some((_, callers)) => callers.push(answering),
            None => self.confirming.push((asked, vec![answering])),
        }
    }

    fn write_confirmations(&mut self) {
        let mut confirming = std::mem::take(&mut self.confirming);
        // The shortest comes first, so that nobody waits for longer than it asked for. All ask for
        // the same copies of the same writes. So the `WAIT` of a longer span starts after the
        // shorter ones, and needs only the time that is left.
        confirming.sort_by_key(|(asked, _)| asked.within());
        let mut waited = Duration::ZERO;
        for (asked, callers) in confirming {
            self.write(&asked.command(waited), Sent::Confirmation(callers));
            self.unconfirmed += 1;
            waited = asked.within();
        }
    }

    fn has_nothing_to_write(&self) -> bool {
        self.out.is_empty() && self.steps.are_none() && self.confirming.is_empty()
    }

    /// Writes all that waits to be written.
    fn write_all(&mut self) {
        self.write_steps();
        self.write_confirmations();
    }

    /// Writes the steps that are gathered.
    fn write_steps(&mut self) {
        match self.steps.take() {
            Some(Gathered::One((command, waiting))) => self.write(&command, Sent::One(waiting)),
            Some(Gathered::Several(call, several)) => self.write(&call, Sent::Several(several)),
            None => {}
        }
    }
}

impl Pipeline {
    /// Opens a connection over a stream. Returns it with the task that does its I/O until it ends.
    fn open(stream: Box<dyn Stream>) -> (Arc<Self>, Mover) {
        let pipeline = Arc::new(Self { state: Unpoisoned::default() });
        let mover = Mover {
            pipeline: Arc::clone(&pipeline),
            stream,
            writing: Vec::new(),
            written: 0,
            reader: Reader::of_resp2(),
            why: None,
            has_given_way: false,
        };
        (pipeline, mover)
    }

    /// Sends a request. It is in the queue of the connection when this returns, so requests reach
    /// the server in the order of these calls. Dropping the future does not take it back.
    pub(in crate::store::redis) fn submit(&self, command: &Command) -> Pending {
        let (answering, answer) = oneshot::channel();
        self.enqueue(answering, |state, answering| {
            state.add(command, Waiting::new(answering, None));
        });
        Pending(answer)
    }

    /// Asks for copies of the writes that were submitted before. Requests for the same copies that
    /// are sent together share the answer.
    pub(super) fn confirm(&self, asked: Confirmation) -> Pending {
        let (answering, answer) = oneshot::channel();
        self.enqueue(answering, |state, answering| state.confirm(asked, answering));
        Pending(answer)
    }

    /// Sends a request that another server refused. Nothing comes between `ASKING` and its command.
    /// Returns the request if the connection has ended.
    pub(super) fn pass(&self, passed: Passed) -> Option<Unsent> {
        let command = passed.request.command();
        let mut state = self.state.lock();
        if state.ended {
            return Some(passed.unsent(connection_lost()));
        }
        if passed.asking {
            let (nobody, _answer) = oneshot::channel();
            state.add(&Command::new("ASKING"), Waiting::new(nobody, None));
        }
        state.place(command, Waiting::new(passed.answering, Some(passed.request)));
        wake(state);
        None
    }

    /// Like [`submit`](Self::submit), but the answer goes to `answering`, and a refusal to
    /// `redirect`. The server may do it together with other requests.
    pub(super) fn submit_for(
        &self,
        command: Command,
        answering: Answering,
        redirect: Option<Arc<dyn Redirect>>,
    ) {
        self.enqueue(answering, |state, answering| {
            state.place(command, Waiting::new(answering, redirect));
        });
    }

    fn enqueue(&self, answering: Answering, add: impl FnOnce(&mut State, Answering)) {
        let mut state = self.state.lock();
        if state.ended {
            let _gone =
                answering.send(Err(NoAnswer::NotSent { reason: "it had ended".to_owned() }));
            return;
        }
        add(&mut state, answering);
        wake(state);
    }

    /// Passes on the answer to several steps. Sends those that were not done again, each alone.
    fn answer_several(&self, several: Several, answer: &Reply) {
        let mut state = self.state.lock();
        let Answered { done, alone, held } = state.steps.answered(several, answer);
        for (command, waiting) in alone {
            state.add(&command, waiting);
        }
        for (command, waiting) in held {
            state.place(command, waiting);
        }
        drop(state);
        for (waiting, value) in done {
            waiting.answer(Ok(value));
        }
    }
}

/// Wakes the task that does the I/O.
fn wake(mut state: MutexGuard<'_, State>) {
    let writer = state.writer.take();
    drop(state);
    if let Some(writer) = writer {
        writer.wake();
    }
}

/// Waits for an answer.
pub(in crate::store::redis) struct Pending(pub(in crate::store::redis) oneshot::Receiver<Reply>);

impl Future for Pending {
    type Output = Reply;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Reply> {
        Poll::Ready(ready!(Pin::new(&mut self.0).poll(cx)).unwrap_or_else(|_| Err(broken(None))))
    }
}

fn broken(why: Option<&str>) -> NoAnswer {
    NoAnswer::Broken { reason: why.unwrap_or("the connection failed").to_owned() }
}

/// Does the I/O of one connection. Ends with the connection, and ends it when dropped.
pub(in crate::store::redis) struct Mover {
    pipeline: Arc<Pipeline>,
    stream: Box<dyn Stream>,
    writing: Vec<u8>,
    written: usize,
    reader: Reader,
    /// The reason why the connection ended.
    why: Option<String>,
    /// Whether the mover let other tasks submit before the next write.
    has_given_way: bool,
}

impl Future for Mover {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        // Read first, because the server may have sent answers before it closed.
        let ended = match this.read(cx) {
            Poll::Ready(ended) => Some(ended),
            Poll::Pending => match this.write(cx) {
                Poll::Ready(failed) => Some(failed),
                Poll::Pending => None,
            },
        };
        let Some(why) = ended else { return Poll::Pending };
        this.why = Some(why);
        Poll::Ready(())
    }
}

impl Mover {
    /// Writes until the buffer is empty or the other side takes no more, and sends what was
    /// written. Returns an error, if any.
    fn write(&mut self, cx: &mut Context<'_>) -> Poll<String> {
        loop {
            if self.written == self.writing.len() && !self.take_out(cx) {
                return match self.stream.poll_flush(cx) {
                    Poll::Ready(Err(error)) => Poll::Ready(error.to_string()),
                    Poll::Ready(Ok(())) | Poll::Pending => Poll::Pending,
                };
            }
            let rest = &self.writing[self.written..];
            match ready!(self.stream.poll_write(cx, rest)) {
                Ok(0) => return Poll::Ready(io::Error::from(io::ErrorKind::WriteZero).to_string()),
                Ok(count) => self.written += count,
                Err(error) => return Poll::Ready(error.to_string()),
            }
        }
    }

    /// Takes what was submitted. Returns whether there was anything; if not, the next submission
    /// wakes this task.
    ///
    /// While the server is busy with earlier requests, this task first lets other tasks submit if
    /// they are ready now. Otherwise, on several threads, it would run between any two of them, and
    /// write for each.
    fn take_out(&mut self, cx: &Context<'_>) -> bool {
        self.written = 0;
        self.writing.clear();
        self.writing.shrink_to(KEPT_BYTES_MAX);
        let mut state = self.pipeline.state.lock();
        if state.has_nothing_to_write() || state.unconfirmed > 0 {
            state.writer = Some(cx.waker().clone());
            return false;
        }
        let is_busy = state.waiting.len() > state.unsent;
        if is_busy && !std::mem::replace(&mut self.has_given_way, true) {
            cx.waker().wake_by_ref();
            return false;
        }
        self.has_given_way = false;
        state.write_all();
        state.unsent = 0;
        std::mem::swap(&mut state.out, &mut self.writing);
        true
    }

    /// Reads until there is nothing to read. Returns why the connection ended.
    fn read(&mut self, cx: &mut Context<'_>) -> Poll<String> {
        loop {
            match ready!(self.reader.poll_read(&mut *self.stream, cx)) {
                Ok(true) => {}
                Ok(false) => return Poll::Ready("the server closed the connection".to_owned()),
                // TLS ends in this way if the server does not say goodbye.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return Poll::Ready("the server closed the connection".to_owned());
                }
                Err(error) => return Poll::Ready(error.to_string()),
            }
            if let Err(refused) = self.hand_out() {
                return Poll::Ready(refused.to_string());
            }
        }
    }

    /// Passes the answers that have arrived to the callers that wait for them.
    fn hand_out(&mut self) -> Result<(), Invalid> {
        while let Some(frame) = self.reader.take()? {
            // Lock for each answer, because a woken caller may submit its next request at once.
            let sent = self.pipeline.state.lock().waiting.pop_front();
            let answer = Frame::answer(frame);
            match sent.ok_or(Invalid::NotTheProtocol)? {
                Sent::One(waiting) => {
                    if waiting.is_in_doubt() {
                        self.pipeline.state.lock().steps.doubted(&answer);
                    }
                    waiting.answer(answer);
                }
                Sent::Several(several) => self.pipeline.answer_several(several, &answer),
                Sent::Confirmation(callers) => {
                    self.pipeline.state.lock().unconfirmed -= 1;
                    answer_all(callers, &answer);
                }
            }
        }
        Ok(())
    }
}

impl Drop for Mover {
    fn drop(&mut self) {
        let mut state = self.pipeline.state.lock();
        state.ended = true;
        // Requests that are not written yet end like those in the buffer.
        state.write_all();
        let (waiting, held) = (std::mem::take(&mut state.waiting), state.steps.take_held());
        (state.out, state.writer) = (Vec::new(), None);
        drop(state);
        for sent in waiting {
            sent.fail(&broken(self.why.as_deref()));
        }
        for (_, waiting) in held {
            waiting.answer(Err(NoAnswer::NotSent { reason: "it has ended".to_owned() }));
        }
    }
}
