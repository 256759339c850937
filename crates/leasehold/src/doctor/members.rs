//! Checks of the members of a cluster.

use super::check::{Check, Subject};
use super::texts::{advice_of, cause_of};
use super::trials::failed;
use crate::core::error::Error;

const REACHABLE: Subject = Subject {
    id: "reachable",
    why: "Without a majority of its members, nobody gets a lock, and holders lose theirs.",
};

const MEMBERS: Subject = Subject {
    id: "members",
    why: "If a member fails, a client continues with another member that the URL names.",
};

/// The members that a URL names.
pub(super) struct Members<'a> {
    pub(super) scheme: &'static str,
    /// The name of each, and its error if it did not answer.
    pub(super) all: Vec<(&'a str, Option<&'a Error>)>,
    /// The roles of the members that answered and may tell them.
    pub(super) roles: Vec<String>,
}

impl Members<'_> {
    pub(super) fn answering(&self) -> usize {
        self.all.iter().filter(|(_, error)| error.is_none()).count()
    }

    /// Checks that a majority answers. `refused` is the reason if it did not.
    pub(super) fn reachable(refused: Option<&Error>) -> Check {
        match refused {
            Some(error) => failed(REACHABLE, error, advice_of(error)),
            None => REACHABLE.ok("a member answers, with the consent of a majority"),
        }
    }

    /// Checks that all members answer, and that there are enough.
    pub(super) fn check(&self) -> Check {
        let named = self.all.len();
        let mut evidence = format!("{} of {named} members in the URL answer", self.answering());
        if !self.roles.is_empty() {
            evidence = format!("{evidence}: {}", self.roles.join(", "));
        }
        let silent = |(name, error): &(&str, Option<&Error>)| {
            error.map(|error| format!("; {name}: {}", cause_of(error)))
        };
        let silent: String = self.all.iter().filter_map(silent).collect();
        if !silent.is_empty() {
            return MEMBERS.warn(evidence + &silent, "start them, or correct the URL");
        }
        if self.roles.iter().any(|role| role == "read-only") {
            return MEMBERS.warn(evidence, "check whether the members reach each other");
        }
        if named < 3 {
            let scheme = self.scheme;
            let advice = format!("name three members or more, as in `{scheme}://H1,H2,H3`");
            return MEMBERS.warn(evidence, advice);
        }
        MEMBERS.ok(evidence)
    }
}
