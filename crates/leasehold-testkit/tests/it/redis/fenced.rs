//! The script that checks a fencing token, on a real server.

use leasehold::fence::redis_script;
use leasehold_testkit::servers::pool;

#[test]
fn a_token_below_that_of_a_later_holder_writes_nothing() {
    let server = pool::lend();
    let script = redis_script("return redis.call('SET', KEYS[2], ARGV[2])");
    let write = |token: &str, value: &str| {
        server.try_command(&["EVAL", &script, "2", "{a}:fence", "{a}", token, value])
    };
    // As numbers of Lua, the last two are the same. As texts, 10 sorts before 9.
    for (token, is_accepted) in [
        ("9", true),
        ("9", true),
        ("10", true),
        ("9", false),
        ("9007199254740993", true),
        ("9007199254740992", false),
        ("9007199254740993", true),
        ("9223372036854775807", true),
        ("9223372036854775806", false),
    ] {
        let before = server.command(&["GET", "{a}"]);
        let value = format!("by {token}");
        match write(token, &value) {
            Ok(status) => {
                assert!(is_accepted, "{token} was accepted");
                assert_eq!(status.text(), "OK");
                assert_eq!(server.command(&["GET", "{a}"]).text(), value);
            }
            Err(refused) => {
                assert!(!is_accepted, "{token} was refused");
                assert!(refused.starts_with("FENCED "), "{refused}");
                assert_eq!(server.command(&["GET", "{a}"]), before);
            }
        }
    }
    assert_eq!(server.command(&["GET", "{a}:fence"]).text(), "9223372036854775807");
    assert_eq!(server.command(&["PTTL", "{a}:fence"]).int(), -1, "it has no end");
}

#[test]
fn a_text_that_is_no_number_is_no_token_and_shuts_nobody_out() {
    let server = pool::lend();
    let script = redis_script("return redis.call('SET', KEYS[2], ARGV[2])");
    let write = |token: &str| {
        server.try_command(&["EVAL", &script, "2", "{a}:fence", "{a}", token, "value"])
    };
    for token in ["", " 9", "9 ", "-1", "0", "09", "1e9", "99999999999999999999x", "nine"] {
        let refused = write(token).expect_err("no number");
        assert!(refused.starts_with("FENCE "), "{token}: {refused}");
    }
    assert_eq!(server.command(&["EXISTS", "{a}:fence", "{a}"]).int(), 0);
    write("9").expect("a number");
}
