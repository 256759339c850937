//! The names of the invariants that the checker of histories knows.

/// The page whose table begins with the name and the meaning of each invariant.
const PAGE: &str = include_str!("trust/page.md");

/// All names.
pub(crate) fn names<'a>() -> impl Iterator<Item = &'a str> {
    let rows = PAGE.lines().skip_while(|line| !line.starts_with("|--")).skip(1);
    rows.map_while(|row| row.strip_prefix("| `")?.split('`').next())
}

/// The invariants that only the simulation checks. They need a record of the server's steps, or are
/// about calls that chaos does not make.
pub(crate) const NEED_THE_SERVER: [&str; 21] = [
    "fence-reserved",
    "window-inside-lease",
    "line-opens",
    "line-order",
    "passes-bounded",
    "release-removes-nothing",
    "renewal-never-resurrects",
    "spent-token",
    "taken-is-true",
    "wanted-answered",
    "shares-fit",
    "no-gap",
    "starts-limited",
    "latch-counts",
    "latch-opens",
    "barrier-holds",
    "barrier-opens",
    "seen-terms-rise",
    "resignation-hands-over",
    "crash-is-taken-over",
    "hold-ends",
];

/// Whether an invariant has that name.
pub(crate) fn is_known(name: &str) -> bool {
    names().any(|known| known == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The source of the checker, with its names.
    const CHECKED: &str = include_str!("../../crates/leasehold-testkit/src/history/invariant.rs");

    #[test]
    fn the_invariants_are_those_of_the_checker() {
        let checked = CHECKED.lines().filter_map(|line| {
            let (_, name) = line.trim().strip_prefix("Self::")?.split_once(" => \"")?;
            name.strip_suffix("\",")
        });
        assert_eq!(checked.collect::<Vec<_>>(), names().collect::<Vec<_>>());
        assert!(NEED_THE_SERVER.into_iter().all(is_known));
    }
}
