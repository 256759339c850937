//! The guard of a held lock.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::core::error::Error;
use crate::core::lease::Lost;
use crate::core::token::{FencingToken, OwnerToken};
use crate::session::{Hold, Parted};
use crate::store::Released;

/// Means that the lock is ours, until it is released or lost. One type for every kind of lock.
///
/// The lease behind it is renewed in the background, also when this task is busy and when the last
/// [`Client`](crate::Client) was dropped. It can be lost all the same: then [`lost`](Self::lost)
/// resolves and [`is_held`](Self::is_held) turns false, at the local deadline at the latest, which
/// lies before the store lets another have the key. Stop the protected work then.
///
/// Dropping a guard releases it: the request is submitted inside `drop`, which never blocks, needs
/// no runtime, and comes before anything that this client asks later. Nobody hears how it went, so
/// end in [`release`](Self::release) where that matters, and always at the end of a program, which
/// otherwise may be gone before the request is.
#[must_use = "dropping a guard releases the lock"]
#[clippy::has_significant_drop]
pub struct Guard {
    /// Ends when it is dropped.
    hold: Hold,
    name: Arc<str>,
}

/// How a release went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use = "`NotHeld` means that the lock was lost before it was released"]
pub enum Release {
    /// It was ours until now.
    Released,
    /// It was not ours any more: it had been lost before, and another may have held it meanwhile.
    NotHeld,
}

impl Guard {
    pub(crate) fn new(hold: Hold, name: Arc<str>) -> Self {
        Self { hold, name }
    }

    /// The name of the lock, without a namespace.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The secret that proves that the lease is ours, to hand it over to another process, see
    /// [`Client::lease`](crate::Client::lease).
    #[must_use]
    pub fn token(&self) -> &OwnerToken {
        &self.hold.id().owner
    }

    /// The number that rises with each grant. Pass it to whatever the lock protects, which then can
    /// refuse a holder that was paused past its lease. `None` if it was switched off, or if the
    /// store does not count.
    #[must_use]
    pub fn fencing_token(&self) -> Option<FencingToken> {
        self.hold.fencing()
    }

    /// Whether the lock is ours now, by our own clock. Asks nobody, so it costs next to nothing.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.hold.is_held()
    }

    /// For how long the lock is ours at least if no renewal succeeds from now on. Zero once lost.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.hold.remaining()
    }

    /// Resolves when the lock is lost: at its deadline at the latest. Never resolves if it is
    /// released or detached.
    ///
    /// # Cancel safety
    ///
    /// May be dropped and asked for again at will.
    pub fn lost(&self) -> impl Future<Output = Lost> + Send + 'static {
        self.hold.lost()
    }

    /// Asks the store now whether the lock is ours, and restarts its ttl. This is the re-entrant
    /// acquire of other lock recipes: a task that holds the guard renews it instead of locking
    /// again.
    ///
    /// # Errors
    ///
    /// [`Lost`](crate::ErrorKind::Lost) if it is not ours any more.
    /// [`Config`](crate::ErrorKind::Config) in a process that a fork made, which holds nothing.
    /// [`Unavailable`](crate::ErrorKind::Unavailable), [`Unknown`](crate::ErrorKind::Unknown) or
    /// what else the store says if it could not be asked: the lock is ours as before, for what
    /// [`remaining`](Self::remaining) says.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses the answer; the request may have taken effect.
    pub async fn renew(&self) -> Result<(), Error> {
        let renewed = self.hold.renew().await;
        renewed.map_err(|error| error.about(self.name()))
    }

    pub(crate) fn why_lost(&self) -> Lost {
        self.hold.why_lost()
    }

    /// Gives the lock up, and waits until the store confirms it. If another task of this client
    /// waits for it, or if it is kept idle, it is passed on or kept without asking the store, while
    /// it is surely ours.
    ///
    /// # Errors
    ///
    /// [`Config`](crate::ErrorKind::Config) in a process that a fork made: the other process holds
    /// the lock as before. Else if the store could not be asked, or did not answer. The lock is not
    /// held any more all the same, the release is repeated in the background, and the key is free
    /// after one ttl at the latest.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future, even before it was polled, takes nothing back: the lock is released.
    pub async fn release(self) -> Result<Release, Error> {
        match self.hold.part().map_err(|error| error.about(&self.name))? {
            Parted::Over => Ok(Release::NotHeld),
            Parted::Kept => Ok(Release::Released),
            Parted::Releasing(release) => told(&self.name, release.await),
            Parted::Leaving(answer) => told(&self.name, answer.await),
        }
    }

    /// Stops renewing, without releasing. The lease is left to its ttl, or to another process that
    /// goes on with [`Client::lease`](crate::Client::lease).
    #[must_use = "without the token nobody can go on with the lease"]
    pub fn detach(self) -> OwnerToken {
        self.hold.let_go()
    }
}

/// What the store says of a release.
fn told(name: &str, answer: Result<Released, Error>) -> Result<Release, Error> {
    match answer {
        Ok(Released::NotHeld) => Ok(Release::NotHeld),
        Ok(_) => Ok(Release::Released),
        Err(error) => Err(error.about(name)),
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("name", &self.name)
            .field("token", self.token())
            .field("fencing_token", &self.fencing_token())
            .field("remaining", &self.remaining())
            .finish()
    }
}
