//! The abilities of a server for locks without companion keys, as far as one connection knows them:
//!
//! | the server says | it means | from then on |
//! |---|---|---|
//! | the answer of a script | scripts are allowed | locks are acquired by a command |
//! | that a script is refused | scripts are refused | only commands do the steps |
//! | that it does not know `SET` with `NX` and `GET` | it is older than Redis 7.0 | scripts acquire |
//! | that a probe found no key | it has this command | the command releases |
//! | that it knows neither probe | it has no such command | scripts release |
//! | that it does not know the command any more | - | it is probed again |

use super::native::{CompareAndDelete, Found};

/// The abilities of a server for locks without companion keys, as far as they are known.
#[derive(Default)]
pub(in crate::store::redis) struct Abilities {
    pub(super) scripts: Scripts,
    /// Whether the server lacks `SET` with both `NX` and `GET`.
    pub(super) lacks_set: bool,
    pub(super) native: Native,
}

/// Whether the server runs scripts for this user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Scripts {
    /// Not known yet. A command could take a lock that nobody can release, unless the server also
    /// has a command that releases.
    #[default]
    Untried,
    Allowed,
    Refused,
}

/// Whether a command releases a lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Native {
    #[default]
    Unasked,
    Asked,
    Answered(Found),
}

impl Abilities {
    /// The server ran a script.
    pub(super) const fn allows_scripts(&mut self) {
        self.scripts = Scripts::Allowed;
    }

    pub(super) fn native(&self) -> Option<CompareAndDelete> {
        match self.native {
            Native::Answered(Found::Command(native)) => Some(native),
            _ => None,
        }
    }

    pub(super) fn was_probed(&mut self, found: Found) {
        self.native = match (found, self.native) {
            (Found::Unknown, Native::Answered(before)) => Native::Answered(before),
            (Found::Unknown, Native::Unasked | Native::Asked) => Native::Unasked,
            (found, _) => Native::Answered(found),
        };
    }
}
