//! The store on a real MariaDB server, in real time.
#![allow(clippy::disallowed_methods, reason = "servers live in real time, on threads of their own")]

mod batches;
mod claims;
mod keeper;
mod migrating;
mod refusals;
mod tls;
mod trouble;
mod versions;
mod waiting;

use crate::real_time::{client, until};
