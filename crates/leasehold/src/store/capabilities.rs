//! The promises of a store.

/// The promises of a store. A store refuses a request that it does not promise. It never imitates a
/// feature that it lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// Grants [`Claim::Shared`](super::Claim::Shared).
    pub shared: bool,
    /// Grants [`Claim::Permits`](super::Claim::Permits).
    pub permits: bool,
    /// Fencing tokens that rise with every grant.
    pub fencing: bool,
    /// [`Line::Join`](super::Line::Join): first come first served, hand-over in one step.
    pub line: bool,
    /// [`Line::Watch`](super::Line::Watch).
    pub watching: bool,
    /// One owner token may be used for lock after lock, as some other libraries do. The store
    /// never releases anything in the background, so it cannot end a later lock of that token.
    pub reask: bool,
    /// Waiters far back in a line ([`is_far`](crate::core::line::is_far)) ask rarely, because the
    /// store tells them to ask when they come near its front. Their places live until they would
    /// ask by themselves ([`place_life`](crate::core::line::place_life)).
    pub calls_up: bool,
    /// [`OnRelease::Open`](super::OnRelease::Open): now and then the line stands aside for clients
    /// that take no place in it.
    pub opens: bool,
    /// A lease belongs to its owner token. So another handle, also in another process, may renew
    /// it, and ask for it again. Where this is false, a lease ends with the handle that took it.
    /// Then another handle may still release it.
    pub detached: bool,
    /// A key whose lease has ended is free until somebody asks for it, even if others wait in line
    /// ([`OnRelease::FreeAndWake`](super::OnRelease::FreeAndWake)). Where this is false, the first
    /// place in line has the key from that moment on.
    pub frees: bool,
    /// How far hints reach.
    pub hints: Reach,
    /// How far the locks themselves reach.
    pub reach: Reach,
    /// [`Store::browse`](super::Store::browse) is there.
    pub browse: bool,
    /// [`Browse::revoke`](super::Browse::revoke): a holder can be asked to let go.
    pub revoke: bool,
    /// Leases and counters survive the end of every process that uses the store.
    pub durable: bool,
    /// Whether the store grants nothing new for a while after it may have forgotten leases. A
    /// quorum refuses a mix of nodes that say *yes* and *no*. `None` if the store does not say, or
    /// does not know before it connects.
    pub strict: Option<bool>,
}

impl Capabilities {
    /// A store that promises nothing but exclusive leases within one process.
    pub const NONE: Self = Self {
        shared: false,
        permits: false,
        fencing: false,
        line: false,
        watching: false,
        reask: false,
        calls_up: false,
        opens: false,
        detached: false,
        frees: false,
        hints: Reach::Nobody,
        reach: Reach::Process,
        browse: false,
        revoke: false,
        durable: false,
        strict: None,
    };
}

/// How far something reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Reach {
    /// Nobody.
    Nobody,
    /// The tasks and clients of one process.
    Process,
    /// The processes of one machine.
    Machine,
    /// Every machine that reaches the store.
    Network,
}
