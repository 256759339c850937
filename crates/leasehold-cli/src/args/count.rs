//! A number of permits.

use leasehold::store::PERMITS_MAX;

/// Reads a number of permits. The lock checks the range later, with its name in the error.
pub(super) fn parse(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("write a whole number from 1 to {PERMITS_MAX}, such as 3"))
}
