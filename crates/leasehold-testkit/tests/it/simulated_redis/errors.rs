//! The refusals of servers.

use super::with_each_server;

const TEXT: &str = "SET a x";
const HASH: &str = "HSET a f x";
const SORTED: &str = "ZADD a 1 m";

/// Each command on a key with a value of another type.
#[test]
fn values_of_the_wrong_kind_are_refused_alike() {
    let commands = [
        "GET a",
        "INCR a",
        "DECR a",
        "INCRBY a 2",
        "MGET a",
        "SET a y GET",
        "HGET a f",
        "HSET a f y",
        "HMGET a f",
        "HDEL a f",
        "HGETALL a",
        "HLEN a",
        "ZADD a 1 n",
        "ZREM a m",
        "ZCARD a",
        "ZSCORE a m",
        "ZMSCORE a m",
        "ZRANK a m",
        "ZCOUNT a 0 1",
        "ZRANGE a 0 1",
        "ZRANGEBYSCORE a 0 1",
        "PTTL a",
        "PEXPIRE a 5",
        "EXISTS a",
        "TYPE a",
        "DEL a",
    ];
    with_each_server(|twins| {
        for before in [TEXT, HASH, SORTED] {
            for command in commands {
                twins.begin(before);
                twins.ask(&before.split(' ').collect::<Vec<_>>());
                twins.ask(&command.split(' ').collect::<Vec<_>>());
                twins.compare_keys();
            }
        }
    });
}

/// Each command with too few and too many arguments.
#[test]
fn commands_of_the_wrong_length_are_refused_alike() {
    let commands = [
        "GET",
        "SET a",
        "MGET",
        "DEL",
        "EXISTS",
        "INCR",
        "INCR a b",
        "INCRBY a",
        "DECR",
        "PTTL",
        "PEXPIRE a",
        "PEXPIREAT a",
        "PERSIST",
        "TYPE a b",
        "HSET a f",
        "HSET a f v g",
        "HGET a",
        "HMGET a",
        "HDEL a",
        "HLEN",
        "HGETALL a b",
        "ZADD a 1",
        "ZADD a 1 m 2",
        "ZREM a",
        "ZCARD",
        "ZSCORE a",
        "ZMSCORE a",
        "ZRANK a",
        "ZCOUNT a 1",
        "ZRANGE a 1",
        "ZRANGEBYSCORE a 1",
        "SCAN",
        "SCAN 0 COUNT",
        "SCAN 0 MATCH",
        "SCAN 0 COUNT 0",
        "SCAN 0 NOPE 1",
        "SCAN x",
        "KEYS",
        "ECHO",
        "PUBLISH a",
        "TIME x",
        "PING a b",
        "FLUSHALL NOW",
        "FLUSHALL SYNC",
        "FLUSHALL ASYNC",
        "EVAL",
        "EVAL x",
        "EVALSHA x",
        "SCRIPT",
        "SCRIPT LOAD",
        "SCRIPT LOAD x y",
        "SCRIPT EXISTS",
        "SCRIPT FLUSH NOW",
        "SCRIPT FLUSH SYNC",
        "SCRIPT EXISTS x",
        "NOPE",
        "NOPE a b",
    ];
    with_each_server(|twins| {
        twins.begin("lengths");
        for command in commands {
            twins.ask(&command.split(' ').collect::<Vec<_>>());
        }
        twins.compare_keys();
    });
}

/// The commands that a full server still allows, directly and in scripts. A script that has begun
/// to write may go on.
#[test]
fn a_full_server_refuses_what_may_need_memory() {
    let commands = [
        "GET a",
        "SET a y",
        "SET a y PX 5",
        "INCR n",
        "DECR n",
        "INCRBY n 1",
        "HSET h f y",
        "HDEL h f",
        "ZADD z 1 n",
        "ZREM z m",
        "PEXPIRE a 50",
        "PERSIST a",
        "DEL a",
        "PUBLISH x y",
        "TIME",
    ];
    let scripts = [
        "return redis.call(unpack(ARGV))",
        "return redis.pcall(unpack(ARGV))",
        "redis.call('PEXPIRE', 'nobody', 1) return redis.call(unpack(ARGV))",
        "redis.call('DEL', 'nobody') return redis.call(unpack(ARGV))",
        "redis.call('PUBLISH', 'x', 'y') return redis.call(unpack(ARGV))",
        "redis.call('GET', 'a') return redis.call(unpack(ARGV))",
        "redis.pcall('SET', 'nobody', 'x') return redis.call(unpack(ARGV))",
        "redis.pcall('HDEL', 'a', 'x') return redis.call(unpack(ARGV))",
    ];
    with_each_server(|twins| {
        for script in scripts.into_iter().map(Some).chain([None]) {
            twins.begin("full");
            for before in ["SET a x", "SET n 1", "HSET h f x", "ZADD z 1 m"] {
                twins.ask(&before.split(' ').collect::<Vec<_>>());
            }
            twins.set_full(true);
            for command in commands {
                let words = command.split(' ');
                let call = script.into_iter().flat_map(|script| ["EVAL", script, "0"]);
                twins.ask(&call.chain(words).collect::<Vec<_>>());
                twins.compare_keys();
            }
        }
    });
}
