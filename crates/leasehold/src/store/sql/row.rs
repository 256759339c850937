//! Rows of an answer, as a server sends them.

use crate::core::error::Error;

/// A row of an answer: the columns as text, `None` for null.
pub(in crate::store) type Row = Vec<Option<String>>;

/// The rows of an answer, or why there are none.
pub(in crate::store) type Answer = Result<Vec<Row>, Error>;
