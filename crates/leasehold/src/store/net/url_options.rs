//! The common parts of the URLs of databases and clusters: hosts with ports, and options.

use std::path::PathBuf;
use std::time::Duration;

use super::{TlsOptions, decode};

/// How long connecting may take if the URL does not say.
const CONNECT_LIMIT: Duration = Duration::from_secs(2);

/// Reads `HOST`, `HOST:PORT` or `[ADDRESS]:PORT`. The host has no brackets, and may be empty.
pub(crate) fn host_and_port(text: &str, default_port: u16) -> Result<(String, u16), String> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or("after `[ADDRESS`, write `]`")?;
            (host.to_owned(), port.strip_prefix(':').unwrap_or(port))
        }
        None => {
            let (host, port) = text.split_once(':').unwrap_or((text, ""));
            (decode(host)?, port)
        }
    };
    if port.is_empty() {
        return Ok((host, default_port));
    }
    let is_number = port.bytes().all(|byte| byte.is_ascii_digit());
    let number = port.parse().ok().filter(|port| is_number && *port > 0);
    let mistake = "a port must be a number from 1 to 65535; write `:` in a user as `%3A`";
    Ok((host, number.ok_or(mistake)?))
}

/// Reads the full path of a file. The process may change its directory before the file is read
/// again.
fn file(path: &str) -> Result<PathBuf, String> {
    let advice = "write the path of a file in full, as in `ca=/etc/ssl/ca.pem`";
    path.starts_with('/').then(|| path.into()).ok_or_else(|| advice.to_owned())
}

/// The options that all these URLs have.
#[derive(Default)]
pub(crate) struct UrlOptions {
    connect_limit: Option<Duration>,
    mode: Option<String>,
    ca: Option<PathBuf>,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    name: Option<String>,
}

impl UrlOptions {
    /// Reads the options of a URL. `files` are other words for `ca`, `cert` and `key`. `other`
    /// reads an option that is not among the common ones, or refuses it.
    ///
    /// # Errors
    ///
    /// The mistake, for repeated options and invalid values.
    pub(crate) fn read(
        text: &str,
        files: [&str; 3],
        mut other: impl FnMut(&str, String) -> Result<(), String>,
    ) -> Result<Self, String> {
        // An `@` here shows that a raw `?` cut the password. No error may show the rest of it.
        if text.contains('@') {
            return Err("write a `?` in a user or password as `%3F`, and an `@` in an option as \
                        `%40`"
                .to_owned());
        }
        let [ca, cert, key] = files;
        let mut options = Self::default();
        let mut seen = Vec::new();
        for option in text.split('&') {
            let (name, value) = option
                .split_once('=')
                .ok_or("write options after `?` as in `connect_timeout=5`")?;
            if seen.contains(&name) {
                return Err(format!("the option `{}` is given twice", name.escape_debug()));
            }
            seen.push(name);
            let value = decode(value)?;
            match name {
                "connect_timeout" => {
                    let seconds = value.parse().ok().filter(|seconds| (1..=60).contains(seconds));
                    let mistake = "`connect_timeout` must be a number of seconds, 1 to 60";
                    options.connect_limit = Some(Duration::from_secs(seconds.ok_or(mistake)?));
                }
                "sslmode" => options.mode = Some(value),
                "tls_name" => options.name = Some(value),
                name if name == "ca" || name == ca => options.ca = Some(file(&value)?),
                name if name == "cert" || name == cert => options.cert = Some(file(&value)?),
                name if name == "key" || name == key => options.key = Some(file(&value)?),
                _ => other(name, value)?,
            }
        }
        Ok(options)
    }

    /// How long connecting may take.
    pub(crate) fn connect_limit(&self) -> Duration {
        self.connect_limit.unwrap_or(CONNECT_LIMIT)
    }

    /// The `sslmode`, and the options of a connection that is encrypted by it.
    ///
    /// # Errors
    ///
    /// The mistake, if they contradict each other.
    pub(crate) fn tls(self) -> Result<(Option<String>, TlsOptions), String> {
        let limit = 3 * self.connect_limit() / 4;
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
        if mode.as_deref() == Some("disable") && identity.is_some() {
            return Err("`cert` and `key` are for an `sslmode` that encrypts".to_owned());
        }
        Ok((mode, TlsOptions { verifies, ca, identity, name, alpn: None, limit }))
    }
}
