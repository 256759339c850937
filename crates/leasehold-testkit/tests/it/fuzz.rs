//! Random bytes in all places that read bytes from outside.

use leasehold_testkit::fuzz::{Target, check};
use leasehold_testkit::fuzz::{answers, files, messages, names, replies, urls};

#[test]
fn any_name_namespace_and_pattern_is_taken_or_refused() {
    let words = &[":lh:", "{", "}", "*", "?", ":", "\u{7f}", "ü", "\n", "***a***b"];
    check(&Target { name: "names", run: names, words, changes: 5_000 });
}

#[test]
fn any_url_is_read_or_refused_without_its_password() {
    let words = &[
        "redis://",
        "unix:",
        "memory:",
        "rediss://",
        "redis+cluster://",
        "?db=",
        "%00",
        "%2F",
        "[::1]",
        ":6379",
        "@",
        "://",
        "hunter2hunter2",
        "%",
        "#",
    ];
    check(&Target { name: "urls", run: urls, words, changes: 5_000 });
}

#[test]
fn any_answer_of_a_server_is_read_or_ends_the_connection() {
    let words = &[
        "*3\r\n",
        "$7\r\n",
        "message",
        "subscribe",
        "\r\n",
        "-ERR ",
        ":",
        "+OK\r\n",
        "%1\r\n",
        "~2\r\n",
        ">2\r\n",
        "|1\r\n",
        "=15\r\ntxt:",
        ",1.5\r\n",
        "#t\r\n",
        "(1\r\n",
        "_\r\n",
        "*-1\r\n",
        "$-1\r\n",
        "-NOSCRIPT ",
    ];
    check(&Target { name: "answers", run: answers, words, changes: 1_500 });
}

#[test]
fn any_message_wakes_a_waiter_at_most_in_vain() {
    let words = &["g 1 1 1 TOKEN a", "w a", "f a", "TOKEN", "\n", "@:lh:inbox:AAAAAAAAAAAA", " "];
    check(&Target { name: "messages", run: messages, words, changes: 1_500 });
}

#[test]
fn any_reply_to_a_script_is_an_answer_or_none() {
    let words = &[
        "*3\n",
        ":1\n",
        ":0\n",
        "$\n",
        "_\n",
        "*0\n",
        "-NOSCRIPT x\n",
        "-NOPERM x\n",
        "-OOM x\n",
        "-READONLY x\n",
        "!gone\n",
        "${a}:lh:fence\n",
        ":-1\n",
        "$0\n",
        "-\u{1b}[2J\n",
    ];
    check(&Target { name: "replies", run: replies, words, changes: 2_000 });
}

#[test]
fn any_file_is_a_store_or_refused() {
    check(&Target { name: "files", run: files, words: &[], changes: 150 });
}
