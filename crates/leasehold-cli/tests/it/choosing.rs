//! The choice of the store, and the messages about it.

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::process::Command;

use leasehold_testkit::servers::RedisServer;

use crate::harness::{Done, World, finish};

/// `run hello -- echo mine`, without naming a store.
fn unnamed(world: &World, flags: &[&str], env: &[(&str, &str)]) -> Done {
    let mut command = world.bare();
    command.envs(env.iter().copied()).args(flags).args(["run", "hello", "--", "echo", "mine"]);
    finish(command)
}

#[test]
fn the_default_store_is_made_below_the_home_and_said_every_time() {
    let world = World::sqlite();
    for _ in 0..2 {
        let done = unnamed(&world, &[], &[]);
        done.code(0).says("only this user on this machine sees these locks").says("--local");
        assert_eq!(done.stdout, "mine\n");
        assert_eq!(done.stderr.lines().count(), 1, "{}", done.stderr);
    }
    assert!(world.path(".local/state/leasehold/locks.db").exists());
    let state = world.path("state");
    let done = unnamed(&world, &["-q"], &[("XDG_STATE_HOME", state.to_str().expect("text"))]);
    assert_eq!(done.code(0).stderr, "");
    assert!(state.join("leasehold/locks.db").exists());
}

#[test]
fn a_user_that_names_the_embedded_store_gets_it_without_a_warning() {
    let world = World::sqlite();
    let done = unnamed(&world, &["--local"], &[("LEASEHOLD_URL", "redis://127.0.0.1:1")]);
    assert_eq!((done.code(0).stderr.as_str(), done.stdout.as_str()), ("", "mine\n"));
    let mut nested = world.bare();
    let script = format!("{} inspect x --json", env!("CARGO_BIN_EXE_leasehold"));
    nested.args(["--local", "run", "x", "--", "sh", "-c", &script]);
    let done = finish(nested);
    assert!(done.code(0).stdout.contains("\"state\":\"held\""), "{}", done.stdout);
    assert_eq!(done.stderr, "", "a nested call reaches the same store, and knows it");
}

#[test]
fn a_misspelt_variable_is_named_and_takes_no_lock_that_nobody_else_sees() {
    let world = World::sqlite();
    let misspelt = [("LEASEHOLD_URI", "redis://:hunter2@127.0.0.1:1")];
    let done = unnamed(&world, &["-q"], &misspelt);
    done.code(78).says("LEASEHOLD_URI (did you mean LEASEHOLD_URL?)").says("--local");
    assert_eq!(done.stdout, "");
    assert!(!done.stderr.contains("hunter2"), "{}", done.stderr);
    assert!(!world.path(".local").exists());
    let named = ["--url", &world.url()];
    for (flags, env) in [(&named[..], misspelt), (&named, [("LEASEHOLD_NAMESPCE", "a")])] {
        let done = unnamed(&world, flags, &env);
        done.code(0).says(&format!("does not read the variable {} (did you mean", env[0].0));
    }
    let done = unnamed(&world, &["--local"], &[("LEASEHOLD_COLOUR", "red")]);
    done.code(0).says("LEASEHOLD_COLOUR; it is ignored");
}

/// With other flags, a user who follows a message would look into another store, where nobody holds
/// the lock.
#[test]
fn the_command_lines_of_our_messages_find_the_lock_by_the_same_flags() {
    let world = World::sqlite();
    fs::write(world.path("the url"), world.url()).expect("a file");
    let (url, exe) = (world.url(), env!("CARGO_BIN_EXE_leasehold"));
    for flags in [
        &["--url", &*url][..],
        &["--url-file", "the url"],
        &["--local"],
        &["--local", "--namespace", "it's"],
    ] {
        let once = || {
            let mut command = world.bare();
            command.args(flags).args(["run", "x", "--once-per", "1h", "--", "true"]);
            finish(command)
        };
        once().code(0);
        let said = once().code(75).stderr.clone();
        let line = said.split('`').find(|part| part.starts_with("leasehold unlock "));
        let line = line.unwrap_or_else(|| panic!("no command line in {said}"));
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("leasehold() {{ \"$0\" \"$@\"; }}; {line} --yes"), exe]);
        shell.env("HOME", world.path("")).current_dir(world.path(""));
        finish(shell).code(0).says("was ended (why: TEXT)");
    }
}

#[test]
fn two_variables_that_name_a_store_are_refused() {
    let world = World::sqlite();
    let url = world.url();
    let done = unnamed(&world, &[], &[("LEASEHOLD_URL", &url), ("LEASEHOLD_URL_FILE", "url")]);
    done.code(78).says("unset one of them");
}

/// `run x -- sh -c SCRIPT` with this file of URLs.
fn by_file(world: &World, file: &str, script: &str) -> Done {
    let mut command = world.bare();
    command.args(["--url-file", file, "run", "x", "--", "sh", "-c", script]);
    finish(command)
}

#[test]
fn a_url_file_that_is_too_large_or_no_regular_file_is_refused() {
    let world = World::sqlite();
    let path = |name: &str| world.path(name).to_str().expect("text").to_owned();
    let made = Command::new("mkfifo").arg(path("fifo")).status().expect("mkfifo(1)");
    assert!(made.success());
    let _socket = UnixListener::bind(path("socket")).expect("a socket");
    File::create(path("huge")).and_then(|file| file.set_len(1 << 40)).expect("a sparse file");
    fs::write(path("large"), format!("# {}\n", "x".repeat(70_000))).expect("a file");
    for (file, part) in [
        (path("fifo"), "not a regular file"),
        (path("socket"), "not a regular file"),
        (path("."), "not a regular file"),
        ("/dev/zero".to_owned(), "not a regular file"),
        (path("huge"), "larger than 65536 bytes"),
        (path("large"), "larger than 65536 bytes"),
        (path("missing"), "No such file"),
    ] {
        by_file(&world, &file, "touch began").code(78).says(part).says("was not contacted");
        let done = unnamed(&world, &[], &[("LEASEHOLD_URL_FILE", &file)]);
        done.code(78).says(part).says("LEASEHOLD_URL_FILE");
    }
    assert!(!world.path("began").exists());
}

/// Users who can list the environment of a command would see a password in it.
#[test]
fn a_command_is_told_of_the_url_file_and_not_of_the_password_in_it() {
    let world = World::on(RedisServer::builder().config("requirepass", "hunter2").start());
    let url = format!("redis://:hunter2@127.0.0.1:{}", world.server().port());
    fs::write(world.path("url"), &url).expect("a file");
    fs::set_permissions(world.path("url"), Permissions::from_mode(0o600)).expect("our file");
    let exe = env!("CARGO_BIN_EXE_leasehold");
    let done = by_file(&world, "url", &format!("env; cd /; {exe} inspect x --json"));
    done.code(0);
    assert!(done.stdout.contains("\"state\":\"held\""), "{}", done.stdout);
    assert!(!done.stdout.contains("hunter2"), "{}", done.stdout);
    let named = format!("LEASEHOLD_URL_FILE={}\n", world.path("url").display());
    assert!(done.stdout.contains(&named), "{}", done.stdout);
    assert_eq!(done.stderr, "", "the file is its owner's alone");
}

/// The environment cannot name the file, whose path is not text, and must not name its URL, which
/// has a password in it.
#[test]
fn a_url_file_that_no_command_can_be_told_of_is_refused_only_where_one_is_started() {
    let world = World::on(RedisServer::builder().config("requirepass", "hunter2").start());
    let url = format!("redis://:hunter2@127.0.0.1:{}", world.server().port());
    let file = world.path("").join(OsStr::from_bytes(b"\xff"));
    fs::write(&file, url).expect("a file");
    fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("our file");
    let with_file = |args: &[&str]| {
        let mut command = world.bare();
        command.arg("--url-file").arg(&file).args(args);
        finish(command)
    };
    for args in [&["run", "x"][..], &["elect", "x"]] {
        let done = with_file(&[args, &["--", "touch", "began"]].concat());
        done.code(78).says("rename the file").says("was not contacted");
        assert!(!done.stderr.contains("hunter2"), "{}", done.stderr);
    }
    for args in [&["ls"][..], &["inspect", "x"], &["doctor"], &["acquire", "y", "--ttl", "1m"]] {
        with_file(args).code(0);
    }
    assert!(!world.path("began").exists());
}

#[test]
fn a_url_file_that_others_may_read_or_change_is_warned_about() {
    let world = World::sqlite();
    let url = |mode, text: &str| {
        fs::write(world.path("url"), text).expect("a file");
        let permissions = Permissions::from_mode(mode);
        fs::set_permissions(world.path("url"), permissions).expect("our file");
    };
    url(0o644, "redis://:hunter2@127.0.0.1:1\n");
    let done = by_file(&world, "url", "true");
    done.code(69).says("may read the password in it; `chmod 600` helps");
    assert!(!done.stderr.contains("hunter2"), "{}", done.stderr);
    url(0o666, &world.url());
    by_file(&world, "url", "true").code(0).says("may change which store is used");
    url(0o644, &world.url());
    assert_eq!(by_file(&world, "url", "true").code(0).stderr, "");
}
