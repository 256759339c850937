//! The news about the supervision of a command, which become messages.

use std::time::Duration;

use leasehold::Lost;

/// A change that deserves a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// The lease was not renewed when it should have been.
    Overdue { left: Duration },
    /// The lease was renewed after all.
    Renewed,
    /// The command is told to stop because the deadline is near.
    Stopping { left: Duration },
    /// The lease was lost.
    Lost(Lost),
    /// The command is told to stop because the end of `--max-hold` is near.
    TimeOver { left: Duration },
    /// The command is killed because of the lease.
    Killing,
    /// The command is killed because of `--max-hold`.
    KillingInTime,
    /// The command is killed because of a second signal.
    KillingAsAsked,
    /// The command is killed because its keeper was killed.
    KeeperGone,
    /// We leave without waiting.
    Leaving,
    /// We are being stopped, and the lease will lapse.
    Suspending { left: Duration },
    /// The command ended, but a process that it started still lives.
    Lingering,
    /// Processes live on although they were killed.
    Unkilled,
}
