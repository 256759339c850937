//! Reads the URL of a cluster.
//!
//! | URL | cluster |
//! |---|---|
//! | `etcd://h1,h2:2379,h3` | its members; 2379 is the default port |
//! | `etcd://[::1]/app/locks` | keys below `app/locks`; the default is `leasehold` |
//! | `etcd://user:password@h1?sslmode=verify-full` | a login, and TLS |
//!
//! User, password, prefix and the values of options are percent-encoded. Messages repeat only the
//! scheme of a URL, because a misplaced part may be the password.

use std::fmt;
use std::sync::Arc;

use crate::core::error::Error;
use crate::store::net::{ClusterUrl, ClusterWords, TlsOptions};

const WORDS: ClusterWords = ClusterWords {
    scheme: "etcd",
    port: 2379,
    servers: ("members", 16),
    form: "etcd://HOST:PORT,HOST:PORT/PREFIX",
};

/// The prefix of the keys of all locks, if the URL names none.
const PREFIX: &str = "leasehold";

/// The longest prefix, in bytes.
const PREFIX_BYTES_MAX: usize = 256;

/// The address of a cluster, and the login.
pub(super) struct Address {
    pub(super) parts: Arc<ClusterUrl>,
    /// The prefix of the keys of all locks, without a slash at its end.
    pub(super) prefix: String,
}

impl Address {
    /// Reads a URL.
    ///
    /// # Errors
    ///
    /// `Config`, with the mistake and the right form, but without the URL.
    pub(super) fn parse(url: &str) -> Result<Self, Error> {
        let (mut parts, path) = WORDS.read(url, |name, _| {
            Err(format!(
                "there is no option `{}`; the options are `connect_timeout`, and `sslmode`, `ca`, \
                 `cert`, `key` and `tls_name` for TLS",
                name.escape_debug()
            ))
        })?;
        let prefix = path.unwrap_or_default();
        if prefix.len() > PREFIX_BYTES_MAX || prefix.chars().any(char::is_control) {
            return Err(WORDS.not_understood(&format!(
                "its prefix has more than {PREFIX_BYTES_MAX} bytes, or control characters"
            )));
        }
        let prefix = if prefix.is_empty() { PREFIX.to_owned() } else { prefix };
        parts.tls = parts.tls.map(|options| TlsOptions { alpn: Some("h2"), ..options });
        Ok(Self { parts: Arc::new(parts), prefix })
    }

    /// The URL without password, for messages and logs.
    pub(super) fn label(&self) -> String {
        WORDS.label(&self.parts, &format!("/{}", self.prefix))
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.label())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::core::error::ErrorKind;

    #[test]
    fn a_url_names_members_a_login_and_a_prefix() {
        let read = |url| Address::parse(url).expect(url);
        let whole = read("etcd://us%40er:p%3Ass@a,b:99,[::1]:7/app/locks/?connect_timeout=5");
        let members = [("a", 2379), ("b", 99), ("::1", 7)];
        assert_eq!(whole.parts.servers, members.map(|(host, port)| (host.to_owned(), port)));
        assert_eq!(whole.parts.login, Some(("us@er".to_owned(), "p:ss".to_owned())));
        assert_eq!(whole.prefix, "app/locks");
        assert_eq!(whole.parts.connect_limit, Duration::from_secs(5));
        assert_eq!(whole.label(), "etcd://us@er@a:2379,b:99,[::1]:7/app/locks");
        let plain = read("etcd://h");
        assert_eq!(plain.prefix, "leasehold");
        assert_eq!((&plain.parts.login, &plain.parts.tls), (&None, &None));
        let unchecked = read("etcd://h?sslmode=require");
        assert!(!unchecked.parts.tls.as_ref().expect("encrypted").verifies);
        let checked = read("etcd://h?sslmode=verify-full&ca=/a&cert=/b&key=/c&tls_name=x");
        let checked = checked.parts.tls.as_ref().expect("encrypted");
        assert!(checked.verifies && checked.ca == Some("/a".into()));
        assert_eq!(checked.identity, Some(("/b".into(), "/c".into())));
    }

    #[test]
    fn a_mistake_in_a_url_is_explained_without_the_password() {
        for (url, part) in [
            ("etcd:u:secret@h", "two slashes"),
            ("etcd://u:secret@", "names no host"),
            ("etcd://u:secret@h,,i", "names no host"),
            ("etcd://u@h", "USER:PASSWORD"),
            ("etcd://u:secret@h:0", "1 to 65535"),
            ("etcd://u:secret@h?schema=x", "no option `schema`"),
            ("etcd://u:secret@h?sslmode=prefer", "`require`"),
            ("etcd://u:secret@h?ca=/x", "verify-full"),
            ("etcd://u:secret@h?sslmode=require&key=/x", "belong together"),
            ("etcd://u:secret@h?sslmode=verify-full&ca=x", "in full"),
            ("etcd://u:secret@h?connect_timeout=0", "1 to 60"),
            ("etcd://u:secret@h?connect_timeout=1&connect_timeout=1", "given twice"),
            ("etcd://u:secret@h/a%0Ab", "control characters"),
            ("etcd://u:secret@h /a", "blank"),
        ] {
            let error = Address::parse(url).expect_err(url);
            assert_eq!(error.kind(), ErrorKind::Config, "{url}");
            let text = error.to_string();
            assert!(text.contains(part) && !text.contains("secret"), "{text}");
        }
    }
}
