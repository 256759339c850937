//! Talks to the store for a local line. One task at a time does so, the *asker*.
//!
//! The asker may start with a lease that is leaving. Then the store was told to hand the lease
//! over, or to grant it to this client again if nobody else waits. After that the asker asks with
//! one token, which has the client's place in the store's line. If the asker is dropped, the next
//! task of the line continues its work.

use std::future::pending;
use std::sync::Arc;

use super::attempt::Attempt;
use super::errors::{UNANSWERED, wait_elapsed};
use super::held::Held;
use super::leaving::Leaving;
use super::spec::{Spec, Wait};
use super::{Session, closed_meanwhile};
use crate::core::error::Error;
use crate::core::key::Key;
use crate::core::lease::Turn;

/// News for a waiting task. If the task is dropped before it reads that it has the lease or the
/// right to ask, its place in the line gives this to the next task.
pub(super) enum Told {
    /// The task has the lease, for this turn.
    Passed(Arc<Held>, Turn),
    /// The task talks to the store from now on.
    Ask(Box<Work>),
    /// The asker failed, and this task would fail with the same error.
    Failed(Error),
}

/// The progress of an asker.
pub(super) struct Work {
    /// Whether the store had answered before, so that the asker may wait for the end of an outage.
    was_answered: bool,
    leaving: Option<Leaving>,
    attempt: Option<Attempt>,
}

/// A task that talks to the store for a local line. On drop its work goes to the next task of the
/// line.
pub(super) struct Asker {
    /// `None` once it has ended.
    work: Option<Box<Work>>,
    /// Dropped last, after the work ended with any result.
    right: Right,
}

/// The right to talk to the store for a local line. On drop another task gets it, if one must ask.
struct Right {
    session: Arc<Session>,
    spec: Arc<Spec>,
    who_asks: WhoAsks,
    /// Whether the store has answered so far. The next task to ask may then wait for the end of an
    /// outage.
    was_answered: bool,
}

/// The task that may ask the store, if there is one.
#[derive(PartialEq, Eq)]
enum WhoAsks {
    Us,
    Nobody,
    /// Another task, which continues our work.
    Heir,
}

impl Drop for Right {
    fn drop(&mut self) {
        let Self { session, spec, who_asks, was_answered } = self;
        match who_asks {
            WhoAsks::Us => session.end_asker(&spec.key, *was_answered),
            WhoAsks::Nobody => session.wake_asker(&spec.key, *was_answered),
            WhoAsks::Heir => {}
        }
    }
}

impl Asker {
    /// The asker for a task that found none.
    pub(super) fn first(session: &Arc<Session>, spec: &Arc<Spec>) -> Self {
        Self::new(session, spec, Work::new(false))
    }

    /// The asker for a task that waited for others of its client, which had the lock.
    pub(super) fn next(session: &Arc<Session>, spec: &Arc<Spec>) -> Self {
        Self::new(session, spec, Work::new(true))
    }

    /// An asker that continues the work of another task.
    pub(super) fn new(session: &Arc<Session>, spec: &Arc<Spec>, work: Box<Work>) -> Self {
        let (session, spec) = (Arc::clone(session), Arc::clone(spec));
        let (who_asks, was_answered) = (WhoAsks::Us, work.was_answered);
        Self { work: Some(work), right: Right { session, spec, who_asks, was_answered } }
    }

    /// Makes the asker begin with a lease that is leaving. The store has not answered yet whether
    /// the lease has left, and this is noted for the tasks behind the asker, too.
    pub(super) fn after(mut self, leaving: Leaving) -> Self {
        let Right { session, spec, .. } = &self.right;
        session.lines.with(&spec.key, |line| line.outage = Some(UNANSWERED.clone()));
        self.work.as_mut().expect("there until it is dropped").leaving = Some(leaving);
        self
    }

    /// Asks until the line has a lease. This task gets the first turn, and `hold` makes a guard of
    /// it before anything else happens.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the work to the next task of the line. If there is none, this
    /// leaves the store's line and releases a grant that is under way.
    pub(super) async fn run<T>(
        mut self,
        wait: Wait,
        hold: impl FnOnce(Arc<Held>, Turn) -> T,
    ) -> Result<T, Error> {
        let Right { session, spec, .. } = &self.right;
        let work = self.work.as_mut().expect("there until it is dropped");
        let asked = tokio::select! {
            biased;
            asked = work.ask(session, spec) => asked,
            () = session.sleep(wait) => return Err(work.elapsed()),
            () = session.until_closed() => return Err(closed_meanwhile()),
        };
        match asked {
            Ok(Some((held, turn))) => {
                let hold = hold(held, turn);
                self.finish(None);
                Ok(hold)
            }
            Ok(None) => unreachable!("a task that waits is never told that it is taken"),
            Err(error) => {
                // Tasks that ask alike would get the same error, one after another: tell them now.
                self.finish(Some(&error));
                Err(error)
            }
        }
    }

    /// Ends the work: the line has its lease, or an error for its tasks.
    fn finish(mut self, failure: Option<&Error>) {
        let work = self.work.take().expect("there until it is dropped");
        self.right.was_answered = failure.is_none() || work.is_answered();
        // Leaves the store's line before another task asks.
        drop(work);
        let Some(failure) = failure else { return };
        let Right { session, spec, who_asks, .. } = &mut self.right;
        let like_it = |other: &Arc<Spec>| other.fares_as(spec);
        let told = session.lines.with(&spec.key, |line| line.tasks.asker_failed(like_it));
        *who_asks = WhoAsks::Nobody;
        for task in told {
            let _gone = task.send(Told::Failed(failure.clone()));
        }
    }
}

impl Work {
    fn new(was_answered: bool) -> Box<Self> {
        Box::new(Self { was_answered, leaving: None, attempt: None })
    }

    /// Whether the store has answered so far.
    fn is_answered(&self) -> bool {
        self.attempt.as_ref().map_or(self.was_answered, |it| it.decisions.is_answered())
    }

    async fn ask(
        &mut self,
        session: &Arc<Session>,
        spec: &Arc<Spec>,
    ) -> Result<Option<(Arc<Held>, Turn)>, Error> {
        if let Some(leaving) = &mut self.leaving {
            let kept = leaving.answered().await;
            // Without an answer, the attempt below takes over what is noted.
            if leaving.is_answered() {
                session.lines.with(&spec.key, |line| line.outage = None);
            }
            self.leaving = None;
            if kept.is_some() {
                return Ok(kept);
            }
        }
        if self.attempt.is_none() {
            let attempt = Attempt::begin(session, spec, true)?;
            self.attempt =
                Some(if self.was_answered { attempt.after_an_answer() } else { attempt });
        }
        self.attempt.as_mut().expect("it was begun just now").run().await
    }

    /// The error for a wait that ended. Until the store answers whether the lease that is leaving
    /// has left, nobody knows whether another client has the lock.
    fn elapsed(&self) -> Error {
        match (&self.attempt, &self.leaving) {
            (Some(attempt), _) => attempt.elapsed(),
            (None, Some(_)) => UNANSWERED.clone(),
            (None, None) => wait_elapsed(),
        }
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        let Some(mut work) = self.work.take() else { return };
        let Right { session, spec, who_asks, was_answered } = &mut self.right;
        *was_answered = work.is_answered();
        while let Some(heir) = session.lines.with(&spec.key, |line| line.tasks.next_with(spec)) {
            // Before its waker runs, which may panic: by then it has the work.
            *who_asks = WhoAsks::Heir;
            match heir.send(Told::Ask(work)) {
                Ok(()) => return,
                // That task went away meanwhile: try the next.
                Err(Told::Ask(back)) => (work, *who_asks) = (back, WhoAsks::Us),
                Err(_) => unreachable!("the channel returns the news that was sent"),
            }
        }
    }
}

impl Session {
    /// Waits until the time to wait is over.
    pub(crate) async fn sleep(&self, wait: Wait) {
        match wait {
            Wait::Until(at) => self.host.sleep_until(at).await,
            Wait::ForEver => pending().await,
        }
    }

    /// Makes the first task of a line ask, if it must. This client had the lock.
    pub(super) fn wake_next_asker(&self, key: &Key) {
        self.wake_asker(key, true);
    }

    /// Makes the first task of a line ask, if it must. If the store has not answered yet, that task
    /// fails by the error of its first ask, as the first task does.
    fn wake_asker(&self, key: &Key, was_answered: bool) {
        let next = self.lines.with(key, |line| line.tasks.next_asker());
        if next.is_some_and(|task| task.send(Told::Ask(Work::new(was_answered))).is_err()) {
            // That task went away meanwhile, and has asked nothing.
            self.end_asker(key, was_answered);
        }
    }

    /// Notes that the asker of a line ended. Makes the first task ask, if it must.
    fn end_asker(&self, key: &Key, was_answered: bool) {
        while let Some(task) = self.lines.with(key, |line| line.tasks.end_asker()) {
            if task.send(Told::Ask(Work::new(was_answered))).is_ok() {
                return;
            }
        }
    }
}
