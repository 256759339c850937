//! The public API, on the memory store and in real time.

#![allow(missing_docs, reason = "a test binary")]
#![allow(clippy::disallowed_methods, reason = "these tests run on real time and a real runtime")]

mod blocking;
mod bounds;
mod clock;
mod examples;
mod listing;
mod mutex;
mod secrets;
