//! A mutex that a panic does not poison.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A value that is valid at every moment, because single steps change it. So it may be used after a
/// panic of the code that had locked it.
#[derive(Debug, Default)]
pub(crate) struct Unpoisoned<T>(Mutex<T>);

impl<T> Unpoisoned<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
