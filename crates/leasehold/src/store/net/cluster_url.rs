//! The common parts of the URLs of clusters: servers, a login, a path, and options.

use std::time::Duration;

use super::{TlsOptions, UrlOptions, decode, host_and_port, host_and_port_text};
use crate::core::error::{Error, ErrorKind};

/// How the URLs of one engine differ from those of others.
pub(crate) struct ClusterWords {
    pub(crate) scheme: &'static str,
    /// The port of a server if the URL names none.
    pub(crate) port: u16,
    /// The word for servers in messages, and how many of them a URL names at most.
    pub(crate) servers: (&'static str, usize),
    /// The right form, for messages.
    pub(crate) form: &'static str,
}

/// The parts of a URL that mean the same for all engines.
pub(crate) struct ClusterUrl {
    /// Name or address, without brackets, and port of each server; at least one.
    pub(crate) servers: Vec<(String, u16)>,
    /// User and password.
    pub(crate) login: Option<(String, String)>,
    /// How long connecting may take, with TLS and the login.
    pub(crate) connect_limit: Duration,
    /// `None` if connections are not encrypted.
    pub(crate) tls: Option<TlsOptions>,
}

impl ClusterWords {
    /// Reads a URL. `other` reads an option that is not among the common ones, or refuses it. Also
    /// returns the path, without slashes at its ends; `None` if no slash follows the servers.
    ///
    /// # Errors
    ///
    /// `Config`, with the mistake and the right form, but without the URL.
    pub(crate) fn read(
        &self,
        url: &str,
        other: impl FnMut(&str, String) -> Result<(), String>,
    ) -> Result<(ClusterUrl, Option<String>), Error> {
        let rest = url.split_once(':').map_or("", |(_, rest)| rest);
        let is_strange = |c: char| c.is_whitespace() || c.is_control();
        if rest.contains(is_strange) {
            let mistake = "it has a blank or a control character; write it percent-encoded";
            return Err(self.not_understood(mistake));
        }
        self.parts(rest, other).map_err(|mistake| self.not_understood(&mistake))
    }

    /// The error for a URL with that mistake.
    pub(crate) fn not_understood(&self, mistake: &str) -> Error {
        let scheme = self.scheme;
        let message =
            format!("the URL `{scheme}://…` is not understood: {mistake}; no request was sent");
        Error::new(ErrorKind::Config, message)
    }

    fn parts(
        &self,
        rest: &str,
        other: impl FnMut(&str, String) -> Result<(), String>,
    ) -> Result<(ClusterUrl, Option<String>), String> {
        let rest = rest.strip_prefix("//").ok_or("it needs two slashes after the scheme")?;
        let (rest, options) =
            rest.split_once('?').map_or((rest, None), |(it, more)| (it, Some(more)));
        let options = match options {
            // There are no other words for the files of TLS.
            Some(options) => UrlOptions::read(options, ["ca", "cert", "key"], other)?,
            None => UrlOptions::default(),
        };
        let (authority, path) =
            rest.split_once('/').map_or((rest, None), |(it, path)| (it, Some(path)));
        let (login, servers) = match authority.rsplit_once('@') {
            Some((login, servers)) => (Some(login), servers),
            None => (None, authority),
        };
        let servers = servers.split(',').map(|it| self.server(it));
        let servers: Vec<_> = servers.collect::<Result<_, _>>()?;
        let (what, most) = self.servers;
        if servers.len() > most {
            return Err(format!("it names more than {most} {what}"));
        }
        let login = login.map(|login| self.login(login)).transpose()?;
        let path = path.map(|path| decode(path.trim_matches('/'))).transpose()?;
        let connect_limit = options.connect_limit();
        Ok((ClusterUrl { servers, login, connect_limit, tls: tls(options)? }, path))
    }

    fn server(&self, text: &str) -> Result<(String, u16), String> {
        let (host, port) = host_and_port(text, self.port)?;
        if host.is_empty() {
            return Err(format!("it names no host; write `{}`", self.form));
        }
        Ok((host, port))
    }

    fn login(&self, login: &str) -> Result<(String, String), String> {
        let (user, password) = login.split_once(':').unwrap_or((login, ""));
        let (user, password) = (decode(user)?, decode(password)?);
        if user.is_empty() || password.is_empty() {
            return Err(format!(
                "a login needs a user and a password; write `{}://USER:PASSWORD@HOST`",
                self.scheme
            ));
        }
        Ok((user, password))
    }

    /// The URL of such parts without password, for messages and logs. `path` begins with a slash.
    pub(crate) fn label(&self, parts: &ClusterUrl, path: &str) -> String {
        let servers = parts.servers.iter().map(|(host, port)| host_and_port_text(host, *port));
        let servers: Vec<_> = servers.collect();
        let user = parts.login.as_ref().map_or_else(String::new, |(user, _)| format!("{user}@"));
        let (user, path) = (user.escape_debug(), path.escape_debug());
        format!("{}://{user}{}{path}", self.scheme, servers.join(","))
    }
}

/// The encryption that the options ask for.
fn tls(options: UrlOptions) -> Result<Option<TlsOptions>, String> {
    let (mode, options) = options.tls()?;
    match mode.as_deref() {
        None if options.identity.is_some() => {
            Err("`cert` and `key` are for an `sslmode` that encrypts".to_owned())
        }
        None | Some("disable") => Ok(None),
        Some("require" | "verify-full") => Ok(Some(options)),
        _ => Err("`sslmode` must be `disable`, `require` or `verify-full`".to_owned()),
    }
}
