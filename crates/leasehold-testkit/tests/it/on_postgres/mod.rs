//! The store on a real PostgreSQL server, in real time.
#![allow(clippy::disallowed_methods, reason = "servers live in real time, on threads of their own")]

mod batches;
mod failing_over;
mod full_disk;
mod in_transaction;
mod listening;
mod losing;
mod lost_answers;
mod migrating;
mod pooled;
mod refusals;
mod runtimes;
mod tls;
mod versions;
mod waiting;

use leasehold_testkit::servers::Schema;
use tokio_postgres::{Client as Session, Config, NoTls};

use crate::real_time::{client, until};

/// Another transaction, which keeps the rows of some locks locked until it ends.
async fn keep(schema: &Schema, names: &[&str]) -> Session {
    let keeper = session(schema).await;
    let names = names.join("', '");
    let sql = format!("BEGIN; SELECT FROM leasehold.locks WHERE key IN ('{names}') FOR UPDATE");
    keeper.batch_execute(&sql).await.expect("locked");
    keeper
}

/// A separate session, in addition to the sessions of the store. It ends when it is dropped.
async fn session(schema: &Schema) -> Session {
    session_at(schema.server().port(), schema.database()).await
}

/// Like [`session`], at the server or the pooler that listens at this port.
async fn session_at(port: u16, database: &str) -> Session {
    let stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await;
    let connecting = Config::new()
        .user("postgres")
        .dbname(database)
        .connect_raw(stream.expect("it listens"), NoTls)
        .await;
    let (session, connection) = connecting.expect("it answers");
    tokio::spawn(connection);
    session
}
