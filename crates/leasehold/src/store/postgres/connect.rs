//! Opens connections to the database of a URL, and refuses those that cannot keep locks.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::error::failure;
use super::guarded_stream::GuardedStream;
use super::link::Link;
use super::schema::{BUILD, in_schema};
use super::url;
use crate::core::error::{Error, ErrorKind};
use crate::store::net::{Opening, Stream, Tls, open_unix, tcp_stream};
use crate::store::sql::errors::{Stage, unknown_server};
use crate::store::sql::text::encode;
use crate::store::sql::url::{Address, Place, TlsMode};
use crate::store::sql::version::Found;
use crate::store::sql::{Dialect, Engine, Row};

/// The oldest server, in the form of `server_version_num`.
const OLDEST: u32 = 130_000;

/// Opens connections to one database of a PostgreSQL server.
///
/// | URL | server |
/// |---|---|
/// | `postgres://user:password@host[:port]/database[?OPTIONS]` | TCP; the default port is 5432 |
/// | `postgres://user[:password]@/database?host=FOLDER` | the socket in that folder |
///
/// `postgresql://` is the same. User, password, database and values of options are percent-encoded.
/// If the URL names no database, the name of the user is used.
///
/// | option | meaning |
/// |---|---|
/// | `schema=NAME` | where the tables are; default `leasehold` |
/// | `connect_timeout=SECONDS` | how long a login may take; default 2 |
/// | `sslmode=disable` | do not encrypt |
/// | `sslmode=prefer` | the default: encrypt if the server offers it, and check no certificate |
/// | `sslmode=require` | encrypt, and check no certificate |
/// | `sslmode=verify-full` | encrypt, and check that the certificate is for the host |
/// | `ca=PATH` | with `verify-full`, the authority to trust instead of the system's |
/// | `cert=PATH&key=PATH` | the certificate of this client |
/// | `tls_name=NAME` | with `verify-full`, the name in the certificate, if it is not the host |
///
/// `sslrootcert`, `sslcert` and `sslkey` are the same as `ca`, `cert` and `key`. TLS needs the
/// feature `tls`.
#[derive(Clone)]
pub struct PostgresConnector {
    pub(in crate::store) address: Arc<Address>,
    /// `None` if connections are not encrypted.
    tls: Option<Tls>,
    through: Option<Arc<Through>>,
}

type Through = dyn Fn(Opening) -> Opening + Send + Sync;

impl PostgresConnector {
    /// Reads a URL. Does not connect yet.
    ///
    /// # Errors
    ///
    /// [`Config`](ErrorKind::Config) for an invalid URL. The message says why, and never shows the
    /// password.
    pub fn new(url: &str) -> Result<Self, Error> {
        let address = url::parse(url)?;
        let tls = address.tls.tls()?;
        Ok(Self { address: Arc::new(address), tls, through: None })
    }

    /// Passes each new stream through a function. For simulations and tests.
    #[must_use]
    pub fn through(self, wrap: impl Fn(Opening) -> Opening + Send + Sync + 'static) -> Self {
        Self { through: Some(Arc::new(wrap)), ..self }
    }

    /// The versions that the database says.
    pub(super) async fn found(&self, link: &mut Link) -> Result<Found, Error> {
        // A backend that waits for a table would go on waiting when its client has given up.
        let sql = "SET LOCAL lock_timeout = 500; SELECT * FROM leasehold.meta";
        let sql = in_schema(sql, &self.address);
        let rows = link.ask(&sql).await.map_err(|error| failure(&error, Stage::Connecting))?;
        Ok(Found::read(&rows))
    }

    fn open(&self) -> Opening {
        let address = Arc::clone(&self.address);
        let tls = self.tls.clone();
        let opening: Opening = Box::pin(async move {
            let (stream, is_private) = match &address.place {
                Place::Tcp(host, port) => {
                    let stream = tcp_stream(host, *port).await?;
                    encrypted(stream, host, (tls.as_ref(), &address.tls)).await?
                }
                Place::Unix(folder, port) => {
                    (open_unix(&folder.join(format!(".s.PGSQL.{port}"))).await?, true)
                }
            };
            let stream: Box<dyn Stream> = Box::new(GuardedStream::new(stream, is_private));
            Ok(stream)
        });
        match &self.through {
            Some(wrap) => wrap(opening),
            None => opening,
        }
    }
}

impl Engine for PostgresConnector {
    type Link = Link;

    async fn log_in(&self) -> Result<Link, Error> {
        let stream = self.open().await?;
        Link::log_in(stream, &self.address).await
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
        let before =
            format!("SELECT * FROM \"{}\".", url::schema(&self.address).replace('"', "\"\""));
        Dialect { before, text: write_text, has_patience: true, list: None }
    }
}

/// Adds a text. The form `E'…'` means the same whatever the settings of the server are.
fn write_text(sql: &mut String, text: &str) {
    sql.push_str("E'");
    for c in encode(text).chars() {
        match c {
            '\'' => sql.push_str("''"),
            '\\' => sql.push_str("\\\\"),
            c => sql.push(c),
        }
    }
    sql.push('\'');
}

/// Encrypts a connection if the URL and the server want that. Returns whether it did. A server
/// answers the request for TLS with one byte.
async fn encrypted(
    mut stream: TcpStream,
    host: &str,
    (tls, mode): (Option<&Tls>, &TlsMode),
) -> Result<(Box<dyn Stream>, bool), Error> {
    const REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];
    let Some(tls) = tls else { return Ok((Box::new(stream), false)) };
    let asking = async {
        stream.write_all(&REQUEST).await?;
        stream.read_u8().await
    };
    let answer = asking.await.map_err(|cause| {
        let message = "the server closed the connection instead of answering; no request was sent; \
                       check whether a PostgreSQL server listens there";
        Error::new(ErrorKind::Unavailable, message).with_source(cause)
    })?;
    match (answer, mode) {
        (b'S', _) => Ok((tls.secure(stream, host).await?, true)),
        (b'N', TlsMode::Require(_)) => {
            let message = "the server has no TLS; no request was sent; set `ssl = on` on the \
                           server, or write `sslmode=disable` if the network is trusted";
            Err(Error::new(ErrorKind::Config, message))
        }
        (b'N', _) => Ok((Box::new(stream), false)),
        // Leave out the server's text, because anybody between us and the server can write one.
        (b'E', _) => {
            let message = "the server cannot serve another connection; no request was sent; read \
                           its log, and look whether it is out of memory or processes";
            Err(Error::new(ErrorKind::Unavailable, message))
        }
        _ => {
            let message = "the server there is not a PostgreSQL server; no request was sent; check \
                           the host and the port";
            Err(Error::new(ErrorKind::Config, message))
        }
    }
}

impl fmt::Debug for PostgresConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PostgresConnector({})", self.label())
    }
}

/// The facts that a server tells about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    /// `server_version_num`, such as 150018.
    pub(super) version: u32,
    pub(super) is_standby: bool,
    pub(super) is_read_only: bool,
    pub(super) isolation: String,
    pub(super) encoding: String,
}

impl Facts {
    pub(super) async fn read(link: &mut Link) -> Result<Self, Error> {
        const SQL: &str = "SELECT current_setting('server_version_num'), pg_is_in_recovery(),
            current_setting('transaction_read_only'), current_setting('transaction_isolation'),
            current_setting('server_encoding')";
        let rows = link.ask(SQL).await.map_err(|error| failure(&error, Stage::Connecting))?;
        let read = rows.first().and_then(Self::of);
        read.ok_or_else(|| unknown_server("PostgreSQL"))
    }

    fn of(row: &Row) -> Option<Self> {
        let text = |at: usize| row.get(at)?.as_deref();
        Some(Self {
            version: text(0)?.parse().ok()?,
            is_standby: text(1)? == "t",
            is_read_only: text(2)? == "on",
            isolation: text(3)?.to_owned(),
            encoding: text(4)?.to_owned(),
        })
    }

    /// Refuses a server that cannot keep locks.
    pub(super) fn check(&self) -> Result<(), Error> {
        let (kind, message) = if self.version < OLDEST {
            let version = self.version / 10_000;
            let text = format!(
                "the server is PostgreSQL {version}, and locks need 13 or newer; no request was \
                 sent; use a newer server"
            );
            (ErrorKind::Config, text)
        } else if self.is_standby {
            let text = "the server is a read-only standby; no request was sent; name the primary \
                        in the URL";
            (ErrorKind::Unavailable, text.to_owned())
        } else if self.is_read_only {
            // Some services make a server read-only while its disk is nearly full.
            let text = "the server lets this user only read; no request was sent; free space on \
                        its disk if that is full, or set `default_transaction_read_only = off`";
            (ErrorKind::Unavailable, text.to_owned())
        } else if self.isolation != "read committed" {
            let text = format!(
                "transactions of this user are `{}`, and the steps of a lock need `read \
                 committed`; no request was sent; run `ALTER ROLE … SET \
                 default_transaction_isolation = 'read committed'`",
                self.isolation.escape_debug()
            );
            (ErrorKind::Config, text)
        } else if self.encoding != "UTF8" {
            let text = format!(
                "the database is encoded as {}, and names of locks are UTF-8; no request was sent; \
                 use a database with the encoding UTF8",
                self.encoding.escape_debug()
            );
            (ErrorKind::Config, text)
        } else {
            return Ok(());
        };
        Err(Error::new(kind, message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::SystemHost;

    /// Only over a private connection the client shows its password.
    #[tokio::test]
    async fn a_connection_that_the_server_does_not_encrypt_is_not_private() {
        let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let at = server.local_addr().expect("it is bound");
        let serve = async {
            let (mut stream, _) = server.accept().await.expect("a client");
            let _request = stream.read(&mut [0; 8]).await.expect("it asks for TLS, or goes");
            let _sent = stream.write_all(b"N").await;
        };
        let ours = PostgresConnector::new("postgres://app@h/app").expect("a URL");
        let client = async {
            let stream = TcpStream::connect(at).await.expect("it listens");
            encrypted(stream, "h", (ours.tls.as_ref(), &ours.address.tls)).await
        };
        let (_stream, is_private) = tokio::join!(client, serve).0.expect("without encryption");
        assert!(!is_private);
    }

    #[test]
    fn a_server_that_cannot_keep_locks_is_refused_with_advice() {
        let fine = Facts {
            version: 130_000,
            is_standby: false,
            is_read_only: false,
            isolation: "read committed".to_owned(),
            encoding: "UTF8".to_owned(),
        };
        assert!(fine.check().is_ok());
        let of = |change: fn(&mut Facts)| {
            let mut facts = fine.clone();
            change(&mut facts);
            facts.check().expect_err("refused")
        };
        for (error, kind, part) in [
            (of(|it| it.version = 120_009), ErrorKind::Config, "PostgreSQL 12"),
            (of(|it| it.is_standby = true), ErrorKind::Unavailable, "standby"),
            (of(|it| it.is_read_only = true), ErrorKind::Unavailable, "read_only = off"),
            (of(|it| it.isolation = "serializable".into()), ErrorKind::Config, "read committed"),
            (of(|it| it.encoding = "LATIN1".into()), ErrorKind::Config, "UTF8"),
        ] {
            assert_eq!(error.kind(), kind);
            let text = error.to_string();
            assert!(text.contains(part) && text.contains("no request was sent"), "{text}");
        }
    }

    /// The error for a server that answers the request for TLS with these bytes.
    #[allow(clippy::disallowed_methods, reason = "the test brings a server of its own")]
    async fn refused_by_a_server_that_says(answer: &'static [u8]) -> Error {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let server = std::thread::spawn(move || {
            use std::io::{Read as _, Write as _};
            let (mut stream, _) = listener.accept().expect("it connects");
            stream.read_exact(&mut [0; 8]).expect("it asks");
            stream.write_all(answer).expect("it listens");
        });
        let url = format!("postgres://anna:secret@127.0.0.1:{port}/locks");
        let connector = PostgresConnector::new(&url).expect("a URL");
        let refused = connector.log_in_within_limit(&SystemHost::shared()).await;
        server.join().expect("no panic");
        refused.err().expect("it is refused")
    }

    #[cfg(feature = "tls")]
    #[tokio::test]
    async fn a_server_without_processes_is_asked_again_and_another_kind_of_server_is_not() {
        for (answer, kind, part) in [
            (&b"Ecould not fork new process\n\0"[..], ErrorKind::Unavailable, "out of memory"),
            (b"HTTP/1.1 400 Bad Request\r\n\r\n", ErrorKind::Config, "not a PostgreSQL server"),
        ] {
            let error = refused_by_a_server_that_says(answer).await;
            assert_eq!(error.kind(), kind, "{error}");
            let text = error.to_string();
            assert!(text.contains(part) && text.contains("no request was sent"), "{text}");
            assert!(!text.contains("fork"), "{text}");
        }
    }

    #[test]
    fn no_text_leaves_its_quotes() {
        for (text, sql) in [
            ("a", "E'a'"),
            ("'; DROP TABLE x; --", "E'''; DROP TABLE x; --'"),
            ("\\'", "E'\\\\'''"),
            ("\\", "E'\\\\'"),
            ("a\0b", "E'a\u{1a}0b'"),
            ("ü🔒\n", "E'ü🔒\n'"),
        ] {
            let mut written = String::new();
            write_text(&mut written, text);
            assert_eq!(written, sql);
        }
    }
}
