//! Whether the clients of a store are strict: what its URL expects, and what the database says.
//!
//! | the database | `strict=yes` | no option | `strict=no` |
//! |---|---|---|---|
//! | is not in strict mode | strict, with a warning | not strict | not strict |
//! | is in strict mode | strict | strict | refused |
//!
//! Without an option, the first answer decides for the life of the store. If the user has no right
//! to read the record, the database counts as *not in strict mode*. So all requests of a store are
//! strict, or none, whatever happens to the record meanwhile:
//!
//! | the store is | and a later connection finds the database | the connection is |
//! |---|---|---|
//! | strict | not in strict mode: it was emptied, or switched off | strict |
//! | not strict | in strict mode | refused |

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use super::{Strict, Strictness};
use crate::core::error::{Error, ErrorKind};

/// The agreement of the connections of one store. Clones share it.
#[derive(Clone, Default)]
pub(in crate::store::redis) struct Settled {
    /// Whether the database was in strict mode when the first connection asked it.
    is_on: Arc<OnceLock<bool>>,
    told: Arc<AtomicBool>,
    record: Record,
}

/// Whether there is a record to ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Record {
    #[default]
    Asked,
    /// A cluster has none, and commands about the record itself must work with any record.
    Ignored,
}

impl Settled {
    /// Makes an agreement for connections that ask for no record and are not strict.
    pub(in crate::store::redis) fn without_record() -> Self {
        Self { record: Record::Ignored, ..Self::default() }
    }

    /// Whether a connection asks the database for its record.
    pub(in crate::store::redis) fn asks(&self) -> bool {
        self.record == Record::Asked
    }

    /// Whether a client with this expectation is strict, as far as is known.
    pub(in crate::store::redis) fn resolve(&self, expected: Strictness) -> Strictness {
        match (expected, self.is_on.get()) {
            _ if !self.asks() => Strictness::No,
            (Strictness::AsDatabase, Some(true)) => Strictness::Yes(Strict::STANDARD),
            (Strictness::AsDatabase, Some(false)) => Strictness::No,
            (expected, _) => expected,
        }
    }

    /// Decides whether a new connection is strict: `None` if it is not. The first answer of a
    /// database settles it for all connections.
    ///
    /// # Errors
    ///
    /// `Config` if the database is in strict mode, and the client is not strict.
    pub(in crate::store::redis) fn agree(
        &self,
        expected: Strictness,
        is_on: bool,
    ) -> Result<Option<Strict>, Error> {
        if expected == Strictness::AsDatabase {
            self.is_on.get_or_init(|| is_on);
        }
        let resolved = self.resolve(expected);
        match (resolved.strict(), expected) {
            (None, Strictness::AsDatabase) if is_on => Err(switched_on_meanwhile()),
            (None, _) if is_on => Err(switched_on()),
            (strict, _) => Ok(strict),
        }
    }

    /// Whether this is the first call on any clone.
    pub(in crate::store::redis) fn tell_once(&self) -> bool {
        !self.told.swap(true, Ordering::Relaxed)
    }
}

impl PartialEq for Settled {
    /// Compares what the URL says, and ignores what was learned since.
    fn eq(&self, other: &Self) -> bool {
        self.record == other.record
    }
}

impl Eq for Settled {}

impl fmt::Debug for Settled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Settled({:?})", self.is_on.get())
    }
}

/// `Config`, because the strict clients rely on each other.
fn switched_on() -> Error {
    Error::new(
        ErrorKind::Config,
        "this database is switched to strict mode, and this client is not strict: its URL says \
         `strict=no`, or it uses a connector without a URL; no request was sent; connect by a URL \
         without `strict=no`; `leasehold strict status` says who switched it on, and `leasehold \
         strict off` switches it off",
    )
}

/// `Config`, because the requests of this store were not strict so far.
fn switched_on_meanwhile() -> Error {
    Error::new(
        ErrorKind::Config,
        "this database was switched to strict mode after this client had connected; no request \
         was sent; start this program again: it will be strict; `leasehold strict status` says \
         who switched it on",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const YES: Strictness = Strictness::Yes(Strict::STANDARD);

    /// Whether a client is strict; `None` if it is refused.
    fn agreed(settled: &Settled, expected: Strictness, is_on: bool) -> Option<bool> {
        settled.agree(expected, is_on).ok().map(|strict| strict.is_some())
    }

    #[test]
    fn a_client_is_what_it_expects_or_what_the_database_says_or_refused() {
        for (expected, is_on, outcome) in [
            (YES, false, Some(true)),
            (YES, true, Some(true)),
            (Strictness::AsDatabase, false, Some(false)),
            (Strictness::AsDatabase, true, Some(true)),
            (Strictness::No, false, Some(false)),
            (Strictness::No, true, None),
        ] {
            let settled = Settled::default();
            assert_eq!(agreed(&settled, expected, is_on), outcome, "{expected:?} {is_on}");
            let resolved = settled.resolve(expected).strict().is_some();
            assert_eq!(resolved, outcome == Some(true), "{expected:?} {is_on}");
        }
    }

    #[test]
    fn the_findings_of_the_first_connection_hold_for_the_life_of_the_store() {
        let silent = Strictness::AsDatabase;
        let settled = Settled::default();
        assert_eq!(settled.resolve(silent), silent, "nobody has asked yet");
        assert_eq!(agreed(&settled, silent, true), Some(true));
        assert_eq!(agreed(&settled.clone(), silent, false), Some(true), "it was emptied");
        assert_eq!(settled.resolve(silent), YES);
        let settled = Settled::default();
        assert_eq!(agreed(&settled, silent, false), Some(false));
        let error = settled.clone().agree(silent, true).expect_err("switched on meanwhile");
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().contains("start this program again"), "{error}");
        assert_eq!(settled.resolve(silent), Strictness::No);
    }

    #[test]
    fn a_url_that_asks_for_no_record_is_not_strict() {
        let settled = Settled::without_record();
        for expected in [YES, Strictness::AsDatabase, Strictness::No] {
            assert_eq!(settled.resolve(expected), Strictness::No);
        }
        assert!(!settled.asks());
    }
}
