//! The textbook lock on one Redis server: `SET NX PX`, and a script that deletes only its own
//! value.

use leasehold::{Error, ErrorKind};
use redis::aio::MultiplexedConnection;
use redis::{RedisResult, Value};

use crate::bare_redis::{connect, unavailable};

const COMPARE_AND_DELETE: &str = "if redis.call('get', KEYS[1]) == ARGV[1] then \
                                  return redis.call('del', KEYS[1]) else return 0 end";

const TTL_MS: u64 = 10_000;

/// It is as long as one of our tokens. Drawing a token is not part of the yardstick.
const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// The keys of one task. All tasks share a connection, so requests of the same moment travel
/// together.
#[derive(Clone)]
pub(crate) struct BareLock {
    connection: MultiplexedConnection,
    script: String,
    keys: Vec<String>,
}

impl BareLock {
    pub(crate) async fn connect(url: &str) -> Result<Self, Error> {
        let mut connection = connect(url).await?;
        let mut load = redis::cmd("SCRIPT");
        load.arg("LOAD").arg(COMPARE_AND_DELETE);
        let script =
            load.query_async(&mut connection).await.map_err(|error| unavailable(&error))?;
        Ok(Self { connection, script, keys: Vec::new() })
    }

    pub(crate) fn with_keys(&self, keys: Vec<String>) -> Self {
        Self { keys, ..self.clone() }
    }

    /// Locks and releases the next of the keys.
    pub(crate) async fn set_and_delete(&mut self, time: usize) -> Result<(), Error> {
        let key = self.keys[time % self.keys.len()].clone();
        self.set(&key, TTL_MS).await?;
        self.delete(&key).await
    }

    /// Locks a key. It must be free.
    pub(crate) async fn set(&self, key: &str, ttl_ms: u64) -> Result<(), Error> {
        let mut set = redis::cmd("SET");
        set.arg(key).arg(TOKEN).arg("NX").arg("PX").arg(ttl_ms);
        expect(&set.query_async(&mut self.connection.clone()).await, &Value::Okay)
    }

    /// Releases a key. It must be held.
    pub(crate) async fn delete(&self, key: &str) -> Result<(), Error> {
        let mut delete = redis::cmd("EVALSHA");
        delete.arg(&self.script).arg(1).arg(key).arg(TOKEN);
        expect(&delete.query_async(&mut self.connection.clone()).await, &Value::Int(1))
    }
}

fn expect(answer: &RedisResult<Value>, expected: &Value) -> Result<(), Error> {
    match answer {
        Ok(answer) if answer == expected => Ok(()),
        Ok(answer) => {
            let message = format!("the yardstick's key was not free: {answer:?}");
            Err(Error::new(ErrorKind::Unavailable, message))
        }
        Err(error) => Err(unavailable(error)),
    }
}
