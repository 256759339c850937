//! Reads the URL of an ensemble.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::names::is_allowed;
use crate::core::error::Error;
use crate::store::net::{ClusterUrl, ClusterWords};

const WORDS: ClusterWords = ClusterWords {
    scheme: "zookeeper",
    port: 2181,
    servers: ("servers", 32),
    form: "zookeeper://HOST,HOST,HOST/PATH",
};

/// The node above all locks, if the URL names none.
const ROOT: &str = "/leasehold";

/// The longest root, in bytes.
const ROOT_BYTES_MAX: usize = 512;

/// How long a session lasts without its client, if the URL does not say.
const SESSION: Duration = Duration::from_secs(15);

/// The shortest and the longest session that a URL may want. The server has bounds of its own.
const SESSION_MIN: Duration = Duration::from_secs(1);
const SESSION_MAX: Duration = Duration::from_hours(168);

/// The ensemble that a URL names.
pub(super) struct Address {
    pub(super) parts: Arc<ClusterUrl>,
    /// The node above all locks, without a slash at its end.
    pub(super) root: String,
    /// The timeout of the session that is asked for.
    pub(super) session: Duration,
}

impl Address {
    /// Reads a URL.
    ///
    /// # Errors
    ///
    /// `Config`, with the mistake and the right form, but without the URL.
    pub(super) fn parse(url: &str) -> Result<Self, Error> {
        let mut session = SESSION;
        let (parts, path) = WORDS.read(url, |name, value| match name {
            "session_timeout" => {
                session =
                    span(&value).filter(|span| (SESSION_MIN..=SESSION_MAX).contains(span)).ok_or(
                        "`session_timeout` must be 1 s to 7 days, as in `session_timeout=15s`",
                    )?;
                Ok(())
            }
            _ => Err(format!(
                "there is no option `{}`; the options are `session_timeout`, `connect_timeout`, \
                 and `sslmode`, `ca`, `cert`, `key` and `tls_name` for TLS",
                name.escape_debug()
            )),
        })?;
        if parts.login.as_ref().is_some_and(|(user, _)| user.contains(':')) {
            return Err(WORDS.not_understood("the name of a user has no `:` in ZooKeeper"));
        }
        let root = path.map_or_else(|| Ok(ROOT.to_owned()), |path| read_root(&path));
        let root = root.map_err(|mistake| WORDS.not_understood(&mistake))?;
        Ok(Self { parts: Arc::new(parts), root, session })
    }

    /// The URL without password, for messages and logs.
    pub(super) fn label(&self) -> String {
        let root = if self.root.is_empty() { "/" } else { &self.root };
        WORDS.label(&self.parts, root)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.label())
    }
}

/// The path of a node. `/` is the root of the server, whose path is empty here.
fn read_root(root: &str) -> Result<String, String> {
    if root.is_empty() {
        return Ok(String::new());
    }
    let is_bad = |part: &str| matches!(part, "" | "." | "..");
    let is_good = |c: char| !c.is_control() && is_allowed(c);
    if root.len() > ROOT_BYTES_MAX || root.split('/').any(is_bad) || !root.chars().all(is_good) {
        return Err(format!(
            "its path is not a path of ZooKeeper: it has more than {ROOT_BYTES_MAX} bytes, an \
             empty part, `.`, `..`, or a character that is not allowed"
        ));
    }
    Ok(format!("/{root}"))
}

/// Reads a span in seconds (`15` or `15s`) or milliseconds (`1500ms`).
fn span(text: &str) -> Option<Duration> {
    let (number, unit_ms) = match text.strip_suffix("ms") {
        Some(number) => (number, 1),
        None => (text.strip_suffix('s').unwrap_or(text), 1_000),
    };
    if !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    number.parse::<u64>().ok()?.checked_mul(unit_ms).map(Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::error::ErrorKind;

    #[test]
    fn a_url_names_servers_a_login_and_a_root() {
        let read = |url| Address::parse(url).expect(url);
        let whole = read(
            "zookeeper://us%40er:p%3Ass@a,b:99,[::1]:7/app/locks/?connect_timeout=5&\
             session_timeout=4500ms",
        );
        let servers = [("a", 2181), ("b", 99), ("::1", 7)];
        assert_eq!(whole.parts.servers, servers.map(|(host, port)| (host.to_owned(), port)));
        assert_eq!(whole.parts.login, Some(("us@er".to_owned(), "p:ss".to_owned())));
        assert_eq!(whole.root, "/app/locks");
        assert_eq!(whole.parts.connect_limit, Duration::from_secs(5));
        assert_eq!(whole.session, Duration::from_millis(4_500));
        assert_eq!(whole.label(), "zookeeper://us@er@a:2181,b:99,[::1]:7/app/locks");
        let plain = read("zookeeper://h");
        assert_eq!(plain.root, "/leasehold");
        assert_eq!((&plain.parts.login, &plain.parts.tls), (&None, &None));
        assert_eq!(plain.session, Duration::from_secs(15));
        let top = read("zookeeper://h/");
        assert_eq!((&*top.root, &*top.label()), ("", "zookeeper://h:2181/"));
        for url in [
            "zookeeper://h?session_timeout=20",
            "zookeeper://h?session_timeout=20s",
            "zookeeper://h?session_timeout=20000ms",
        ] {
            assert_eq!(read(url).session, Duration::from_secs(20), "{url}");
        }
        let checked = read("zookeeper://h?sslmode=verify-full&ca=/a&cert=/b&key=/c&tls_name=x");
        let checked = checked.parts.tls.as_ref().expect("encrypted");
        assert!(checked.verifies && checked.ca == Some("/a".into()));
    }

    #[test]
    fn a_mistake_in_a_url_is_explained_without_the_password() {
        for (url, part) in [
            ("zookeeper:u:secret@h", "two slashes"),
            ("zookeeper://u:secret@", "names no host"),
            ("zookeeper://u:secret@h,,i", "names no host"),
            ("zookeeper://u@h", "USER:PASSWORD"),
            ("zookeeper://u%3Ax:secret@h", "no `:`"),
            ("zookeeper://u:secret@h:0", "1 to 65535"),
            ("zookeeper://u:secret@h?schema=x", "no option `schema`"),
            ("zookeeper://u:x?secret=3@h", "`%3F`"),
            ("zookeeper://u:secret@h?sslmode=prefer", "`require`"),
            ("zookeeper://u:secret@h?ca=/x", "verify-full"),
            ("zookeeper://u:secret@h?session_timeout=900ms", "1 s to 7 days"),
            ("zookeeper://u:secret@h?session_timeout=-5", "1 s to 7 days"),
            ("zookeeper://u:secret@h?session_timeout=s", "1 s to 7 days"),
            ("zookeeper://u:secret@h?session_timeout=99999999999999999999s", "1 s to 7 days"),
            ("zookeeper://u:secret@h/a//b", "not a path"),
            ("zookeeper://u:secret@h/a/../b", "not a path"),
            ("zookeeper://u:secret@h/a%0Ab", "not a path"),
            ("zookeeper://u:secret@h /a", "blank"),
        ] {
            let error = Address::parse(url).expect_err(url);
            assert_eq!(error.kind(), ErrorKind::Config, "{url}");
            let text = error.to_string();
            assert!(text.contains(part) && !text.contains("secret"), "{text}");
        }
    }
}
