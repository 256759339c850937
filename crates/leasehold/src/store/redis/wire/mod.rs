//! The ordered wire to one server: what is submitted first reaches the server first.
//!
//! | state | a request | the connection is made | it fails | it ends, or leads to another server | the probe is not answered |
//! |---|---|---|---|---|---|
//! | closed | connecting, queued; within the pause after a failure: refused | – | – | – | – |
//! | connecting | queued | open, the queue is sent | closed for a pause, the queue is refused | – | – |
//! | open | sent | – | – | closed; what was sent is unknown | the same |
//! | open, probed | queued, and sent once the probe is answered | – | – | as open, then connecting for the queue | the same |
//!
//! Where one that led to another server was new itself, the next is made after a pause, longer each
//! time: what is asked meanwhile is queued.
//!
//! One task makes and serves a connection, on the runtime of whoever asked first, so that an answer
//! wakes no other thread. If that runtime goes, so does the connection, and the next request makes
//! another one on its own. A runtime that does not carry the connecting through, because it does no
//! input and output or nobody drives it, is left for the host's own thread.

mod serving;
mod state;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use self::state::{Sending, Sent, Shared, Submitted};
use super::copies::{Confirmation, Reply};
use super::error;
use super::home::Home;
use super::known::Known;
use super::link::{Command, Connector, LinkError, Value};
use crate::core::error::{Error, ErrorKind};
use crate::core::moment::Moment;
use crate::host::Host;
use crate::store::unanswered;

/// How long connecting may take.
const CONNECT_LIMIT: Duration = Duration::from_secs(2);

/// How many requests may wait for an answer. One more is refused.
const IN_FLIGHT_MAX: usize = 65_536;

/// What is asked, said anew for every connection that it is tried on.
pub(super) trait Request: Send + 'static {
    /// The command, given what the server has. Called in the order in which commands are sent.
    fn command(&mut self, known: &mut Known) -> Command;

    /// What is asked right behind the last command, on the same connection: that there are copies
    /// of what it wrote.
    fn confirmation(&self, _known: &Known) -> Option<Confirmation> {
        None
    }

    /// The server refused the last command, by an answer that begins with `code`. What becomes of
    /// the request.
    fn was_refused(&mut self, _known: &mut Known, _code: &str, _text: &str) -> Retry {
        Retry::No
    }

    /// Whether the answer says that nothing was done, since the connection leads to another server
    /// than the one that it was made to, and that the request is to be sent again.
    fn was_misled(&mut self, _answer: &Value) -> bool {
        false
    }

    /// An answer came that may have told something about the server.
    fn was_answered(&mut self, _known: &mut Known, _answer: &Value) {}

    /// Whether [`was_answered`](Self::was_answered) would do something.
    fn teaches(&self) -> bool {
        false
    }
}

/// Whether a request that was refused is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Retry {
    /// It is not.
    No,
    /// In another way.
    Here,
    /// Over a new connection: this one may lead to another server than it was made to.
    Elsewhere,
}

/// A command that is the same whatever the server has.
pub(super) struct Plain(pub(super) Command);

impl Request for Plain {
    fn command(&mut self, _known: &mut Known) -> Command {
        self.0.clone()
    }
}

/// The wire. Its connection is closed when it is gone, and after the last answer.
pub(super) struct Wire {
    shared: Arc<Shared>,
}

impl Wire {
    pub(super) fn new(host: Arc<dyn Host>, connector: Arc<dyn Connector>, home: Home) -> Self {
        Self { shared: Arc::new(Shared::new(host, connector, home)) }
    }

    /// Sends a request, or queues it where the connection is still being made: in either case
    /// before this returns. The answer comes within `limit`, or the connection time at most.
    ///
    /// Dropping the future takes nothing back.
    pub(super) fn submit(
        &self,
        limit: Duration,
        request: Box<dyn Request>,
    ) -> impl Future<Output = Result<Value, Error>> + Send + 'static + use<> {
        let reply = self.submit_to_confirm(limit, request);
        async move { Ok(reply.await?.value) }
    }

    /// As [`submit`](Self::submit), and whether there are copies enough of what it wrote, which is
    /// answered within the same limit.
    pub(super) fn submit_to_confirm(
        &self,
        limit: Duration,
        request: Box<dyn Request>,
    ) -> impl Future<Output = Result<Reply, Error>> + Send + 'static + use<> {
        let deadline = self.shared.host.now() + limit;
        let in_flight = InFlight::begin(&self.shared);
        let mut answer = Answer::new(&self.shared, deadline);
        let submitted = match &in_flight {
            Some(_) => answer.submit(request),
            None => Err(too_many()),
        };
        async move {
            let _in_flight = in_flight;
            submitted?;
            answer.take(limit).await
        }
    }

    /// Connects, unless the wire is connected already.
    pub(super) async fn connect(&self) -> Result<(), Error> {
        // Longer than making a connection may take, so that why it failed is heard from there.
        let limit = CONNECT_LIMIT * 3;
        let deadline = self.shared.host.now() + limit;
        let mut answer = Answer::new(&self.shared, deadline);
        answer.submit(Box::new(Plain(Command::new("PING"))))?;
        // What is answered does not matter: to connect was to be answered.
        answer.connection(limit).await
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
    waiting: Option<Waiting>,
    deadline: Moment,
    /// Where it is kept until it is there, once nobody waits for it.
    keeper: Option<Home>,
}

/// What an answer waits for.
enum Waiting {
    /// For the connection.
    Connection(Sending),
    /// For the server.
    Reply(Sent),
}

impl Answer {
    fn new(shared: &Arc<Shared>, deadline: Moment) -> Self {
        Self { shared: Arc::clone(shared), waiting: None, deadline, keeper: None }
    }

    fn submit(&mut self, request: Box<dyn Request>) -> Result<(), Error> {
        self.waiting = Some(match self.shared.submit(request) {
            Submitted::Sent(sent) => Waiting::Reply(sent),
            Submitted::Queued(sending) => Waiting::Connection(sending),
            Submitted::Refused(error) => return Err(error),
        });
        Ok(())
    }

    async fn take(&mut self, limit: Duration) -> Result<Reply, Error> {
        loop {
            self.connection(limit).await?;
            let Some(Waiting::Reply(sent)) = &mut self.waiting else {
                unreachable!("what has its connection was sent")
            };
            let reply = self.shared.ticks.until(self.deadline, &mut sent.reply).await;
            // From here on nothing is waited for, so nothing has to be kept from being taken back.
            let Some(Waiting::Reply(mut sent)) = self.waiting.take() else {
                unreachable!("it was just waited for")
            };
            self.shared.note_answer(reply.as_ref());
            let failed = match reply {
                Some(Ok(reply)) if sent.request.was_misled(&reply.value) => {
                    self.shared.leave(sent.generation);
                    self.submit(sent.request)?;
                    continue;
                }
                Some(Ok(reply)) => {
                    self.shared.learn(sent, &reply.value);
                    return Ok(reply);
                }
                // It waited for less than its limit, but behind one that was not answered either.
                Some(Err(LinkError::Broken { .. })) if self.shared.was_silent(sent.generation) => {
                    return Err(unanswered(limit));
                }
                Some(Err(failed)) => failed,
                None => {
                    self.shared.suspect(sent.generation);
                    return Err(unanswered(limit));
                }
            };
            let retry = match &failed {
                LinkError::Refused { code, text } => self.shared.again(&mut sent, code, text),
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
            // Nobody is left to connect.
            Some(Err(_)) => return Err(connection_lost()),
            None => self.shared.take_back(sending).ok_or_else(|| not_connected(limit))??,
        };
        self.waiting = Some(Waiting::Reply(sent));
        Ok(())
    }

    /// Keeps it until the answer is there, for nobody.
    async fn keep(mut self) {
        // Its limit holds all the same: a release that was submitted after it may have been given
        // up by the time the connection is made. Nobody hears how long it was.
        if self.connection(Duration::ZERO).await.is_err() {
            return;
        }
        if let Some(Waiting::Reply(sent)) = &mut self.waiting {
            // Not before the answer is there may the connection go, unless the server is silent:
            // who always has less patience than the limit would never find that out.
            let answer = self.shared.ticks.until(self.deadline, &mut sent.reply).await;
            self.shared.note_answer(answer.as_ref());
            if answer.is_none() {
                self.shared.suspect(sent.generation);
                let _answer = (&mut sent.reply).await;
            }
        }
        self.waiting = None;
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        // A link may take back what nobody waits for, and a request must not be taken back.
        let Some(waiting) = self.waiting.take() else { return };
        let keeper = match (self.keeper, &waiting) {
            // As its connection most likely is: the answer wakes no other thread.
            (None, Waiting::Reply(_)) => Home::Asker,
            // The limit of what was not sent has to hold whatever becomes of that runtime, which
            // may also have ended before an answer was there.
            (None | Some(Home::Asker), _) => Home::Host,
            (Some(Home::Host), _) => return,
        };
        let (shared, deadline) = (Arc::clone(&self.shared), self.deadline);
        let left = Self { shared, waiting: Some(waiting), deadline, keeper: Some(keeper) };
        keeper.spawn(&self.shared.host, Box::pin(left.keep()));
    }
}

fn connection_lost() -> Error {
    Error::new(
        ErrorKind::Unavailable,
        "the connection ended before the request was sent; nothing was asked, try again",
    )
}

fn not_connected(limit: Duration) -> Error {
    Error::new(
        ErrorKind::Unavailable,
        format!(
            "the server could not be reached within {limit:?}; nothing was asked, look whether it \
             runs"
        ),
    )
}

fn too_many() -> Error {
    Error::new(
        ErrorKind::Unavailable,
        format!(
            "{IN_FLIGHT_MAX} requests wait for an answer already, which is the limit; nothing was \
             asked, try again once some of them are answered"
        ),
    )
}
