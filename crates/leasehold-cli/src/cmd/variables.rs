//! The locks of a command, as its environment names them.

use leasehold::store::Holder;
use leasehold::{Client, Guard};

use super::Context;
use crate::environment::{FENCE, NAME, NAMESPACE, STORE, TOKEN};
use crate::exit::Failure;

/// A lock that a command runs under.
#[derive(Clone, Debug)]
pub(crate) struct Joined {
    /// Its name.
    pub(crate) name: String,
    /// Its owner token.
    pub(crate) token: String,
    /// Its fencing token.
    pub(crate) fence: Option<String>,
    /// Its lease, as the store shows it. `None` for a lock of our own.
    pub(super) holder: Option<Holder>,
}

impl From<&Guard> for Joined {
    fn from(guard: &Guard) -> Self {
        Self {
            name: guard.name().to_owned(),
            token: guard.token().as_str().to_owned(),
            fence: guard.fencing_token().map(|fence| fence.to_string()),
            holder: None,
        }
    }
}

/// The variables for a command under these locks, in this order. They replace inherited ones, so
/// that the innermost run is seen. Variables that differ between several locks have a line for each
/// lock. A name never has a line break in it.
pub(super) fn variables(
    context: &Context,
    client: &Client,
    locks: &[Joined],
) -> Result<Vec<(&'static str, Option<String>)>, Failure> {
    let lines = |all: Vec<&str>| all.join("\n");
    let fences = locks.iter().map(|lock| lock.fence.as_deref());
    let mut all = vec![
        (NAME, Some(lines(locks.iter().map(|lock| &*lock.name).collect()))),
        (TOKEN, Some(lines(locks.iter().map(|lock| &*lock.token).collect()))),
        (FENCE, fences.collect::<Option<_>>().map(lines)),
        (STORE, Some(client.store_label())),
        (NAMESPACE, context.settings.namespace().map(str::to_owned)),
    ];
    all.extend(context.settings.store_for_child()?);
    Ok(all)
}
