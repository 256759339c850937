//! The least client of MySQL: one user without a password, statements that return no rows.

use leasehold::Error;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::refused;

/// Protocol 4.1 with a database, and logins by plug-ins.
const ABILITIES: u32 = 0x0000_0200 | 0x0000_8000 | 0x0000_0008 | 0x0008_0000;

/// The longest packet that is sent or taken.
const PACKET_BYTES_MAX: u32 = 1 << 16;

const COLLATION_UTF8: u8 = 33;

/// The command that runs a statement.
const QUERY: u8 = 3;

/// The first byte of the answer to a statement without rows, and of a login that was let in.
const OK: u8 = 0;

/// A session.
pub(super) struct Session(TcpStream);

impl Session {
    /// Logs in as `app`.
    pub(super) async fn open(port: u16, database: &str) -> Result<Self, Error> {
        let stream = TcpStream::connect(("127.0.0.1", port)).await.map_err(refused)?;
        stream.set_nodelay(true).map_err(refused)?;
        let mut session = Self(stream);
        session.read().await?;
        let mut login = Vec::new();
        login.extend(ABILITIES.to_le_bytes());
        login.extend(PACKET_BYTES_MAX.to_le_bytes());
        login.push(COLLATION_UTF8);
        login.extend([0; 23]);
        // The user, an empty answer to the challenge, and the database.
        login.extend(b"app\0\0");
        login.extend(database.as_bytes());
        login.extend(b"\0mysql_native_password\0");
        session.write(1, &login).await?;
        session.take_ok().await?;
        Ok(session)
    }

    /// Runs a statement that returns no rows.
    pub(super) async fn run(&mut self, sql: &str) -> Result<(), Error> {
        let query = [&[QUERY], sql.as_bytes()].concat();
        self.write(0, &query).await?;
        self.take_ok().await
    }

    async fn take_ok(&mut self) -> Result<(), Error> {
        match self.read().await? {
            packet if packet.first() == Some(&OK) => Ok(()),
            packet => Err(refused(String::from_utf8_lossy(&packet))),
        }
    }

    /// A packet is its length in three bytes, its number, and what it says.
    async fn write(&mut self, number: u8, what: &[u8]) -> Result<(), Error> {
        let length = u32::try_from(what.len()).map_err(refused)?.to_le_bytes();
        let packet = [&length[..3], &[number], what].concat();
        self.0.write_all(&packet).await.map_err(refused)
    }

    async fn read(&mut self) -> Result<Vec<u8>, Error> {
        let mut head = [0; 4];
        self.0.read_exact(&mut head).await.map_err(refused)?;
        let length = u32::from_le_bytes([head[0], head[1], head[2], 0]);
        let mut packet = vec![0; usize::try_from(length).map_err(refused)?];
        self.0.read_exact(&mut packet).await.map_err(refused)?;
        Ok(packet)
    }
}
