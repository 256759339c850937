//! The part that all stores on SQL servers share. A step is one call of a procedure in the
//! database.
//!
//! | file | purpose |
//! |---|---|
//! | `engine` | what an engine brings: connections, its form of SQL |
//! | `store` | the contract over any engine |
//! | `wire` | sends requests in order, and connects again |
//! | `batch` | requests that wait together, as one message |
//! | `call`, `answer`, `hint` | requests as SQL, rows as answers, texts as hints |
//! | `hints` | the task that receives hints, with what an engine brings for it |
//! | `row` | rows of an answer |
//! | `records` | what a store writes now and then |
//! | `url` | what a URL says |
//! | `version` | which tables and functions a database has, and which builds may use them |
//! | `migrated` | what the migrations of all engines share |
//! | `examine` | asks a database what a diagnosis needs |
//! | `errors`, `text` | texts of servers, and texts for them |

mod answer;
mod batch;
mod call;
pub(super) mod engine;
pub(super) mod errors;
pub(crate) mod examine;
pub(super) mod hint;
mod hints;
mod locked_row;
mod migrated;
mod records;
mod row;
mod store;
pub(super) mod text;
pub(super) mod url;
pub(super) mod version;
mod wire;

#[cfg(feature = "postgres")]
pub(super) use self::batch::SIZE_MAX;
pub(super) use self::batch::{Batch, Refused};
pub(super) use self::engine::{Dialect, Engine, Link};
pub(super) use self::hints::{Hints, Receive};
pub use self::migrated::Migrated;
pub(super) use self::migrated::version_before;
pub(super) use self::row::Row;
pub(super) use self::store::SqlStore;
