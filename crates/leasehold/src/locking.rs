//! The common parts of all locks: a name, settings, and a client that takes the lock.

use std::sync::Arc;
use std::time::Duration;

use crate::core::coexist::Coexist;
use crate::core::error::{Error, ErrorKind};
use crate::core::key::Key;
use crate::core::ttl::Ttl;
use crate::guard::{Guard, check_kept};
use crate::session::{Hold, Session, Spec, User, Wait};
use crate::store::{Claim, Note, PERMITS_MAX, Store};

/// The choice that takes effect, since some stores never open a line.
fn effective(coexist: Coexist, session: &Session) -> Coexist {
    if coexist == Coexist::Auto && !session.opens() { Coexist::Off } else { coexist }
}

/// The name and the settings of a lock, and the client that takes it.
#[derive(Clone, Debug)]
pub(crate) struct Locking {
    user: Arc<User>,
    name: Arc<str>,
    /// The first call reports a bad name.
    spec: Result<Arc<Spec>, Error>,
    /// The first call also reports a bad ttl.
    bad_ttl: Option<Error>,
}

impl Locking {
    pub(crate) fn new(
        user: Arc<User>,
        name: Arc<str>,
        key: Result<Key, Error>,
        ttl: Ttl,
        lock_delay: Duration,
    ) -> Self {
        let spec = key.map(|key| {
            let unqueued = !user.session().can_queue();
            let coexist = effective(Coexist::Auto, user.session());
            Arc::new(Spec { unqueued, coexist, ..Spec::plain(key, ttl, lock_delay) })
        });
        Self { user, name, spec, bad_ttl: None }
    }

    pub(crate) fn changed(mut self, change: impl FnOnce(&mut Spec)) -> Self {
        if let Ok(spec) = &mut self.spec {
            change(Arc::make_mut(spec));
        }
        self
    }

    /// Sets how the lock treats clients that poll.
    pub(crate) fn coexist(self, coexist: Coexist) -> Self {
        let coexist = effective(coexist, self.session());
        self.changed(|spec| spec.coexist = coexist)
    }

    /// Acquires `want` permits of the name, which has `of` in all, instead of an exclusive lock.
    pub(crate) fn permits(self, want: u32, of: u32) -> Self {
        self.changed(|spec| spec.claim = Claim::Permits { want, of })
    }

    pub(crate) fn ttl(mut self, ttl: Duration) -> Self {
        match Ttl::new(ttl) {
            Ok(ttl) => {
                self.bad_ttl = None;
                self.changed(|spec| spec.ttl = ttl)
            }
            Err(error) => {
                self.bad_ttl = Some(error.about(&self.name));
                self
            }
        }
    }

    pub(crate) fn why(self, text: impl Into<String>) -> Self {
        let mut text = text.into();
        text.truncate(text.floor_char_boundary(Note::WHY_BYTES_MAX));
        self.changed(|spec| spec.why = Some(text.into()))
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        self.user.session()
    }

    /// The key, or why the name or the ttl cannot be used.
    pub(crate) fn key(&self) -> Result<&Key, Error> {
        self.spec().map(|spec| &spec.key)
    }

    /// Checks a number of permits. `what` names it in the error.
    pub(crate) fn check_number(&self, what: &str, number: u32) -> Result<(), Error> {
        if (1..=PERMITS_MAX).contains(&number) {
            return Ok(());
        }
        let message = format!(
            "{what} must be between 1 and {PERMITS_MAX}, not {number}; no request was sent"
        );
        self.refused(ErrorKind::Config, message)
    }

    /// Checks a time for which a permit stays taken. `what` names it in the error.
    pub(crate) fn check_span(&self, what: &str, span: Duration) -> Result<(), Error> {
        if Ttl::new(span).is_ok() {
            return Ok(());
        }
        let message =
            format!("{what} must be between 10 ms and 24 h, not {span:?}; no request was sent");
        self.refused(ErrorKind::Config, message)
    }

    /// Checks that a lock can stay taken for that long after its grant, even without its holder.
    pub(crate) fn check_kept(&self, span: Duration) -> Result<(), Error> {
        let spec = self.spec()?;
        self.named(check_kept(span, "no request was sent"))?;
        // No renewal shortens a lease, so the store keeps one for at least this long.
        let least = spec.kept_ttl().get();
        if span < least {
            let message = format!(
                "the period, or the time for which a lock stays taken, must be at least the ttl \
                 plus the lock delay ({least:?}), not {span:?}; no request was sent; choose a \
                 longer time, or a ttl and lock delay whose sum is at most {span:?}"
            );
            return self.refused(ErrorKind::Config, message);
        }
        self.check_store()
    }

    /// Checks that the store may keep a lease for longer than a ttl.
    pub(crate) fn check_store(&self) -> Result<(), Error> {
        let promised = self.session().store.capabilities();
        if !promised.detached {
            return self.refused(
                ErrorKind::Unsupported,
                "a lock in this store ends with the process that took it, so it cannot stay taken \
                 after its holder; nothing is held; use another store",
            );
        }
        match promised.strict {
            Some(true) => self.refused(
                ErrorKind::Unsupported,
                "a store in strict mode keeps no lease for longer than 60 s, so the lock would not \
                 stay taken after its holder; nothing is held; use another store",
            ),
            _ => Ok(()),
        }
    }

    /// Checks everything that can be checked without a request.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.named(self.session().check_here())?;
        self.checked()?;
        self.named(self.session().check_open())
    }

    /// Returns the settings, if nothing is wrong with them.
    fn checked(&self) -> Result<&Arc<Spec>, Error> {
        let spec = self.spec()?;
        let hands_over = || {
            let promised = self.session().store.capabilities();
            promised.line && !promised.frees
        };
        if spec.gives_way() && hands_over() {
            return self.refused(
                ErrorKind::Unsupported,
                "this store always gives a lock to the first client in line, so it cannot be \
                 shared with clients that poll (`Coexist::On`); no request was sent; let them wait \
                 in its line",
            );
        }
        if !spec.min_hold.is_zero() {
            self.check_kept(spec.min_hold)?;
        }
        if let Some(max_hold) = spec.max_hold {
            self.check_max_hold(max_hold, spec)?;
        }
        Ok(spec)
    }

    /// Checks that a `max_hold` is not shorter than the ttl or the `min_hold`.
    fn check_max_hold(&self, max_hold: Duration, spec: &Spec) -> Result<(), Error> {
        let (ttl, min_hold) = (spec.ttl.get(), spec.min_hold);
        let message = if max_hold < ttl {
            format!(
                "a max_hold of {max_hold:?} is shorter than the ttl, {ttl:?}; no request was sent; \
                 change one of them"
            )
        } else if max_hold < min_hold {
            format!(
                "a max_hold of {max_hold:?} is shorter than the min_hold, {min_hold:?}; no request \
                 was sent; change one of them"
            )
        } else {
            return Ok(());
        };
        self.refused(ErrorKind::Config, message)
    }

    pub(crate) async fn try_lock(&self) -> Result<Option<Guard>, Error> {
        let hold = self.session().try_acquire(self.checked()?).await;
        self.named(hold)?.map(|hold| self.granted(hold)).transpose()
    }

    pub(crate) async fn lock(&self) -> Result<Guard, Error> {
        self.wait(Wait::ForEver).await
    }

    pub(crate) async fn lock_timeout(&self, wait: Duration) -> Result<Guard, Error> {
        self.wait(Wait::Until(self.session().now() + wait)).await
    }

    pub(crate) async fn wait(&self, wait: Wait) -> Result<Guard, Error> {
        let hold = self.session().acquire(self.checked()?, wait).await;
        self.granted(self.named(hold)?)
    }

    /// Puts the name as the user gave it into an error.
    pub(crate) fn named<T>(&self, result: Result<T, Error>) -> Result<T, Error> {
        result.map_err(|error| error.about(&self.name))
    }

    /// Refuses a call, with an error about the name as the user gave it.
    pub(crate) fn refused<T>(
        &self,
        kind: ErrorKind,
        message: impl Into<String>,
    ) -> Result<T, Error> {
        self.named(Err(Error::new(kind, message)))
    }

    fn spec(&self) -> Result<&Arc<Spec>, Error> {
        match (&self.spec, &self.bad_ttl) {
            (Ok(spec), None) => Ok(spec),
            (Err(error), _) | (_, Some(error)) => Err(error.clone()),
        }
    }

    /// The guard of a grant, unless the lock cannot stay taken for its `min_hold`.
    fn granted(&self, hold: Hold) -> Result<Guard, Error> {
        let is_kept = !self.spec()?.min_hold.is_zero();
        // A store may learn from its first answer that it is strict.
        if is_kept && let Err(error) = self.check_store() {
            hold.give_up();
            return Err(error);
        }
        Ok(Guard::new(hold, Arc::clone(&self.name)))
    }
}
