//! Reads the URL of a server.
//!
//! | URL | server |
//! |---|---|
//! | `redis://host`, `redis://host:6379/0` | TCP; 6379 and 0 are the default port and database |
//! | `redis://[::1]:6379` | TCP; an IPv6 address needs brackets |
//! | `redis://:password@host`, `redis://user:password@host` | TCP, with a login |
//! | `rediss://host`, `rediss://host?ca=/path&cert=/path&key=/path` | the same with TLS |
//! | `redis+sentinel://h1,h2:26379,h3/name/2` | the primary that sentinels know by this name; 26379 and 0 are the defaults |
//! | `rediss+sentinel://…` | the same with TLS |
//! | `redis+cluster://h1,h2:6379`, `rediss+cluster://…` | the cluster of these nodes |
//! | `unix:/path`, `unix:///path`, `unix:/path?db=2` | a socket of this machine |
//! | `unix://user:password@/path?db=2` | a socket of this machine, with a login |
//! | `redis://host?strict=yes`, `unix:/path?db=2&replicas=1` | with terms (`terms/`) |
//!
//! User, password and path are percent-encoded. Ambiguous URLs are refused. Messages repeat only
//! the scheme of a URL, because a misplaced part may be the password.

#[cfg(test)]
mod tests;

use std::fmt;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};

use super::connector::Access;
use super::options::{Options, SentinelOptions, UNKNOWN, decode, unknown_in};
use crate::core::error::{Error, ErrorKind};
use crate::store::net::{TlsOptions, host_and_port_text};

const DEFAULT_PORT: u16 = 6379;
const DEFAULT_SENTINEL_PORT: u16 = 26379;

/// The most sentinels, or nodes of a cluster, in one URL. All sentinels are asked at the same time.
const PLACES_MAX: usize = 16;

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
    /// The server that these sentinels name.
    Sentinel(Box<SentinelAddress>),
    /// The cluster of these nodes.
    Cluster(Vec<(String, u16)>),
}

impl Endpoint {
    /// Whether both lead to one server, as far as the URLs tell.
    pub(super) fn is_of_one_server_with(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Sentinel(one), Self::Sentinel(other)) => {
                let is_shared = |place| other.sentinels.contains(place);
                one.primary == other.primary && one.sentinels.iter().any(is_shared)
            }
            (Self::Cluster(one), Self::Cluster(other)) => one.iter().any(|it| other.contains(it)),
            (one, other) => one == other,
        }
    }
}

/// The sentinels, and what they are asked.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct SentinelAddress {
    pub(super) sentinels: Vec<(String, u16)>,
    /// The login at the sentinels.
    pub(super) access: Access,
    /// `None` means no TLS.
    pub(super) tls: Option<TlsOptions>,
    /// The name of the primary.
    pub(super) primary: String,
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
            "redis+sentinel" => sentinel(rest, false),
            "rediss+sentinel" => sentinel(rest, true),
            "redis+cluster" => cluster(rest, false),
            "rediss+cluster" => cluster(rest, true),
            _ => Err("begin it with `redis://`, `rediss://`, `unix:`, `redis+sentinel://`, \
                      `rediss+sentinel://`, `redis+cluster://` or `rediss+cluster://`"),
        };
        read.map_err(|reason| {
            let shown = match scheme.as_str() {
                "redis" | "rediss" | "redis+sentinel" | "rediss+sentinel" | "redis+cluster"
                | "rediss+cluster" => scheme + "://…",
                "unix" => scheme + ":…",
                _ => "…".to_owned(),
            };
            let unknown = unknown_in(url).filter(|_| reason == UNKNOWN);
            let option = unknown.map(|number| format!("option {number}: ")).unwrap_or_default();
            let message = format!(
                "the store URL `{shown}` is not understood: {option}{reason}; no request was sent"
            );
            Error::new(ErrorKind::Config, message)
        })
    }

    /// The URL without user and password, for messages and logs.
    pub(super) fn label(&self) -> String {
        let db = self.access.db;
        let scheme = if self.tls.is_some() { "rediss" } else { "redis" };
        match &self.endpoint {
            Endpoint::Tcp(host, port) => {
                let place = host_and_port_text(host, *port);
                self.with_options(format!("{scheme}://{place}/{db}"), "")
            }
            Endpoint::Cluster(seeds) => {
                self.with_options(format!("{scheme}+cluster://{}", places_text(seeds)), "")
            }
            Endpoint::Sentinel(address) => {
                let SentinelAddress { sentinels, primary, .. } = &**address;
                let (sentinels, primary) = (places_text(sentinels), primary.escape_debug());
                self.with_options(format!("{scheme}+sentinel://{sentinels}/{primary}/{db}"), "")
            }
            Endpoint::Unix(path) => {
                let path = path.to_string_lossy();
                let db = if db == 0 { String::new() } else { format!("db={db}") };
                // After two slashes comes a login.
                let login = if path.starts_with("//") { "//" } else { "" };
                self.with_options(format!("unix:{login}{}", path.escape_debug()), &db)
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

fn places_text(places: &[(String, u16)]) -> String {
    let places: Vec<_> =
        places.iter().map(|(host, port)| host_and_port_text(host, *port)).collect();
    places.join(",")
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
    let (host, port) = host_and_port(place, DEFAULT_PORT)?;
    let (tail, options) = split_options(tail);
    let Options { db: None, terms, tls, sentinels } = read_options(options)? else {
        return Err("there is no option `db` here; a database is written `redis://HOST:PORT/DB`");
    };
    no_sentinels(&sentinels)?;
    if !with_tls && tls != TlsOptions::default() {
        return Err(
            "`ca`, `cert`, `key` and `tls_name` are for TLS; write `rediss://HOST:PORT/DB`",
        );
    }
    let db = match tail.strip_prefix('/') {
        None | Some("") => 0,
        Some(db) => database(db)?,
    };
    let access = Access { username, password, db, terms, ..Access::default() };
    let tls = with_tls.then_some(tls);
    Ok(Address { endpoint: Endpoint::Tcp(host, port), tls, access })
}

/// Reads the part after `redis+sentinel:` or `rediss+sentinel:`.
fn sentinel(rest: &str, with_tls: bool) -> Result<Address, &'static str> {
    const FORM: &str = "write `redis+sentinel://HOST1,HOST2,HOST3/NAME/DB`, where NAME is what the \
                        sentinels call the primary";
    let (authority, tail) = split_authority(rest.strip_prefix("//").ok_or(FORM)?)?;
    let (login, sentinels) = login_and_places(authority, DEFAULT_SENTINEL_PORT)?;
    let (username, password) = login;
    let (path, options) = split_options(tail);
    let path = path.strip_prefix('/').unwrap_or_default();
    let (primary, db) = path.split_once('/').unwrap_or((path, ""));
    let primary = decode(primary)?;
    if primary.is_empty() {
        return Err(FORM);
    }
    let db = if db.is_empty() { 0 } else { database(db)? };
    let Options { db: None, terms, tls, sentinels: theirs } = read_options(options)? else {
        return Err("there is no option `db` here; a database comes after the name");
    };
    // `tls_name` is only for the servers, because the sentinels announce their addresses.
    let files = TlsOptions { name: None, ..tls.clone() };
    let of_sentinels = theirs.tls.unwrap_or(with_tls).then_some(files);
    let of_servers = with_tls.then_some(tls.clone());
    let names_servers = tls.name.is_some();
    let is_without_use = of_servers.is_none() && (of_sentinels.is_none() || names_servers);
    if is_without_use && tls != TlsOptions::default() {
        return Err("`ca`, `cert`, `key` and `tls_name` are for TLS; write `rediss+sentinel://`");
    }
    let login =
        Access { username: theirs.username, password: theirs.password, ..Access::default() };
    let address = SentinelAddress { sentinels, access: login, tls: of_sentinels, primary };
    let access = Access { username, password, db, terms, primary: true, ..Access::default() };
    Ok(Address { endpoint: Endpoint::Sentinel(Box::new(address)), tls: of_servers, access })
}

/// Reads the part after `redis+cluster:` or `rediss+cluster:`.
fn cluster(rest: &str, with_tls: bool) -> Result<Address, &'static str> {
    const FORM: &str = "write `redis+cluster://HOST1:PORT1,HOST2:PORT2`";
    let (authority, tail) = split_authority(rest.strip_prefix("//").ok_or(FORM)?)?;
    let ((username, password), seeds) = login_and_places(authority, DEFAULT_PORT)?;
    let (path, options) = split_options(tail);
    if !matches!(path, "" | "/" | "/0") {
        return Err("a cluster has only the database 0; end the hosts without a path");
    }
    let Options { db: None, terms, tls, sentinels } = read_options(options)? else {
        return Err("there is no option `db` here; a cluster has only the database 0");
    };
    no_sentinels(&sentinels)?;
    if let Some(why) = terms.not_for_a_cluster() {
        return Err(why);
    }
    if !with_tls && tls != TlsOptions::default() {
        return Err("`ca`, `cert`, `key` and `tls_name` are for TLS; write `rediss+cluster://`");
    }
    let access = Access { username, password, db: 0, terms, ..Access::default() };
    Ok(Address { endpoint: Endpoint::Cluster(seeds), tls: with_tls.then_some(tls), access })
}

/// A user and a password, and hosts with their ports.
type LoginAndPlaces = ((Option<String>, Option<String>), Vec<(String, u16)>);

/// Reads user and password, and hosts with commas between them.
fn login_and_places(authority: &str, port: u16) -> Result<LoginAndPlaces, &'static str> {
    let (credentials, places) = match authority.rsplit_once('@') {
        Some((credentials, places)) => (Some(credentials), places),
        None => (None, authority),
    };
    let login = credentials.map_or(Ok((None, None)), userinfo)?;
    let places = places.split(',').map(|place| host_and_port(place, port));
    let places: Vec<_> = places.collect::<Result<_, _>>()?;
    if places.len() > PLACES_MAX {
        return Err("it names more than 16 hosts");
    }
    Ok((login, places))
}

fn no_sentinels(options: &SentinelOptions) -> Result<(), &'static str> {
    let is_default = *options == SentinelOptions::default();
    is_default.then_some(()).ok_or("`sentinel_user` and the like need `redis+sentinel://`")
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
                None => return Err("it has a host where a path belongs; write `unix:/path`"),
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
        return Err("write the path of a socket in full, as in `unix:/run/redis.sock`");
    }
    if path.len() > SOCKET_PATH_BYTES_MAX {
        return Err("the path of a socket must have at most 107 bytes");
    }
    let Options { db, terms, tls, sentinels } = read_options(options)?;
    no_sentinels(&sentinels)?;
    if tls != TlsOptions::default() {
        return Err(
            "a socket of this machine has no TLS; leave `ca`, `cert`, `key` and `tls_name` out",
        );
    }
    let db = db.as_deref().map_or(Ok(0), database)?;
    let access = Access { username, password, db, terms, ..Access::default() };
    Ok(Address { endpoint: Endpoint::Unix(path.into()), tls: None, access })
}

/// Splits off the part with user, password and host. If a character of an unencoded password may
/// have cut that part, the error names the character.
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

fn host_and_port(place: &str, default_port: u16) -> Result<(String, u16), &'static str> {
    if let Some(bracketed) = place.strip_prefix('[') {
        let (host, port) = bracketed.split_once(']').ok_or("a bracket `]` is missing")?;
        let host: Ipv6Addr =
            host.parse().map_err(|_| "the text in brackets is not an IPv6 address")?;
        let port = match port.strip_prefix(':') {
            Some(port) => self::port(port)?,
            None if port.is_empty() => default_port,
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
    Ok((host.to_owned(), port.map_or(Ok(default_port), self::port)?))
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
