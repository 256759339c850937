//! Counts the requests that a server received, and its processor time.
//!
//! `INFO commandstats` counts every command, even those that scripts call. A request is a message
//! over a connection: a script call counts once, with all calls of the script.

use std::collections::BTreeMap;

use leasehold::{Error, ErrorKind};
use redis::aio::MultiplexedConnection;

use crate::bare_redis::{connect, unavailable};

/// Commands that the library's scripts call, and that its clients never send while they lock, wait,
/// renew and release. Other commands count, so a command that is missing here is noticed.
const WITHIN_SCRIPTS: [&str; 24] = [
    "decr",
    "del",
    "exists",
    "get",
    "hdel",
    "hget",
    "hmget",
    "hset",
    "incr",
    "incrby",
    "pexpire",
    "pttl",
    "publish",
    "set",
    "time",
    "zadd",
    "zcard",
    "zcount",
    "zmscore",
    "zrange",
    "zrangebyscore",
    "zrank",
    "zrem",
    "zscore",
];

/// Calls of each command since the server started.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Calls(BTreeMap<String, u64>);

/// Reads the counts of a server, over its own connection.
pub(crate) struct RequestMeter(MultiplexedConnection);

impl RequestMeter {
    pub(crate) async fn connect(url: &str) -> Result<Self, Error> {
        Ok(Self(connect(url).await?))
    }

    /// The counts now. Costs one request.
    pub(crate) async fn look(&mut self) -> Result<Calls, Error> {
        Ok(Calls::read(&self.info("commandstats").await?))
    }

    /// The processor time that the server has used until now, in µs. Costs one request.
    pub(crate) async fn cpu_us(&mut self) -> Result<f64, Error> {
        let text = self.info("cpu").await?;
        let used = cpu_us_in(&text);
        used.ok_or_else(|| Error::new(ErrorKind::Unsupported, "the server hides its CPU time"))
    }

    async fn info(&mut self, section: &str) -> Result<String, Error> {
        let mut info = redis::cmd("INFO");
        let answer = info.arg(section).query_async(&mut self.0).await;
        answer.map_err(|error| unavailable(&error))
    }
}

fn cpu_us_in(info: &str) -> Option<f64> {
    let seconds = |name: &str| {
        let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        value?.trim().parse::<f64>().ok()
    };
    Some((seconds("used_cpu_sys")? + seconds("used_cpu_user")?) * 1e6)
}

impl Calls {
    fn read(info: &str) -> Self {
        let calls = info.lines().filter_map(|line| {
            let (command, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
            Some((command.to_owned(), rest.split(',').next()?.parse().ok()?))
        });
        Self(calls.collect())
    }

    /// How many requests came after `before`, without the reading that `before` is.
    pub(crate) fn requests_since(&self, before: &Self) -> u64 {
        let sent = self.0.iter().filter(|(command, _)| !WITHIN_SCRIPTS.contains(&command.as_str()));
        let since = sent.map(|(command, calls)| calls - before.0.get(command).unwrap_or(&0));
        since.sum::<u64>().saturating_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use leasehold::Client;
    use leasehold_testkit::servers::RedisServer;

    use super::*;

    #[test]
    fn calls_are_read_and_those_of_scripts_left_out() {
        let before = Calls::read(
            "# Commandstats\r\ncmdstat_evalsha:calls=10,usec=5,usec_per_call=0.50\r\n\
             cmdstat_set:calls=100,usec=1\r\ncmdstat_info:calls=3,usec=9\r\n",
        );
        let after = Calls::read(
            "# Commandstats\r\ncmdstat_evalsha:calls=14,usec=5,usec_per_call=0.50\r\n\
             cmdstat_set:calls=170,usec=1\r\ncmdstat_info:calls=4,usec=9\r\n\
             cmdstat_client|setinfo:calls=2,usec=1\r\ncmdstat_flushall:calls=1,usec=1\r\n",
        );
        // Four scripts, two client infos, one FLUSHALL. INFO is the reading before.
        assert_eq!(after.requests_since(&before), 7);
    }

    #[test]
    fn the_processor_time_of_a_server_is_that_of_all_its_own_threads() {
        let info = "# CPU\r\nused_cpu_sys:1.5\r\nused_cpu_user:0.25\r\nused_cpu_sys_children:9\r\n";
        assert_eq!(cpu_us_in(info), Some(1_750_000.0));
        assert_eq!(cpu_us_in("used_cpu_sys:1.5\r\n"), None);
    }

    #[tokio::test]
    async fn a_known_load_is_counted_as_it_was_sent() {
        let server = RedisServer::start();
        let mut meter = RequestMeter::connect(&server.url()).await.expect("it runs");
        let mut bare = connect(&server.url()).await.expect("it runs");
        let client = Client::connect(&server.url()).await.expect("it runs");
        let mutex = client.mutex("counted");
        // The client sends its one-time requests here.
        let _released = mutex.lock().await.expect("free").release().await.expect("held");

        let before = meter.look().await.expect("it runs");
        for _ in 0..50 {
            let _released = mutex.lock().await.expect("free").release().await.expect("held");
        }
        let script = "for i = 1, 9 do redis.call('GET', KEYS[1]) end return 1";
        for _ in 0..3 {
            let mut eval = redis::cmd("EVAL");
            let eval = eval.arg(script).arg(1).arg("k").exec_async(&mut bare);
            eval.await.expect("it runs");
        }
        redis::cmd("PING").exec_async(&mut bare).await.expect("it runs");
        // Two for each lock, three scripts, and one PING.
        let counted = meter.look().await.expect("it runs").requests_since(&before);
        assert_eq!(counted, 50 * 2 + 3 + 1);
    }
}
