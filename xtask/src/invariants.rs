//! The names of the invariants that the checker of histories knows.

/// The name and the meaning of each.
pub(crate) const INVARIANTS: [(&str, &str); 17] = [
    ("no-overlap", "no two validity windows of one key overlap"),
    (
        "window-inside-lease",
        "who relies on a lease owns the key on the server, for at least as long",
    ),
    ("fencing-rises", "each grant has a higher fencing token than all before it"),
    ("fence-reserved", "a fencing token is used by the owner that it was reserved for"),
    ("no-lost-wake-up", "a free key does not stay free beyond a poll while somebody waits for it"),
    ("no-orphan", "what nobody holds or waits for any more is gone in time"),
    ("line-order", "a key goes to whoever lives and has waited longest"),
    (
        "passes-bounded",
        "once another client waits, a lease is passed on 64 times and 20 ms at most",
    ),
    (
        "wanted-answered",
        "a lease with no guard is given up in time, and at once where another waits",
    ),
    ("told-before-deadline", "a holder is told of a loss before its validity ends"),
    ("calls-return", "every call ends within its limit"),
    ("release-removes-nothing", "a release by a former holder takes nothing from anybody else"),
    ("renewal-never-resurrects", "a renewal gives the key to nobody who does not own it"),
    ("spent-token", "an owner token that was released or lost is never used again"),
    ("nothing-immortal", "every key on the server ends by itself"),
    ("taken-is-true", "*taken* is said only where another has the key, or waits for it"),
    ("outcome-explained", "every error and every loss has a fault that explains it"),
];

/// The invariants that can be checked only with a record of the server's steps.
pub(crate) const NEED_THE_SERVER: [&str; 9] = [
    "fence-reserved",
    "window-inside-lease",
    "line-order",
    "passes-bounded",
    "release-removes-nothing",
    "renewal-never-resurrects",
    "spent-token",
    "taken-is-true",
    "wanted-answered",
];

/// Whether an invariant has that name.
pub(crate) fn is_known(name: &str) -> bool {
    INVARIANTS.iter().any(|(known, _)| *known == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The source of the checker, with its names.
    const CHECKED: &str = include_str!("../../crates/leasehold-testkit/src/history/invariant.rs");

    #[test]
    fn the_invariants_are_those_of_the_checker() {
        let names = CHECKED.lines().filter_map(|line| {
            let (_, name) = line.trim().strip_prefix("Self::")?.split_once(" => \"")?;
            name.strip_suffix("\",")
        });
        let names: Vec<&str> = names.collect();
        assert_eq!(names, INVARIANTS.map(|(name, _)| name));
        assert!(NEED_THE_SERVER.into_iter().all(is_known));
    }
}
