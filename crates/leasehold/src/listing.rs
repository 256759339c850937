//! The names of the locks that a listing found.

use crate::core::key::Key;
use crate::store::Stopped;

/// The names that [`Client::list`](crate::Client::list) found.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), leasehold::Error> {
/// let client = leasehold::Client::connect("memory:").await?;
/// let _guard = client.mutex("job:7").lock().await?;
/// let found = client.list("job:*").await?;
/// assert_eq!(found.names()[0].as_str(), "job:7");
/// assert!(found.stopped().is_none(), "the list is complete");
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Listing {
    names: Vec<Key>,
    stopped: Option<Stopped>,
}

impl Listing {
    pub(crate) const fn new(names: Vec<Key>, stopped: Option<Stopped>) -> Self {
        Self { names, stopped }
    }

    /// The names, in order.
    #[must_use]
    pub fn names(&self) -> &[Key] {
        &self.names
    }

    /// Why names may be missing, as text for people. `None` if the list is complete.
    #[must_use]
    pub const fn stopped(&self) -> Option<Stopped> {
        self.stopped
    }
}

impl IntoIterator for Listing {
    type Item = Key;
    type IntoIter = std::vec::IntoIter<Key>;

    fn into_iter(self) -> Self::IntoIter {
        self.names.into_iter()
    }
}
