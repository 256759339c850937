//! The names of the invariants that the checker of histories knows.

/// The page whose table begins with the name and the meaning of each invariant.
const PAGE: &str = include_str!("trust/page.md");

/// All names.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
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

    /// The source of the checker, whose variants have these names in kebab case.
    const CHECKED: &str = include_str!("../../crates/leasehold-testkit/src/history/invariant.rs");

    fn kebab(variant: &str) -> String {
        let small = |letter: char| match letter.is_ascii_uppercase() {
            true => format!("-{}", letter.to_ascii_lowercase()),
            false => letter.to_string(),
        };
        variant.chars().map(small).collect::<String>().trim_start_matches('-').to_owned()
    }

    #[test]
    fn the_invariants_are_those_of_the_checker() {
        let declared = CHECKED.split_once("pub enum Invariant {").expect("it is there").1;
        let lines = declared.lines().take_while(|line| *line != "}");
        let checked = lines.filter_map(|line| line.trim().strip_suffix(',').map(kebab));
        assert_eq!(checked.collect::<Vec<_>>(), names().collect::<Vec<_>>());
        assert!(NEED_THE_SERVER.into_iter().all(is_known));
    }
}
