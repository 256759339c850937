//! An ordered connection to one server: requests arrive in the order in which they are submitted.
//!
//! | state | a new request | connected | failed, ended, left, or silent |
//! |---|---|---|---|
//! | closed | connects and is queued; refused in a pause after a failure | – | – |
//! | connecting | is queued | open, the queue is sent | closed for a pause, the queue is refused |
//! | open | is sent | – | closed; requests without an answer are unknown |
//! | open, probed | is queued until the probe is answered | – | as open; connecting for the queue |
//!
//! A connection is *left* when it leads to another server than at first, or the server has become a
//! replica. It is *silent* when the server does not answer a probe.
//!
//! If a connection leads to another server soon after it was made, a pause precedes the next one.
//! Repeated pauses grow longer. Requests are queued meanwhile.
//!
//! One task makes and serves a connection, on the runtime of the first caller, so that an answer
//! wakes no other thread. If that runtime ends, the connection ends too, and the next request makes
//! another one on its own runtime. If a runtime fails to connect because it has no I/O or nobody
//! drives it, the host's own thread makes this connection and serves it.

mod gathering;
pub(super) mod handshake;
pub(super) mod known;
pub(super) mod pipeline;
mod queue;
pub(super) mod redirect;
pub(super) mod serving;
mod state;
mod ticks;
mod waiting;

use std::mem;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::join_all;

use self::known::Known;
use self::pipeline::Pending;
use self::queue::{Sending, Sent};
use self::redirect::{Answering, Redirect};
use self::serving::Home;
use self::state::{Shared, Submitted};
use super::codec::command::{Command, NoAnswer, Value};
use super::connector::Connector;
use super::error;
use super::terms::copies::{Confirmation, Reply, Replying};
use crate::core::error::{Error, ErrorKind};
use crate::core::key::Key;
use crate::core::moment::Moment;
use crate::host::Host;
use crate::store::redis::IN_FLIGHT_MAX;
use crate::store::unanswered;
use tokio::sync::oneshot;

/// How long connecting may take.
const CONNECT_LIMIT: Duration = Duration::from_secs(2);

/// A request. Its command is built again for every connection on which it is tried.
pub(super) trait Request: Send + 'static {
    /// The command, given the known state of the server. Called in the order in which commands are
    /// sent.
    fn command(&mut self, known: &mut Known) -> Command;

    /// The error if the request must not be sent on this connection. Its caller gets this error.
    fn refusal(&self, _known: &Known) -> Option<Error> {
        None
    }

    /// The request that asks for copies of the last write. It is sent on the same connection, after
    /// the last request of the same batch.
    fn confirmation(&self, _known: &Known) -> Option<Confirmation> {
        None
    }

    /// Commands that are sent directly after the request and change nothing. Their answers teach
    /// what the server has.
    fn probes(&mut self, _known: &mut Known) -> Vec<Command> {
        Vec::new()
    }

    /// Learns from the answers to [`probes`](Self::probes). Called before the answer to the request
    /// is looked at.
    fn was_probed(&mut self, _known: &mut Known, _answers: &[Result<Value, NoAnswer>]) {}

    /// Whether this answer is only the first part, and the next command must be sent.
    fn goes_on(&mut self, _answer: &Value) -> bool {
        false
    }

    /// Decides whether to send the request again, after the server refused the last command with an
    /// answer that begins with `code`.
    fn was_refused(&mut self, _known: &mut Known, _code: &str, _text: &str) -> Retry {
        Retry::No
    }

    /// Whether the answer says that the connection leads to another server than at first. Then
    /// nothing was done, and the request must be sent again.
    fn was_misled(&mut self, _answer: &Value) -> bool {
        false
    }

    /// Learns about the server from an answer.
    fn was_answered(&mut self, _known: &mut Known, _answer: &Value) {}

    /// Whether [`was_answered`](Self::was_answered) would do something.
    fn teaches(&self) -> bool {
        false
    }

    /// The slot and the lock of the request; `None` if any node of a cluster can serve it.
    fn subject(&self) -> Option<Subject> {
        None
    }

    /// The part that receives the refusals instead of [`was_refused`](Self::was_refused), in the
    /// order of the answers. `None` if only this server can serve the request.
    fn redirect(&self) -> Option<Arc<dyn Redirect>> {
        None
    }

    /// Notes that no answer came in time, wherever the request is now.
    fn was_late(&self) {}
}

/// The slot and the lock of a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Subject {
    /// The slot of all keys of the request.
    pub(super) slot: u16,
    /// The lock, if the request is about one. Requests about one lock keep their order.
    pub(super) lock: Option<Key>,
}

/// Whether a refused request is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Retry {
    /// The request is not sent again.
    No,
    /// On the same connection, in another way.
    Here,
    /// On a new connection, because the old one may lead to another server than at first.
    Elsewhere,
}

/// A command that does not depend on the server.
pub(super) struct Plain(pub(super) Command);

impl Request for Plain {
    fn command(&mut self, _known: &mut Known) -> Command {
        self.0.clone()
    }
}

/// Handle of the connection. The connection closes when the handle is gone and all answers have
/// come.
pub(super) struct Wire {
    shared: Arc<Shared>,
}

impl Wire {
    pub(super) fn new(host: Arc<dyn Host>, connector: Arc<dyn Connector>, home: Home) -> Self {
        Self { shared: Arc::new(Shared::new(host, connector, home)) }
    }

    /// Sends a request before this returns, or queues it while the connection is being made. The
    /// answer comes within `limit`, or sooner if connecting fails.
    ///
    /// Dropping the future does not cancel the request.
    pub(super) fn submit(
        &self,
        limit: Duration,
        request: Box<dyn Request>,
    ) -> impl Future<Output = Result<Value, Error>> + Send + 'static + use<> {
        let reply = self.submit_to_confirm(limit, request);
        async move { Ok(reply.await?.value) }
    }

    /// Like [`submit`](Self::submit), but the reply also says whether there are enough copies of
    /// the write. The limit is the same.
    pub(super) fn submit_to_confirm(
        &self,
        limit: Duration,
        request: Box<dyn Request>,
    ) -> impl Future<Output = Result<Reply, Error>> + Send + 'static + use<> {
        let submitted = self.begin(limit).and_then(|mut answer| {
            answer.submit(request)?;
            Ok(answer)
        });
        async move {
            let mut answer = submitted?;
            answer.take(limit).await
        }
    }

    /// Like [`submit_to_confirm`](Self::submit_to_confirm), but sends nothing: the caller
    /// [passes](Shared::pass) the request on, with the sender of the answer. `None` if too many
    /// requests wait.
    pub(super) fn submit_later(
        &self,
        limit: Duration,
        request: Box<dyn Request>,
    ) -> (Option<Answering>, impl Future<Output = Result<Reply, Error>> + Send + 'static + use<>)
    {
        let mut answer = self.begin(limit);
        let answering = answer.as_mut().ok().map(|answer| answer.wait_for_another(request));
        let reply = async move {
            let mut answer = answer?;
            answer.take(limit).await
        };
        (answering, reply)
    }

    fn begin(&self, limit: Duration) -> Result<Answer, Error> {
        let in_flight = InFlight::begin(&self.shared).ok_or_else(too_many)?;
        Ok(Answer::new(&self.shared, self.shared.host.now() + limit, Some(in_flight)))
    }

    /// Connects, unless there is a connection already.
    pub(super) async fn connect(&self) -> Result<(), Error> {
        // Longer than connecting may take, so that a failure is reported with its cause.
        let limit = CONNECT_LIMIT * 3;
        let mut answer = Answer::new(&self.shared, self.shared.host.now() + limit, None);
        answer.submit(Box::new(Plain(Command::new("PING"))))?;
        // Any answer will do, because it proves that there is a connection.
        answer.connection(limit).await
    }
}

impl Deref for Wire {
    type Target = Arc<Shared>;

    fn deref(&self) -> &Arc<Shared> {
        &self.shared
    }
}

/// Counts a request that has no answer yet.
struct InFlight(Arc<Shared>);

impl InFlight {
    fn begin(shared: &Arc<Shared>) -> Option<Self> {
        let counted = Self(Arc::clone(shared));
        (shared.in_flight.fetch_add(1, Ordering::Relaxed) < IN_FLIGHT_MAX).then_some(counted)
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Waits for the answer to one request.
struct Answer {
    shared: Arc<Shared>,
    /// Counts the request until its answer is there, even if the caller gives up. `None` for a
    /// request that does not count.
    in_flight: Option<InFlight>,
    waiting: Option<Waiting>,
    deadline: Moment,
    /// The runtime that waits for the answer after the caller has dropped this. `None` before that.
    keeper: Option<Home>,
}

/// The state of a request without an answer.
enum Waiting {
    /// The request waits for the connection.
    Connection(Sending),
    /// The request waits for the server.
    Reply(Sent),
}

impl Answer {
    fn new(shared: &Arc<Shared>, deadline: Moment, in_flight: Option<InFlight>) -> Self {
        Self { shared: Arc::clone(shared), in_flight, waiting: None, deadline, keeper: None }
    }

    fn submit(&mut self, request: Box<dyn Request>) -> Result<(), Error> {
        self.waiting = Some(match self.shared.submit(request) {
            Submitted::Sent(sent) => Waiting::Reply(sent),
            Submitted::Queued(sending) => Waiting::Connection(sending),
            Submitted::Refused(error) => return Err(error),
        });
        Ok(())
    }

    /// Waits for a request that somebody else sends.
    fn wait_for_another(&mut self, request: Box<dyn Request>) -> Answering {
        let (answering, answer) = oneshot::channel();
        let reply = Replying::new(Pending(answer), None);
        let (generation, probes) = (self.shared.generation(), Vec::new());
        self.waiting = Some(Waiting::Reply(Sent { request, reply, generation, probes }));
        answering
    }

    async fn take(&mut self, limit: Duration) -> Result<Reply, Error> {
        loop {
            self.connection(limit).await?;
            let Some(Waiting::Reply(sent)) = &mut self.waiting else {
                unreachable!("the request was sent once it had a connection")
            };
            let reply = self.shared.ticks.until(self.deadline, &mut sent.reply).await;
            // Nothing is pending from here on, so `drop` has nothing to keep.
            let Some(Waiting::Reply(mut sent)) = self.waiting.take() else {
                unreachable!("it was just waited for")
            };
            self.shared.note_answer(reply.as_ref());
            if reply.is_some() {
                hear_probes(&self.shared, self.deadline, &mut sent).await;
            }
            let failed = match reply {
                Some(Ok(reply)) if sent.request.was_misled(&reply.value) => {
                    self.shared.leave(sent.generation);
                    self.submit(sent.request)?;
                    continue;
                }
                Some(Ok(reply)) => {
                    self.shared.learn(&mut sent, &reply.value);
                    if !sent.request.goes_on(&reply.value) {
                        return Ok(reply);
                    }
                    self.submit(sent.request)?;
                    continue;
                }
                // This request waited for less than its limit, but an earlier request had no answer
                // either.
                Some(Err(NoAnswer::Broken { .. })) if self.shared.was_silent(sent.generation) => {
                    return Err(unanswered(limit));
                }
                Some(Err(failed)) => failed,
                None => {
                    self.shared.suspect(sent.generation);
                    sent.request.was_late();
                    return Err(unanswered(limit));
                }
            };
            let retry = match &failed {
                NoAnswer::Refused { code, text } => {
                    if is_replica(code, text) {
                        // This server may have been the primary until now. After a failover it
                        // keeps its connections, but its host name may already lead to the new
                        // primary.
                        self.shared.leave(sent.generation);
                    }
                    self.shared.again(&mut sent, code, text)
                }
                _ => Retry::No,
            };
            match retry {
                Retry::No => return Err(error::no_answer(&failed)),
                Retry::Here => {}
                Retry::Elsewhere => self.shared.leave(sent.generation),
            }
            self.submit(sent.request)?;
        }
    }

    /// Waits until the request was sent.
    async fn connection(&mut self, limit: Duration) -> Result<(), Error> {
        let Some(Waiting::Connection(sending)) = &mut self.waiting else { return Ok(()) };
        let in_time = self.shared.ticks.until(self.deadline, sending).await;
        let Some(Waiting::Connection(sending)) = self.waiting.take() else {
            unreachable!("it was just waited for")
        };
        let sent = match in_time {
            Some(Ok(sent)) => sent?,
            // No task is left that connects.
            Some(Err(_)) => return Err(connection_lost()),
            None => self.shared.take_back(sending).ok_or_else(|| not_connected(limit))??,
        };
        self.waiting = Some(Waiting::Reply(sent));
        Ok(())
    }

    /// Keeps the request until its answer is there, although the caller is gone.
    async fn keep(mut self) {
        // Keep the limit of the request. Otherwise it could be sent after a later release was given
        // up. The zero only appears in the text of an error, which nobody reads.
        if self.connection(Duration::ZERO).await.is_err() {
            return;
        }
        if let Some(Waiting::Reply(sent)) = &mut self.waiting {
            // The connection stays open until the answer is there, unless the server is silent.
            // Wait until the limit even without a caller. Otherwise, if callers always gave up
            // early, a silent server would never be noticed.
            let answer = self.shared.ticks.until(self.deadline, &mut sent.reply).await;
            self.shared.note_answer(answer.as_ref());
            if let Some(Err(NoAnswer::Refused { code, text })) = &answer
                && is_replica(code, text)
            {
                self.shared.leave(sent.generation);
            }
            if answer.is_none() {
                self.shared.suspect(sent.generation);
                sent.request.was_late();
                let _answer = (&mut sent.reply).await;
            }
        }
        self.waiting = None;
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        // The request may wait for its connection, and the connection must last until the answer.
        let Some(waiting) = self.waiting.take() else { return };
        let keeper = match (self.keeper, &waiting) {
            // Most likely this is the connection's runtime, so that the answer wakes no other
            // thread.
            (None, Waiting::Reply(_)) => Home::Asker,
            // The limit of a request that was not sent must hold even if that runtime ends. A
            // runtime can also end before an answer is there.
            (None | Some(Home::Asker), _) => Home::Host,
            (Some(Home::Host), _) => return,
        };
        let (shared, deadline) = (Arc::clone(&self.shared), self.deadline);
        let in_flight = self.in_flight.take();
        let left =
            Self { shared, in_flight, waiting: Some(waiting), deadline, keeper: Some(keeper) };
        keeper.spawn(&self.shared.host, Box::pin(left.keep()));
    }
}

/// Whether a server that refuses a request in this way follows another server.
fn is_replica(code: &str, text: &str) -> bool {
    ["READONLY", "MASTERDOWN"].contains(&error::inside_script(code, text).0)
}

/// Hears the answers to the probes that were sent behind a request.
async fn hear_probes(shared: &Arc<Shared>, deadline: Moment, sent: &mut Sent) {
    let probes = mem::take(&mut sent.probes);
    if !probes.is_empty() {
        let answers = shared.ticks.until(deadline, join_all(probes)).await;
        shared.was_probed(sent, &answers.unwrap_or_default());
    }
}

pub(super) fn connection_lost() -> Error {
    Error::new(
        ErrorKind::Unavailable,
        "the connection ended too early; no request was sent; try again",
    )
}

fn not_connected(limit: Duration) -> Error {
    Error::new(
        ErrorKind::Unavailable,
        format!(
            "the server could not be reached within {limit:?}; no request was sent; check that it \
             is running"
        ),
    )
}

fn too_many() -> Error {
    Error::new(
        ErrorKind::Unavailable,
        format!(
            "{IN_FLIGHT_MAX} requests already wait for an answer, which is the limit; no request \
             was sent; try again once some of them are answered"
        ),
    )
}
