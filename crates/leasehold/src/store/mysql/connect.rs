//! Opens connections to the database of a URL, and refuses those that cannot keep locks.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::conn::{Conn, FLAGS, Failure, flags_and_limits, read_packet, write_packet};
use super::error::failure;
use super::link::Link;
use super::packet::{Greeting, Malformed, Said, flag};
use super::schema::BUILD;
use super::text::write_text;
use super::{renewals, url};
use crate::core::error::{Error, ErrorKind};
use crate::store::net::{Io, Stream, Tls, open_unix, tcp_stream};
use crate::store::sql::errors::{Stage, unknown_server};
use crate::store::sql::url::{Address, Place, TlsMode};
use crate::store::sql::version::Found;
use crate::store::sql::{Dialect, Engine, Row};

/// The oldest servers. Older ones cannot skip a locked row.
const OLDEST_MYSQL: (u32, u32) = (8, 0);
const OLDEST_MARIADB: (u32, u32) = (10, 6);

/// The settings of each connection. Without locks on gaps, steps at different keys do not wait for
/// each other. The limit is the shortest that servers have, because a row that another transaction
/// locks must not stop all requests behind it. The migration must fail if a table cannot be of
/// InnoDB, since other engines lock no rows.
const SETTINGS: &str = "SET NAMES utf8mb4, SESSION autocommit = 1, \
    SESSION sql_mode = 'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION', \
    SESSION innodb_lock_wait_timeout = 1, SESSION lock_wait_timeout = 1, \
    SESSION completion_type = 0, SESSION sql_safe_updates = 0";
const ISOLATION: &str = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED";

/// Opens connections to one database of a MySQL or MariaDB server.
///
/// | URL | server |
/// |---|---|
/// | `mysql://user:password@host[:port]/database[?OPTIONS]` | TCP; the default port is 3306 |
/// | `mysql://user[:password]@/database?socket=PATH` | that socket |
///
/// `mariadb://` is the same. User, password, database and values of options are percent-encoded.
///
/// | option | meaning |
/// |---|---|
/// | `connect_timeout=SECONDS` | how long a login may take; default 2 |
/// | `sslmode=disable` | do not encrypt |
/// | `sslmode=prefer` | the default: encrypt if the server offers it, and check no certificate |
/// | `sslmode=require` | encrypt, and check no certificate |
/// | `sslmode=verify-full` | encrypt, and check that the certificate is for the host |
/// | `ca=PATH` | with `verify-full`, the authority to trust instead of the system's |
/// | `cert=PATH&key=PATH` | the certificate of this client |
/// | `tls_name=NAME` | with `verify-full`, the name in the certificate, if it is not the host |
///
/// `ssl-ca`, `ssl-cert` and `ssl-key` are the same as `ca`, `cert` and `key`. TLS needs the feature
/// `tls`.
#[derive(Clone)]
pub struct MysqlConnector {
    pub(in crate::store) address: Arc<Address>,
    /// `None` if connections are not encrypted.
    tls: Option<Tls>,
}

impl MysqlConnector {
    /// Reads a URL. Does not connect yet.
    ///
    /// # Errors
    ///
    /// [`Config`](ErrorKind::Config) for an invalid URL. The message says why, and never shows the
    /// password.
    pub fn new(url: &str) -> Result<Self, Error> {
        let address = url::parse(url)?;
        let tls = address.tls.tls()?;
        Ok(Self { address: Arc::new(address), tls })
    }

    async fn log_in_over_tcp(&self, host: &str, port: u16) -> Result<Conn, Error> {
        let mut stream = tcp_stream(host, port).await?;
        let (greeting, number) = greeting(&mut stream).await?;
        let offers = greeting.flags & flag::TLS != 0;
        if !offers && matches!(self.address.tls, TlsMode::Require(_)) {
            let message = "the server has no TLS; no request was sent; set `ssl_cert` and \
                           `ssl_key` on it, or write `sslmode=disable` if the network is trusted";
            return Err(Error::new(ErrorKind::Config, message));
        }
        let Some(tls) = self.tls.as_ref().filter(|_| offers) else {
            let stream: Box<dyn Stream> = Box::new(stream);
            return self.log_in_on(Io(stream), (&greeting, number, false)).await;
        };
        let asking = flags_and_limits(FLAGS | flag::TLS);
        let asked = write_packet(&mut stream, number, &asking).await;
        asked.map_err(|error| failure(&error, Stage::Connecting))?;
        let stream = tls.secure(stream, host).await?;
        self.log_in_on(Io(stream), (&greeting, number + 1, true)).await
    }

    async fn log_in_on(&self, stream: Io, greeting: (&Greeting, u8, bool)) -> Result<Conn, Error> {
        let conn = Conn::log_in(stream, &self.address, greeting).await;
        conn.map_err(|error| failure(&error, Stage::Connecting))
    }

    /// The versions that the database says.
    pub(super) async fn found(&self, link: &Link) -> Result<Found, Error> {
        Ok(Found::read(&link.ask("SELECT * FROM leasehold_meta", Stage::Connecting).await?))
    }
}

/// The abilities that every server of this protocol has.
const NEEDED: u32 = flag::PROTOCOL_41 | flag::SECURE | flag::MULTI_RESULTS | flag::PLUGINS;

/// Reads the first message of the server, and the number of the packet to answer with.
async fn greeting(
    stream: &mut (impl tokio::io::AsyncRead + Unpin),
) -> Result<(Greeting, u8), Error> {
    let reading = async {
        let (number, packet) = read_packet(stream).await?;
        match packet.first() {
            Some(0xff) => Err(Failure::Said(Said::read(&packet)?)),
            _ => Ok((Greeting::read(&packet)?, number.wrapping_add(1))),
        }
    };
    let (greeting, number) =
        reading.await.map_err(|error: Failure| failure(&error, Stage::Connecting))?;
    if greeting.flags & NEEDED != NEEDED || number != 1 {
        return Err(failure(&Malformed.into(), Stage::Connecting));
    }
    if greeting.flags & flag::MULTI_STATEMENTS == 0 {
        let message = "the server, or a proxy in front of it, takes no message with several \
                       requests; no request was sent; allow such messages in the proxy, or \
                       connect to the server itself";
        return Err(Error::new(ErrorKind::Config, message));
    }
    Ok((greeting, number))
}

impl Engine for MysqlConnector {
    type Link = Link;

    async fn log_in(&self) -> Result<Link, Error> {
        let mut conn = match &self.address.place {
            Place::Tcp(host, port) => self.log_in_over_tcp(host, *port).await?,
            Place::Unix(path, _) => {
                let mut stream = Io(open_unix(path).await?);
                let (greeting, number) = greeting(&mut stream).await?;
                self.log_in_on(stream, (&greeting, number, true)).await?
            }
        };
        for settings in [SETTINGS, ISOLATION] {
            let set = conn.ask(settings).await;
            set.map_err(|error| failure(&error, Stage::Connecting))?;
        }
        Ok(Link::new(conn))
    }

    async fn check(&self, link: &mut Link) -> Result<(), Error> {
        Facts::read(link).await?.check()?;
        BUILD.check(self.found(link).await?)
    }

    fn label(&self) -> String {
        self.address.label()
    }

    fn connect_limit(&self) -> Duration {
        self.address.connect_limit
    }

    fn dialect(&self) -> Dialect {
        let before = "CALL leasehold_".to_owned();
        Dialect { before, text: write_text, has_patience: false, list: Some(renewals::entry) }
    }
}

impl fmt::Debug for MysqlConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MysqlConnector({})", self.label())
    }
}

/// The facts that a server tells about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    /// Such as `8.0.36` or `10.11.6-MariaDB`.
    pub(super) version: String,
    pub(super) is_read_only: bool,
}

impl Facts {
    pub(super) async fn read(link: &Link) -> Result<Self, Error> {
        let rows = link.ask("SELECT @@version, @@read_only", Stage::Connecting).await?;
        let read = rows.first().and_then(Self::of);
        read.ok_or_else(|| unknown_server("MySQL or MariaDB"))
    }

    fn of(row: &Row) -> Option<Self> {
        let text = |at: usize| row.get(at)?.as_deref();
        let is_read_only = !matches!(text(1)?, "0" | "OFF");
        Some(Self { version: text(0)?.to_owned(), is_read_only })
    }

    /// Such as `MariaDB 10.11.6`.
    pub(super) fn server(&self) -> String {
        let name = if self.is_mariadb() { "MariaDB" } else { "MySQL" };
        format!("{name} {}", self.version.split('-').next().unwrap_or_default().escape_debug())
    }

    pub(super) fn is_mariadb(&self) -> bool {
        self.version.contains("MariaDB")
    }

    /// Refuses a server that cannot keep locks.
    pub(super) fn check(&self) -> Result<(), Error> {
        let mut numbers = self.version.split(['.', '-']).map(|part| part.parse().unwrap_or(0));
        let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        let oldest = if self.is_mariadb() { OLDEST_MARIADB } else { OLDEST_MYSQL };
        let (kind, message) = if version < oldest {
            let text = format!(
                "the server is {}, and locks need MySQL 8.0 or MariaDB 10.6, or newer; no request \
                 was sent; use a newer server",
                self.server()
            );
            (ErrorKind::Config, text)
        } else if self.is_read_only {
            let text = "the server is read-only; no request was sent; name the primary in the URL, \
                        and check the setting `read_only`";
            (ErrorKind::Unavailable, text.to_owned())
        } else {
            return Ok(());
        };
        Err(Error::new(kind, message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_cannot_keep_locks_is_refused_with_advice() {
        let of = |version: &str, is_read_only| Facts { version: version.to_owned(), is_read_only };
        for version in ["8.0.36", "9.1.0", "8.4.3-3", "10.6.0-MariaDB", "11.4.2-MariaDB-log"] {
            of(version, false).check().expect(version);
        }
        for (facts, kind, part) in [
            (of("5.7.44-log", false), ErrorKind::Config, "MySQL 5.7.44"),
            (of("10.5.29-MariaDB", false), ErrorKind::Config, "MariaDB 10.5.29"),
            (of("nonsense", false), ErrorKind::Config, "newer server"),
            (of("8.0.36", true), ErrorKind::Unavailable, "read_only"),
        ] {
            let error = facts.check().expect_err(part);
            assert_eq!(error.kind(), kind);
            let text = error.to_string();
            assert!(text.contains(part) && text.contains("no request was sent"), "{text}");
        }
    }

    /// Versions of servers write the setting in different ways.
    #[test]
    fn a_server_is_read_only_unless_it_says_that_it_is_not() {
        for (said, is_read_only) in [("0", false), ("OFF", false), ("1", true), ("ON", true)] {
            let facts = Facts::of(&vec![Some("8.0.36".to_owned()), Some(said.to_owned())]);
            assert_eq!(facts.map(|facts| facts.is_read_only), Some(is_read_only), "{said}");
        }
        assert_eq!(Facts::of(&vec![Some("8.0.36".to_owned()), None]), None);
    }

    /// The first message of a server with these abilities.
    fn said_first(flags: u32) -> Vec<u8> {
        let [a, b, c, d] = flags.to_le_bytes();
        let (version, connection) = (b"\x0a8.0.36\0", [1, 0, 0, 0]);
        let charset_and_status = [45, 2, 0];
        let rest = [&[a, b][..], &charset_and_status, &[c, d, 21], &[0; 10], &[7; 12], &[0]];
        let rest = rest.concat();
        [version, &connection[..], &[7; 8], &[0], &rest, b"mysql_native_password\0"].concat()
    }

    #[tokio::test]
    async fn a_server_that_takes_no_several_requests_at_once_is_refused_with_advice() {
        for (flags, kind) in [
            (NEEDED | flag::MULTI_STATEMENTS, None),
            (NEEDED, Some(ErrorKind::Config)),
            (flag::MULTI_STATEMENTS, Some(ErrorKind::Unavailable)),
        ] {
            let (mut stream, mut server) = tokio::io::duplex(1_000);
            write_packet(&mut server, 0, &said_first(flags)).await.expect("there is room");
            let error = greeting(&mut stream).await.err();
            assert_eq!(error.as_ref().map(Error::kind), kind, "{error:?}");
            let is_advice = error.is_some_and(|error| error.message().contains("several requests"));
            assert_eq!(is_advice, kind == Some(ErrorKind::Config));
        }
    }
}
