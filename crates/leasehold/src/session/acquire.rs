//! One acquisition: at once, from the local line, or from the store.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::oneshot;

use super::asker::{Asker, Told};
use super::attempt::Attempt;
use super::errors::{too_many, untold, wait_elapsed};
use super::held::Held;
use super::hold::Hold;
use super::leaving::Leaving;
use super::spec::{Spec, Wait};
use super::story::Asked;
use super::{Session, closed_meanwhile};
use crate::core::error::Error;
use crate::core::key::Key;
use crate::core::lease::Turn;
use crate::core::local_line::{Coming, Found};
use crate::host::give_way;
use crate::process::OnlyHere;

/// How a waiting task continues after its first step.
enum Begun {
    /// The task gets an idle lease of this client.
    Taken(Hold),
    /// The task talks to the store.
    Asks(OnlyHere<Result<Hold, Error>>),
    /// The task waits for other tasks.
    Waits(Place),
}

/// A task's place in the local line. Dropping it leaves the line. If the task was given the lease
/// or the right to ask but has not noticed, the next task gets it, if there is one.
struct Place {
    session: Arc<Session>,
    spec: Arc<Spec>,
    number: u64,
    /// `None` once the task has read its news. The task has then left the line.
    told: Option<oneshot::Receiver<Told>>,
}

/// The next step of a waiting task after it was told something.
enum NextStep {
    Passed(Hold),
    Ask(Asker),
    Failed(Error),
}

impl Place {
    fn next_step(&self, told: Told) -> NextStep {
        match told {
            Told::Passed(held, turn) => {
                NextStep::Passed(Hold::new(Arc::clone(&self.session), held, turn))
            }
            Told::Ask(work) => NextStep::Ask(Asker::new(&self.session, &self.spec, work)),
            Told::Failed(error) => NextStep::Failed(error),
        }
    }
}

impl Future for Place {
    type Output = NextStep;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<NextStep> {
        let told = self.told.as_mut().expect("nobody asks for it twice");
        let told = std::task::ready!(Pin::new(told).poll(context));
        self.told = None;
        Poll::Ready(self.next_step(told.unwrap_or_else(|_| Told::Failed(untold()))))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some(mut told) = self.told.take() else { return };
        if self.session.was_forked() {
            std::mem::forget(told);
            return self.session.leave_copy();
        }
        let key = &self.spec.key;
        // Drop this outside the lock of the lines, because a waker may run any code.
        drop(self.session.lines.with(key, |line| line.tasks.leave(self.number)));
        // From here on, the others learn that this task is gone when they try to tell it something.
        told.close();
        match told.try_recv() {
            // Ends the turn, or leaves the work to the next task.
            Ok(told) => drop(self.next_step(told)),
            // The first task may have other settings now.
            Err(_) => self.session.wake_next_asker(key),
        }
    }
}

impl Session {
    /// Acquires the lock without waiting. `None` if it is taken.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future releases a grant that is under way.
    pub(crate) async fn try_acquire(
        self: &Arc<Self>,
        spec: &Arc<Spec>,
    ) -> Result<Option<Hold>, Error> {
        self.check_here()?;
        let asked = Asked::begin(self, &spec.key);
        let mut trying = pin!(self.try_untold(spec));
        let answer = poll_fn(|context| self.step(&asked, trying.as_mut(), context)).await;
        self.tell_answer(asked, answer.as_ref().map(Option::as_ref));
        answer
    }

    async fn try_untold(self: &Arc<Self>, spec: &Arc<Spec>) -> Result<Option<Hold>, Error> {
        self.check_open()?;
        // A loop of tries must let its runtime read hints.
        give_way().await;
        if let Some(hold) = self.take_idle(spec) {
            return Ok(Some(hold));
        }
        let (session, mut attempt) = (Arc::clone(self), Attempt::begin(self, spec, false)?);
        self.only_here(async move {
            let got = attempt.run().await?;
            Ok(got.map(|(held, turn)| Hold::new(session, held, turn)))
        })
        .await
    }

    /// Does one step of an acquisition, in its span. A copy of a fork does nothing, since the
    /// mutexes of the session may be locked there for ever.
    fn step<F: Future>(
        &self,
        asked: &Asked<'_>,
        acquiring: Pin<&mut F>,
        context: &mut Context<'_>,
    ) -> Poll<F::Output> {
        if self.was_forked() { Poll::Pending } else { asked.step(|| acquiring.poll(context)) }
    }

    /// Tells how an ask ended. If it ended with a guard, the guard continues the story.
    fn tell_answer(&self, asked: Asked<'_>, answer: Result<Option<&Hold>, &Error>) {
        let story = asked.answered(answer.map(|hold| hold.map(|hold| (hold.id(), hold.turn()))));
        if let (Some(story), Ok(Some(hold))) = (story, answer) {
            hold.begin_story(story);
        }
    }

    /// Acquires the lock, or waits for it.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the line, and releases a grant that is under way.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        spec: &Arc<Spec>,
        wait: Wait,
    ) -> Result<Hold, Error> {
        self.check_here()?;
        let asked = Asked::begin(self, &spec.key);
        let mut waiting = pin!(self.acquire_untold(spec, wait));
        let answer = poll_fn(|context| self.step(&asked, waiting.as_mut(), context)).await;
        self.tell_answer(asked, answer.as_ref().map(Some));
        answer
    }

    async fn acquire_untold(self: &Arc<Self>, spec: &Arc<Spec>, wait: Wait) -> Result<Hold, Error> {
        self.check_open()?;
        // Same as in `try_untold`.
        give_way().await;
        // The part that asks the store is boxed, so that a task in the local line needs no memory
        // for it.
        let place = match self.begin(spec, wait)? {
            Begun::Taken(hold) => return Ok(hold),
            Begun::Asks(asking) => return asking.await,
            Begun::Waits(place) => place,
        };
        let next = match wait {
            Wait::ForEver => place.await,
            Wait::Until(_) => self.only_here(until_told(place, wait)).await?,
        };
        match next {
            NextStep::Passed(hold) => Ok(hold),
            NextStep::Failed(error) => Err(error),
            NextStep::Ask(asker) => self.run(asker, wait).await,
        }
    }

    /// Talks to the store for the local line.
    fn run(self: &Arc<Self>, asker: Asker, wait: Wait) -> OnlyHere<Result<Hold, Error>> {
        let session = Arc::clone(self);
        self.only_here(
            async move { asker.run(wait, |held, turn| Hold::new(session, held, turn)).await },
        )
    }

    /// Takes the first step of a waiting task.
    fn begin(self: &Arc<Self>, spec: &Arc<Spec>, wait: Wait) -> Result<Begun, Error> {
        if spec.asks_alone() {
            let (session, spec) = (Arc::clone(self), Arc::clone(spec));
            let asking = async move { session.ask_alone(&spec, wait).await };
            return Ok(Begun::Asks(self.only_here(asking)));
        }
        self.join(spec, wait)
    }

    /// Waits with its own place in the store's line.
    async fn ask_alone(self: &Arc<Self>, spec: &Arc<Spec>, wait: Wait) -> Result<Hold, Error> {
        // An idle lease that tasks pass on has other settings, so this only ends it.
        drop(self.take_idle(spec));
        let mut attempt = Attempt::begin(self, spec, true)?;
        let asked = tokio::select! {
            biased;
            asked = attempt.run_through_resizes() => asked?,
            () = self.sleep(wait) => return Err(attempt.elapsed()),
            () = self.until_closed() => return Err(closed_meanwhile()),
        };
        let (held, turn) = asked.expect("a task that waits is never told that it is taken");
        Ok(Hold::new(Arc::clone(self), held, turn))
    }

    /// Whether a task of this client has the key, asks for it, or waits for it.
    pub(crate) fn is_in_use(&self, key: &Key) -> bool {
        self.lines.with(key, |line| !line.is_vacant())
    }

    /// Takes an idle lease of this client if it has the same settings. Otherwise releases the idle
    /// lease, since the store would answer *taken* while it lasts.
    fn take_idle(self: &Arc<Self>, spec: &Arc<Spec>) -> Option<Hold> {
        let now = self.now();
        match self.lines.with(&spec.key, |line| line.tasks.try_take(now, spec)) {
            Ok((held, turn)) => return Some(self.taken(held, turn)),
            Err(Found::Leaving(held)) => self.end(&held),
            Err(Found::OfOthers(held)) => self.end_if_idle(&held),
            Err(Found::Nothing) => {}
        }
        None
    }

    /// Begins the turn of a task with a lease that was idle.
    fn taken(self: &Arc<Self>, held: Arc<Held>, turn: Turn) -> Hold {
        let hold = Hold::new(Arc::clone(self), Arc::clone(&held), turn);
        self.registry.hurry(&held);
        hold
    }

    /// Joins the local line.
    fn join(self: &Arc<Self>, spec: &Arc<Spec>, wait: Wait) -> Result<Begun, Error> {
        let mut told = None;
        let (coming, number) = self.lines.with(&spec.key, |line| {
            self.check_open()?;
            let number = self.lines.arrive();
            let coming = line.tasks.come(self.now(), spec, number, || {
                let (tell, receiver) = oneshot::channel();
                told = Some(receiver);
                tell
            });
            Ok::<_, Error>((coming, number))
        })?;
        Ok(match coming {
            Coming::Full => return Err(too_many(&spec.key)),
            Coming::Takes(held, turn) => Begun::Taken(self.taken(held, turn)),
            Coming::Asks(found) => {
                let mut asker = Asker::first(self, spec);
                match found {
                    Found::Leaving(held) => asker = asker.after(Leaving::submit(self, &held)),
                    Found::OfOthers(held) => self.end_if_idle(&held),
                    Found::Nothing => {}
                }
                Begun::Asks(self.run(asker, wait))
            }
            Coming::Waits => {
                let (session, spec) = (Arc::clone(self), Arc::clone(spec));
                let place = Place { session, spec, number, told };
                if !place.spec.unqueued {
                    self.listen();
                }
                Begun::Waits(place)
            }
        })
    }

    /// Why the task that asks for this key has no answer of the store now. `None` if nobody asks,
    /// or the store has answered.
    pub(crate) fn outage(&self, key: &Key) -> Option<Error> {
        self.lines.with(key, |line| line.outage.clone())
    }
}

/// Waits until a task is told something, or its time is over.
async fn until_told(mut place: Place, wait: Wait) -> Result<NextStep, Error> {
    let session = Arc::clone(&place.session);
    tokio::select! {
        biased;
        next = &mut place => Ok(next),
        () = session.sleep(wait) => {
            Err(session.outage(&place.spec.key).unwrap_or_else(wait_elapsed))
        }
    }
}
