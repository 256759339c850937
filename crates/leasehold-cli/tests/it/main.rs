//! Drives the built command as its users do: processes, pipes, signals and a store in a file.
#![allow(clippy::disallowed_methods, reason = "tests look at real processes in real time")]
#![allow(missing_docs, reason = "the names of the tests say it")]

mod bad_input;
mod counting;
mod exit_codes;
mod harness;
mod json;
mod losing;
mod scripts;
mod signals;
mod supervising;
mod terminal;
mod waiting;
