//! One acquisition: at once, from the local line, or from the store.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::oneshot;

use super::asker::Asker;
use super::attempt::{Attempt, wait_elapsed};
use super::held::{Held, Hold};
use super::leaving::Leaving;
use super::local_line::{LocalLine, Met, TASKS_MAX, Task, Told};
use super::spec::{Spec, Wait};
use super::story::Asked;
use super::{Session, closed};
use crate::core::error::{Error, ErrorKind};
use crate::core::key::Key;
use crate::core::lease::Taking;
use crate::host::give_way;
use crate::process::OnlyHere;

/// How a waiting task continues after its first step.
enum Begun {
    /// It gets an idle lease of this client.
    Taken(Hold),
    /// It talks to the store.
    Asks(OnlyHere<Result<Hold, Error>>),
    /// It waits for other tasks.
    Waits(Place),
}

/// The state of the local line when a task joins it.
enum Found {
    Full,
    Taken(Hold),
    Asks {
        leaving: Option<Arc<Held>>,
        /// A lease with other settings. Release it if no guard uses it.
        others: Option<Arc<Held>>,
    },
    Waits(Place),
}

/// A task's place in the local line. Dropping it leaves the line and discards any news for the
/// task.
struct Place {
    session: Arc<Session>,
    spec: Arc<Spec>,
    number: u64,
    /// Whether the task was told something. It has then left the line.
    has_left: bool,
    told: oneshot::Receiver<Told>,
}

impl Future for Place {
    type Output = Told;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Told> {
        let told = std::task::ready!(Pin::new(&mut self.told).poll(context));
        self.has_left = true;
        Poll::Ready(told.expect("who takes a task out of the line tells it something"))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.has_left {
            return;
        }
        if !self.session.is_here() {
            return self.session.leave_copy();
        }
        let key = &self.spec.key;
        // Outside the lock of the lines: a waker may run any code.
        drop(self.session.lines.with(key, |line| line.remove(self.number)));
        // The first task may have other settings now.
        self.session.settle(key);
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
        let answer = poll_fn(|context| asked.step(|| trying.as_mut().poll(context))).await;
        asked.answered(answer.as_ref().map(Option::as_ref));
        answer
    }

    async fn try_untold(self: &Arc<Self>, spec: &Arc<Spec>) -> Result<Option<Hold>, Error> {
        self.check_open()?;
        // A loop of tries must let its runtime read hints.
        give_way().await;
        if let Some(hold) = self.take_idle(spec) {
            return Ok(Some(hold));
        }
        let mut attempt = Attempt::begin(self, spec, false)?;
        OnlyHere::new(Box::pin(async move { attempt.run().await })).await
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
        let answer = poll_fn(|context| asked.step(|| waiting.as_mut().poll(context))).await;
        asked.answered(answer.as_ref().map(Some));
        answer
    }

    async fn acquire_untold(self: &Arc<Self>, spec: &Arc<Spec>, wait: Wait) -> Result<Hold, Error> {
        self.check_open()?;
        // As in `try_untold`.
        give_way().await;
        // The part that asks the store is boxed, so that a task in the local line needs no memory
        // for it.
        let mut place = match self.begin(spec, wait)? {
            Begun::Taken(hold) => return Ok(hold),
            Begun::Asks(asking) => return asking.await,
            Begun::Waits(place) => place,
        };
        let told = match wait {
            Wait::ForEver => (&mut place).await,
            Wait::Until(_) => Box::pin(self.until_told(&mut place, wait)).await?,
        };
        drop(place);
        match told {
            Told::Passed(hold) => Ok(hold),
            Told::Failed(error) => Err(error),
            Told::Ask(asker) => OnlyHere::new(Box::pin(asker.run(wait))).await,
        }
    }

    /// Takes the first step of a waiting task.
    fn begin(self: &Arc<Self>, spec: &Arc<Spec>, wait: Wait) -> Result<Begun, Error> {
        if spec.strict_fifo {
            let (session, spec) = (Arc::clone(self), Arc::clone(spec));
            let asking = async move { session.ask_alone(&spec, wait).await };
            return Ok(Begun::Asks(OnlyHere::new(Box::pin(asking))));
        }
        self.join(spec, wait)
    }

    async fn until_told(&self, place: &mut Place, wait: Wait) -> Result<Told, Error> {
        let spec = Arc::clone(&place.spec);
        tokio::select! {
            biased;
            told = place => Ok(told),
            () = self.sleep(wait) => {
                let outage = self.lines.with(&spec.key, |line| line.outage.clone());
                Err(outage.unwrap_or_else(wait_elapsed))
            }
        }
    }

    /// Waits with its own place in the store's line.
    async fn ask_alone(self: &Arc<Self>, spec: &Arc<Spec>, wait: Wait) -> Result<Hold, Error> {
        let mut attempt = Attempt::begin(self, spec, true)?;
        let ended = tokio::select! {
            biased;
            asked = attempt.run() => Some(asked),
            () = self.sleep(wait) => None,
            () = self.until_closed() => Some(Err(closed())),
        };
        match ended {
            Some(asked) => Ok(asked?.expect("who waits is never told that it is taken")),
            None => Err(attempt.elapsed()),
        }
    }

    /// Takes an idle lease of this client if it has the same settings. Otherwise releases the idle
    /// lease: the store would answer that the key is taken by this client.
    fn take_idle(self: &Arc<Self>, spec: &Arc<Spec>) -> Option<Hold> {
        let lease = self.lines.with(&spec.key, |line| {
            let free = !line.has_asker && !line.has_tasks();
            line.lease.clone().filter(|_| free)
        })?;
        if lease.spec == *spec {
            let taking = lease.life().take(self.now());
            match taking {
                Taking::Take(turn) => {
                    self.registry.hurry(&lease);
                    return Some(Hold::new(Arc::clone(self), lease, turn));
                }
                Taking::Leave => self.end(&lease),
                Taking::InUse | Taking::Gone => {}
            }
        } else {
            self.end_if_idle(&lease);
        }
        None
    }

    /// Joins the local line.
    fn join(self: &Arc<Self>, spec: &Arc<Spec>, wait: Wait) -> Result<Begun, Error> {
        let found = self.lines.with(&spec.key, |line| {
            self.check_open()?;
            if line.is_full() {
                return Ok(Found::Full);
            }
            if !line.has_asker && !line.has_tasks() {
                let (leaving, others) = match line.meet(spec, self.now()) {
                    Met::InUse => return Ok(self.wait_in(line, spec)),
                    Met::Taken(lease, turn) => {
                        return Ok(Found::Taken(Hold::new(Arc::clone(self), lease, turn)));
                    }
                    Met::Leaving(lease) => (Some(lease), None),
                    Met::OfOthers(lease) => (None, Some(lease)),
                    Met::Nothing => (None, None),
                };
                line.has_asker = true;
                return Ok(Found::Asks { leaving, others });
            }
            Ok(self.wait_in(line, spec))
        });
        Ok(match found? {
            Found::Full => return Err(too_many(&spec.key)),
            Found::Taken(hold) => {
                self.registry.hurry(hold.held());
                Begun::Taken(hold)
            }
            Found::Asks { leaving, others } => {
                if let Some(lease) = others {
                    self.end_if_idle(&lease);
                }
                let leaving = leaving.map(|held| Leaving::submit(self, &held));
                let asker = Asker::first(self, Arc::clone(spec), leaving);
                Begun::Asks(OnlyHere::new(Box::pin(asker.run(wait))))
            }
            Found::Waits(place) => {
                if !spec.unqueued {
                    self.listen();
                }
                Begun::Waits(place)
            }
        })
    }

    /// Appends a task to the line.
    fn wait_in(self: &Arc<Self>, line: &mut LocalLine, spec: &Arc<Spec>) -> Found {
        let (tell, told) = oneshot::channel();
        let number = self.lines.arrive();
        line.append(number, Task { spec: Arc::clone(spec), tell });
        let (session, spec) = (Arc::clone(self), Arc::clone(spec));
        Found::Waits(Place { session, spec, number, has_left: false, told })
    }
}

fn too_many(key: &Key) -> Error {
    Error::new(
        ErrorKind::Unavailable,
        format!(
            "{TASKS_MAX} tasks of this client wait for this lock already, which is the limit; \
             nothing was asked, come back later"
        ),
    )
    .with_name(key.as_str())
}
