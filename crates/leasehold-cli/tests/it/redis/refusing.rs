//! Servers that refuse: each refusal has its exit code, and words that say what to do.

use std::io::Write as _;
use std::net::{Ipv4Addr, TcpStream};

use leasehold_testkit::servers::{RedisServer, version};
use rustix::process::Signal;

use super::{info, time_left, url_of};
use crate::harness::{World, finish, start, until};

/// Asserts that asking for `y` fails with this code and these words, and starts no command.
#[track_caller]
fn assert_refused(world: &World, code: i32, words: &str) {
    for args in [&["run", "y", "--", "touch", "began"][..], &["acquire", "y", "--ttl", "1s"]] {
        let done = finish(world.leasehold(args));
        done.code(code).says(words).says_that_nothing_happened();
        assert_eq!(done.stdout, "", "{args:?}");
    }
    assert!(!world.path("began").exists());
}

/// A connection with a command whose answer nobody reads.
fn send(server: &RedisServer, command: &str) -> TcpStream {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port())).expect("it runs");
    stream.write_all(format!("{command}\r\n").as_bytes()).expect("it reads");
    stream
}

fn set(world: &World, name: &str, value: &str) {
    world.server().command(&["CONFIG", "SET", name, value]);
}

#[test]
fn a_port_where_nobody_listens_ends_with_69() {
    let world = World::redis();
    world.server().kill();
    assert_refused(&world, 69, "no server listens there");
    let mut command = world.bare();
    command.args(["--url", "unix:/nowhere/socket", "run", "y", "--", "true"]);
    finish(command).code(69).says("no server listens at the socket");
}

#[test]
fn a_key_of_another_type_hides_no_lock_from_a_listing() {
    let world = World::redis();
    for name in ["a", "b", "c"] {
        finish(world.leasehold(["acquire", name, "--ttl", "1m"])).code(0);
    }
    // The keys beside the lock still make it look like one.
    world.server().command(&["DEL", "b"]);
    world.server().command(&["RPUSH", "b", "data"]);
    let listed = finish(world.leasehold(["ls"]));
    listed.code(0).says("`b`: the key is not a lock of this kind");
    let names: Vec<_> = listed.stdout.lines().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(names[1..], ["a", "c"], "{}", listed.stdout);
    let listed = finish(world.leasehold(["ls", "--json"]));
    listed.code(0).says("\"event\":\"list-skipped\"");
    assert_eq!(listed.stdout.lines().count(), 2, "{}", listed.stdout);
}

/// A lock that a program takes over a warm connection has no known start.
#[test]
fn ls_says_how_many_locks_without_a_known_start_it_left_out() {
    let world = World::redis();
    for name in ["a", "b"] {
        finish(world.leasehold(["acquire", name, "--ttl", "1m"])).code(0);
    }
    world.server().command(&["DEL", "{b}:lh:grant"]);
    let listed = finish(world.leasehold(["ls", "--older-than", "0", "--json"]));
    listed.code(0).says("\"event\":\"list-ageless\"").says("1 lock left out");
    assert_eq!(listed.stdout.lines().count(), 1, "{}", listed.stdout);
    assert_eq!(finish(world.leasehold(["ls"])).code(0).stderr, "", "nothing was left out");
}

/// Each change of the list needs one more look at least.
#[test]
fn a_watching_ls_warns_once_of_a_key_of_another_type() {
    let world = World::redis();
    finish(world.leasehold(["acquire", "b", "--ttl", "1m"])).code(0);
    world.server().command(&["DEL", "b"]);
    world.server().command(&["RPUSH", "b", "data"]);
    let mut watch = start(world.leasehold(["ls", "--watch=100ms", "--json"]));
    watch.line();
    for name in ["a", "c", "d"] {
        finish(world.leasehold(["acquire", name, "--ttl", "1m"])).code(0);
        while !watch.line().contains(&format!("\"name\":\"{name}\"")) {}
    }
    watch.kill(Signal::TERM);
    let said = watch.end().stderr;
    assert_eq!(said.matches("list-skipped").count(), 1, "{said}");
}

#[test]
fn a_watching_ls_warns_of_each_outage() {
    let world = World::redis();
    let mut watch = start(world.leasehold(["ls", "--watch=100ms", "--json"]));
    watch.line();
    for name in ["a", "c"] {
        world.server().kill();
        watch.expect_message("store-silent");
        world.server().restart();
        finish(world.leasehold(["acquire", name, "--ttl", "1m"])).code(0);
        while !watch.line().contains(&format!("\"name\":\"{name}\"")) {}
    }
}

#[test]
fn a_key_of_another_type_ends_with_78_and_is_left_as_it_was() {
    let world = World::redis();
    world.server().command(&["RPUSH", "y", "data"]);
    assert_refused(&world, 78, "not a lock of this kind");
    for args in [
        &["inspect", "y"][..],
        &["renew", "y", "--token", "t", "--ttl", "1s"],
        &["release", "y", "--token", "t"],
        &["unlock", "y", "--force", "--yes", "--why", "w"],
    ] {
        finish(world.leasehold(args)).code(78).says("not a lock of this kind");
    }
    assert_eq!(world.server().command(&["LRANGE", "y", "0", "-1"]).texts(), ["data"]);
    assert_eq!(world.server().command(&["PTTL", "y"]).int(), -1);
}

#[test]
fn a_companion_of_another_type_ends_with_78_and_is_left_as_it_was_where_it_matters() {
    for (companion, code) in [("fence", 78), ("line", 78), ("ends", 0), ("places", 0)] {
        let world = World::redis();
        let companion = format!("{{y}}:lh:{companion}");
        world.server().command(&["SADD", &companion, "data"]);
        let done = finish(world.leasehold(["run", "y", "--", "touch", "began"]));
        done.code(code);
        // If the key of the line does not exist, its other keys are not read.
        assert_eq!(world.path("began").exists(), code == 0, "{companion}");
        assert_eq!(done.stderr.contains("not a lock of this kind"), code != 0, "{companion}");
        assert_eq!(world.server().command(&["EXISTS", "y"]).int(), 0, "{companion}");
        assert_eq!(world.server().command(&["SMEMBERS", &companion]).texts(), ["data"]);
    }
}

#[test]
fn a_database_that_is_not_there_ends_with_78() {
    let world = World::redis();
    for (rest, words) in [
        ("/16", "no database of this number"),
        ("/4294967296", "database is not a number"),
        ("/name", "database is not a number"),
    ] {
        let mut command = world.bare();
        command.args(["--url", &url_of(&world, "", rest), "run", "y", "--", "true"]);
        finish(command).code(78).says(words);
    }
}

/// The server reloads its data, with a delay at every key.
#[test]
fn a_server_that_loads_its_data_ends_with_69() {
    let builder = RedisServer::builder().with_debug();
    // While loading, the server answers clients only after this many bytes. Before Redis 7.0, that
    // is always 2 MiB.
    let (builder, keys, bytes, delay_us) = if version() >= (7, 0) {
        let often = builder.config("loading-process-events-interval-bytes", "1024");
        (often, "5000", "100", "10000")
    } else {
        (builder, "400", "200000", "30000")
    };
    let world = World::on(builder.start());
    let fill = "for n = 1, ARGV[1] do redis.call('SET', n, string.rep('x', ARGV[2])) end";
    world.server().command(&["EVAL", fill, "0", keys, bytes]);
    set(&world, "rdbcompression", "no");
    set(&world, "key-load-delay", delay_us);
    let _reload = send(world.server(), "DEBUG RELOAD");
    until("it loads", || {
        let refusal = world.server().try_command(&["PING"]).err();
        refusal.is_some_and(|text| text.starts_with("LOADING"))
    });
    assert_refused(&world, 69, "loading its data");
}

#[test]
fn a_replica_ends_with_69_and_still_shows_who_holds_what() {
    let world = World::redis();
    // A counter outlives the ttl of the last lease, and an idle counter expires after 10 minutes.
    let mut holder = start(world.run("x", &["--ttl", "10m"], "echo up; read line; exit 0"));
    holder.expect("up");
    world.server().command(&["REPLICAOF", "127.0.0.1", "1"]);
    assert_refused(&world, 69, "is a replica and takes no writes");
    assert_eq!(world.state("x"), "held");
    world.server().command(&["REPLICAOF", "NO", "ONE"]);
    holder.tell("end");
    holder.end().code(0);
    world.assert_nothing_left();
}

#[test]
fn a_full_server_ends_with_69_and_still_renews_and_releases() {
    let world = World::redis();
    let mut holder = start(world.run("x", &["--ttl", "6s"], "echo up; read line; exit 0"));
    holder.expect("up");
    set(&world, "maxmemory-policy", "noeviction");
    set(&world, "maxmemory", "1");
    assert_refused(&world, 69, "out of memory");
    let mut left = time_left(&world, "x").expect("the lease");
    until("it is renewed", || {
        let before = std::mem::replace(&mut left, time_left(&world, "x").expect("the lease"));
        left > before
    });
    holder.tell("end");
    let done = holder.end();
    assert_eq!(done.code(0).stderr, "");
    assert_eq!(world.server().command(&["EXISTS", "x"]).int(), 0, "it was released");
    set(&world, "maxmemory", "0");
    finish(world.run("x", &["-n"], "exit 0")).code(0);
    world.assert_nothing_left();
}

/// A directory is in the place of its snapshot file.
#[test]
fn a_server_that_cannot_save_its_data_ends_with_69() {
    let world = World::redis();
    std::fs::create_dir(world.server().path("dump.rdb")).expect("a directory");
    set(&world, "save", "3600 1");
    world.server().command(&["SET", "something", "to save"]);
    world.server().command(&["BGSAVE"]);
    until("it has failed", || info(&world, "persistence", "rdb_last_bgsave_status") == "err");
    assert_refused(&world, 69, "cannot save its data");
    world.server().command(&["CONFIG", "SET", "stop-writes-on-bgsave-error", "no"]);
    finish(world.run("y", &["-n"], "exit 0")).code(0);
}

#[test]
fn a_server_that_is_busy_with_a_script_ends_with_69() {
    let world = World::redis();
    set(&world, "lua-time-limit", "10");
    let _script = send(world.server(), "EVAL \"while true do end\" 0");
    until("it is busy", || {
        let refusal = world.server().try_command(&["PING"]).err();
        refusal.is_some_and(|text| text.starts_with("BUSY"))
    });
    assert_refused(&world, 69, "SCRIPT KILL");
    world.server().command(&["SCRIPT", "KILL"]);
    // The script may end only after the answer to `SCRIPT KILL`.
    until("it is free again", || world.server().try_command(&["PING"]).is_ok());
    finish(world.run("y", &["-n"], "exit 0")).code(0);
}

#[test]
fn a_server_with_as_many_clients_as_it_takes_ends_with_69() {
    let world = World::redis();
    // The one connection that exists is ours.
    set(&world, "maxclients", "1");
    assert_refused(&world, 69, "as many clients as it takes");
}
