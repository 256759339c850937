//! The SQLite store uses only the public API. Here, its source is compiled outside of the library,
//! as a store of somebody else would be. So everything that it takes from the library must be
//! public.
//!
//! Compiling this is the test. For cargo it is an example, since the store's own tests look inside
//! the library, and would not compile here.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "the library uses it, and this program only tests it"
)]

mod store;

/// The modules of the library by the names that it uses for itself.
mod core {
    pub(crate) use leasehold::core::{claim, error, key, line, moment, token, ttl, validity};
}
use leasehold::{host, process};

fn main() -> Result<(), leasehold::Error> {
    let path = std::env::args_os().nth(1).unwrap_or_else(|| "locks.db".into());
    let opened = store::sqlite::SqliteStore::open(path.as_ref(), host::SystemHost::shared())?;
    println!("{:?}", leasehold::store::Store::capabilities(&opened));
    Ok(())
}
