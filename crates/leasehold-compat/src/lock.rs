//! The common part of these locks: a key that holds its owner's value for a time.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use leasehold::host::{Host, SystemHost};
use leasehold::store::{Acquired, Ask, Claim, LeaseId, OnRelease, Released, Store, Why};
use leasehold::{Error, ErrorKind, Key, OwnerToken, Ttl};

/// One key on a store.
pub(crate) struct Lock<S> {
    store: S,
    host: Arc<dyn Host>,
    /// The first call reports a bad name or an unsuitable store.
    key: Result<Key, Error>,
}

impl<S: Store> Lock<S> {
    pub(crate) fn new(store: S, key: &str) -> Self {
        let key = Key::new(key).and_then(|key| allows_reasking(&store, &key).map(|()| key));
        Self { store, host: SystemHost::shared(), key }
    }

    pub(crate) fn on(self, host: Arc<dyn Host>) -> Self {
        Self { host, ..self }
    }

    pub(crate) fn host(&self) -> &dyn Host {
        &*self.host
    }

    /// Sets the key if it is free or already the owner's. The request is sent before this returns.
    pub(crate) fn acquire(
        &self,
        owner: &OwnerToken,
        ttl: Ttl,
    ) -> impl Future<Output = Result<bool, Error>> + Send {
        let answer = self.lease(owner).map(|LeaseId { key, owner, claim }| {
            self.store.acquire(Ask::new(key, owner, claim, ttl))
        });
        async move { is_granted(answer?.await?).map_err(|error| self.named(error)) }
    }

    /// Deletes the key if it is the owner's. The request is sent before this returns.
    pub(crate) fn release(
        &self,
        owner: &OwnerToken,
    ) -> impl Future<Output = Result<bool, Error>> + Send {
        let answer = self.lease(owner).map(|lease| release(&self.store, lease));
        async move { answer?.await }
    }

    /// The lease of an owner, without companion keys and regardless of any line, like the
    /// originals.
    fn lease(&self, owner: &OwnerToken) -> Result<LeaseId, Error> {
        Ok(LeaseId { key: self.key.clone()?, owner: owner.clone(), claim: Claim::Plain })
    }

    /// Waits at most `limit` for the answer to the request of `ask`. With a limit of zero, sends no
    /// request.
    pub(crate) async fn within<T, A: Future<Output = Result<T, Error>>>(
        &self,
        limit: Duration,
        ask: impl FnOnce() -> A,
    ) -> Result<T, Error> {
        if limit.is_zero() {
            let message = "the timeout had already elapsed; no request was sent";
            return Err(self.named(Error::new(ErrorKind::Unavailable, message)));
        }
        let mut timer = self.host.sleep_until(self.host.now() + limit);
        let mut answer = pin!(ask());
        poll_fn(|context| {
            if let Poll::Ready(answer) = answer.as_mut().poll(context) {
                return Poll::Ready(answer);
            }
            timer.as_mut().poll(context).map(|()| {
                let message = format!(
                    "no answer came within {limit:?}; the request may still take effect; repeat it"
                );
                Err(self.named(Error::new(ErrorKind::Unknown, message)))
            })
        })
        .await
    }

    fn named(&self, error: Error) -> Error {
        match &self.key {
            Ok(key) => error.with_name(key.as_str()),
            Err(_) => error,
        }
    }
}

/// Ends a lease. Returns whether there was one. The request is sent before this returns.
pub(crate) fn release<S: Store>(
    store: &S,
    lease: LeaseId,
) -> impl Future<Output = Result<bool, Error>> + Send + 'static {
    let promised = store.capabilities();
    // Other clients may want the key without queueing. Some stores always give it to the first
    // client in line, and refuse anything else.
    let on_release =
        if promised.line && !promised.frees { OnRelease::Free } else { OnRelease::FreeAndWake };
    let answer = store.release(lease, on_release);
    async move { Ok(answer.await? != Released::NotHeld) }
}

/// Checks that this store accepts repeated asks with one value, as all of these locks make them.
pub(crate) fn allows_reasking(store: &impl Store, key: &Key) -> Result<(), Error> {
    if store.capabilities().reask {
        return Ok(());
    }
    let message = "this store, such as a quorum or one with copies, may release in the background \
                   what one value asked for twice, which would end a lock that is in use; no \
                   request was sent, use `redsync` on the servers of a quorum or \
                   `leasehold::Mutex` on it";
    Err(Error::new(ErrorKind::Config, message).with_name(key.as_str()))
}

/// Whether an ask was granted. `false` if another client holds the key.
pub(crate) fn is_granted(answer: Acquired) -> Result<bool, Error> {
    let refusal = match answer {
        Acquired::Granted { .. } => return Ok(true),
        Acquired::Refused(refusal) => refusal,
    };
    let message = match refusal.why {
        Why::Taken => return Ok(false),
        Why::TooFewCopies(error) => return Err(error),
        // Nobody knows whether another client holds the key. A caller that hears *taken* concludes
        // that another client does the work.
        Why::Quarantined(quarantine) => {
            format!("{quarantine}; nothing was granted; try again then")
        }
        Why::Split => {
            "no majority of the nodes granted it to anybody; nothing is held; try again".to_owned()
        }
        // A reason that this version does not know.
        _ => "the store granted nothing, and does not say whether anybody holds it; try again"
            .to_owned(),
    };
    Err(Error::new(ErrorKind::Unavailable, message))
}

impl<S> fmt::Debug for Lock<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.key {
            Ok(key) => write!(f, "{key:?}"),
            Err(error) => write!(f, "{error}"),
        }
    }
}
