//! A receiver of hints for tests in which no hint matters.

use leasehold::store::{Hint, HintSink};

/// Takes hints and forgets them.
#[derive(Debug)]
pub struct Deaf;

impl HintSink for Deaf {
    fn hint(&self, _: Hint) {}
}
