//! The store on real ZooKeeper servers, in real time.
#![allow(clippy::disallowed_methods, reason = "servers live in real time, on threads of their own")]

mod failing_over;
mod foreign;
mod interrupted;
mod losing;
mod refusals;
mod revoking;
mod waiting;

use crate::real_time::{client, until};
