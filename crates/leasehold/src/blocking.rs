//! Locks in programs without `async`.
//!
//! [`block_on`] runs one call of this library on the calling thread, and blocks the thread until it
//! has ended. It works for every call that returns a `Result`, so there is no second set of types:
//!
//! ```
//! use leasehold::blocking::block_on;
//! use leasehold::{Client, Error, Release};
//!
//! fn main() -> Result<(), Error> {
//!     let client = block_on(Client::connect("memory:"))?;
//!     let guard = block_on(client.mutex("nightly-report").lock())?;
//!     for step in 0..10 {
//!         if !guard.is_held() {
//!             break; // Nobody can stop this thread from outside, so it looks before each step.
//!         }
//!         println!("step {step}");
//!     }
//!     assert_eq!(block_on(guard.release())?, Release::Released);
//!     Ok(())
//! }
//! ```
//!
//! Connections and timers live on the thread of the library, which also renews the locks. So the
//! calling thread may do anything between two calls, and a dropped guard is released in the
//! background. At the end, call `release()`. Otherwise the program may end before the release is
//! sent.

use crate::core::error::Error;
use crate::host;

/// Runs `call` to its end, and blocks the calling thread meanwhile. It sets no time limit: use
/// [`Mutex::lock_timeout`](crate::Mutex::lock_timeout) to wait for a limited time.
///
/// A client that was connected in this way may also be used by `async` code, and the reverse. The
/// connections of a client live where its first request was made. If that was a runtime of yours,
/// then that runtime must go on running.
///
/// Tasks that `call` spawns with `tokio::spawn` run on the thread that renews all leases. So they
/// must not block or compute for long: do that on the calling thread, or on threads of your own.
///
/// # Errors
///
/// The errors of the call, and:
///
/// - [`Config`](crate::ErrorKind::Config) in the context of a tokio runtime, where blocking could
///   stop all tasks of the thread. Use `.await` there. On a thread of
///   `tokio::task::spawn_blocking`, use `tokio::runtime::Handle::block_on`. Other runtimes are not
///   recognised.
/// - [`Config`](crate::ErrorKind::Config) in the destructor of a thread-local, where nothing can
///   wait any more.
/// - [`Unavailable`](crate::ErrorKind::Unavailable) if the process cannot start the thread of the
///   library.
///
/// In these three cases `call` was dropped without a request, and a guard in it is released.
///
/// # Examples
///
/// A wait of two seconds at most:
///
/// ```
/// use std::time::Duration;
///
/// use leasehold::blocking::block_on;
/// use leasehold::{Client, ErrorKind};
///
/// # fn main() -> Result<(), leasehold::Error> {
/// let client = block_on(Client::connect("memory:"))?;
/// match block_on(client.mutex("stock").lock_timeout(Duration::from_secs(2))) {
///     Ok(guard) => drop(block_on(guard.release())?),
///     Err(error) if error.kind() == ErrorKind::WaitElapsed => println!("another one sells"),
///     Err(error) => return Err(error),
/// }
/// # Ok(()) }
/// ```
pub fn block_on<T>(call: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    host::block_on(call)?
}
