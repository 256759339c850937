//! A number of permits.

use leasehold::store::PERMITS_MAX;

/// Reads a number of permits. Whether there can be so many is for the lock to say, with its name.
pub(super) fn parse(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("a whole number from 1 to {PERMITS_MAX} is meant, such as 3"))
}
