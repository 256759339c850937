//! Reads and writes the options of a URL, which come after its `?`, and percent-encoded text.

use std::fmt;
use std::path::{Path, PathBuf};

use super::terms::{Copies, Replicas, Strict, Strictness, Terms};
use crate::store::net::TlsOptions;
pub(super) use crate::store::net::decode;

/// The options of a URL.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Options {
    /// The database.
    pub(super) db: Option<String>,
    pub(super) terms: Terms,
    pub(super) tls: TlsOptions,
    pub(super) sentinels: SentinelOptions,
}

impl Default for Options {
    /// The options of a URL that has none.
    fn default() -> Self {
        let (tls, sentinels) = (TlsOptions::default(), SentinelOptions::default());
        Self { db: None, terms: Terms::AS_DATABASE, tls, sentinels }
    }
}

/// How sentinels are reached, if not like the servers.
#[derive(Default, PartialEq, Eq)]
pub(super) struct SentinelOptions {
    pub(super) username: Option<String>,
    pub(super) password: Option<String>,
    /// Whether to use TLS; `None` means as for the servers.
    pub(super) tls: Option<bool>,
}

impl fmt::Debug for SentinelOptions {
    /// Leaves out user and password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SentinelOptions(tls: {:?})", self.tls)
    }
}

impl Options {
    /// Reads the options. Refuses unknown options, repeated options, and invalid values. Nothing is
    /// guessed, because all clients must use the same terms.
    pub(super) fn parse(text: &str) -> Result<Self, &'static str> {
        let mut options = Self::default();
        let (mut cert, mut key) = (None, None);
        let mut seen = Vec::new();
        for option in text.split('&') {
            let (name, value) = option.split_once('=').ok_or(NO_VALUE)?;
            if seen.contains(&name) {
                return Err("an option is given twice");
            }
            seen.push(name);
            match (name, value) {
                ("ca", path) => options.tls.ca = Some(file(path)?),
                ("cert", path) => cert = Some(file(path)?),
                ("key", path) => key = Some(file(path)?),
                ("tls_name", name) => options.tls.name = Some(decode(name)?),
                ("sentinel_user", user) => options.sentinels.username = Some(decode(user)?),
                ("sentinel_password", "") => return Err("`sentinel_password` is empty"),
                ("sentinel_password", secret) => options.sentinels.password = Some(decode(secret)?),
                ("sentinel_tls", "yes") => options.sentinels.tls = Some(true),
                ("sentinel_tls", "no") => options.sentinels.tls = Some(false),
                ("sentinel_tls", _) => return Err("`sentinel_tls` is `yes` or `no`"),
                ("db", db) => options.db = Some(db.to_owned()),
                ("strict", "yes") => options.terms.strict = Strictness::Yes(Strict::STANDARD),
                ("strict", "no") => options.terms.strict = Strictness::No,
                ("replicas", "majority") => options.terms.copies.replicas = Replicas::Majority,
                ("replicas", count) => {
                    let is_number = count.bytes().all(|byte| byte.is_ascii_digit());
                    let count = count.parse().ok().filter(|_| is_number).ok_or(NO_COUNT)?;
                    options.terms.copies.replicas = Replicas::Count(count);
                }
                ("fsync", "yes") => options.terms.copies.fsync = true,
                ("fsync", "no") => options.terms.copies.fsync = false,
                ("confirm", "yes") => options.terms.confirm = true,
                ("confirm", "no") => options.terms.confirm = false,
                ("confirm", _) => return Err("`confirm` is `yes` or `no`"),
                ("strict", _) => return Err("`strict` is `yes` or `no`"),
                ("fsync", _) => return Err("`fsync` is `yes` or `no`"),
                _ => return Err(UNKNOWN),
            }
        }
        if options.sentinels.username.is_some() && options.sentinels.password.is_none() {
            return Err("`sentinel_user` needs `sentinel_password`");
        }
        options.tls.identity = match (cert, key) {
            (None, None) => None,
            (Some(cert), Some(key)) => Some((cert, key)),
            _ => return Err("`cert` and `key` belong together; write both"),
        };
        Ok(options)
    }
}

/// Reads the full path of a file. The process may change its directory before the file is read
/// again.
fn file(path: &str) -> Result<PathBuf, &'static str> {
    let path = decode(path)?;
    let is_full = Path::new(&path).is_absolute();
    is_full
        .then(|| path.into())
        .ok_or("write the path of a file in full, as in `ca=/etc/ssl/ca.pem`")
}

const NO_VALUE: &str = "write options after `?` as in `strict=yes`, with `&` between them";

const NO_COUNT: &str = "`replicas` must be a number from 0 to 255, or `majority`";

/// The number of the unknown option in a URL, from 1, if the URL has several options. Its name is
/// not shown, because it may be a part of a password.
pub(super) fn unknown_in(url: &str) -> Option<usize> {
    let options: Vec<_> = url.split_once('?')?.1.split('&').collect();
    let is_unknown = |option: &&str| Options::parse(option).is_err_and(|reason| reason == UNKNOWN);
    let unknown = options.iter().position(is_unknown).filter(|_| options.len() > 1)?;
    Some(unknown + 1)
}

/// Why an unknown option is refused.
pub(super) const UNKNOWN: &str = "there is no such option; the options are `strict`, `replicas`, \
                                  `fsync`, `confirm`, `db` for a socket, `ca`, `cert`, `key` and \
                                  `tls_name` for TLS, and `sentinel_user`, `sentinel_password` and \
                                  `sentinel_tls`; write user and password of a server as \
                                  `USER:PASSWORD@` before the host or the path";

impl Terms {
    /// The terms as options of a URL, with `&` between them.
    pub(super) fn label(&self) -> String {
        let Self { strict, copies: Copies { replicas, fsync }, confirm } = self;
        let mut options = Vec::new();
        match strict {
            Strictness::AsDatabase => {}
            Strictness::No => options.push("strict=no".to_owned()),
            Strictness::Yes(_) => options.push("strict=yes".to_owned()),
        }
        match replicas {
            Replicas::Count(0) => {}
            Replicas::Count(count) => options.push(format!("replicas={count}")),
            Replicas::Majority => options.push("replicas=majority".to_owned()),
        }
        if *fsync {
            options.push("fsync=yes".to_owned());
        }
        if *confirm {
            options.push("confirm=yes".to_owned());
        }
        options.join("&")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_known_or_refused() {
        let read = |text| Options::parse(text).expect(text);
        assert_eq!(read("db=3"), Options { db: Some("3".into()), ..Options::default() });
        let strict = Terms::from(Strict::STANDARD);
        assert_eq!(read("strict=yes").terms, strict);
        assert_eq!(read("db=0&strict=yes").terms, strict);
        assert_eq!(read("strict=yes").terms.label(), "strict=yes");
        assert_eq!(read("strict=no").terms, Terms::default());
        assert_eq!(Terms::default().label(), "strict=no");
        let silent = Terms::AS_DATABASE;
        assert_eq!(Options::default().terms, silent);
        assert_eq!(silent.label(), "");
        let copies = |replicas, fsync| Terms { copies: Copies::new(replicas, fsync), ..silent };
        assert_eq!(read("replicas=2").terms, copies(Replicas::Count(2), false));
        assert_eq!(read("replicas=0&fsync=no").terms, silent);
        assert_eq!(read("fsync=yes").terms, copies(Replicas::Count(0), true));
        let all = read("fsync=yes&replicas=majority&strict=yes").terms;
        let copies = copies(Replicas::Majority, true);
        assert_eq!(all, Terms { strict: Strictness::Yes(Strict::STANDARD), ..copies });
        assert_eq!(all.label(), "strict=yes&replicas=majority&fsync=yes");
        assert_eq!(read("replicas=255").terms.label(), "replicas=255");
        let confirmed = Terms { confirm: true, ..silent };
        assert_eq!(read("confirm=yes").terms, confirmed);
        assert_eq!(confirmed.label(), "confirm=yes");
        assert_eq!(read("confirm=no").terms, silent);
        const SWITCH: &str = "is `yes` or `no`";
        let table: [(&[&str], &str); 5] = [
            (&["", "replicas", "strict", "fsync", "strict=yes&"], NO_VALUE),
            (&["replicas=", "replicas=+1", "replicas=256", "replicas=all"], NO_COUNT),
            (&["fsync=", "fsync=1", "fsync=always", "strict=", "strict=Yes", "confirm=1"], SWITCH),
            (&["Strict=yes", "other=1", "strict=yes&other=1", "=1"], UNKNOWN),
            (&["replicas=1&replicas=1", "strict=yes&strict=no", "db=1&db=1"], "twice"),
        ];
        for (texts, says) in table {
            for text in texts {
                let wrong = Options::parse(text).expect_err(text);
                assert!(wrong.contains(says), "{text}: {wrong}");
            }
        }
        assert!(Options::parse("fsync=1").expect_err("no switch").starts_with("`fsync`"));
        assert!(Options::parse("strict=1").expect_err("no switch").starts_with("`strict`"));
    }
}
