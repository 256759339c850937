//! How a lock treats clients of other libraries, which poll and take no place in line.

/// How a lock shares its name with clients of other libraries, which poll and do not queue.
///
/// Mutual exclusion, the order of Leasehold's own waiters and fencing tokens hold with each of
/// them. Clients with different choices may lock the same name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Coexist {
    /// Releases hand the lock over to the next in line. Now and then the line stands aside, so that
    /// a client that polls can take the lock. While waiters of Leasehold take the lock without a
    /// gap, the line stands aside for 30 ms about once a second. Once a client that polls was seen,
    /// the line has the lock for 100 ms and then stands aside for 300 ms, or until 30 ms after one
    /// of them was seen with the lock. If they do not come back, the line stands aside more and
    /// more rarely.
    ///
    /// Needs a store that [opens](crate::store::Capabilities::opens): a Redis or Valkey server, or
    /// a cluster. Elsewhere it is the same as [`Off`](Self::Off).
    #[default]
    Auto,
    /// Every release frees the lock for the first client that asks, instead of handing it over.
    /// Waiters pause for 5 to 10 ms, and so do clients that lock again at once while another client
    /// of Leasehold waits. So a client that polls more often has the lock most of the time. A
    /// client that polls less often gets it now and then. A single task of Leasehold that locks
    /// again and again without a pause leaves it no gap. Hand-overs between clients of Leasehold
    /// take some milliseconds longer.
    ///
    /// For stores that never open, where a client that polls gets no turn with
    /// [`Auto`](Self::Auto). On a single server, [`Auto`](Self::Auto) serves slow clients as well
    /// as this, or better.
    On,
    /// Releases always hand the lock over. A client that polls may wait for as long as clients of
    /// Leasehold wait in line.
    Off,
}
