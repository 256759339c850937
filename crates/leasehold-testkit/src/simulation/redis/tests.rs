//! Tests that cannot be compared with a real server.

use super::*;
use crate::protocol::{Command, Message};

const NOW_US: u64 = 1_700_000_000_000_000;

fn command(words: &[&str]) -> Command {
    Command::of(words)
}

fn ask(redis: &mut SimulatedRedis, words: &[&str]) -> Answer {
    redis.execute(NOW_US, &command(words)).reply
}

fn bytes(text: &str) -> Answer {
    Ok(Value::Bytes(text.into()))
}

#[test]
fn a_script_writes_and_answers() {
    let mut redis = SimulatedRedis::new();
    let script = "-- renew.lua: x\nredis.call('SET', KEYS[1], ARGV[1], 'PX', 5)\n\
                  return { redis.call('PTTL', KEYS[1]), redis.call('GET', KEYS[1]), 1.9, false }";
    let done = redis.execute(NOW_US, &command(&["EVAL", script, "1", "a", "b"]));
    let expected = [Value::Int(5), Value::Bytes(b"b".into()), Value::Int(1), Value::Nil];
    assert_eq!(done.reply, Ok(Value::Array(expected.into())));
    assert_eq!(done.script.as_deref(), Some("renew"));
}

#[test]
fn a_dataset_is_what_was_there_when_it_was_taken() {
    let mut redis = SimulatedRedis::new();
    ask(&mut redis, &["SET", "a", "1", "PX", "10"]).expect("it has room");
    let before = redis.dataset();
    ask(&mut redis, &["SET", "a", "2"]).expect("it has room");
    ask(&mut redis, &["SET", "b", "3"]).expect("it has room");
    redis.restore(before);
    assert_eq!(redis.keys_at(NOW_US), [(b"a".to_vec(), Some(10))]);
    assert_eq!(redis.string_at(NOW_US + 10_000, b"a"), Some((b"1".to_vec(), Some(0))));
    assert_eq!(redis.string_at(NOW_US + 11_000, b"a"), None);
    redis.restore(Dataset::default());
    assert_eq!(redis.keys_at(NOW_US), []);
}

#[test]
fn messages_go_to_the_clients_that_listen_at_that_moment() {
    let mut redis = SimulatedRedis::new();
    redis.subscribe(2, "x");
    redis.subscribe(1, "x");
    redis.subscribe(1, "y");
    let message = Message::new("x", b"hi");
    let to = |subscriber| Publication { subscriber, news: News::Published(message.clone()) };
    let publish = "return redis.call('PUBLISH', 'x', 'hi')";
    let done = redis.execute(NOW_US, &command(&["EVAL", publish, "0"]));
    assert_eq!((done.reply, done.published), (Ok(Value::Int(2)), vec![to(2), to(1)]));
    redis.unsubscribe(2);
    let done = redis.execute(NOW_US, &command(&["PUBLISH", "x", "hi"]));
    assert_eq!((done.reply, done.published), (Ok(Value::Int(1)), vec![to(1)]));
    assert!(redis.execute(NOW_US, &command(&["PING"])).published.is_empty());
}

#[test]
fn scripts_are_forgotten_when_flushed() {
    let mut redis = SimulatedRedis::new();
    let hash = ask(&mut redis, &["SCRIPT", "LOAD", "return 'hi'"]).expect("it compiles");
    let Value::Bytes(hash) = hash else { panic!("{hash:?} is not a hash") };
    let hash = String::from_utf8(hash).expect("digits");
    assert_eq!(ask(&mut redis, &["EVALSHA", &hash, "0"]), bytes("hi"));
    redis.flush_scripts();
    let refused = ask(&mut redis, &["EVALSHA", &hash, "0"]);
    assert!(refused.is_err_and(|refused| refused.code() == "NOSCRIPT"));
}

/// An expired key that a command touched is gone for good. An untouched expired key exists again
/// when the clock goes back.
#[test]
fn a_clock_that_goes_back_brings_back_what_nobody_has_missed() {
    let mut redis = SimulatedRedis::new();
    for key in ["a", "b"] {
        ask(&mut redis, &["SET", key, "1", "PX", "10"]).expect("it has room");
    }
    redis.execute(NOW_US + 11_000, &command(&["GET", "a"]));
    assert_eq!(redis.keys_at(NOW_US), [(b"b".to_vec(), Some(10))]);
    assert_eq!(redis.keys_at(NOW_US - 90_000), [(b"b".to_vec(), Some(100))]);
    redis.remove_expired(NOW_US + 11_000);
    assert_eq!(redis.keys_at(NOW_US), []);
}

/// This holds however many other keys come and go, and for any page size.
#[test]
fn a_scan_finds_what_is_there_all_the_while() {
    let mut redis = SimulatedRedis::new();
    for number in 0..100 {
        ask(&mut redis, &["SET", &format!("stays:{number}"), "1"]).expect("it has room");
    }
    let (mut cursor, mut found) = ("0".to_owned(), 0);
    for step in 0.. {
        let page = ask(&mut redis, &["SCAN", &cursor, "COUNT", "7", "MATCH", "stays:*"]);
        let Ok(Value::Array(page)) = page else { panic!("{page:?} is not a page") };
        let [Value::Bytes(next), Value::Array(keys)] = page.as_slice() else { panic!("{page:?}") };
        found += keys.len();
        cursor = String::from_utf8(next.clone()).expect("a number");
        if cursor == "0" {
            break;
        }
        ask(&mut redis, &["SET", &format!("comes:{step}"), "1"]).expect("it has room");
        ask(&mut redis, &["DEL", &format!("comes:{}", step / 2)]).expect("it is not wrong");
    }
    assert_eq!(found, 100);
}

#[test]
fn a_server_may_go_from_thread_to_thread() {
    fn needs_send(_: impl Send) {}
    needs_send(SimulatedRedis::new());
}

#[test]
fn commands_that_are_left_out_are_refused() {
    let mut redis = SimulatedRedis::new();
    let commands: [&[&str]; 6] = [
        &["INFO"],
        &["ZADD", "a", "NX", "1", "b"],
        &["ZRANGE", "a", "0", "1", "REV"],
        &["PEXPIRE", "a", "1", "GT"],
        &["SCAN", "0", "TYPE", "string"],
        &["EVAL", "#!lua\nreturn 1", "0"],
    ];
    for words in commands {
        let refused = ask(&mut redis, words);
        let Err(refused) = &refused else { panic!("{words:?} {refused:?}") };
        assert!(refused.0.contains("leaves out"), "{words:?} {refused:?}");
    }
}
