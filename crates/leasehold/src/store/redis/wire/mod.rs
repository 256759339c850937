//! The ordered wire to one server: what is submitted first reaches the server first.
//!
//! | state | a request | the connection is made | it fails | it ends | the probe is not answered |
//! |---|---|---|---|---|---|
//! | closed | connecting, queued; within the pause after a failure: refused | – | – | – | – |
//! | connecting | queued | open, the queue is sent | closed for a pause, the queue is refused | – | – |
//! | open | sent | – | – | closed; what was sent is unknown | the same |
//!
//! One task makes and serves a connection, on the runtime of whoever asked first, so that an answer
//! wakes no other thread. If that runtime goes, so does the connection, and the next request makes
//! another one on its own.

mod serving;
mod state;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use self::state::{Sent, Shared, Submitted};
use super::error;
use super::known::Known;
use super::link::{Command, Connector, LinkError, Value};
use crate::core::error::{Error, ErrorKind};
use crate::core::moment::Moment;
use crate::host::Host;

/// How long connecting may take.
const CONNECT_LIMIT: Duration = Duration::from_secs(2);

/// How many requests may wait for an answer. One more is refused.
pub(super) const IN_FLIGHT_MAX: usize = 65_536;

/// What is asked, said anew for every connection that it is tried on.
pub(super) trait Request: Send + 'static {
    /// The command, given what the server has. Called in the order in which commands are sent.
    fn command(&mut self, known: &mut Known) -> Command;

    /// The server lacks the script that the last command named. Whether there is another way.
    fn script_is_missing(&mut self, known: &mut Known) -> bool;

    /// An answer came that may have told something about the server.
    fn was_answered(&mut self, _known: &mut Known) {}

    /// Whether [`was_answered`](Self::was_answered) would do something.
    fn teaches(&self) -> bool {
        false
    }
}

/// Where the connection is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Home {
    /// On the runtime of whoever asks first.
    Asker,
    /// On the host's own thread, whatever becomes of the user's.
    Host,
}

/// A handle of the wire. The connection is closed with the last handle and the last answer.
#[derive(Clone)]
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
    /// Dropping the future takes a request back only while it waits for the connection.
    pub(super) fn submit(
        &self,
        limit: Duration,
        request: Box<dyn Request>,
    ) -> impl Future<Output = Result<Value, Error>> + Send + 'static + use<> {
        let deadline = self.shared.host.now() + limit;
        let in_flight = InFlight::begin(&self.shared);
        let submitted = match &in_flight {
            Some(_) => self.shared.submit(request),
            None => Submitted::Refused(too_many()),
        };
        let mut answer = Answer { shared: Arc::clone(&self.shared), sent: None, deadline };
        async move {
            let _in_flight = in_flight;
            answer.take(submitted, limit).await
        }
    }

    /// Connects, unless the wire is connected already.
    pub(super) async fn connect(&self) -> Result<(), Error> {
        self.submit(CONNECT_LIMIT, Box::new(Ping)).await.map(drop)
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
    sent: Option<Sent>,
    deadline: Moment,
}

impl Answer {
    async fn take(&mut self, submitted: Submitted, limit: Duration) -> Result<Value, Error> {
        let mut submitted = submitted;
        loop {
            match submitted {
                Submitted::Refused(error) => return Err(error),
                Submitted::Sent(sent) => self.sent = Some(sent),
                Submitted::Queued(receiver) => {
                    let sent = self.shared.ticks.until(self.deadline, receiver).await;
                    match sent {
                        Some(Ok(sent)) => self.sent = Some(sent?),
                        // Nobody is left to connect: the runtime that did is gone.
                        Some(Err(_)) => return Err(connection_lost()),
                        None => return Err(not_connected(limit)),
                    }
                }
            }
            let sent = self.sent.as_mut().expect("it was just sent");
            let reply = self.shared.ticks.until(self.deadline, sent.reply.as_mut()).await;
            let mut sent = match reply {
                Some(reply) => {
                    let sent = self.sent.take().expect("its reply just came");
                    match reply {
                        Ok(value) => {
                            self.shared.learn(sent);
                            return Ok(value);
                        }
                        Err(LinkError::Refused { code, .. }) if code == "NOSCRIPT" => sent,
                        Err(failed) => return Err(error::no_answer(&failed)),
                    }
                }
                None => {
                    // No harm if the link takes it back now: that it may take effect is all that is
                    // said of it.
                    let sent = self.sent.take().expect("its reply did not come");
                    self.shared.suspect(sent.generation);
                    return Err(unanswered(limit));
                }
            };
            submitted = match self.shared.again(&mut sent) {
                true => self.shared.submit(sent.request),
                false => return Err(error::no_answer(&missing_script())),
            };
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        // The link may take back what nobody waits for, and a request must not be taken back.
        if let Some(sent) = self.sent.take() {
            let shared = Arc::clone(&self.shared);
            self.shared.host.spawn(Box::pin(async move {
                drop(sent.reply.await);
                drop(shared);
            }));
        }
    }
}

/// Asks nothing.
struct Ping;

impl Request for Ping {
    fn command(&mut self, _known: &mut Known) -> Command {
        Command::new("PING")
    }

    fn script_is_missing(&mut self, _known: &mut Known) -> bool {
        false
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

fn unanswered(limit: Duration) -> Error {
    Error::new(
        ErrorKind::Unknown,
        format!("the store did not answer within {limit:?}; the request may still take effect"),
    )
}

fn too_many() -> Error {
    Error::new(
        ErrorKind::Unavailable,
        format!(
            "{IN_FLIGHT_MAX} requests wait for an answer already, which is the limit; nothing was \
             asked"
        ),
    )
}

fn missing_script() -> LinkError {
    LinkError::Refused {
        code: "NOSCRIPT".to_owned(),
        text: "NOSCRIPT the server forgot the script again and again".to_owned(),
    }
}
