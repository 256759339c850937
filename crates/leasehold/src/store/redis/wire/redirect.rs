//! Requests of a cluster, which another node may have to serve.
//!
//! The answers of a connection arrive in the order of its requests. The task that reads the answers
//! passes refused requests to the wire of another node, in the same order. So requests keep their
//! order, even if their callers are gone.

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::core::error::Error;
use crate::core::moment::Moment;
use crate::store::redis::codec::command::{Command, NoAnswer, Value};

/// Where the answer to a request goes.
pub(in crate::store::redis) type Answering = oneshot::Sender<Result<Value, NoAnswer>>;

/// A request that another server may have to serve.
pub(in crate::store::redis) trait Redirect: Send + Sync {
    /// The command for a server of which nothing is known.
    fn command(&self) -> Command;

    /// The moment after which nobody expects an answer.
    fn deadline(&self) -> Moment;

    /// Notes that a server answered the request, or that its connection ended. Called like
    /// [`was_refused`](Self::was_refused).
    fn was_answered(&self);

    /// Passes a refused request to another server, or passes the refusal on. Called in the order of
    /// the answers, and without any lock of the wire.
    fn was_refused(self: Arc<Self>, refused: NoAnswer, answering: Answering);
}

/// A request that a server refused, on its way to another server.
pub(in crate::store::redis) struct Passed {
    pub(in crate::store::redis) request: Arc<dyn Redirect>,
    pub(in crate::store::redis) answering: Answering,
    /// Whether `ASKING` comes directly before it.
    pub(in crate::store::redis) asking: bool,
}

impl Passed {
    /// Marks the request as not sent, because there is no connection to the other server.
    pub(super) const fn unsent(self, why: Error) -> Unsent {
        Unsent { passed: self, why }
    }
}

/// A request that could not be passed on. Its caller is told when no lock is held.
pub(in crate::store::redis) struct Unsent {
    passed: Passed,
    why: Error,
}

impl Unsent {
    pub(in crate::store::redis) fn refuse(self) {
        // Tell the request now. A long time may pass until its caller reads the answer, and other
        // requests may wait for it.
        self.passed.request.was_answered();
        // A caller that gave up needs no answer.
        let reason = self.why.to_string();
        let _gone = self.passed.answering.send(Err(NoAnswer::NotSent { reason }));
    }
}
