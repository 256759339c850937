//! The failure of a case: which sentence does not hold, and what was seen instead.

use std::any::Any;
use std::fmt;

use crate::Case;

/// The text of a failure that no delay explains. Even a late run is not repeated after it.
pub(crate) struct FinalFailure(pub(crate) String);

/// A store broke a promise.
#[derive(Clone, Debug)]
pub struct Failure {
    case: Case,
    seen: String,
    time: String,
}

impl Failure {
    pub(crate) fn new(case: &Case, panic: &(dyn Any + Send), time: String) -> Self {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        let text = text.or_else(|| Some(&*panic.downcast_ref::<FinalFailure>()?.0));
        Self { case: *case, seen: text.unwrap_or("a panic without a text").to_owned(), time }
    }

    /// The case that failed.
    #[must_use]
    pub const fn case(&self) -> &Case {
        &self.case
    }

    /// How the store behaved.
    #[must_use]
    pub fn seen(&self) -> &str {
        &self.seen
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Case { promise, contract, .. } = self.case;
        let (demand, time) = (self.case.sentence(), &self.time);
        // Comparisons have several lines.
        let seen = self.seen.replace('\n', "\n            ");
        writeln!(f, "the store breaks a promise: {promise}")?;
        writeln!(f, "  demanded: {demand}")?;
        writeln!(f, "  seen:     {seen}")?;
        writeln!(f, "  contract: {contract}, in the documentation of leasehold::store")?;
        write!(f, "  run:      {time}")
    }
}
