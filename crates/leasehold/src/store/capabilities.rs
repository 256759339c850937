//! What a store promises.

/// What a store promises. What is missing is refused, not emulated.
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
    /// Who asked by an owner token without waiting ([`Line::Stand`](super::Line::Stand)), and was
    /// not granted it, may ask by the same one again: nothing is given back behind its back, which
    /// could end what it is granted then. Without it, whoever asks again does so by a fresh token.
    pub reask: bool,
    /// An ask that fails may have been granted, and given back by the store itself: that release
    /// may come late, or twice. Whoever goes on after such a failure, or after the future of an ask
    /// was dropped, does so by a fresh token.
    pub gives_back: bool,
    /// Those who wait far back in a line ([`is_far`](crate::core::line::is_far)) are told to ask
    /// when they come near its front, and their places live until they would ask by themselves
    /// ([`place_life`](crate::core::line::place_life)). So they ask rarely.
    pub calls_up: bool,
    /// How far hints reach.
    pub hints: Reach,
    /// How far the locks themselves reach.
    pub reach: Reach,
    /// [`Store::browse`](super::Store::browse) is there.
    pub browse: bool,
    /// Leases and counters survive the end of every process that uses the store.
    pub durable: bool,
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
        gives_back: false,
        calls_up: false,
        hints: Reach::Nobody,
        reach: Reach::Process,
        browse: false,
        durable: false,
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
