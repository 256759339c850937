//! Talks to the store for a local line. One task at a time does so, the *asker*.
//!
//! It may start with a lease that leaves. Then the store was told to hand the lease over, or to
//! grant it to this client again if nobody else waits. After that it asks with one token, which has
//! the client's place in the store's line. If the asker is dropped, the next task of the line
//! continues its work.

use std::future::pending;
use std::sync::Arc;

use super::attempt::{Attempt, wait_elapsed};
use super::held::Hold;
use super::leaving::Leaving;
use super::local_line::Told;
use super::spec::{Spec, Wait};
use super::{Session, closed};
use crate::core::error::Error;

/// The right to talk to the store for a local line, with the progress so far. On drop it goes to
/// the next task of the line.
pub(super) struct Asker(Option<Box<Asking>>);

struct Asking {
    session: Arc<Session>,
    spec: Arc<Spec>,
    /// Whether its task waited for others before.
    has_queued: bool,
    leaving: Option<Leaving>,
    attempt: Option<Attempt>,
}

/// How an asker's task ended.
enum Ended {
    Asked(Result<Option<Hold>, Error>),
    Elapsed,
    Closed,
}

impl Asker {
    /// For a task that found no asker. `leaving` is the idle lease that it found.
    pub(super) fn first(session: &Arc<Session>, spec: Arc<Spec>, leaving: Option<Leaving>) -> Self {
        Self::new(session, spec, leaving, false)
    }

    /// For a task that waited for others.
    pub(super) fn next(session: &Arc<Session>, spec: Arc<Spec>, leaving: Option<Leaving>) -> Self {
        Self::new(session, spec, leaving, true)
    }

    fn new(
        session: &Arc<Session>,
        spec: Arc<Spec>,
        leaving: Option<Leaving>,
        has_queued: bool,
    ) -> Self {
        let session = Arc::clone(session);
        Self(Some(Box::new(Asking { session, spec, has_queued, leaving, attempt: None })))
    }

    /// Asks until the line has a lease. This task gets the first turn.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the work to the next task of the line. Without one, it leaves the
    /// store's line and releases a grant that is under way.
    pub(super) async fn run(mut self, wait: Wait) -> Result<Hold, Error> {
        let asking = self.0.as_mut().expect("there until it is dropped");
        let session = Arc::clone(&asking.session);
        let ended = {
            let elapsed = session.sleep(wait);
            let closed_meanwhile = session.until_closed();
            tokio::select! {
                biased;
                asked = asking.ask() => Ended::Asked(asked),
                () = elapsed => Ended::Elapsed,
                () = closed_meanwhile => Ended::Closed,
            }
        };
        match ended {
            Ended::Asked(Ok(Some(hold))) => {
                self.finish(None);
                Ok(hold)
            }
            Ended::Asked(Ok(None)) => unreachable!("who waits is never told that it is taken"),
            Ended::Asked(Err(error)) => {
                // Asks like this one would get the same error, one after another and each as late.
                self.finish(Some(&error));
                Err(error)
            }
            Ended::Elapsed => Err(match &asking.attempt {
                Some(attempt) => attempt.elapsed(),
                None => wait_elapsed(),
            }),
            Ended::Closed => Err(closed()),
        }
    }

    /// Takes the right back from a task that has not used it.
    pub(super) fn discard(mut self) {
        self.0 = None;
    }

    /// Ends the work: the line has its lease, or an error for its tasks.
    fn finish(mut self, failure: Option<&Error>) {
        let asking = self.0.take().expect("there until it is dropped");
        let Asking { session, spec, leaving, attempt, .. } = *asking;
        debug_assert!(leaving.is_none(), "it was answered before");
        drop(attempt);
        let told = session.lines.with(&spec.key, |line| {
            line.has_asker = false;
            failure.map(|_| line.take_tasks_like(&spec))
        });
        if let (Some(tasks), Some(failure)) = (told, failure) {
            for task in tasks {
                let _gone = task.tell.send(Told::Failed(failure.clone()));
            }
        }
        session.settle(&spec.key);
    }
}

impl Asking {
    async fn ask(&mut self) -> Result<Option<Hold>, Error> {
        if let Some(leaving) = &mut self.leaving {
            let kept = leaving.answered().await;
            self.leaving = None;
            if kept.is_some() {
                return Ok(kept);
            }
        }
        if self.attempt.is_none() {
            let attempt = Attempt::begin(&self.session, &self.spec, true)?;
            self.attempt = Some(if self.has_queued { attempt.after_others() } else { attempt });
        }
        self.attempt.as_mut().expect("it was begun just now").run().await
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        let Some(mut asking) = self.0.take() else { return };
        let (session, spec) = (Arc::clone(&asking.session), Arc::clone(&asking.spec));
        loop {
            let heir = session
                .lines
                .with(&spec.key, |line| if line.has_heir(&spec) { line.next() } else { None });
            let Some(heir) = heir else { break };
            match heir.tell.send(Told::Ask(Self(Some(asking)))) {
                Ok(()) => return,
                // That task went away meanwhile: try the next.
                Err(Told::Ask(mut back)) => {
                    asking = back.0.take().expect("it was put in just now");
                }
                Err(_) => unreachable!("what comes back is what was sent"),
            }
        }
        drop(asking);
        session.lines.with(&spec.key, |line| line.has_asker = false);
        session.settle(&spec.key);
    }
}

impl Session {
    pub(super) async fn sleep(&self, wait: Wait) {
        match wait {
            Wait::Until(at) => self.host.sleep_until(at).await,
            Wait::ForEver => pending().await,
        }
    }
}
