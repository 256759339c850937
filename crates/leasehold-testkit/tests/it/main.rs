//! What is promised, held against the stores and the session, on virtual time.

#![allow(missing_docs, reason = "a test binary")]

mod capabilities;
mod conformance;
mod differential;
mod redis;
mod session;
mod stores;
