//! Drop-in equivalents of locks that people already run on Redis: the same calls, the same answers,
//! the same keys and values, so that one process after the other can move to Rust while the others
//! still run.
//!
//! | in place of | use | on the server |
//! |---|---|---|
//! | go-zero's `redis.RedisLock` | [`gozero::RedisLock`] | `key` → 16 letters and digits, `PX` |
//! | the Jedis recipe, `RedisDistributedLock` | [`jedis::RedisDistributedLock`] | `key` → a UUID, `PX` |
//! | redsync v4's `Redsync` and `Mutex` | [`redsync::Redsync`] | on most of several servers: `name` → 16 bytes in Base64, `PX` |
//!
//! Each contends with its namesake, with any other client that sets a key with `NX` and `PX` and
//! compares before it deletes, and with [`leasehold::Mutex`], all on one key.
//!
//! # Prefer `leasehold::Mutex`
//!
//! These types do what their namesakes do and no more: nothing is renewed, nobody is told that a
//! lock was lost, whoever waits polls, and no fencing token protects what is written. For new code,
//! and as soon as the last process speaks Leasehold, use
//!
//! ```
//! # async fn example(client: leasehold::Client) -> Result<(), leasehold::Error> {
//! let guard = client.mutex("stock:42").coexist().lock().await?;
//! // … the work; guard.lost() says if it must stop …
//! guard.release().await?;
//! # Ok(()) }
//! ```
//!
//! on the same name. [`coexist`](leasehold::Mutex::coexist) leaves the others their chance while
//! any of them still polls for the key; drop it when none does.
//!
//! # What differs from all namesakes
//!
//! - A ttl is at most 24 h, and acquiring again never shortens it: what is left stays if it is
//!   longer.
//! - A key is 1 to 512 bytes of UTF-8 without control characters and without `:lh:` in it. A bad
//!   one surfaces as [`Config`](leasehold::ErrorKind::Config) at the first call.
//! - A release also wakes the first of Leasehold's own waiters, if there are any. For this the
//!   user of the server needs the rights that GUARANTEES.md lists for waiting in line.
//! - The locks on one store are for a single server, or a file or memory, and so is each node of
//!   redsync. A [`Quorum`](leasehold::store::Quorum) may give back in the background what one value
//!   asks for twice, as all of these do, and so may a store with copies (`?replicas=1`,
//!   `?fsync=yes`). It surfaces as `Config` at the first call: give the servers of a quorum to
//!   [`redsync`], or use [`leasehold::Mutex`] on it.
//! - A strict server (`?strict=yes`) that may have forgotten who has the key says neither that it
//!   is free nor that it is taken: [`Unavailable`](leasehold::ErrorKind::Unavailable), which says
//!   for how long. Nothing was granted then.
//! - On a store that is no Redis, one who acquires a free key for which others wait in line hands
//!   it to the first of them, and is told that it is taken.

pub mod gozero;
pub mod jedis;
pub mod redsync;

mod lock;
mod value;
