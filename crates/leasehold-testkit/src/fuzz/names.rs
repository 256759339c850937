//! Fuzzes names, namespaces and patterns.

use leasehold::store::MemoryStore;
use leasehold::{Client, ErrorKind, Key};

use crate::VirtualHost;

/// Reads a name, a namespace and a pattern, each from its own line. An accepted name must stay as
/// it is, and a list must contain the names that match.
///
/// # Panics
///
/// If one of these is not true.
pub fn names(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let mut lines = text.splitn(3, '\n');
    let mut line = || lines.next().unwrap_or_default();
    let (name, namespace, pattern) = (line(), line(), line());
    check_key(name);
    check_key(&text);
    let host = VirtualHost::new(1);
    host.run(async {
        let store = MemoryStore::new(host.clone());
        let client = Client::with_store(store).host(host.clone());
        let client = if namespace.is_empty() { client } else { client.namespace(namespace) };
        let client = match client.connect().await {
            Ok(client) => client,
            Err(error) => {
                let is_bad = Key::new(namespace).is_err() || namespace.contains(':');
                assert!(is_bad && error.kind() == ErrorKind::Config, "{namespace:?}: {error}");
                return;
            }
        };
        let guard = match client.mutex(name).try_lock().await {
            Ok(guard) => guard.expect("nobody else is here"),
            Err(error) => return assert_eq!(error.kind(), ErrorKind::Config, "{error}"),
        };
        let listed = client.list(pattern).await.expect("memory answers");
        let is_listed = listed.names().iter().any(|key| key.as_str() == name);
        let (pattern, shown) = (chars(pattern), chars(name));
        assert_eq!(is_listed, matches(&pattern, &shown), "{name:?} by {pattern:?}");
        drop(guard);
    });
    host.drop_tasks();
}

fn check_key(name: &str) {
    let fits = (1..=Key::MAX_BYTES).contains(&name.len());
    let is_good = fits && !name.chars().any(char::is_control) && !name.contains(":lh:");
    match Key::new(name) {
        Ok(key) => assert!(is_good && key.as_str() == name, "{name:?} is taken as {key:?}"),
        Err(error) => {
            assert!(!is_good && error.kind() == ErrorKind::Config, "{name:?} is refused: {error}");
            let shown = error.to_string();
            assert!(!shown.contains(char::is_control), "{shown:?}");
        }
    }
}

fn chars(text: &str) -> Vec<char> {
    text.chars().collect()
}

/// A reference implementation of patterns: a table of whether each prefix of the pattern matches
/// each prefix of the name.
fn matches(pattern: &[char], name: &[char]) -> bool {
    let mut row = vec![false; name.len() + 1];
    row[0] = true;
    for part in pattern {
        let mut next = vec![false; name.len() + 1];
        next[0] = *part == '*' && row[0];
        for at in 1..=name.len() {
            next[at] = match part {
                '*' => row[at] || next[at - 1],
                '?' => row[at - 1],
                other => row[at - 1] && *other == name[at - 1],
            };
        }
        row = next;
    }
    row[name.len()]
}
