//! The store on real etcd servers, in real time.
#![allow(clippy::disallowed_methods, reason = "servers live in real time, on threads of their own")]

mod crossing;
mod failing_over;
mod leases;
mod logins;
mod losing;
mod refusals;
mod waiting;

use crate::real_time::{client, until};
