//! Fuzzes the URLs of stores.

use std::sync::Arc;

use leasehold::host::Host;
use leasehold::store::redis::{Connector as _, RedisConnector};
use leasehold::store::{Store as _, from_url, redact_url};

use crate::VirtualHost;

/// The shortest password that the test looks for. A shorter one may be part of any text.
const PASSWORD_CHARS_MIN: usize = 6;

/// Reads a URL, and a second URL whose password is the second line. No text may show the password,
/// and the label of an accepted URL must mean the same as the URL.
///
/// # Panics
///
/// If one of these is not true.
pub fn urls(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    check(&text, None);
    let mut lines = text.splitn(3, '\n');
    if let (Some(before), Some(password), Some(after)) = (lines.next(), lines.next(), lines.next())
    {
        let url = format!("{before}{password}{after}");
        let rest = format!("{before}{after} {}", messages());
        let is_known = rest.contains(password) || password.len() < PASSWORD_CHARS_MIN;
        // A text of digits could be a port.
        let is_plain = password.bytes().all(|byte| byte.is_ascii_alphanumeric())
            && password.bytes().any(|byte| byte.is_ascii_alphabetic());
        let scheme = before.split("://").next().unwrap_or_default();
        // After an @ and a slash comes a path, where no password belongs.
        let is_in_path = before.rsplit_once('@').is_some_and(|(_, host)| host.contains('/'));
        let is_last = before.ends_with([':', '@'])
            && before.contains("://")
            && !is_in_path
            && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'+');
        check(&url, (is_plain && is_last && !is_known).then_some(password));
    }
    for url in text.lines() {
        check(url, None);
    }
}

/// The texts of messages without a URL.
fn messages() -> String {
    let wrong = ["redis:", "redis://", "redis://:@h", "redis://h:x", "unix:x", "rediss://", "x"];
    let errors = wrong.map(|url| RedisConnector::new(url).err().map(|error| error.to_string()));
    errors.into_iter().flatten().collect()
}

fn check(url: &str, password: Option<&str>) {
    let shown = |text: String| {
        assert!(!text.contains(char::is_control), "{text:?}");
        if let Some(password) = password {
            assert!(!text.contains(password), "{text:?} shows the password");
        }
    };
    match RedisConnector::new(url) {
        Ok(connector) => {
            let label = connector.label();
            if password.is_none_or(|password| is_in_its_place(url, password)) {
                shown(label.clone());
                shown(format!("{connector:?}"));
                shown(redact_url(url));
            }
            // A label with special characters is shown as it is and cannot be read again.
            if label.is_ascii() && !label.contains([' ', '\\', '%', '?', '#', '@']) {
                let again = RedisConnector::new(&label).map(|again| again.label());
                assert_eq!(again.ok().as_deref(), Some(&*label), "{url:?}");
            }
        }
        Err(error) => {
            shown(error.to_string());
            shown(format!("{error:?}").replace("\\n", ""));
        }
    }
    assert!(!redact_url(url).contains(char::is_control));
    let scheme = url.split(':').next().unwrap_or_default().to_ascii_lowercase();
    // These schemes would touch files and servers.
    let touches = ["sqlite", "unix"].contains(&scheme.as_str()) || scheme.starts_with("redis");
    if !touches {
        let host = VirtualHost::new(1);
        let opened = host.run(from_url(url, Arc::clone(&host) as Arc<dyn Host>));
        assert_eq!(opened.is_ok(), scheme == "memory" && url.contains(':'), "{url:?}");
        match opened {
            Ok(store) => assert_eq!(store.label()["memory".len()..], url["memory".len()..]),
            Err(error) => shown(error.to_string()),
        }
    }
}

/// Whether an `@` follows the text, which makes it a password.
fn is_in_its_place(url: &str, password: &str) -> bool {
    let Some((before, after)) = url.split_once(password) else { return false };
    let authority = before.split_once("://").map(|(_, rest)| rest).unwrap_or_default();
    !authority.contains(['/', '?', '#'])
        && after.split(['/', '?', '#']).next().is_some_and(|rest| rest.contains('@'))
}
