use std::error::Error as _;

use super::*;

fn refused(text: &str) -> Error {
    refusal(text.split(' ').next().expect("a first word"), text)
}

/// Answer of the server (Redis 7.0 unless noted), kind, part of the message
const REFUSALS: &[(&str, ErrorKind, &str)] = &[
    (
        "WRONGTYPE Operation against a key holding the wrong kind of value script: a, on \
         @user_script:1.",
        ErrorKind::Config,
        "not a lock of this kind",
    ),
    ("NOAUTH Authentication required.", ErrorKind::Denied, "requires a password"),
    (
        "WRONGPASS invalid username-password pair or user is disabled.",
        ErrorKind::Denied,
        "does not accept",
    ),
    ("DENIED Redis is running in protected mode because", ErrorKind::Denied, "protected"),
    (
        "NOPERM this user has no permissions to run the 'evalsha' command",
        ErrorKind::Denied,
        "the command `evalsha`",
    ),
    // 7.2
    (
        "NOPERM User u has no permissions to run the 'client|setinfo' command",
        ErrorKind::Denied,
        "the command `client|setinfo`",
    ),
    (
        "NOPERM this user has no permissions to access one of the keys used as arguments",
        ErrorKind::Denied,
        "the key of this lock",
    ),
    (
        "NOPERM this user has no permissions to access one of the channels used as arguments",
        ErrorKind::Denied,
        "the channel",
    ),
    ("NOPERM No permissions to access a channel", ErrorKind::Denied, "the channel"),
    (
        "ERR The user executing the script can't run this command or subcommand script: a, \
         on @user_script:1.",
        ErrorKind::Denied,
        "one of the commands",
    ),
    (
        "ERR The user executing the script can't access at least one of the keys mentioned \
         in the command arguments script: a",
        ErrorKind::Denied,
        "the key of this lock",
    ),
    (
        "ERR The user executing the script can't publish to the channel mentioned in the \
         command script: a",
        ErrorKind::Denied,
        "the channel",
    ),
    ("LOADING Redis is loading the dataset in memory", ErrorKind::Unavailable, "loading"),
    ("MASTERDOWN Link with MASTER is down", ErrorKind::Unavailable, "lost its primary"),
    (
        "READONLY You can't write against a read only replica.",
        ErrorKind::Unavailable,
        "takes no writes",
    ),
    (
        "OOM command not allowed when used memory > 'maxmemory'.",
        ErrorKind::Unavailable,
        "out of memory",
    ),
    // 6.2
    (
        "ERR Error running script (call to f_a): @user_script:3: -OOM command not allowed \
         when used memory > 'maxmemory'.",
        ErrorKind::Unavailable,
        "out of memory",
    ),
    (
        "ERR Error running script (call to f_a): @user_script:9: @user_script: 9: -READONLY \
         You can't write against a read only replica.",
        ErrorKind::Unavailable,
        "takes no writes",
    ),
    (
        "ERR Error running script (call to f_a): @user_script: 1: WRONGTYPE Operation against",
        ErrorKind::Config,
        "not a lock of this kind",
    ),
    (
        "ERR Error running script (call to f_a): @user_script:1: @user_script: 1: The user \
         executing the script can't run this command or subcommand",
        ErrorKind::Denied,
        "one of the commands",
    ),
    ("MISCONF Redis is configured to save RDB snapshots, but", ErrorKind::Unavailable, "to disk"),
    ("BUSY Redis is busy running a script.", ErrorKind::Unavailable, "SCRIPT KILL"),
    (
        "NOREPLICAS Not enough good replicas to write.",
        ErrorKind::Unavailable,
        "min-replicas-to-write",
    ),
    ("CLUSTERDOWN The cluster is down", ErrorKind::Unavailable, "Redis Cluster"),
    (
        "TRYAGAIN Multiple keys request during rehashing of slot",
        ErrorKind::Unavailable,
        "Redis Cluster",
    ),
    ("MOVED 3999 127.0.0.1:6381", ErrorKind::Config, "write `redis+cluster://`"),
    ("ASK 3999 127.0.0.1:6381", ErrorKind::Config, "Redis Cluster"),
    ("CROSSSLOT Keys in request don't hash to the same slot", ErrorKind::Config, "Redis Cluster"),
    ("NOSCRIPT No matching script. Please use EVAL.", ErrorKind::Unavailable, "forgotten"),
    ("ERR max number of clients reached", ErrorKind::Unavailable, "maxclients"),
    ("ERR DB index is out of range", ErrorKind::Config, "no database of this number"),
    ("ERR SELECT is not allowed in cluster mode", ErrorKind::Config, "Redis Cluster"),
    (
        "ERR This instance has cluster support disabled",
        ErrorKind::Config,
        "write `redis://` in the URL",
    ),
    (
        "ERR AUTH <password> called without any password configured for the default user.",
        ErrorKind::Denied,
        "remove the password",
    ),
    (
        "ERR unknown command 'EVALSHA', with args beginning with: 'a'",
        ErrorKind::Unsupported,
        "`EVALSHA`",
    ),
    // These errors may have stopped a script halfway.
    (
        "ERR Unknown Redis command called from script script: a, on @user_script:1.",
        ErrorKind::Unknown,
        "may have taken effect",
    ),
    ("ERR user_script:1: attempt to compare", ErrorKind::Unknown, "may have taken effect"),
    (
        "ERR Error running script (call to f_a): @user_script:1: user_script:1: attempt",
        ErrorKind::Unknown,
        "may have taken effect",
    ),
    ("ERR", ErrorKind::Unknown, "may have taken effect"),
    ("UNHEARD of", ErrorKind::Unknown, "may have taken effect"),
];

#[test]
fn each_refusal_says_what_to_do_and_what_surely_did_nothing_is_never_unknown() {
    for &(text, kind, says) in REFUSALS {
        let error = refused(text);
        let message = error.to_string();
        assert_eq!(error.kind(), kind, "{text}: {message}");
        assert!(message.contains(says), "{text}: {message}");
        let surely_nothing = ["nothing was changed", "nothing was granted"]
            .iter()
            .any(|state| message.contains(state));
        assert_eq!(surely_nothing, kind != ErrorKind::Unknown, "{message}");
        assert!(error.source().is_some(), "{text}");
    }
}

#[test]
fn the_part_of_an_error_about_our_scripts_is_left_out() {
    let said = "the server said `WRONGTYPE Operation against a key`";
    for text in [
        "WRONGTYPE Operation against a key script: 74ea, on @user_script:112.",
        "WRONGTYPE Operation against a key",
        "ERR Error running script (call to f_a): @user_script:1: @user_script: 1: -WRONGTYPE \
         Operation against a key",
    ] {
        let cause = refused(text).source().expect("a cause").to_string();
        assert_eq!(cause, said, "{text}");
    }
    let strange = refused("ERR user_script:1: attempt to compare script: 74ea");
    assert!(strange.source().expect("a cause").to_string().contains("74ea"), "shown whole");
}

#[test]
fn a_sent_request_may_have_taken_effect_and_an_unsent_one_has_not() {
    let error = no_answer(&NoAnswer::NotSent { reason: "gone\n".to_owned() });
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("(gone\\n); no request was sent"), "{error}");
    let error = no_answer(&NoAnswer::Broken { reason: "reset".to_owned() });
    assert_eq!(error.kind(), ErrorKind::Unknown);
    assert!(error.to_string().contains("may have taken effect"), "{error}");
    let text = "READONLY You can't".to_owned();
    let error = no_answer(&NoAnswer::Refused { code: "READONLY".to_owned(), text });
    assert_eq!(error.kind(), ErrorKind::Unavailable);
}

#[test]
fn an_error_of_a_server_is_shown_without_arguments_and_control_characters() {
    let texts = [
        "ERR unknown command 'AUTH', with args beginning with: 'user' 'secret'",
        "ERR unknown command `AUTH`, with args beginning with: `secret`, ",
        "NOPERM the '\u{1b}[31msecret' command",
        "ERR unknown command '\u{7}secret', with args",
    ];
    for text in texts {
        let error = refused(text);
        assert!(!error.to_string().contains("secret"), "{error}");
        let cause = error.source().expect("a cause").to_string();
        assert!(!cause.contains(char::is_control), "{cause:?}");
    }
    let cause = said(texts[0]).to_string();
    assert_eq!(cause, "the server said `ERR unknown command 'AUTH'`");
    let long = said(&"x".repeat(1_000_000)).to_string();
    assert!(long.len() < 600);
}
