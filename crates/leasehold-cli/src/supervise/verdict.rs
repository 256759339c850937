//! How a supervision ends.

use rustix::process::Signal;

use crate::exit::Exit;

/// How a supervision ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The command ran.
    Ran(Verdict),
    /// The lease was about to end before the command could begin, so nothing was run. Meanwhile,
    /// this signal may have asked us to stop.
    TooLate(Option<Signal>),
}

/// How a supervision ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// Our own exit.
    pub(crate) exit: Exit,
    /// The fate of the lease.
    pub(crate) lease: Lease,
    /// Why the command ended.
    pub(crate) cause: Cause,
    /// Whether the command ended before anything told it to stop.
    pub(crate) by_itself: bool,
    /// Whether a HUP came before the command ended. Some commands take it as a request to stop.
    pub(crate) hung_up: bool,
}

/// Why a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The command ended by itself, or something else ended it.
    Command,
    /// The lease was lost, or about to end.
    Lease,
    /// We were asked to stop.
    Request,
    /// We were asked to let go of the lock.
    Revoked,
}

/// The fate of the lease at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lease {
    /// We release it: nobody acts under it any more.
    Release,
    /// The lease is gone.
    Lost,
    /// We leave it to expire: somebody may still act under it.
    LeaveToExpire,
}
