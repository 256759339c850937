//! Senseless input and broken surroundings. Each case ends with the right exit code, and a message
//! that says what happened and what to do. Nothing is lost or left behind.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;

use crate::harness::{World, finish, start};

on_every_store! {
    a_bad_name_is_refused_by_every_command,
    a_name_that_is_not_text_is_a_usage_error,
    impossible_times_are_refused_before_anything_is_asked,
    a_wrong_token_is_not_repeated,
    an_unlock_without_a_reason_is_refused,
    a_log_filter_that_is_not_understood_is_refused,
    a_pattern_is_no_name_and_inspect_names_the_command_for_patterns,
}

fn a_bad_name_is_refused_by_every_command(world: &World) {
    world.make_store();
    let long = "x".repeat(513);
    for (name, part) in [
        ("", "must not be empty"),
        (&long, "at most 512 bytes, not 513"),
        ("a\nb", "control characters"),
        ("a\u{7f}", "control characters"),
        ("{a}:lh:line", "reserved"),
    ] {
        for args in [
            &["run", name, "--", "touch", "began"][..],
            &["elect", name, "--", "touch", "began"],
            &["acquire", name, "--ttl", "1s"],
            &["renew", name, "--token", "t", "--ttl", "1s"],
            &["release", name, "--token", "t"],
            &["inspect", name],
            &["unlock", name, "--force", "--yes", "--why", "w"],
        ] {
            let done = finish(world.leasehold(args));
            done.code(78).says(part);
            assert!(done.stderr.starts_with("leasehold: "), "{}", done.stderr);
            assert_eq!(done.stdout, "", "{args:?}");
        }
    }
    assert!(!world.path("began").exists());
    world.assert_nothing_left();
}

fn a_name_that_is_not_text_is_a_usage_error(world: &World) {
    let mut command = world.leasehold(["run"]);
    command.arg(std::ffi::OsStr::from_bytes(b"\xff\xfe")).args(["--", "true"]);
    finish(command).code(64);
    world.assert_nothing_left();
}

fn impossible_times_are_refused_before_anything_is_asked(world: &World) {
    for (flags, part) in [
        (&["--ttl", "0"][..], "between 10 ms and 24 h, not 0;"),
        (&["--ttl", "9ms"], "between 10 ms and 24 h"),
        (&["--ttl", "25h"], "between 10 ms and 24 h, not 25h;"),
        (&["--ttl", "10s", "--grace", "5s"], "half the ttl (10s)"),
        (&["--ttl", "10s", "--grace", "1m"], "the grace (1m)"),
    ] {
        finish(world.run("x", flags, "touch $1/began")).code(78).says(part);
    }
    finish(world.leasehold(["acquire", "x", "--ttl", "25h"])).code(78).says("not 25h;");
    let renew = ["renew", "x", "--token", "t", "--ttl", "25h"];
    finish(world.leasehold(renew)).code(78).says("not 25h;");
    assert!(!world.path("began").exists());
    assert_eq!(world.state("x"), "free");
    world.assert_nothing_left();
}

#[test]
fn a_url_that_is_not_understood_is_answered_with_those_that_are() {
    let world = World::sqlite();
    for url in
        ["", "nothing", "redis2://user:hunter2@host", "sqlite:", "sqlite:~/x", "sqlite:a?b=c"]
    {
        let mut command = world.bare();
        command.args(["--url", url, "run", "x", "--", "true"]);
        let done = finish(command);
        done.code(78);
        assert!(!done.stderr.contains("hunter2"), "{}", done.stderr);
    }
}

#[test]
fn a_password_in_the_arguments_is_warned_about_and_never_shown() {
    let world = World::sqlite();
    let url = "redis2://user:hunter2@host";
    let mut command = world.bare();
    command.args(["--url", url, "inspect", "x"]);
    finish(command).says("--url-file or LEASEHOLD_URL");
    fs::write(world.path("url"), format!("{url}\n")).expect("a file");
    let mut by_file = world.bare();
    by_file.args(["--url-file", "url", "inspect", "x"]);
    let mut by_env = world.bare();
    by_env.env("LEASEHOLD_URL", url).args(["inspect", "x"]);
    for command in [by_file, by_env] {
        let done = finish(command);
        assert!(!done.stderr.contains("can be seen by everybody"), "{}", done.stderr);
        assert!(!done.stderr.contains("hunter2"), "{}", done.stderr);
    }
}

#[test]
fn a_place_without_a_scheme_is_answered_with_its_url() {
    let world = World::sqlite();
    for args in [&["run", "x", "--", "touch", "began"][..], &["ls"], &["doctor"]] {
        let mut command = world.bare();
        command.args(["--url", "localhost:6379"]).args(args);
        finish(command).code(78).says("write `redis://localhost:6379`");
    }
    assert!(!world.path("began").exists());
}

#[test]
fn a_url_file_gives_its_line_or_says_what_is_wrong() {
    let world = World::sqlite();
    fs::write(world.path("url"), format!("# ours\n\n{}\n", world.url())).expect("a file");
    fs::write(world.path("empty"), "\n# redis://old\n").expect("a file");
    let with = |file: &str| {
        let mut command = world.bare();
        command.args(["--url-file", file, "run", "x", "--", "true"]);
        finish(command)
    };
    with("url").code(0);
    with("empty").code(78).says("holds no URL");
    with("missing").code(78).says("No such file");
}

#[test]
fn one_of_several_urls_that_is_not_understood_is_named_without_the_others_passwords() {
    let world = World::sqlite();
    for (url, words) in [
        ("redis2://user:hunter2@host", "redis2://…@host"),
        ("sqlite:/a blank", "`sqlite:/a blank`"),
        ("redis://:hunter2 @host", "white space"),
    ] {
        let urls = ["--url", "redis://:hunter2@127.0.0.1:1", "--url", url];
        let mut command = world.bare();
        command.args(urls).args(["run", "x", "--", "touch", "began"]);
        let done = finish(command);
        done.code(78).says(words);
        assert!(!done.stderr.contains("hunter2"), "{}", done.stderr);
    }
    assert!(!world.path("began").exists());
}

#[test]
fn more_stores_than_a_quorum_may_have_are_refused() {
    let world = World::sqlite();
    let urls: Vec<_> = (0..16).map(|node| format!("sqlite:{node}.db")).collect();
    let mut command = world.bare();
    command.env("LEASEHOLD_URL", urls.join(" ")).args(["run", "x", "--", "true"]);
    finish(command).code(78).says("1 to 15 nodes, not 16");
}

#[test]
fn without_a_home_the_store_must_be_named() {
    let world = World::sqlite();
    let mut command = world.bare();
    command.env_remove("HOME").args(["run", "x", "--", "true"]);
    finish(command).code(78).says("--url");
    let mut command = world.bare();
    command.env("HOME", "relative").args(["run", "x", "--", "true"]);
    finish(command).code(78).says("absolute path");
    assert!(!world.path("relative").exists());
}

#[test]
fn a_store_that_no_other_process_could_see_is_refused() {
    let world = World::sqlite();
    for url in ["memory:", "memory:shared", "MEMORY:"] {
        for args in [&["run", "x", "--", "touch", "began"][..], &["acquire", "x", "--ttl", "1s"]] {
            let mut command = world.bare();
            command.args(["--url", url]).args(args);
            let done = finish(command);
            done.code(78).says("no other command would see the lock");
            assert_eq!(done.stdout, "");
            let mut command = world.leasehold(["--url", url]);
            command.args(args);
            finish(command).code(78).says("no other command would see the lock");
        }
    }
    assert!(!world.path("began").exists());
}

#[test]
fn a_file_that_is_not_ours_is_left_alone() {
    let world = World::sqlite();
    fs::write(world.database(), "this is a diary, not a database\n").expect("a file");
    finish(world.leasehold(["run", "x", "--", "true"])).code(78);
    assert_eq!(world.read("locks.db"), "this is a diary, not a database\n");
    let other = World::sqlite();
    rusqlite::Connection::open(other.database())
        .and_then(|sql| sql.execute_batch("CREATE TABLE cats (name TEXT)"))
        .expect("somebody else's database");
    finish(other.leasehold(["run", "x", "--", "true"])).code(78);
}

#[test]
fn a_path_that_allows_no_file_is_an_error_that_says_so() {
    let world = World::sqlite();
    fs::write(world.path("file"), "no directory").expect("a file");
    let mut command = world.bare();
    let url = format!("sqlite:{}", world.path("file/locks.db").display());
    command.args(["--url", &url, "run", "x", "--", "true"]);
    let done = finish(command);
    assert!([69, 78].contains(&done.status.code().expect("a code")), "{done:?}");
    assert!(done.stderr.contains("file/locks.db"), "{}", done.stderr);
}

/// A typing error must not create a store that nobody else uses.
#[test]
fn a_store_in_a_directory_that_does_not_exist_is_refused_and_makes_nothing() {
    let world = World::sqlite();
    let mut command = world.bare();
    let url = format!("sqlite:{}", world.path("nosuch/dir/x.db").display());
    command.args(["--url", &url, "run", "x", "--", "true"]);
    let done = finish(command);
    assert!(done.code(78).stderr.contains("directory that does not exist"), "{done:?}");
    assert!(!world.path("nosuch").exists());
}

/// An operator who mistypes the path must not read that the lock is free, now or later.
#[test]
fn only_a_command_that_takes_a_lock_makes_a_store_and_the_others_say_so() {
    let world = World::sqlite();
    for args in [
        &["ls"][..],
        &["ls", "--watch"],
        &["inspect", "x"],
        &["unlock", "x", "--force", "--yes", "--why", "the test"],
        &["release", "x", "--token", "t"],
        &["renew", "x", "--token", "t", "--ttl", "1s"],
        &["resize", "x", "--permits", "2"],
    ] {
        let done = finish(world.leasehold(args));
        let path = world.database().display().to_string();
        done.code(69).says(&format!("there is no store at {path}")).says_that_nothing_happened();
        assert_eq!(done.stdout, "", "{args:?}");
    }
    assert_eq!(fs::read_dir(world.path("")).expect("our directory").count(), 0);
    // Nobody types the path of the embedded store.
    for args in [&["ls"][..], &["inspect", "x"]] {
        let mut command = world.bare();
        command.arg("--local").args(args);
        finish(command).code(0);
    }
}

/// Root may write everywhere, so the second half cannot be tested as root.
#[test]
fn a_store_without_rights_ends_with_77() {
    let world = World::sqlite();
    finish(world.leasehold(["run", "x", "--", "true"])).code(0);
    let locked = fs::Permissions::from_mode(0o444);
    fs::set_permissions(world.database(), locked).expect("our file");
    if fs::OpenOptions::new().write(true).open(world.database()).is_ok() {
        eprintln!("not shown: this user may write files that nobody may write");
        return;
    }
    finish(world.leasehold(["run", "x", "--", "true"])).code(77);
}

fn a_wrong_token_is_not_repeated(world: &World) {
    let done = finish(world.leasehold(["release", "x", "--token", "with space"]));
    done.code(78);
    assert!(!done.stderr.contains("with space"), "{}", done.stderr);
}

fn an_unlock_without_a_reason_is_refused(world: &World) {
    let mut holder = start(world.run("x", &[], "echo up; read line"));
    holder.expect("up");
    finish(world.leasehold(["unlock", "x", "--force", "--yes", "--why", " "])).code(78);
    assert_eq!(world.state("x"), "held");
    drop(holder.end());
}

fn a_pattern_is_no_name_and_inspect_names_the_command_for_patterns(world: &World) {
    world.make_store();
    let inspect = |name: &str| finish(world.leasehold(["inspect", name]));
    inspect("a*").code(0).says("`leasehold ls 'a*'` lists all that match");
    assert_eq!(inspect("a").code(0).stderr, "");
    let mut holder = start(world.run("a*", &[], "echo up; read line"));
    holder.expect("up");
    assert_eq!(inspect("a*").code(0).stderr, "", "there is such a lock");
    drop(holder.end());
}

fn a_log_filter_that_is_not_understood_is_refused(world: &World) {
    let mut command = world.leasehold(["ls"]);
    command.env("LEASEHOLD_LOG", "=,=loud=");
    finish(command).code(78).says("LEASEHOLD_LOG");
    let mut command = world.leasehold(["ls"]);
    command.env("LEASEHOLD_LOG", std::ffi::OsStr::from_bytes(b"\xff"));
    finish(command).code(78).says("LEASEHOLD_LOG is not valid UTF-8");
}
