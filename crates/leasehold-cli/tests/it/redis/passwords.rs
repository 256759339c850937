//! Access to the server, and secrecy of the password.

use std::process::Command;

use leasehold_testkit::servers::RedisServer;

use super::url_of;
use crate::harness::{Done, World, finish};

/// A password with all characters that have a meaning in a URL.
const PASSWORD: &str = "hunter2@:/?#[]%+ü";
const ENCODED: &str = "hunter2%40%3A%2F%3F%23%5B%5D%25%2B%C3%BC";

/// The part of the password that must never be shown.
pub(super) const SECRET: &str = "hunter2";

fn guarded() -> World {
    World::on(RedisServer::builder().config("requirepass", &format!("\"{PASSWORD}\"")).start())
}

/// Creates a user with these rules, and returns its URL.
fn user(world: &World, rules: &str) -> String {
    let rules = format!("ACL SETUSER limited on >{SECRET} {rules}");
    world.server().command(&rules.split(' ').collect::<Vec<_>>());
    url_of(world, &format!("limited:{SECRET}@"), "")
}

/// Runs a command with this URL in all output modes, and checks that no output shows the secret.
#[track_caller]
fn in_every_voice(world: &World, url: &str, args: &[&str]) -> Vec<Done> {
    let voices = [&[][..], &["--json"], &["-vv"], &["--json", "-vv"], &["-q"]];
    let mut all = Vec::new();
    for voice in voices {
        let asked = |set: &dyn Fn(&mut Command)| {
            let mut command = world.bare();
            set(&mut command);
            command.args(voice).args(args);
            let done = finish(command);
            assert!(!done.stdout.contains(SECRET), "{}", done.stdout);
            assert!(!done.stderr.contains(SECRET), "{}", done.stderr);
            done
        };
        let by_env = asked(&|command| {
            command.env("LEASEHOLD_URL", url);
        });
        let warning = "can be seen by everybody";
        assert!(!by_env.stderr.contains(warning), "{}", by_env.stderr);
        let by_flag = asked(&|command| {
            command.args(["--url", url]);
        });
        if voice.is_empty() {
            by_flag.says(warning).says("--url-file or LEASEHOLD_URL");
        }
        all.extend([by_env, by_flag]);
    }
    all
}

/// Asserts the exit code and the words, and that no command was started.
#[track_caller]
fn assert_refused(world: &World, url: &str, code: i32, words: &str) {
    for args in [&["run", "x", "--", "touch", "began"][..], &["ls"]] {
        for done in in_every_voice(world, url, args) {
            done.code(code).says(words).says_that_nothing_happened();
        }
    }
    assert!(!world.path("began").exists());
}

#[test]
fn a_wrong_password_ends_with_77() {
    let world = guarded();
    let url = url_of(&world, &format!(":{SECRET}@"), "");
    assert_refused(&world, &url, 77, "does not accept this user and password");
    let url = url_of(&world, &format!("nobody:{SECRET}@"), "");
    assert_refused(&world, &url, 77, "does not accept this user and password");
}

#[test]
fn a_missing_password_ends_with_77() {
    let world = guarded();
    finish(world.run("x", &[], "touch $1/began"))
        .code(77)
        .says("requires a password")
        .says("`redis://:PASSWORD@HOST`");
    assert!(!world.path("began").exists());
}

#[test]
fn a_password_that_nobody_asked_for_ends_with_77() {
    let world = World::redis();
    let url = url_of(&world, &format!(":{SECRET}@"), "");
    assert_refused(&world, &url, 77, "remove the password from the URL");
}

#[test]
fn a_password_with_special_characters_works_encoded_and_is_shown_nowhere() {
    let world = guarded();
    let socket = world.server().unix_url();
    let socket = socket.strip_prefix("unix:").expect("a socket");
    let script = "echo $LEASEHOLD_STORE; echo $LEASEHOLD_NAME";
    for url in [
        url_of(&world, &format!(":{ENCODED}@"), ""),
        url_of(&world, &format!("default:{ENCODED}@"), "/1"),
        format!("unix://:{ENCODED}@{socket}"),
    ] {
        for done in in_every_voice(&world, &url, &["run", "x", "--", "sh", "-c", script]) {
            let lines: Vec<_> = done.code(0).stdout.lines().collect();
            assert!(lines[0].starts_with("redis://127.0.0.1:") || lines[0].starts_with("unix:/"));
            assert_eq!(lines[1], "x");
        }
        for done in in_every_voice(&world, &url, &["inspect", "x"]) {
            done.code(0);
        }
    }
}

#[test]
fn a_password_that_is_not_encoded_is_answered_with_how_to_encode_it() {
    let world = guarded();
    for (password, words) in [
        ("hunter2@more", "`%40`"),
        ("hunter2/more", "`%2F`"),
        ("hunter2?more", "`%3F`"),
        ("hunter2#more", "`%23`"),
        ("hunter2%more", "`%25`"),
        ("hunter2 more", "`%20`"),
        (PASSWORD, "percent-encode special characters"),
    ] {
        let url = url_of(&world, &format!(":{password}@"), "");
        assert_refused_for_its_text(&world, &url, words);
    }
}

#[track_caller]
fn assert_refused_for_its_text(world: &World, url: &str, words: &str) {
    let mut command = world.bare();
    command.env("LEASEHOLD_URL", url).args(["run", "x", "--json", "-vv", "--", "true"]);
    let done = finish(command);
    done.code(78).says(words).says("is not understood");
    assert!(!done.stderr.contains(SECRET) && !done.stderr.contains("more"), "{}", done.stderr);
}

#[test]
fn a_user_without_rights_ends_with_77_and_is_told_which() {
    let world = World::redis();
    let url = user(&world, "resetkeys resetchannels -@all +ping +select");
    assert_refused(&world, &url, 77, "no right to run the command");
    let url = user(&world, "resetkeys resetchannels +@all ~other:*");
    for done in in_every_voice(&world, &url, &["run", "x", "--", "touch", "began"]) {
        done.code(77).says("no right to use the key of this lock").says("`x`");
    }
    assert!(!world.path("began").exists());
    let url = user(&world, "off");
    assert_refused(&world, &url, 77, "does not accept this user and password");
    assert_eq!(world.server().command(&["DBSIZE"]).int(), 0);
}

#[test]
fn a_user_with_one_prefix_is_told_to_list_by_it() {
    let world = World::redis();
    finish(world.leasehold(["acquire", "other", "--ttl", "1m"])).code(0);
    let url = user(&world, "resetkeys resetchannels +@all ~app:* ~{app:* ~:lh:client:*");
    let ls = |pattern: &[&str]| {
        let mut command = world.bare();
        command.env("LEASEHOLD_URL", &url).arg("ls").args(pattern);
        finish(command)
    };
    ls(&[]).code(77).says("as in `leasehold ls 'app:*'`, or a --namespace");
    assert_eq!(ls(&["app:*"]).code(0).stderr, "");
}

/// Without channels no waiter is woken, but everything else works.
#[test]
fn a_user_without_channels_takes_waits_and_releases() {
    let world = World::redis();
    let url = user(&world, "resetkeys resetchannels +@all ~*");
    let run = |script: &str| {
        let mut command = world.bare();
        command.env("LEASEHOLD_URL", &url).args(["run", "x", "--", "sh", "-c", script]);
        crate::harness::start(command)
    };
    let mut holder = run("echo up; read line; exit 0");
    holder.expect("up");
    let mut waiter = run("echo mine");
    waiter.expect_message("is held by");
    holder.tell("end");
    holder.end().code(0);
    waiter.expect("mine");
    waiter.end().code(0);
    world.assert_nothing_left();
}
