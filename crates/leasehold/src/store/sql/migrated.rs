//! What a migration did.

/// What a migration of a database did.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Migrated {
    /// The URL of the store, without the password.
    pub store: String,
    /// The version of the tables before; `None` if there were none.
    pub before: Option<u32>,
    /// Their version now.
    pub version: u32,
}

impl Migrated {
    pub(in crate::store) const fn new(store: String, before: Option<u32>, version: u32) -> Self {
        Self { store, before, version }
    }
}
