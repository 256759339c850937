//! Whether the clients of a store are strict: what its URL expects, and what the database says.
//!
//! | the database | `strict=yes` | nothing | `strict=no` |
//! |---|---|---|---|
//! | is not switched on | strict, with a warning | not strict | not strict |
//! | is switched on | strict | strict | refused |
//!
//! The first answer settles *nothing* for the life of the store. No right to read the record counts
//! as *not switched on*. So all requests of a store are strict, or none, whatever happens to the
//! record meanwhile:
//!
//! | the store is settled as | and a later connection finds the database | it is |
//! |---|---|---|
//! | strict | not switched on: it was emptied, or switched off | strict |
//! | not strict | switched on | refused |

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use super::connector::{Access, Connector, Opening};
use super::terms::{Strict, Strictness, Terms};
use crate::core::error::{Error, ErrorKind};

/// What the connections of one store agree on. Clones share it.
#[derive(Clone, Default)]
pub(super) struct Settled {
    /// Whether the database was switched on when the first connection asked it.
    is_on: Arc<OnceLock<bool>>,
    told: Arc<AtomicBool>,
    record: Record,
}

/// Whether there is a record to ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Record {
    #[default]
    Asked,
    /// A cluster has none, and commands about the record itself must work whatever it says.
    Ignored,
}

impl Settled {
    /// Of connections that ask for no record and are not strict.
    fn without_record() -> Self {
        Self { record: Record::Ignored, ..Self::default() }
    }

    /// Whether a connection asks the database for its record.
    pub(super) fn asks(&self) -> bool {
        self.record == Record::Asked
    }

    /// What a client with this expectation is, as far as is known.
    pub(super) fn resolve(&self, expected: Strictness) -> Strictness {
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
    /// `Config` if the database is switched on, and the client is not strict.
    pub(super) fn agree(&self, expected: Strictness, is_on: bool) -> Result<Option<Strict>, Error> {
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

    /// Whether this is the first call, of all clones.
    pub(super) fn tell_once(&self) -> bool {
        !self.told.swap(true, Ordering::Relaxed)
    }
}

impl PartialEq for Settled {
    /// What was learned is no part of what the URL says.
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

/// The connector of one store. All its connections agree on whether they are strict.
pub(super) struct Settling {
    inner: Arc<dyn Connector>,
    settled: Settled,
    /// Whether only the login of the inner connector counts.
    is_neutral: bool,
}

impl Settling {
    /// Of a new store, whose connections have not asked the database yet.
    pub(super) fn new(inner: Arc<dyn Connector>) -> Self {
        let is_cluster = !inner.seeds().is_empty();
        let settled = if is_cluster { Settled::without_record() } else { Settled::default() };
        Self { inner, settled, is_neutral: false }
    }

    /// For requests about the record itself: with the login of the URL, and without its terms.
    pub(super) fn neutral(inner: Arc<dyn Connector>) -> Self {
        Self { inner, settled: Settled::without_record(), is_neutral: true }
    }
}

impl Connector for Settling {
    fn open(&self) -> Opening {
        self.inner.open()
    }

    fn label(&self) -> String {
        self.inner.label()
    }

    fn may_change_unnoticed(&self) -> bool {
        self.inner.may_change_unnoticed()
    }

    fn access(&self) -> Access {
        let access = self.inner.access();
        let terms = if self.is_neutral { Terms::default() } else { access.terms };
        Access { terms, settled: self.settled.clone(), ..access }
    }

    fn seeds(&self) -> Vec<(String, u16)> {
        self.inner.seeds()
    }

    fn node(&self, host: &str, port: u16) -> Option<Arc<dyn Connector>> {
        let inner = self.inner.node(host, port)?;
        let (settled, is_neutral) = (self.settled.clone(), self.is_neutral);
        Some(Arc::new(Self { inner, settled, is_neutral }))
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
    fn what_the_first_connection_found_counts_for_the_life_of_the_store() {
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
    fn what_asks_for_no_record_is_not_strict() {
        let settled = Settled::without_record();
        for expected in [YES, Strictness::AsDatabase, Strictness::No] {
            assert_eq!(settled.resolve(expected), Strictness::No);
        }
        assert!(!settled.asks());
    }
}
