//! The public API in use, on the memory store and on real time.

#![allow(missing_docs, reason = "a test binary")]

mod bounds;
mod mutex;
