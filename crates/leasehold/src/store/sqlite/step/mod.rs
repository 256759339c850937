//! The atomic steps, one for each method of the contract.

mod acquire;
mod browse;
mod inspect;
mod release;
mod renew;

use std::time::Duration;

use tokio::sync::oneshot;

pub(super) use acquire::Acquire;
pub(super) use browse::{Evict, List, Resize, Revoke};
pub(super) use inspect::Inspect;
pub(super) use release::Release;
pub(super) use renew::Renew;

use super::error::Failure;
use super::turn::Turn;
use crate::core::error::Error;
use crate::core::ttl::Ttl;

/// The longest wait for another process that has the file locked, for a step whose caller does not
/// wait for a lock.
pub(super) const BUSY_LIMIT_MAX: Duration = Duration::from_secs(1);

/// The longest wait for the file for an ask that takes a place in line, since its caller has time.
/// On a busy machine, hundreds of processes that start together keep a file locked for more than a
/// second.
const BUSY_LIMIT_IN_LINE_MAX: Duration = Duration::from_secs(5);

/// One atomic step.
pub(super) trait Step: Send + 'static {
    /// The answer of this step.
    type Answer: Send + 'static;

    /// Whether the caller's thread may run this step. Renewals are better in batches.
    const AT_ONCE: bool = false;

    /// How long this step may wait for another process that has the file locked.
    fn busy_limit(&self) -> Duration {
        BUSY_LIMIT_MAX
    }

    /// Tries to run with one reading and one writing statement, each its own transaction. Returns
    /// `None` if that is not enough; it has changed nothing then. Also runs inside a transaction.
    fn quick(&self, _: &mut Turn<'_>) -> rusqlite::Result<Option<Self::Answer>> {
        Ok(None)
    }

    /// Runs inside a transaction that may write.
    fn full(&self, turn: &mut Turn<'_>) -> Result<Self::Answer, Failure>;
}

/// How long a step for a lease of `ttl` may wait for the file.
fn busy_limit(ttl: Ttl) -> Duration {
    (ttl.get() / 4).min(BUSY_LIMIT_MAX)
}

/// How long an ask in line for a lease of `ttl` may wait for the file. Half of the ttl is left
/// after that.
fn busy_limit_in_line(ttl: Ttl) -> Duration {
    (ttl.get() / 2).min(BUSY_LIMIT_IN_LINE_MAX)
}

/// A step with a caller that waits for its answer.
pub(super) struct Job<S: Step> {
    step: S,
    reply: oneshot::Sender<Result<S::Answer, Error>>,
    answer: Option<Result<S::Answer, Error>>,
}

impl<S: Step> Job<S> {
    pub(super) fn boxed(
        step: S,
        reply: oneshot::Sender<Result<S::Answer, Error>>,
    ) -> Box<dyn AnyJob> {
        Box::new(Self { step, reply, answer: None })
    }
}

/// A job of any step.
pub(super) trait AnyJob: Send {
    /// See [`Step::busy_limit`].
    fn busy_limit(&self) -> Duration;
    /// See [`Step::quick`]. Returns whether the job is done.
    fn quick(&mut self, turn: &mut Turn<'_>) -> rusqlite::Result<bool>;
    /// See [`Step::full`].
    fn full(&mut self, turn: &mut Turn<'_>) -> rusqlite::Result<()>;
    /// Sends the answer, after the commit.
    fn finish(self: Box<Self>);
    /// Sends an error instead of an answer.
    fn fail(self: Box<Self>, error: Error);
}

impl<S: Step> AnyJob for Job<S> {
    fn busy_limit(&self) -> Duration {
        self.step.busy_limit()
    }

    fn quick(&mut self, turn: &mut Turn<'_>) -> rusqlite::Result<bool> {
        self.answer = self.step.quick(turn)?.map(Ok);
        Ok(self.answer.is_some())
    }

    fn full(&mut self, turn: &mut Turn<'_>) -> rusqlite::Result<()> {
        self.answer = Some(match self.step.full(turn) {
            Ok(answer) => Ok(answer),
            Err(Failure::Refused(error)) => Err(error),
            Err(Failure::Sql(error)) => return Err(error),
        });
        Ok(())
    }

    fn finish(self: Box<Self>) {
        let answer = self.answer.expect("a job is done before it is finished");
        // If the caller gave up, nobody receives it. The step still counts.
        let _ = self.reply.send(answer);
    }

    fn fail(self: Box<Self>, error: Error) {
        let _ = self.reply.send(Err(error));
    }
}
