//! The variables of the environment that begin with `LEASEHOLD_`.

use std::ffi::OsString;

/// The prefix of the variables that Leasehold reads.
const PREFIX: &str = "LEASEHOLD_";

/// The store.
pub(crate) const URL: &str = "LEASEHOLD_URL";
/// The file that contains the URL of the store.
pub(crate) const URL_FILE: &str = "LEASEHOLD_URL_FILE";
/// The namespace: the prefix of every name in the store.
pub(crate) const NAMESPACE: &str = "LEASEHOLD_NAMESPACE";
/// The owner token of the lease to use.
pub(crate) const TOKEN: &str = "LEASEHOLD_TOKEN";
/// The name of the lock that the token belongs to.
pub(crate) const NAME: &str = "LEASEHOLD_NAME";
/// The owner tokens of all enclosing runs, the innermost last.
pub(crate) const CHAIN: &str = "LEASEHOLD_CHAIN";
/// The fencing token.
pub(crate) const FENCE: &str = "LEASEHOLD_FENCE";
/// The ttl.
pub(crate) const TTL_MS: &str = "LEASEHOLD_TTL_MS";
/// When the lease would end without a renewal.
pub(crate) const EXPIRES_AT_MS: &str = "LEASEHOLD_EXPIRES_AT_MS";
/// The store without its password.
pub(crate) const STORE: &str = "LEASEHOLD_STORE";
/// The filter of the log.
pub(crate) const LOG: &str = "LEASEHOLD_LOG";

/// All variables with a meaning.
const KNOWN: [&str; 11] =
    [URL, URL_FILE, NAMESPACE, TOKEN, NAME, CHAIN, FENCE, TTL_MS, EXPIRES_AT_MS, STORE, LOG];

/// The prefixes of variables for the tests of this project.
const OF_TESTS: [&str; 6] = [
    "LEASEHOLD_TEST_",
    "LEASEHOLD_FUZZ_",
    "LEASEHOLD_TESTKIT_",
    "LEASEHOLD_COMPAT_",
    "LEASEHOLD_CONFORMANCE_",
    "LEASEHOLD_SUPERVISION_",
];

/// The most unknown variables to mention, and the longest part of a name to compare.
const SHOWN_MAX: usize = 8;
const COMPARED_MAX: usize = 64;

/// An unknown variable that begins like ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unknown {
    /// Its name.
    pub(crate) name: String,
    /// The variable that was probably meant, if one is similar enough.
    pub(crate) meant: Option<&'static str>,
}

impl Unknown {
    /// Whether the variable was probably meant to name the store.
    pub(crate) fn is_store(&self) -> bool {
        matches!(self.meant, Some(URL | URL_FILE))
    }

    /// The message about it.
    pub(crate) fn complaint(&self) -> String {
        let meant = self.meant.map(|meant| format!(" (did you mean {meant}?)")).unwrap_or_default();
        format!("Leasehold does not read the variable {}{meant}", self.name)
    }
}

/// The variables among `names` that begin with our prefix but are not read by anything.
pub(crate) fn unknown(names: impl IntoIterator<Item = OsString>) -> Vec<Unknown> {
    let names = names.into_iter().map(|name| name.to_string_lossy().into_owned());
    let strange = |name: String| {
        if !name.starts_with(PREFIX) {
            return misspelt_prefix(&name).map(|meant| Unknown { name, meant: Some(meant) });
        }
        let is_known = KNOWN.contains(&&*name)
            || OF_TESTS.iter().any(|ours| name.starts_with(ours))
            || is_of_a_service(&name);
        (!is_known).then(|| Unknown { meant: nearest(&name), name })
    };
    let mut all: Vec<_> = names.filter_map(strange).collect();
    // One that was meant to name the store must not be cut off: it decides which lock is taken.
    all.sort_by_key(|variable| !variable.is_store());
    all.truncate(SHOWN_MAX);
    all
}

/// Whether Kubernetes sets a variable of this name for a service whose name begins with
/// `leasehold`. Examples are `LEASEHOLD_SERVICE_HOST` and `LEASEHOLD_PORT_80_TCP_ADDR`.
fn is_of_a_service(name: &str) -> bool {
    let (_, port) = name.split_once("_PORT").unwrap_or((name, "none"));
    let begins_with_number =
        port.strip_prefix('_').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    name.ends_with("_SERVICE_HOST")
        || name.contains("_SERVICE_PORT")
        || port.is_empty()
        || begins_with_number
}

/// The known name that differs only by a mistake in the prefix, as in `LEASHOLD_URL` and
/// `LEASEHOLDURL`.
fn misspelt_prefix(name: &str) -> Option<&'static str> {
    let upper = name.to_ascii_uppercase();
    let letters = |text: &str| text.chars().take(COMPARED_MAX).collect::<Vec<_>>();
    KNOWN.into_iter().find(|known| {
        let rest = &known[PREFIX.len()..];
        upper.strip_suffix(rest).is_some_and(|prefix| {
            let is_whole = prefix.ends_with('_') || PREFIX.strip_suffix('_') == Some(prefix);
            is_whole && distance(&letters(prefix), &letters(PREFIX)) <= 2
        })
    })
}

/// The known name that was probably meant. That is the nearest name if it is near enough, else a
/// name that begins with the same letters, else `LEASEHOLD_URL` if a part of the given name looks
/// like "URL".
fn nearest(name: &str) -> Option<&'static str> {
    let of = |name: &str| -> Vec<char> {
        let rest = name.strip_prefix(PREFIX).unwrap_or(name);
        rest.chars().take(COMPARED_MAX).map(|c| c.to_ascii_uppercase()).collect()
    };
    let given = of(name);
    let (distance, known) =
        KNOWN.iter().map(|known| (distance(&given, &of(known)), *known)).min()?;
    if distance <= 2 && distance * 3 <= given.len().max(of(known).len()) {
        return Some(known);
    }
    let begins_alike = |known: &&&str| given.len() >= 3 && of(known).starts_with(&given);
    let speaks_of_url = || given.split(|c| *c == '_').any(is_url);
    KNOWN.iter().find(begins_alike).copied().or_else(|| speaks_of_url().then_some(URL))
}

/// Whether a part of a name is the word URL, or one like it.
fn is_url(part: &[char]) -> bool {
    matches!(part, ['U', 'R', 'L' | 'I', ..])
}

/// The edit distance: characters added, removed, replaced or swapped with their neighbour.
pub(crate) fn distance(a: &[char], b: &[char]) -> usize {
    let mut rows = vec![(0..=b.len()).collect::<Vec<_>>()];
    for (i, &left) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, &right) in b.iter().enumerate() {
            let replaced = rows[i][j] + usize::from(left != right);
            let mut least = replaced.min(rows[i][j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && left == b[j - 1] && a[i - 1] == right {
                least = least.min(rows[i - 1][j - 1] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_that_nothing_reads_is_found_with_the_one_that_was_meant() {
        for (name, meant) in [
            ("LEASEHOLD_URI", Some(URL)),
            ("LEASEHOLD_ULR", Some(URL)),
            ("LEASEHOLD_URLS", Some(URL)),
            ("LEASEHOLD_UR", Some(URL)),
            ("LEASEHOLD_RL", Some(URL)),
            ("LEASEHOLDURL", Some(URL)),
            ("LEASEHOLD_url", Some(URL)),
            ("LEASEHOLD_URL_FIEL", Some(URL_FILE)),
            ("LEASEHOLD_URLFILE", Some(URL_FILE)),
            ("LEASEHOLD_NAMESPCE", Some(NAMESPACE)),
            ("LEASEHOLD_TOKENS", Some(TOKEN)),
            ("LEASEHOLD_TTL", Some(TTL_MS)),
            ("LEASEHOLD_STORE_URL", Some(URL)),
            ("LEASEHOLD_REDIS_URI", Some(URL)),
            ("LEASEHOLD_REDIS_URL1", Some(URL)),
            ("LEASEHOLD_PROD_URLLIST", Some(URL)),
            ("LEASEHOLD_URGENT", None),
            ("LEASHOLD_URL", Some(URL)),
            ("LEASE_HOLD_URL_FILE", Some(URL_FILE)),
            ("leasehold_url", Some(URL)),
            ("LAESEHOLD_TOKEN", Some(TOKEN)),
            ("LEASEHOLD_HOST", None),
            ("LEASEHOLD_PASSWORD", None),
            ("LEASEHOLD_", None),
            ("LEASEHOLD_X", None),
            ("LEASEHOLD_L", None),
            ("LEASEHOLD_PORTS", None),
            ("LEASEHOLD_PORT_URL", Some(URL)),
        ] {
            let found = unknown([OsString::from(name)]);
            assert_eq!(found, [Unknown { name: name.to_owned(), meant }], "{name}");
        }
    }

    #[test]
    fn variables_that_we_read_or_that_are_not_ours_are_no_mistake() {
        let others =
            ["LEASEHOLD_TEST_SERVER", "PATH", "MY_LEASEHOLD_URI", "HOUSEHOLD_URL", "URL", "_URL"];
        let of_kubernetes = [
            "LEASEHOLD_SERVICE_HOST",
            "LEASEHOLD_SERVICE_PORT",
            "LEASEHOLD_SERVICE_PORT_HTTP",
            "LEASEHOLD_PORT",
            "LEASEHOLD_PORT_80_TCP",
            "LEASEHOLD_PORT_80_TCP_ADDR",
            "LEASEHOLD_WEB_SERVICE_HOST",
        ];
        let ours = KNOWN.into_iter().chain(others).chain(of_kubernetes);
        let of_tests = OF_TESTS.iter().map(|prefix| format!("{prefix}X"));
        let all = ours.map(OsString::from).chain(of_tests.map(OsString::from));
        assert_eq!(unknown(all), []);
        let many = (0..1_000).map(|number| OsString::from(format!("LEASEHOLD_N{number}")));
        let found = unknown(many.chain([OsString::from("LEASEHOLD_URI")]));
        assert_eq!(found.len(), SHOWN_MAX);
        assert!(found.iter().any(Unknown::is_store), "it decides which lock is taken: {found:?}");
    }
}
