//! Programs of other libraries, as `interop` and `bench --rivals` build and run them.

mod language;
mod server;

pub(crate) use language::Language;
pub(crate) use server::Server;
