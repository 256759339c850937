//! The turn of a guard with a lease. At its end the lease is passed on, kept idle or released.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::FutureExt as _;

use super::asker::{Asker, Told};
use super::held::Held;
use super::leaving::{Leaving, Left};
use super::story::{Ending, Story};
use super::{LISTENS_FOR, ReleaseInFlight, Session};
use crate::core::claim::Claim;
use crate::core::error::{Error, ErrorKind};
use crate::core::lease::{LeaseState, Parting, Turn};
use crate::core::lost::Lost;
use crate::core::moment::Moment;
use crate::core::passing::given_way;
use crate::core::token::{FencingToken, OwnerToken};
use crate::host::random_u32;
use crate::store::errors::unsupported_claim;
use crate::store::{BoxAnswer, LeaseId, Released, Revocation, Store};

/// The turn of a guard with a lease. Dropping it ends the turn.
pub(crate) struct Hold {
    session: Arc<Session>,
    held: Arc<Held>,
    turn: Turn,
    began: Moment,
    has_ended: bool,
}

impl Hold {
    pub(super) fn new(session: Arc<Session>, held: Arc<Held>, turn: Turn) -> Self {
        let began = session.now();
        if let Some(span) = held.spec.max_hold {
            held.life().hold_until(began + span);
        }
        Self { session, held, turn, began, has_ended: false }
    }

    /// Makes the events of this turn part of `story` from now on.
    pub(super) fn begin_story(&self, story: Arc<Story>) {
        self.held.begin_story(story);
    }

    pub(super) const fn turn(&self) -> &Turn {
        &self.turn
    }

    pub(crate) fn id(&self) -> &LeaseId {
        &self.held.id
    }

    /// Whether a client of that session got it.
    pub(crate) fn is_of(&self, session: &Arc<Session>) -> bool {
        Arc::ptr_eq(&self.session, session)
    }

    pub(crate) fn fencing(&self) -> Option<FencingToken> {
        self.turn.fencing
    }

    pub(crate) fn is_held(&self) -> bool {
        self.session.is_here() && self.held.life().is_held(self.turn.number, self.session.now())
    }

    pub(crate) fn remaining(&self) -> Duration {
        if !self.session.is_here() {
            return Duration::ZERO;
        }
        self.held.life().remaining(self.turn.number, self.session.now())
    }

    /// Why the lease is not held. By default, its time is over. The store may have given another
    /// reason.
    pub(crate) fn why_lost(&self) -> Lost {
        if !self.session.is_here() {
            return Lost::NotOurs;
        }
        let life = self.held.life();
        match life.state() {
            LeaseState::Lost(lost) => lost,
            _ => life.why_over(),
        }
    }

    /// Ends when the lease is lost. Never ends if this turn ends first.
    pub(crate) fn lost(&self) -> impl Future<Output = Lost> + Send + use<> {
        Arc::clone(&self.held).lost(self.turn.number, self.session.process.clone())
    }

    /// Ends when the holder is asked to let go. Never ends if this turn ends first.
    pub(crate) fn revoked(&self) -> impl Future<Output = Arc<Revocation>> + Send + use<> {
        Arc::clone(&self.held).revoked(self.turn.number, self.session.process.clone())
    }

    /// Asks the store whether the lease is held, and restarts its ttl. Sends nothing if the lease
    /// is over.
    ///
    /// # Errors
    ///
    /// `Lost` if it is no longer held. `Config` in a copy of a fork. Otherwise the error of the
    /// store if it gives no answer.
    pub(crate) async fn renew(&self) -> Result<(), Error> {
        self.session.check_here()?;
        let sent = self.session.now();
        if !self.is_held() {
            return Err(lost_error(self.why_lost()));
        }
        let answer = self.session.store.renew(self.held.renewal(sent)).await;
        let counted = self.session.on_renewal(&self.held, sent, answer.as_ref());
        match answer {
            Ok(_) if counted => Ok(()),
            _ if !self.is_held() => Err(lost_error(self.why_lost())),
            Err(error) => Err(error),
            Ok(_) => Err(Error::new(
                ErrorKind::Unknown,
                "the renewal does not count, because the store's fencing tokens are not those of \
                 this lock; the holder may act until its deadline, and the client retries until \
                 then",
            )),
        }
    }

    /// Ends this turn. Unless the lease is passed on or kept, its release is submitted at once.
    ///
    /// # Errors
    ///
    /// `Config` in a copy of a fork.
    pub(crate) fn part(mut self) -> Result<Parted, Error> {
        // On failure, the drop leaves the copy as it is.
        self.session.check_here()?;
        self.has_ended = true;
        Ok(self.end(Ending::Released))
    }

    /// Ends this turn. The key stays taken until `min_hold` is over.
    fn end(&self, ending: Ending) -> Parted {
        let (now, until) = (self.session.now(), self.began + self.held.spec.min_hold);
        let is_early = now < until && self.is_held();
        if is_early && self.held.life().release(now).is_ok() {
            return Parted::Keeping(self.session.keep(&self.held, until, ending));
        }
        self.session.part(&self.held, self.turn.number, ending)
    }

    /// Ends this turn and frees the key, even before `min_hold` is over.
    pub(crate) fn give_up(mut self) {
        self.has_ended = true;
        drop(self.session.part(&self.held, self.turn.number, Ending::Dropped));
    }

    /// Ends this turn. The key stays taken until `span` after the turn began, and then the lease
    /// ends by itself. If that moment has passed, this is a release. The request is submitted
    /// before this returns.
    ///
    /// # Errors
    ///
    /// `Lost` if the lease is not held: nothing is kept then. `Unsupported` if a lock of the store
    /// ends with its process. `Config` in a copy of a fork. If the store does not answer, the
    /// returned answer is its error.
    pub(crate) fn keep(mut self, span: Duration) -> Result<BoxAnswer<()>, Error> {
        self.session.check_here()?;
        if !self.session.store.capabilities().detached {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "a lock in this store ends with the process that took it, so it cannot stay taken \
                 after its holder; the lock is released; use another store",
            ));
        }
        let until = self.began + span.max(self.held.spec.min_hold);
        if until <= self.session.now() {
            return match self.part()? {
                Parted::Passed | Parted::Idle => Ok(Box::pin(async { Ok(()) })),
                Parted::Releasing(release) => Ok(Box::pin(release.map(was_held))),
                Parted::Leaving(answer) => Ok(Box::pin(answer.map(was_held))),
                Parted::Keeping(answer) => Ok(answer),
                Parted::Lost(lost) => Err(lost_error(lost)),
                Parted::Over => Err(lost_error(Lost::NotOurs)),
            };
        }
        self.end_for_another().map_err(lost_error)?;
        Ok(self.session.keep(&self.held, until, Ending::Released))
    }

    /// Shares the key from now on, without a gap in which another client could have it alone.
    ///
    /// # Errors
    ///
    /// `Lost` if the lease is not held. `Config` in a copy of a fork. Otherwise the error of the
    /// store if it gives no answer. After any error nothing is held, and both leases are released.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future releases both leases.
    pub(crate) async fn downgrade(mut self) -> Result<Self, Error> {
        self.session.check_here()?;
        if !self.session.store.capabilities().shared {
            // Ends like a dropped guard, so that `min_hold` keeps the lock.
            return Err(not_shared(unsupported_claim(Claim::Shared, &self.held.id.key)));
        }
        self.end_for_another().map_err(lost_error)?;
        let session = Arc::clone(&self.session);
        let mut downgrading = Downgrading { hold: &self, story: self.held.take_story() };
        let mut leaving = Leaving::downgrade(&session, &self.held);
        session.forget_lease(&self.held);
        let answer = leaving.answer().await;
        let Some((held, turn)) = leaving.answered().await else {
            let lost = match answer.map_err(not_shared)? {
                // The store shares the key with us, but the answer came too late to rely on it.
                Released::Kept { .. } => Lost::Deadline,
                _ => Lost::NotOurs,
            };
            downgrading.tell_loss(lost);
            return Err(lost_error(lost));
        };
        let story = downgrading.story.take();
        let hold = Self::new(Arc::clone(&session), held, turn);
        if let Some(story) = story {
            hold.begin_story(story);
        }
        Ok(hold)
    }

    /// Ends this turn and its lease here. Another lease takes its place, or the key stays taken
    /// without a guard.
    fn end_for_another(&mut self) -> Result<(), Lost> {
        if !self.is_held() {
            return Err(self.why_lost());
        }
        self.held.life().release(self.session.now())?;
        self.has_ended = true;
        Ok(())
    }

    /// Stops renewing and watching the lease, without releasing it. Stops nothing in a forked copy.
    pub(crate) fn let_go(mut self) -> OwnerToken {
        if !self.session.is_here() {
            return self.held.owner().clone();
        }
        self.has_ended = true;
        // It makes no difference to the caller whether the lease was lost already.
        let was_held = self.held.life().release(self.session.now());
        if !self.session.lift(&self.held) {
            self.session.store.let_go(&self.held.id);
        }
        self.session.registry.let_go(&self.held, self.session.now());
        self.session.forget_lease(&self.held);
        match (self.held.take_story(), was_held) {
            (Some(story), Ok(())) => story.detached(&self.held.id, self.session.now()),
            (None, Ok(())) => {}
            (story, Err(lost)) => {
                self.held.end_kept();
                self.held.tell();
                self.held.tell_loss(story.as_deref(), self.session.now(), lost);
            }
        }
        self.held.owner().clone()
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        if self.session.was_forked() {
            std::mem::forget(Arc::clone(&self.held));
            return self.session.leave_copy();
        }
        drop(self.end(Ending::Dropped));
    }
}

/// The error of a downgrade without an answer.
fn not_shared(cause: Error) -> Error {
    let message = if cause.kind() == ErrorKind::Unsupported {
        "this store has no readers, so the writer could not become one; nothing is held, and the \
         guard ends as if it were dropped; use a store that has readers"
    } else {
        "the store did not confirm that the writer became a reader; nothing is held, and the lock \
         is released in the background; ask for it again"
    };
    Error::new(cause.kind(), message).with_source(cause)
}

/// The story of a downgrade. It ends with this value unless the reader takes it over.
struct Downgrading<'a> {
    hold: &'a Hold,
    story: Option<Arc<Story>>,
}

impl Downgrading<'_> {
    fn tell_loss(&mut self, lost: Lost) {
        let Hold { session, held, .. } = self.hold;
        held.tell_loss(self.story.take().as_deref(), session.now(), lost);
    }
}

impl Drop for Downgrading<'_> {
    fn drop(&mut self) {
        let Hold { session, held, .. } = self.hold;
        if let Some(story) = self.story.take().filter(|_| session.is_here()) {
            story.released(&held.id, session.now(), Ending::Dropped, "freed");
        }
    }
}

/// The outcome for the lease.
pub(crate) enum Parted {
    /// Another task of this client has the lease now.
    Passed,
    /// This client keeps the lease idle.
    Idle,
    /// The release was submitted.
    Releasing(ReleaseInFlight),
    /// The release was submitted, and the next task of this client also waits for the answer.
    Leaving(Left),
    /// The key stays taken without a guard. The request for this was submitted.
    Keeping(BoxAnswer<()>),
    /// The lease was lost before.
    Lost(Lost),
    /// The lease was released before.
    Over,
}

impl Parted {
    /// The outcome for the lease, if the end of the guard decided it.
    const fn becomes(&self) -> Option<&'static str> {
        match self {
            Self::Passed => Some("passed"),
            Self::Idle => Some("idle"),
            Self::Releasing(_) | Self::Leaving(_) => Some("freed"),
            // The story of a key that stays taken was told already.
            Self::Keeping(_) | Self::Lost(_) | Self::Over => None,
        }
    }
}

impl Session {
    /// Ends a guard's turn with a lease.
    pub(super) fn part(self: &Arc<Self>, held: &Arc<Held>, turn: u64, ending: Ending) -> Parted {
        // The next guard begins a story of its own as soon as it has the lease.
        let story = held.take_story();
        let parted = self.end_turn(held, turn);
        if let Parted::Lost(lost) = parted {
            held.tell_loss(story.as_deref(), self.now(), lost);
        } else if let (Some(story), Some(lease)) = (story, parted.becomes()) {
            story.released(&held.id, self.now(), ending, lease);
        }
        parted
    }

    fn end_turn(self: &Arc<Self>, held: &Arc<Held>, mut turn: u64) -> Parted {
        let key = &held.id.key;
        loop {
            let now = self.now();
            let (parting, heir) = self
                .lines
                .with(key, |line| line.tasks.end_turn(now, held, turn, self.keep_idle(held)));
            match (parting, heir) {
                (Parting::Pass(next), Some(heir)) => {
                    if heir.send(Told::Passed(Arc::clone(held), next)).is_ok() {
                        return Parted::Passed;
                    }
                    // The task's future was dropped meanwhile: try the next task.
                    turn = next.number;
                }
                (Parting::Pass(_), None) => unreachable!("it is passed on to a task that waits"),
                // The first task asks. It gets the work of this asker, which is dropped at once.
                (Parting::Leave, _) => return self.leave(held, Asker::next(self, &held.spec)),
                (Parting::Idle, _) => {
                    self.registry.hurry(held);
                    self.listen();
                    return Parted::Idle;
                }
                (Parting::Free, _) => {
                    // Submit it before the lease is forgotten, so that a shutdown always sees one
                    // of the two.
                    let release = self.release(held).by_holder();
                    self.registry.forget(held);
                    self.wake_next_asker(key);
                    return Parted::Releasing(release);
                }
                (Parting::Lost(lost), _) => {
                    if lost.is_by_our_clock() {
                        // The driver may not have noticed yet. A second release is harmless.
                        drop(self.release(held));
                    }
                    held.end_kept();
                    held.tell();
                    self.registry.forget(held);
                    self.wake_next_asker(key);
                    return Parted::Lost(lost);
                }
                (Parting::Over, _) => return Parted::Over,
            }
        }
    }

    /// Releases a lease that `asker` will ask for again. If clients may wait without queueing, the
    /// store cannot decide whether this client may keep the lease.
    fn leave(self: &Arc<Self>, held: &Arc<Held>, asker: Asker) -> Parted {
        if !held.spec.others_wait_unseen() {
            let leaving = Leaving::submit(self, held);
            let answer = leaving.answer();
            drop(asker.after(leaving));
            return Parted::Leaving(answer);
        }
        let release = self.release(held).by_holder();
        self.rest(held);
        self.registry.forget(held);
        Parted::Releasing(release)
    }

    /// Stays away from a key for a while, so that others get a chance.
    fn rest(&self, held: &Held) {
        if held.spec.gives_way() {
            let now = self.now();
            let until = now + given_way(random_u32(&*self.host));
            self.rests.begin(&held.id.key, now, until);
        }
    }

    /// How long a lease may be kept idle.
    fn keep_idle(&self, held: &Held) -> Duration {
        // No task could take the lease any more.
        let is_of_no_use = self.unused.load(Ordering::Acquire) || self.check_open().is_err();
        if is_of_no_use { Duration::ZERO } else { held.spec.keep_idle }
    }

    /// Submits the release of a lease.
    fn release(self: &Arc<Self>, held: &Held) -> ReleaseInFlight {
        if held.was_wanted() {
            self.rest(held);
        }
        let (lease, on_release) = (held.id.clone(), held.spec.on_release());
        ReleaseInFlight::submit(Arc::clone(self), lease, on_release, held.keeps_at_most())
    }

    /// Releases a lease whose life has ended here.
    pub(super) fn end(self: &Arc<Self>, held: &Arc<Held>) {
        // Submit it before the lease is forgotten, so that a shutdown always sees one of the two.
        drop(self.release(held));
        self.registry.forget(held);
        self.forget_lease(held);
    }

    /// Releases a lease if no guard uses it.
    pub(super) fn end_if_idle(self: &Arc<Self>, held: &Arc<Held>) {
        let now = self.now();
        if self.lines.with(&held.id.key, |line| line.tasks.end_idle(now, held)) {
            self.end(held);
        }
    }

    /// Releases every lease that no guard uses.
    pub(super) fn end_all_idle(self: &Arc<Self>) {
        let mut leases = Vec::new();
        self.lines.with_each(|line| leases.extend(line.tasks.lease().cloned()));
        for lease in leases {
            self.end_if_idle(&lease);
        }
    }

    /// Removes a lease that cannot be passed on any more, so waiting tasks must ask.
    pub(super) fn forget_lease(&self, held: &Arc<Held>) {
        self.lines.with(&held.id.key, |line| line.tasks.forget(held));
        self.wake_next_asker(&held.id.key);
    }

    /// Asks the store to report other clients that wait.
    pub(super) fn listen(&self) {
        let now = self.now();
        if now.as_nanos() >= self.listens_again_at.load(Ordering::Relaxed) {
            self.listens_again_at.store((now + LISTENS_FOR).as_nanos(), Ordering::Relaxed);
            self.store.listen(&self.id);
        }
    }
}

/// Fails if the release ended no lease.
fn was_held(answer: Result<Released, Error>) -> Result<(), Error> {
    match answer? {
        Released::NotHeld => Err(lost_error(Lost::NotOurs)),
        _ => Ok(()),
    }
}

/// The error for a holder that continues with a lost lease.
pub(crate) fn lost_error(lost: Lost) -> Error {
    Error::new(
        ErrorKind::Lost,
        format!(
            "the lock was lost: {lost}; another client may hold it now; stop the protected work"
        ),
    )
}
