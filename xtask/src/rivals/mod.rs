//! Leasehold and other libraries as programs, which `interop` and `bench --rivals` build and run.

mod language;
mod process;
mod server;
pub(crate) mod subjects;

use rustix::time::{ClockId, clock_gettime};

pub(crate) use language::{Language, Program};
pub(crate) use process::Process;
pub(crate) use server::Server;
pub(crate) use subjects::{By, Contends, SUBJECTS, Subject};

/// The clock that all processes of a machine share, in nanoseconds.
pub(crate) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}
