//! The steps of an engine, refused in a forked copy and with the name of the lock in each error.

use std::future::ready;
use std::sync::Arc;

use super::BoxAnswer;
use crate::core::error::Error;
use crate::core::key::Key;
use crate::process::Process;

/// Carries out the steps of a store. A step sends its request when it is polled:
/// [`InOrder`](super::InOrder) gives them their order.
pub(super) struct Steps<C> {
    process: Process,
    core: Arc<C>,
}

impl<C> Steps<C> {
    pub(super) fn new(core: Arc<C>) -> Self {
        Self { process: Process::this(), core }
    }

    /// The core, for calls that are not steps.
    pub(super) const fn core(&self) -> &Arc<C> {
        &self.core
    }

    /// Refuses to work in a forked copy.
    pub(super) fn check(&self) -> Result<(), Error> {
        self.process.check()
    }

    /// Carries out a step. Errors name the lock.
    pub(super) fn on<T: Send + 'static, E: Into<Error>, F>(
        &self,
        key: Option<&Key>,
        step: impl FnOnce(Arc<C>) -> F,
    ) -> BoxAnswer<T>
    where
        F: Future<Output = Result<T, E>> + Send + 'static,
    {
        if let Err(refused) = self.check() {
            return Box::pin(ready(Err(refused)));
        }
        let (key, answer) = (key.cloned(), step(Arc::clone(&self.core)));
        Box::pin(async move {
            answer.await.map_err(|error| match key {
                Some(key) => error.into().with_name(key.as_str()),
                None => error.into(),
            })
        })
    }
}

impl<C> Clone for Steps<C> {
    fn clone(&self) -> Self {
        Self { process: self.process.clone(), core: Arc::clone(&self.core) }
    }
}

/// Implements the contract for the steps of an engine: its core has them as methods. Its file
/// imports what the contract names.
macro_rules! contract {
    ($core:ty) => {
        impl Store for Steps<$core> {
            fn acquire(&self, ask: Ask) -> BoxAnswer<Acquired> {
                let key = ask.key.clone();
                self.on(Some(&key), |core| async move { core.acquire(ask).await })
            }

            fn renew(&self, renewal: Renewal) -> BoxAnswer<Renewed> {
                let key = renewal.lease.key.clone();
                self.on(Some(&key), |core| async move { core.renew(renewal).await })
            }

            fn release(&self, lease: LeaseId, on_release: OnRelease) -> BoxAnswer<Released> {
                let key = lease.key.clone();
                self.on(Some(&key), |core| async move { core.release(lease, on_release).await })
            }

            fn inspect(&self, key: Key) -> BoxAnswer<Snapshot> {
                let name = key.clone();
                self.on(Some(&name), |core| async move { core.inspect(key).await })
            }

            fn watch(&self, inbox: &ClientId, sink: Weak<dyn HintSink>) {
                self.core().sinks.watch(inbox.clone(), sink);
            }

            fn listen(&self, _inbox: &ClientId) {
                // The ask of a waiter also sets up its watch. A holder hears of waiters elsewhere
                // when it renews its lease.
            }

            fn capabilities(&self) -> Capabilities {
                <$core>::CAPABILITIES
            }

            fn browse(&self) -> Option<&dyn Browse> {
                Some(self)
            }

            fn label(&self) -> String {
                self.core().label()
            }
        }

        impl Browse for Steps<$core> {
            fn list(&self, pattern: &str, cursor: Option<Key>) -> BoxAnswer<Page> {
                let pattern = pattern.to_owned();
                self.on(None, |core| async move { core.list(&pattern, cursor).await })
            }

            fn evict(&self, key: Key, seen: Vec<u8>, reason: String) -> BoxAnswer<Evicted> {
                let name = key.clone();
                self.on(Some(&name), |core| async move { core.evict(key, seen, reason).await })
            }

            fn revoke(
                &self,
                key: Key,
                seen: Vec<u8>,
                by: String,
                reason: String,
            ) -> BoxAnswer<Revoked> {
                let name = key.clone();
                self.on(
                    Some(&name),
                    |core| async move { core.revoke(key, seen, (by, reason)).await },
                )
            }
        }
    };
}

pub(super) use contract;
