//! Equivalents of locks that people already use on Redis: the same calls, answers, keys and values.
//! So processes can move to Rust one by one while the others still run.
//!
//! | in place of | use | on the server |
//! |---|---|---|
//! | go-zero's `redis.RedisLock` | [`gozero::RedisLock`] | `key` → 16 letters and digits, `PX` |
//! | the Jedis recipe | [`jedis::RedisDistributedLock`] | `key` → a UUID, `PX` |
//! | redsync v4 | [`redsync::Redsync`] | on most servers: `name` → 16 bytes in Base64, `PX` |
//!
//! Each contends for the same key with its original and with [`leasehold::Mutex`]. It also contends
//! with any other client that sets the key with `NX` and `PX` and compares before it deletes.
//!
//! # Prefer `leasehold::Mutex`
//!
//! These types do only what their originals do. They renew nothing, tell nobody of a lost lock, let
//! waiters poll, and have no fencing tokens. For new code, and as soon as the last process uses
//! Leasehold, use
//!
//! ```
//! # async fn example(client: leasehold::Client) -> Result<(), leasehold::Error> {
//! let guard = client.mutex("stock:42").lock().await?;
//! // … the work; guard.lost() says if it must stop …
//! guard.release().await?;
//! # Ok(()) }
//! ```
//!
//! with the same name. Its line stands aside now and then, so that clients that poll have their
//! turns. [`coexist`](leasehold::Mutex::coexist) chooses how much of the lock they get.
//!
//! # What differs from all namesakes
//!
//! - A ttl is at most 24 h. Acquiring again never shortens it: a longer remaining time stays.
//! - A key is 1 to 512 bytes of UTF-8 without control characters and without `:lh:`. The first call
//!   reports a bad key as [`Config`](leasehold::ErrorKind::Config).
//! - A release also wakes the first of Leasehold's own waiters, if there are any. For this, the
//!   user of the server needs the rights that GUARANTEES.md lists for waiting in line. On
//!   ZooKeeper, a release gives the key to that waiter.
//! - Each lock, and each node of redsync, needs a single server, a file or memory as its store. A
//!   [`Quorum`](leasehold::store::Quorum) or a store with copies (`?replicas=1`, `?fsync=yes`) may
//!   release a lock in the background if one value asks for it twice. All of these types ask twice
//!   with one value, so the first call reports such a store as `Config`. Give the servers of a
//!   quorum to [`redsync`], or use [`leasehold::Mutex`].
//! - A strict server that may have forgotten who holds the key answers neither *free* nor *taken*,
//!   but [`Unavailable`](leasehold::ErrorKind::Unavailable). Nothing was granted then, and the
//!   message says how long this lasts.
//! - On a store other than Redis, an acquire of a free key may answer *taken*: if others wait in
//!   line, the first of them gets the key.

pub mod gozero;
pub mod jedis;
pub mod redsync;

mod lock;
mod value;

/// The examples of the page about moving are compiled with the doctests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/moving.md")]
struct Moving;
