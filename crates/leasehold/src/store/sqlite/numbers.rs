//! Moments, spans and counts as the integers of SQL.

use std::time::Duration;

use crate::core::moment::{Moment, WallTime};

/// A moment for SQL. SQL integers are signed; 292 years after boot are enough.
pub(super) fn sql_moment(at: Moment) -> i64 {
    i64::try_from(at.as_nanos()).unwrap_or(i64::MAX)
}

/// A time of day for SQL.
pub(super) fn sql_wall(at: WallTime) -> i64 {
    i64::try_from(at.as_unix_micros()).unwrap_or(i64::MAX)
}

/// A number of rows for SQL.
pub(super) fn sql_count(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// A duration for SQL.
pub(super) fn sql_span(span: Duration) -> i64 {
    i64::try_from(span.as_nanos()).unwrap_or(i64::MAX)
}
