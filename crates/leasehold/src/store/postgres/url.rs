//! Reads the URL of a server.
//!
//! | URL | server |
//! |---|---|
//! | `postgres://user:password@host:5432/database` | TCP; 5432 is the default port |
//! | `postgres://user@[::1]/database` | TCP; an IPv6 address needs brackets |
//! | `postgres://user@/database?host=/run/postgresql` | the socket in that folder |
//!
//! User, password, database and the values of options are percent-encoded. Messages repeat only the
//! scheme of a URL, because a misplaced part may be the password.

#[cfg(test)]
mod tests;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::core::error::{Error, ErrorKind};
use crate::store::net::{TlsOptions, decode};

const DEFAULT_PORT: u16 = 5432;

/// The schema of the tables if the URL names none.
const DEFAULT_SCHEMA: &str = "leasehold";

/// The longest name that PostgreSQL does not truncate, in bytes.
const NAME_BYTES_MAX: usize = 63;

/// How long connecting may take if the URL does not say.
const DEFAULT_CONNECT_LIMIT: Duration = Duration::from_secs(2);

/// The address of a database, and the login.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) endpoint: Endpoint,
    pub(super) user: String,
    pub(super) password: Option<String>,
    pub(super) database: String,
    /// Where the tables are.
    pub(super) schema: String,
    /// How long connecting may take, with TLS and the login.
    pub(super) connect_limit: Duration,
    pub(super) tls: TlsMode,
}

/// Where the server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Endpoint {
    /// A name or an address, without brackets, and a port.
    Tcp(String, u16),
    /// The folder of a socket, and the port that is in its name.
    Unix(PathBuf, u16),
}

/// Whether a connection is encrypted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TlsMode {
    /// It is not.
    Disable,
    /// If the server offers it.
    Prefer(TlsOptions),
    /// It is, or there is no connection.
    Require(TlsOptions),
}

impl Address {
    /// Reads a URL.
    ///
    /// # Errors
    ///
    /// `Config`, with the mistake and the right form, but without the URL.
    pub(super) fn parse(url: &str) -> Result<Self, Error> {
        let (scheme, rest) = url.split_once(':').unwrap_or_default();
        let is_strange = |c: char| c.is_whitespace() || c.is_control();
        let read = if url.contains(is_strange) {
            let reason = "it has a space or a control character in it; percent-encode it (a space \
                          is `%20`)";
            Err(reason.to_owned())
        } else if !["postgres", "postgresql"].iter().any(|it| scheme.eq_ignore_ascii_case(it)) {
            Err("begin it with `postgres://`".to_owned())
        } else {
            parts(rest)
        };
        read.map_err(|reason| {
            let message = format!(
                "the store URL `postgres://…` is not understood: {reason}; no request was sent"
            );
            Error::new(ErrorKind::Config, message)
        })
    }

    /// The URL without password, for messages and logs. It can be copied into a command.
    pub(super) fn label(&self) -> String {
        let database = self.database.escape_debug();
        let (place, socket) = match &self.endpoint {
            Endpoint::Tcp(host, port) if host.contains(':') => (format!("[{host}]:{port}"), None),
            Endpoint::Tcp(host, port) => (format!("{host}:{port}"), None),
            Endpoint::Unix(folder, DEFAULT_PORT) => (String::new(), Some(folder)),
            Endpoint::Unix(folder, port) => (format!(":{port}"), Some(folder)),
        };
        let socket = socket.map(|folder| format!("host={}", folder.to_string_lossy()));
        let is_named = self.schema != DEFAULT_SCHEMA;
        let schema = is_named.then(|| format!("schema={}", self.schema.escape_debug()));
        let options: Vec<_> = socket.into_iter().chain(schema).collect();
        let mark = if options.is_empty() { "" } else { "?" };
        let user = self.user.escape_debug();
        format!("postgres://{user}@{place}/{database}{mark}{}", options.join("&"))
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.label())
    }
}

/// The options of a URL.
#[derive(Default)]
struct Options {
    folder: Option<PathBuf>,
    schema: Option<String>,
    connect_limit: Option<Duration>,
    mode: Option<String>,
    ca: Option<PathBuf>,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    name: Option<String>,
}

impl Options {
    /// What the options say about encryption.
    fn tls(self) -> Result<TlsMode, String> {
        let Self { mode, ca, cert, key, name, .. } = self;
        let identity = match (cert, key) {
            (None, None) => None,
            (Some(cert), Some(key)) => Some((cert, key)),
            _ => return Err("`cert` and `key` belong together; write both".to_owned()),
        };
        let verifies = mode.as_deref() == Some("verify-full");
        if !verifies && (ca.is_some() || name.is_some()) {
            return Err("`ca` and `tls_name` are for `sslmode=verify-full`".to_owned());
        }
        let options = TlsOptions { verifies, ca, identity, name };
        match mode.as_deref() {
            Some("disable") if options.identity.is_some() => {
                Err("`cert` and `key` are for an `sslmode` that encrypts".to_owned())
            }
            Some("disable") => Ok(TlsMode::Disable),
            None | Some("prefer") => Ok(TlsMode::Prefer(options)),
            Some("require" | "verify-full") => Ok(TlsMode::Require(options)),
            _ => Err("`sslmode` is `disable`, `prefer`, `require` or `verify-full`".to_owned()),
        }
    }
}

const FORM: &str = "write `postgres://USER:PASSWORD@HOST:PORT/DATABASE`";

/// Reads the part after the scheme.
fn parts(rest: &str) -> Result<Address, String> {
    let rest = rest.strip_prefix("//").ok_or("it needs two slashes after the scheme")?;
    // A password may contain `/` and `?` only if they are percent-encoded, as for every other tool.
    let (rest, options) = rest.split_once('?').map_or((rest, None), |(it, more)| (it, Some(more)));
    let options = options.map_or_else(|| Ok(Options::default()), read_options)?;
    let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
    let (login, place) = authority.rsplit_once('@').unwrap_or(("", authority));
    let (user, password) = match login.split_once(':') {
        Some((user, password)) => (decode(user)?, Some(decode(password)?)),
        None => (decode(login)?, None),
    };
    if user.is_empty() {
        return Err(format!("it names no user; {FORM}"));
    }
    if place.contains(',') {
        return Err("it names several hosts; write one that leads to the primary".to_owned());
    }
    let (host, port) = host_and_port(place)?;
    let (schema, connect_limit) = (options.schema.clone(), options.connect_limit);
    let endpoint = match (host.is_empty(), options.folder.clone()) {
        (false, None) => Endpoint::Tcp(host, port),
        (true, Some(folder)) => Endpoint::Unix(folder, port),
        (true, None) => return Err(format!("it names no host; {FORM}")),
        (false, Some(_)) => {
            return Err("it names a host and a folder by `host`; leave one of them out".to_owned());
        }
    };
    let database = decode(database)?;
    if database.contains('/') {
        return Err(format!("it has more than a database in its path; {FORM}"));
    }
    Ok(Address {
        endpoint,
        database: if database.is_empty() { user.clone() } else { database },
        user,
        password: password.filter(|password| !password.is_empty()),
        schema: schema.unwrap_or_else(|| DEFAULT_SCHEMA.to_owned()),
        connect_limit: connect_limit.unwrap_or(DEFAULT_CONNECT_LIMIT),
        tls: options.tls()?,
    })
}

fn host_and_port(place: &str) -> Result<(String, u16), String> {
    let (host, port) = match place.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or("an address in `[` needs a `]`")?;
            (host.to_owned(), port.strip_prefix(':').unwrap_or(port))
        }
        None => {
            let (host, port) = place.split_once(':').unwrap_or((place, ""));
            (decode(host)?, port)
        }
    };
    if host.starts_with('/') {
        return Err("write the folder of a socket as the option `host`".to_owned());
    }
    if port.is_empty() {
        return Ok((host, DEFAULT_PORT));
    }
    let is_number = port.bytes().all(|byte| byte.is_ascii_digit());
    let number = port.parse().ok().filter(|port| is_number && *port > 0);
    Ok((host, number.ok_or("a port is a number from 1 to 65535; write `:` in a user as `%3A`")?))
}

/// Reads the options. Refuses unknown and repeated options, and invalid values.
fn read_options(text: &str) -> Result<Options, String> {
    let mut options = Options::default();
    let mut seen = Vec::new();
    for option in text.split('&') {
        let (name, value) =
            option.split_once('=').ok_or("write options after `?` as in `schema=locks`")?;
        if seen.contains(&name) {
            return Err(format!("the option `{}` is given twice", name.escape_debug()));
        }
        seen.push(name);
        let value = decode(value)?;
        match name {
            "host" if value.starts_with('/') => options.folder = Some(value.into()),
            "host" => return Err("`host` is the full path of the folder of a socket".to_owned()),
            "schema" if value.is_empty() || value.len() > NAME_BYTES_MAX => {
                return Err(format!("`schema` is a name of 1 to {NAME_BYTES_MAX} bytes"));
            }
            "schema" => options.schema = Some(value),
            "connect_timeout" => {
                let seconds = value.parse().ok().filter(|seconds| (1..=60).contains(seconds));
                let seconds = seconds.ok_or("`connect_timeout` is a number of seconds, 1 to 60")?;
                options.connect_limit = Some(Duration::from_secs(seconds));
            }
            "sslmode" => options.mode = Some(value),
            "ca" | "sslrootcert" => options.ca = Some(file(&value)?),
            "cert" | "sslcert" => options.cert = Some(file(&value)?),
            "key" | "sslkey" => options.key = Some(file(&value)?),
            "tls_name" => options.name = Some(value),
            _ => {
                return Err(format!(
                    "there is no option `{}`; the options are `schema`, `connect_timeout`, \
                     `sslmode`, `ca`, `cert`, `key` and `tls_name` for TLS, and `host` for the \
                     folder of a socket",
                    name.escape_debug()
                ));
            }
        }
    }
    Ok(options)
}

/// The path of a file. A process may change its directory before the file is read again.
fn file(path: &str) -> Result<PathBuf, String> {
    let is_full = path.starts_with('/');
    let advice = "write the path of a file in full, as in `ca=/etc/ssl/ca.pem`";
    is_full.then(|| path.into()).ok_or_else(|| advice.to_owned())
}
