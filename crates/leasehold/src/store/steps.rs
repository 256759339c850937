//! The steps of an engine, refused in a forked copy and with the name of the lock in each error.

use std::future::{Future, ready};
use std::sync::Arc;

use super::BoxAnswer;
use crate::core::error::Error;
use crate::core::key::Key;
use crate::process::Process;

/// What carries out the steps of a store. They send a request when they are polled:
/// [`InOrder`](super::InOrder) gives them their order.
pub(super) struct Steps<C> {
    process: Process,
    core: Arc<C>,
}

impl<C> Steps<C> {
    pub(super) fn new(core: Arc<C>) -> Self {
        Self { process: Process::this(), core }
    }

    /// The core, for what is no step.
    pub(super) const fn core(&self) -> &Arc<C> {
        &self.core
    }

    /// Refuses to work in a forked copy.
    pub(super) fn check(&self) -> Result<(), Error> {
        self.process.check()
    }

    /// Carries out a step. Errors name the lock.
    pub(super) fn on<T: Send + 'static, F: Future<Output = Result<T, Error>> + Send + 'static>(
        &self,
        key: Option<&Key>,
        step: impl FnOnce(Arc<C>) -> F,
    ) -> BoxAnswer<T> {
        if let Err(refused) = self.check() {
            return Box::pin(ready(Err(refused)));
        }
        let (key, answer) = (key.cloned(), step(Arc::clone(&self.core)));
        Box::pin(async move {
            answer.await.map_err(|error| match key {
                Some(key) => error.with_name(key.as_str()),
                None => error,
            })
        })
    }
}

impl<C> Clone for Steps<C> {
    fn clone(&self) -> Self {
        Self { process: self.process.clone(), core: Arc::clone(&self.core) }
    }
}
