//! A check and its verdict.

use std::fmt;

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Verdict {
    /// Nothing to do.
    Ok,
    /// Locks work, but something makes them weaker or endangers them later.
    Warn,
    /// Locks do not work, or are not safe.
    Fail,
    /// The store did not let us find out.
    Unknown,
}

impl Verdict {
    /// One word for programs: `ok`, `warn`, `fail` or `unknown`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One check of one store, or of all stores of a quorum.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Check {
    /// A word for programs, such as `eviction`. It never changes its meaning.
    pub id: &'static str,
    /// How the check ended.
    pub verdict: Verdict,
    /// The store that was checked, without a password. Empty if the check is about all stores.
    pub node: String,
    /// The measured facts.
    pub evidence: String,
    /// Why the check matters for locks.
    pub why: &'static str,
    /// The remedy: a command, a line of a configuration, or a sentence.
    pub remedy: Option<String>,
}

impl Check {
    pub(super) fn at(self, node: &str) -> Self {
        Self { node: node.to_owned(), ..self }
    }
}

/// The subject of a check.
#[derive(Clone, Copy)]
pub(super) struct Subject {
    pub(super) id: &'static str,
    pub(super) why: &'static str,
}

impl Subject {
    pub(super) fn ok(self, evidence: impl Into<String>) -> Check {
        self.check(Verdict::Ok, evidence.into(), None)
    }

    pub(super) fn warn(self, evidence: impl Into<String>, remedy: impl Into<String>) -> Check {
        self.check(Verdict::Warn, evidence.into(), Some(remedy.into()))
    }

    pub(super) fn fail(self, evidence: impl Into<String>, remedy: impl Into<String>) -> Check {
        self.check(Verdict::Fail, evidence.into(), Some(remedy.into()))
    }

    #[cfg(any(feature = "_sql", feature = "redis", feature = "sqlite"))]
    pub(super) fn unknown(self, evidence: impl Into<String>, remedy: impl Into<String>) -> Check {
        self.check(Verdict::Unknown, evidence.into(), Some(remedy.into()))
    }

    fn check(self, verdict: Verdict, evidence: String, remedy: Option<String>) -> Check {
        let Self { id, why } = self;
        Check { id, verdict, node: String::new(), evidence, why, remedy }
    }
}

/// The result of an examination.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Diagnosis {
    /// All checks. Those of one store stand together.
    pub checks: Vec<Check>,
    /// The events that a lock in this deployment survives.
    pub survives: Vec<&'static str>,
    /// The events that may end a lock early, or make it unavailable.
    pub does_not_survive: Vec<&'static str>,
    /// Whether two holders may act at the same time after such an event. Then the protected
    /// resource should check fencing tokens.
    pub fencing: bool,
}

impl Diagnosis {
    /// Whether any check ended like this.
    #[must_use]
    pub fn has(&self, verdict: Verdict) -> bool {
        self.checks.iter().any(|check| check.verdict == verdict)
    }
}
