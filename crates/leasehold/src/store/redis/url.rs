//! Reads the URL of a server.
//!
//! | URL | server |
//! |---|---|
//! | `redis://host`, `redis://host:6379/0` | TCP; 6379 and 0 are the default port and database |
//! | `redis://[::1]:6379` | TCP; an IPv6 address needs brackets |
//! | `redis://:password@host`, `redis://user:password@host` | TCP, with a login |
//! | `rediss://host`, `rediss://host?ca=/path&cert=/path&key=/path` | the same with TLS |
//! | `unix:/path`, `unix:///path`, `unix:/path?db=2` | a socket of this machine |
//! | `unix://user:password@/path?db=2` | a socket of this machine, with a login |
//! | `redis://host?strict=yes`, `unix:/path?db=2&replicas=1` | with terms (`terms/`) |
//!
//! User, password and path are percent-encoded. Ambiguous URLs are refused. Messages repeat only
//! the scheme of a URL, because a misplaced part may be the password.

use std::fmt;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};

use super::connector::Access;
use super::options::{Options, TlsOptions, decode};
use crate::core::error::{Error, ErrorKind};

const DEFAULT_PORT: u16 = 6379;

/// The longest path of a socket that systems accept, in bytes. The end mark takes one of 108.
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// The address of a server, and the login.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) endpoint: Endpoint,
    /// `None` means no TLS.
    pub(super) tls: Option<TlsOptions>,
    pub(super) access: Access,
}

/// The network address or the socket of a server.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Endpoint {
    /// A name or an address, without brackets, and a port.
    Tcp(String, u16),
    /// A socket of this machine.
    Unix(PathBuf),
}

impl Address {
    /// Reads a URL.
    ///
    /// # Errors
    ///
    /// `Config`, with the mistake and the right form, but without the URL.
    pub(super) fn parse(url: &str) -> Result<Self, Error> {
        let (scheme, rest) = url.split_once(':').unwrap_or_default();
        let scheme = scheme.to_ascii_lowercase();
        let read = match scheme.as_str() {
            _ if url.contains(|c: char| c.is_whitespace() || c.is_control()) => Err(
                "it has a space or a control character in it; percent-encode it (a space is `%20`)",
            ),
            "redis" => tcp(rest, false),
            "rediss" => tcp(rest, true),
            "unix" => unix(rest),
            "redis+sentinel" => Err("Sentinel is not in this build, name one server by `redis://`"),
            "redis+cluster" => Err("Cluster is not in this build, name one server by `redis://`"),
            _ => Err("begin it with `redis://`, `rediss://` or `unix:`"),
        };
        read.map_err(|reason| {
            let shown = match scheme.as_str() {
                "redis" | "rediss" | "redis+sentinel" | "redis+cluster" => scheme + "://…",
                "unix" => scheme + ":…",
                _ => "…".to_owned(),
            };
            let message =
                format!("the store URL `{shown}` is not understood: {reason}; no request was sent");
            Error::new(ErrorKind::Config, message)
        })
    }

    /// The URL without user and password, for messages and logs.
    pub(super) fn label(&self) -> String {
        let db = self.access.db;
        let scheme = if self.tls.is_some() { "rediss" } else { "redis" };
        match &self.endpoint {
            Endpoint::Tcp(host, port) if host.contains(':') => {
                self.with_options(format!("{scheme}://[{host}]:{port}/{db}"), "")
            }
            Endpoint::Tcp(host, port) => {
                self.with_options(format!("{scheme}://{host}:{port}/{db}"), "")
            }
            Endpoint::Unix(path) => {
                let path = path.to_string_lossy();
                let db = if db == 0 { String::new() } else { format!("db={db}") };
                self.with_options(format!("unix:{}", path.escape_debug()), &db)
            }
        }
    }

    fn with_options(&self, base: String, db: &str) -> String {
        let terms = self.access.terms.label();
        let between = if db.is_empty() || terms.is_empty() { "" } else { "&" };
        let mark = if db.is_empty() && terms.is_empty() { "" } else { "?" };
        [&base, mark, db, between, &terms].concat()
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.label())
    }
}

/// Reads the part after `redis:` or `rediss:`.
fn tcp(rest: &str, with_tls: bool) -> Result<Address, &'static str> {
    let Some(rest) = rest.strip_prefix("//") else {
        return Err("it needs two slashes after the scheme; write `redis://HOST:PORT/DB`");
    };
    let (authority, tail) = split_authority(rest)?;
    let (credentials, place) = match authority.rsplit_once('@') {
        Some((credentials, place)) => (Some(credentials), place),
        None => (None, authority),
    };
    let (username, password) = credentials.map_or(Ok((None, None)), userinfo)?;
    let (host, port) = host_and_port(place)?;
    let (tail, options) = split_options(tail);
    let Options { db: None, terms, tls } = read_options(options)? else {
        return Err("there is no option `db` here, a database is written `redis://HOST:PORT/DB`");
    };
    if !with_tls && tls != TlsOptions::default() {
        return Err(
            "`ca`, `cert`, `key` and `tls_name` are for TLS; write `rediss://HOST:PORT/DB`",
        );
    }
    let db = match tail.strip_prefix('/') {
        None | Some("") => 0,
        Some(db) => database(db)?,
    };
    let access = Access { username, password, db, terms };
    let tls = with_tls.then_some(tls);
    Ok(Address { endpoint: Endpoint::Tcp(host, port), tls, access })
}

fn read_options(options: Option<&str>) -> Result<Options, &'static str> {
    options.map_or_else(|| Ok(Options::default()), Options::parse)
}

/// The text before the `?`, and the text after it.
fn split_options(text: &str) -> (&str, Option<&str>) {
    text.split_once('?').map_or((text, None), |(base, options)| (base, Some(options)))
}

/// Reads the part after `unix:`.
fn unix(rest: &str) -> Result<Address, &'static str> {
    let (credentials, rest) = match rest.strip_prefix("//") {
        None => (None, rest),
        Some(after) => {
            let (authority, tail) = split_authority(after)?;
            match authority.strip_suffix('@') {
                None if authority.is_empty() => (None, tail),
                Some(credentials) => (Some(credentials), tail),
                None => return Err("it has a host where a path belongs, write `unix:/path`"),
            }
        }
    };
    let (username, password) = credentials.map_or(Ok((None, None)), userinfo)?;
    if rest.contains('#') {
        return Err("`#` in a path is written `%23`");
    }
    let (path, options) = split_options(rest);
    let path = decode(path)?;
    if !Path::new(&path).is_absolute() {
        return Err("the path of a socket is written in full, as in `unix:/run/redis.sock`");
    }
    if path.len() > SOCKET_PATH_BYTES_MAX {
        return Err("the path of a socket has at most 107 bytes");
    }
    let Options { db, terms, tls } = read_options(options)?;
    if tls != TlsOptions::default() {
        return Err(
            "a socket of this machine has no TLS; leave `ca`, `cert`, `key` and `tls_name` out",
        );
    }
    let db = db.as_deref().map_or(Ok(0), database)?;
    let access = Access { username, password, db, terms };
    Ok(Address { endpoint: Endpoint::Unix(path.into()), tls: None, access })
}

/// The part with user, password and host, and the rest. If an unencoded password may have cut it,
/// the error names the character.
fn split_authority(rest: &str) -> Result<(&str, &str), &'static str> {
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, tail) = rest.split_at(end);
    let is_cut = !authority.is_empty() && !authority.contains('@') && tail.contains('@');
    match tail.as_bytes().first() {
        Some(b'/') if is_cut => Err("`/` in a user or password is written `%2F`"),
        Some(b'?') if is_cut => Err("`?` in a user or password is written `%3F`"),
        Some(b'#') if is_cut => Err("`#` in a user or password is written `%23`"),
        Some(b'#') => Err("`#` is not allowed in it; in a user or password, write `%23`"),
        _ if authority.matches('@').count() > 1 => {
            Err("`@` in a user or password is written `%40`")
        }
        _ => Ok((authority, tail)),
    }
}

/// Reads user and password.
fn userinfo(text: &str) -> Result<(Option<String>, Option<String>), &'static str> {
    match text.split_once(':') {
        Some(("", "")) => Ok((None, None)),
        Some(("", password)) => Ok((None, Some(decode(password)?))),
        Some((user, password)) => Ok((Some(decode(user)?), Some(decode(password)?))),
        // Other clients read a single word as a user, and then do not log in at all.
        None => Err("a password is missing: write `USER:PASSWORD@`, or `:PASSWORD@` without user"),
    }
}

fn host_and_port(place: &str) -> Result<(String, u16), &'static str> {
    if let Some(bracketed) = place.strip_prefix('[') {
        let (host, port) = bracketed.split_once(']').ok_or("a bracket `]` is missing")?;
        let host: Ipv6Addr =
            host.parse().map_err(|_| "the text in brackets is not an IPv6 address")?;
        let port = match port.strip_prefix(':') {
            Some(port) => self::port(port)?,
            None if port.is_empty() => DEFAULT_PORT,
            None => return Err("only a colon and a port may follow the bracket `]`"),
        };
        return Ok((host.to_string(), port));
    }
    let (host, port) = match place.split_once(':') {
        Some((_, port)) if port.contains(':') => {
            return Err(
                "write an IPv6 address in brackets, as in `redis://[::1]:6379`, and `@` after user \
                 and password",
            );
        }
        Some((host, port)) => (host, Some(port)),
        None => (place, None),
    };
    if host.is_empty() {
        return Err("it names no host; write `@` after user and password, and percent-encode \
                    special characters in them");
    }
    if host.contains(|c: char| !c.is_alphanumeric() && !matches!(c, '-' | '.' | '_')) {
        return Err("its host is not the name or the address of one host");
    }
    Ok((host.to_owned(), port.map_or(Ok(DEFAULT_PORT), self::port)?))
}

fn port(text: &str) -> Result<u16, &'static str> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let port = if is_number { text.parse().ok() } else { None };
    port.filter(|port| *port != 0).ok_or(
        "its port is not a number from 1 to 65535; if this is a user and a password, end them with \
         `@` and percent-encode special characters",
    )
}

fn database(text: &str) -> Result<u32, &'static str> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let db = if is_number { text.parse().ok() } else { None };
    db.ok_or("its database is not a number; the first database is 0")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::redis::terms::{Strict, Terms};

    fn tcp(host: &str, port: u16) -> Endpoint {
        Endpoint::Tcp(host.to_owned(), port)
    }

    fn unix(path: &str) -> Endpoint {
        Endpoint::Unix(path.into())
    }

    #[test]
    fn each_form_of_a_url_names_its_server() {
        // URL, endpoint, user, password, database, label
        let table = [
            ("redis://h", tcp("h", 6379), None, None, 0, "redis://h:6379/0"),
            ("REDIS://h/", tcp("h", 6379), None, None, 0, "redis://h:6379/0"),
            ("redis://h:1/15", tcp("h", 1), None, None, 15, "redis://h:1/15"),
            (
                "redis://10.0.0.1:65535",
                tcp("10.0.0.1", 65535),
                None,
                None,
                0,
                "redis://10.0.0.1:65535/0",
            ),
            ("redis://[::1]", tcp("::1", 6379), None, None, 0, "redis://[::1]:6379/0"),
            (
                "redis://u:p@[2001:db8::0:1]:2/3",
                tcp("2001:db8::1", 2),
                Some("u"),
                Some("p"),
                3,
                "redis://[2001:db8::1]:2/3",
            ),
            ("redis://:p@h", tcp("h", 6379), None, Some("p"), 0, "redis://h:6379/0"),
            ("redis://u:@h", tcp("h", 6379), Some("u"), Some(""), 0, "redis://h:6379/0"),
            ("redis://:@h", tcp("h", 6379), None, None, 0, "redis://h:6379/0"),
            ("redis://u:p:q@h", tcp("h", 6379), Some("u"), Some("p:q"), 0, "redis://h:6379/0"),
            (
                "redis://%75:%25%40%2F%3a%3F%23%C3%A4+%5b@h",
                tcp("h", 6379),
                Some("u"),
                Some("%@/:?#ä+["),
                0,
                "redis://h:6379/0",
            ),
            ("unix:/a/b.sock", unix("/a/b.sock"), None, None, 0, "unix:/a/b.sock"),
            ("unix:///a@b", unix("/a@b"), None, None, 0, "unix:/a@b"),
            ("unix:/a%20b%3F?db=2", unix("/a b?"), None, None, 2, "unix:/a b??db=2"),
            ("unix:/a%0ab", unix("/a\nb"), None, None, 0, "unix:/a\\nb"),
            ("unix://u:p%2F@/a?db=9", unix("/a"), Some("u"), Some("p/"), 9, "unix:/a?db=9"),
            ("unix://:p@/a", unix("/a"), None, Some("p"), 0, "unix:/a"),
        ];
        for (url, endpoint, user, password, db, label) in table {
            let address = Address::parse(url).unwrap_or_else(|error| panic!("{url}: {error}"));
            let (username, password) = (user.map(str::to_owned), password.map(str::to_owned));
            let access = Access { username, password, db, terms: Terms::default() };
            let expected = Address { endpoint, tls: None, access };
            assert!(address == expected, "{url} names {address:?}");
            assert_eq!(address.label(), label, "{url}");
            assert_eq!(format!("{address:?}"), label, "{url}");
        }
    }

    #[test]
    fn the_terms_of_a_url_are_part_of_its_label() {
        let table = [
            ("redis://h?strict=yes", "redis://h:6379/0?strict=yes"),
            ("redis://u:p@h/2?strict=yes", "redis://h:6379/2?strict=yes"),
            ("redis://[::1]/?strict=yes", "redis://[::1]:6379/0?strict=yes"),
            ("unix:/a?strict=yes", "unix:/a?strict=yes"),
            ("unix:/a?strict=yes&db=2", "unix:/a?db=2&strict=yes"),
        ];
        for (url, label) in table {
            let address = Address::parse(url).unwrap_or_else(|error| panic!("{url}: {error}"));
            assert_eq!(address.access.terms.strict, Some(Strict::STANDARD), "{url}");
            assert_eq!(address.label(), label, "{url}");
        }
        for url in ["redis://h/0?strict=no", "unix:/a?strict=no&db=0"] {
            let address = Address::parse(url).unwrap_or_else(|error| panic!("{url}: {error}"));
            assert_eq!(address.access.terms, Terms::default(), "{url}");
            assert!(!address.label().contains('?'), "{url}");
        }
    }

    #[test]
    fn tls_and_its_files_are_read_from_the_url() {
        let files = |ca: Option<&str>, identity: Option<(&str, &str)>| TlsOptions {
            ca: ca.map(Into::into),
            identity: identity.map(|(cert, key)| (cert.into(), key.into())),
            name: None,
        };
        let table = [
            ("rediss://h", files(None, None), "rediss://h:6379/0"),
            ("rediss://:p@[::1]:7/2?ca=/a", files(Some("/a"), None), "rediss://[::1]:7/2"),
            (
                "RediSS://h?key=/a%20k&fsync=yes&cert=/a%26c",
                files(None, Some(("/a&c", "/a k"))),
                "rediss://h:6379/0?fsync=yes",
            ),
        ];
        for (url, expected, label) in table {
            let address = Address::parse(url).unwrap_or_else(|error| panic!("{url}: {error}"));
            assert_eq!(address.tls, Some(expected), "{url}");
            assert_eq!(address.label(), label, "{url}");
        }
    }

    /// URL, part of the message.
    const WRONG: &[(&str, &str)] = &[
        ("", "`rediss://` or `unix:`"),
        ("secret", "`rediss://` or `unix:`"),
        ("http://secret", "`rediss://` or `unix:`"),
        ("redis://:secret@h?ca=/secret", "write `rediss://HOST:PORT/DB`"),
        ("rediss://:secret@h?ca=secret", "path of a file in full"),
        ("rediss://:secret@h?cert=/secret", "belong together"),
        ("rediss://:secret@h?key=/secret", "belong together"),
        ("rediss://:secret@h?key=%secret", "`%25`"),
        ("unix:/a?ca=/secret", "has no TLS"),
        ("redis+sentinel://:secret@h/m", "Sentinel is not in this build"),
        ("redis+cluster://:secret@h", "Cluster is not in this build"),
        ("redis:h", "two slashes"),
        ("redis:/secret@h", "two slashes"),
        ("redis://", "no host"),
        ("redis://:secret@", "no host"),
        ("redis://:secret", "no host"),
        ("redis://u:secret", "port is not a number"),
        ("redis://:6379", "no host"),
        ("redis://h:", "port is not a number"),
        ("redis://h:0", "port is not a number"),
        ("redis://h:65536", "port is not a number"),
        ("redis://h:+1", "port is not a number"),
        ("redis://::1", "in brackets"),
        ("redis://[::1", "bracket `]` is missing"),
        ("redis://[secret]", "not an IPv6 address"),
        ("redis://[::1]secret", "follow the bracket"),
        ("redis://[::1]:x", "port is not a number"),
        ("redis://h,secret", "one host"),
        ("redis://h%20", "one host"),
        ("redis://h/secret", "database is not a number"),
        ("redis://h/-1", "database is not a number"),
        ("redis://h/1/secret", "database is not a number"),
        ("redis://h/4294967296", "database is not a number"),
        ("redis://h?db=secret", "no option `db`"),
        ("redis://h/0?password=secret", "no such option"),
        ("redis://h?", "write options after `?`"),
        ("redis://h?strict", "write options after `?`"),
        ("redis://h/0?strict=secret", "`strict` is `yes` or `no`"),
        ("redis://h/0?replicas=secret", "`replicas` is a number from 0 to 255"),
        ("redis://h/0?strict=yes&strict=no", "twice"),
        ("redis://h#secret", "`%23`"),
        ("redis://u@h", "`USER:PASSWORD@`"),
        ("redis://:secret@secret@h", "`%40`"),
        ("redis://:sec/ret@h", "`%2F`"),
        ("redis://:sec?ret@h", "`%3F`"),
        ("redis://:sec#ret@h", "`%23`"),
        ("redis://:sec%ret@h", "`%25`"),
        ("redis://:secret%@h", "`%25`"),
        ("redis://:secret%f@h", "`%25`"),
        ("redis://:secret%ff@h", "not UTF-8"),
        ("redis://:secret%00@h", "`%00`"),
        ("redis://:sec ret@h", "`%20`"),
        ("redis://h\n", "`%20`"),
        ("unix:", "in full"),
        ("unix:secret", "in full"),
        ("unix:u:secret@/a", "in full"),
        ("unix://h/a", "a host where a path belongs"),
        ("unix://u@/a", "`USER:PASSWORD@`"),
        ("unix://:sec/ret@/a", "`%2F`"),
        ("unix://u:secret@h/a", "a host where a path belongs"),
        ("unix:/a#secret", "`%23`"),
        ("unix:/a?db=x", "database is not a number"),
        ("unix:/a?db=", "database is not a number"),
        ("unix:/a?pass=secret", "`db` for a socket"),
        ("unix:/a?db=1&pass=secret", "`db` for a socket"),
        ("unix:/a?db=1&strict=secret", "`strict` is `yes` or `no`"),
    ];

    #[test]
    fn what_is_not_understood_is_refused_with_the_right_way_and_without_the_secret() {
        let long = format!("unix:/{}", "x".repeat(SOCKET_PATH_BYTES_MAX));
        for (url, says) in WRONG.iter().copied().chain([(long.as_str(), "at most 107 bytes")]) {
            let error = Address::parse(url).expect_err(url);
            assert_eq!(error.kind(), ErrorKind::Config);
            let text = error.to_string();
            assert!(text.contains(says), "{url}: {text}");
            assert!(text.contains("no request was sent"), "{text}");
            for secret in ["secret", "sec", "ret@", "xxx"] {
                let is_shown = text.replace("`%", "").contains(secret);
                assert!(!is_shown, "{url}: {text}");
            }
        }
        assert!(Address::parse(&long[..long.len() - 1]).is_ok());
    }
}
