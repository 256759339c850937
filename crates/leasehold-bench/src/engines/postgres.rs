//! PostgreSQL, compared with bare statements and a bare `NOTIFY`.

use std::time::{Duration, Instant};

use leasehold::{Error, ErrorKind};
use leasehold_testkit::servers::PostgresServer;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::spawn_blocking;
use tokio_postgres::{AsyncMessage, Client as Session, Config, NoTls};

use super::{Engine, Extent, refused};
use crate::figure::Report;

const NAME: &str = "PostgreSQL";

const DATABASE: &str = "postgres";

/// Waiters have a database of their own, so that nobody else's transactions are counted.
const WAITERS_DATABASE: &str = "waiters";

/// A session reports its transactions to the statistics once a second.
const REPORTED_IN: Duration = Duration::from_secs(2);

/// A row for each key, and no more: the least that a lock in a table needs.
const BARE_TABLE: &str = "CREATE TABLE bare (key text PRIMARY KEY, owner text, until timestamptz)";
const BARE_LOCK: &str = "INSERT INTO bare VALUES ('a', 'me', clock_timestamp() + interval '10 s')
    ON CONFLICT (key) DO UPDATE SET owner = excluded.owner, until = excluded.until
    WHERE bare.owner IS NULL OR bare.until < clock_timestamp()";
const BARE_RELEASE: &str = "UPDATE bare SET owner = NULL WHERE key = 'a' AND owner = 'me'";

pub(super) async fn measure(extent: Extent, report: &mut Report) -> Result<(), Error> {
    let starting = spawn_blocking(|| {
        let server = PostgresServer::start();
        server.migrate(DATABASE);
        server.sql(BARE_TABLE);
        server.sql("CREATE DATABASE waiters");
        server.migrate(WAITERS_DATABASE);
        server
    });
    let server = starting.await.expect("the server starts");
    let url = server.database_url(DATABASE);
    let engine = Engine { name: NAME, url: &url };

    let (bare, _notes) = session(&server).await?;
    let pair = async || {
        run(&bare, BARE_LOCK).await?;
        run(&bare, BARE_RELEASE).await
    };
    engine.round_trips((extent.pairs, "two bare transactions"), pair, report).await?;

    let (listening, mut notes) = session(&server).await?;
    run(&listening, "LISTEN bare").await?;
    let hop = async || {
        let called = Instant::now();
        run(&bare, "NOTIFY bare").await?;
        let heard = notes.recv().await.ok_or_else(ended)?;
        Ok(heard.saturating_duration_since(called))
    };
    engine.hand_overs((extent.pairs / 4, "a bare NOTIFY"), hop, report).await?;

    let waiters_url = server.database_url(WAITERS_DATABASE);
    let waited = Engine { name: NAME, url: &waiters_url };
    let count = async || {
        tokio::time::sleep(REPORTED_IN).await;
        commits(&bare).await
    };
    waited.waiters((extent.watched, "transactions"), count, report).await?;
    engine.leases(extent, report).await
}

async fn commits(session: &Session) -> Result<u64, Error> {
    let sql = "SELECT xact_commit FROM pg_stat_database WHERE datname = 'waiters'";
    let row = session.query_one(sql, &[]).await.map_err(refused)?;
    Ok(row.get::<_, i64>(0).unsigned_abs())
}

async fn run(session: &Session, sql: &str) -> Result<(), Error> {
    session.batch_execute(sql).await.map_err(refused)
}

/// A session, and the moments at which messages for it arrive.
async fn session(server: &PostgresServer) -> Result<(Session, UnboundedReceiver<Instant>), Error> {
    let stream = tokio::net::TcpStream::connect(("127.0.0.1", server.port())).await;
    let stream = stream.and_then(|stream| stream.set_nodelay(true).map(|()| stream));
    let stream = stream.map_err(|error| {
        Error::new(ErrorKind::Unavailable, "no connection to the server").with_source(error)
    })?;
    let mut config = Config::new();
    let connecting = config.user("postgres").dbname(DATABASE).connect_raw(stream, NoTls);
    let (session, mut connection) = connecting.await.map_err(refused)?;
    let (noting, notes) = unbounded_channel();
    tokio::spawn(async move {
        while let Some(Ok(message)) = std::future::poll_fn(|cx| connection.poll_message(cx)).await {
            if let AsyncMessage::Notification(_) = message
                && noting.send(Instant::now()).is_err()
            {
                break;
            }
        }
    });
    Ok((session, notes))
}

fn ended() -> Error {
    Error::new(ErrorKind::Unavailable, "the session that listens ended")
}
