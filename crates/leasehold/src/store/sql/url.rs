//! Reads the parts that the URLs of all SQL servers share.
//!
//! User, password, database and the values of options are percent-encoded. Messages repeat only the
//! scheme of a URL, because a misplaced part may be the password.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::core::error::{Error, ErrorKind};
use crate::store::net::{Tls, TlsOptions, UrlOptions, decode, host_and_port, host_and_port_text};

/// The words of one engine in URLs.
#[derive(PartialEq, Eq)]
pub(in crate::store) struct Words {
    /// The schemes; messages use the first one.
    pub(in crate::store) schemes: &'static [&'static str],
    /// The port if the URL names none.
    pub(in crate::store) port: u16,
    /// The words of other tools for `ca`, `cert` and `key`.
    pub(in crate::store) files: [&'static str; 3],
    /// The option that names a socket, and what its value is.
    pub(in crate::store) socket: (&'static str, &'static str),
    /// Another option of this engine, if it has one.
    pub(in crate::store) own: Option<&'static str>,
}

/// The address of a database, and the login.
#[derive(Clone, PartialEq, Eq)]
pub(in crate::store) struct Address {
    pub(in crate::store) words: &'static Words,
    pub(in crate::store) place: Place,
    pub(in crate::store) user: String,
    pub(in crate::store) password: Option<String>,
    /// Empty if the URL names none.
    pub(in crate::store) database: String,
    /// The value of the engine's own option.
    #[cfg_attr(not(feature = "postgres"), allow(dead_code, reason = "MySQL has none"))]
    pub(in crate::store) own: Option<String>,
    /// How long connecting may take, with TLS and the login.
    pub(in crate::store) connect_limit: Duration,
    pub(in crate::store) tls: TlsMode,
}

impl Address {
    /// The URL without password, for messages and logs. It can be copied into a command.
    pub(in crate::store) fn label(&self) -> String {
        let Self { words, place, user, database, own, .. } = self;
        let (place, socket) = match place {
            Place::Tcp(host, port) => (host_and_port_text(host, *port), None),
            Place::Unix(path, port) => {
                let port = if *port == words.port { String::new() } else { format!(":{port}") };
                (port, Some(format!("{}={}", words.socket.0, path.to_string_lossy())))
            }
        };
        let own = words.own.zip(own.as_ref());
        let own = own.map(|(name, value)| format!("{name}={}", value.escape_debug()));
        let options: Vec<_> = socket.into_iter().chain(own).collect();
        let mark = if options.is_empty() { "" } else { "?" };
        let (scheme, options) = (words.schemes[0], options.join("&"));
        let (user, database) = (user.escape_debug(), database.escape_debug());
        format!("{scheme}://{user}@{place}/{database}{mark}{options}")
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.label())
    }
}

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::store) enum Place {
    /// A name or an address, without brackets, and a port.
    Tcp(String, u16),
    /// The path of a socket or of its folder, and the port.
    Unix(PathBuf, u16),
}

/// Whether a connection is encrypted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::store) enum TlsMode {
    /// Not encrypted.
    Disable,
    /// If the server offers it.
    Prefer(TlsOptions),
    /// Encrypted, or there is no connection.
    Require(TlsOptions),
}

impl TlsMode {
    /// The encryption of connections, if they are encrypted.
    ///
    /// # Errors
    ///
    /// `Config` in a build without TLS, if the URL requires it.
    pub(in crate::store) fn tls(&self) -> Result<Option<Tls>, Error> {
        match self {
            Self::Disable => Ok(None),
            // A build without TLS connects without it.
            Self::Prefer(options) => Ok(Tls::new(options).ok()),
            Self::Require(options) => Tls::new(options).map(Some),
        }
    }
}

impl Words {
    /// Reads a URL, and lets the engine read its parts.
    ///
    /// # Errors
    ///
    /// `Config`, with the mistake and the right form, but without the URL.
    pub(in crate::store) fn read(
        &'static self,
        url: &str,
        of: impl FnOnce(Address) -> Result<Address, String>,
    ) -> Result<Address, Error> {
        let (scheme, rest) = url.split_once(':').unwrap_or_default();
        let is_strange = |c: char| c.is_whitespace() || c.is_control();
        let first = self.schemes[0];
        let read = if url.contains(is_strange) {
            let reason = "it has a space or a control character in it; percent-encode it (a space \
                          is `%20`)";
            Err(reason.to_owned())
        } else if !self.schemes.iter().any(|it| scheme.eq_ignore_ascii_case(it)) {
            Err(format!("begin it with `{first}://`"))
        } else {
            self.parts(rest)
        };
        read.and_then(of).map_err(|reason| {
            let message = format!(
                "the store URL `{first}://…` is not understood: {reason}; no request was sent"
            );
            Error::new(ErrorKind::Config, message)
        })
    }

    /// The form of a URL, for messages.
    pub(in crate::store) fn form(&self) -> String {
        format!("write `{}://USER:PASSWORD@HOST:PORT/DATABASE`", self.schemes[0])
    }

    fn parts(&'static self, rest: &str) -> Result<Address, String> {
        let rest = rest.strip_prefix("//").ok_or("it needs two slashes after the scheme")?;
        // A password may contain `/` and `?` only if they are percent-encoded, as for every other
        // tool.
        let (rest, options) =
            rest.split_once('?').map_or((rest, None), |(it, more)| (it, Some(more)));
        let options = options.map_or_else(|| Ok(Options::default()), |it| self.options(it))?;
        let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, place) = authority.rsplit_once('@').unwrap_or(("", authority));
        let (user, password) = match login.split_once(':') {
            Some((user, password)) => (decode(user)?, Some(decode(password)?)),
            None => (decode(login)?, None),
        };
        if user.is_empty() {
            return Err(format!("it names no user; {}", self.form()));
        }
        if place.contains(',') {
            return Err("it names several hosts; write one that leads to the primary".to_owned());
        }
        let (host, port) = self.host_and_port(place)?;
        let socket = self.socket.0;
        let place = match (host.is_empty(), options.socket.clone()) {
            (false, None) => Place::Tcp(host, port),
            (true, Some(path)) => Place::Unix(path, port),
            (true, None) => return Err(format!("it names no host; {}", self.form())),
            (false, Some(_)) => {
                return Err(format!(
                    "it names a host and a socket by `{socket}`; leave one of them out"
                ));
            }
        };
        let database = decode(database)?;
        if database.contains('/') {
            return Err(format!("it has more than a database in its path; {}", self.form()));
        }
        Ok(Address {
            words: self,
            place,
            user,
            password: password.filter(|password| !password.is_empty()),
            database,
            own: options.own.clone(),
            connect_limit: options.common.connect_limit(),
            tls: tls_mode(options.common)?,
        })
    }

    fn host_and_port(&self, place: &str) -> Result<(String, u16), String> {
        let (host, port) = host_and_port(place, self.port)?;
        if host.starts_with('/') {
            let (option, what) = self.socket;
            return Err(format!("write the path of {what} as the option `{option}`"));
        }
        Ok((host, port))
    }

    /// Reads the options. Refuses unknown and repeated options, and invalid values.
    fn options(&self, text: &str) -> Result<Options, String> {
        let (socket, what) = self.socket;
        let (mut path, mut own) = (None, None);
        let common = UrlOptions::read(text, self.files, |name, value| {
            match name {
                name if name == socket && value.starts_with('/') => path = Some(value.into()),
                name if name == socket => {
                    return Err(format!("`{socket}` is the full path of {what}"));
                }
                name if self.own == Some(name) => own = Some(value),
                _ => return Err(self.unknown(name)),
            }
            Ok(())
        })?;
        Ok(Options { socket: path, own, common })
    }

    fn unknown(&self, name: &str) -> String {
        let own = self.own.map_or_else(String::new, |own| format!("`{own}`, "));
        let (socket, what) = self.socket;
        format!(
            "there is no option `{}`; the options are {own}`connect_timeout`, `sslmode`, `ca`, \
             `cert`, `key` and `tls_name` for TLS, and `{socket}` for {what}",
            name.escape_debug()
        )
    }
}

/// The options of a URL.
#[derive(Default)]
struct Options {
    socket: Option<PathBuf>,
    own: Option<String>,
    common: UrlOptions,
}

fn tls_mode(options: UrlOptions) -> Result<TlsMode, String> {
    let (mode, options) = options.tls()?;
    match mode.as_deref() {
        Some("disable") => Ok(TlsMode::Disable),
        None | Some("prefer") => Ok(TlsMode::Prefer(options)),
        Some("require" | "verify-full") => Ok(TlsMode::Require(options)),
        _ => Err("`sslmode` must be `disable`, `prefer`, `require` or `verify-full`".to_owned()),
    }
}
