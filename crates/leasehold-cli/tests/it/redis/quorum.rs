//! A quorum of servers.

use std::ffi::OsStr;
use std::process::Command;
use std::time::Duration;

use leasehold_testkit::servers::{Proxy, RedisServer, Way};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::{Done, World, finish, start, until};

/// A home, and the servers of a quorum.
struct Nodes {
    world: World,
    servers: Vec<RedisServer>,
}

impl Nodes {
    fn start(count: usize) -> Self {
        Self::of((0..count).map(|_| RedisServer::start()).collect())
    }

    fn of(servers: Vec<RedisServer>) -> Self {
        Self { world: World::sqlite(), servers }
    }

    fn urls(&self) -> Vec<String> {
        self.servers.iter().map(RedisServer::url).collect()
    }

    fn leasehold<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        by_flags(&self.world, &self.urls(), args)
    }

    fn run(&self, flags: &[&str], script: &str) -> Command {
        let mut command = self.leasehold(["run", "x"]);
        command.args(flags).args(["--", "sh", "-c", script]);
        command
    }

    fn inspect(&self) -> Value {
        let seen = finish(self.leasehold(["inspect", "x", "--json"]));
        serde_json::from_str(&seen.code(0).stdout).expect("JSON")
    }

    /// Asserts the exit code and the words, and that no command was started.
    #[track_caller]
    fn assert_refused(&self, code: i32, words: &str) -> Done {
        let begin = ["run", "x", "--", "touch", "began"];
        let done = finish(self.leasehold(begin));
        done.code(code).says(words);
        assert!(!self.world.path("began").exists());
        done
    }
}

fn by_flags<S: AsRef<OsStr>>(
    world: &World,
    urls: &[String],
    args: impl IntoIterator<Item = S>,
) -> Command {
    let mut command = world.bare();
    for url in urls {
        command.args(["--url", url]);
    }
    command.args(args);
    command
}

#[test]
fn one_of_three_servers_may_be_down() {
    let nodes = Nodes::start(3);
    nodes.servers[1].kill();
    let mut holder = start(nodes.run(&["--why", "because"], "echo up; read line; exit 3"));
    holder.expect("up");
    let lock = nodes.inspect();
    assert_eq!(lock["state"], "held");
    assert_eq!(lock["schema"], "leasehold.v1.lock");
    let hint = &lock["holders"][0]["token_hint"];
    for (node, server) in nodes.servers.iter().enumerate() {
        let vote = &lock["votes"][node];
        assert_eq!(vote["node"], format!("{}/0", server.url()));
        let is_up = node != 1;
        assert_eq!(&vote["holder_hint"], if is_up { hint } else { &Value::Null }, "{vote}");
        let error = vote["error"].as_str();
        assert_eq!(error.is_none(), is_up, "{vote}");
        assert!(error.is_none_or(|error| error.contains("no server listens there")), "{vote}");
    }
    let listed = finish(nodes.leasehold(["ls"]));
    assert!(listed.code(0).stdout.contains("because"), "{}", listed.stdout);
    let text = finish(nodes.leasehold(["inspect", "x"])).stdout;
    let hinted = format!("{}…", hint.as_str().expect("a hint"));
    assert_eq!(text.matches(&hinted).count(), 3, "two nodes and the holder:\n{text}");
    assert_eq!(text.matches("no server listens there").count(), 1, "{text}");
    holder.tell("end");
    let done = holder.end();
    done.code(3);
    assert_eq!(done.stderr, "");
    assert_eq!(nodes.inspect()["state"], "free");
}

/// Each run gets the lock at once, even if releases are still on their way to the third server.
#[test]
fn each_run_ends_as_its_command_does_and_leaves_no_lock() {
    let nodes = Nodes::start(3);
    for code in 1..=20 {
        let done = finish(nodes.run(&[], &format!("exit {code}")));
        done.code(code);
        assert_eq!(done.stderr, "");
    }
    for server in &nodes.servers {
        until("the lock is free there", || server.command(&["EXISTS", "x"]).int() == 0);
    }
}

#[test]
fn two_runs_exclude_each_other_and_the_second_goes_on_when_the_first_has_ended() {
    let nodes = Nodes::start(3);
    let mut holder = start(nodes.run(&[], "echo up $LEASEHOLD_FENCE; read line; exit 0"));
    let first = holder.line();
    // Name the nodes in another order, as another machine may do.
    let urls: Vec<_> = nodes.urls().into_iter().rev().collect();
    let tried = ["run", "x", "-n", "--", "touch", "began"];
    finish(by_flags(&nodes.world, &urls, tried)).code(75).says("is held by");
    let waited = ["run", "x", "--", "sh", "-c", "echo up $LEASEHOLD_FENCE"];
    let mut waiter = start(by_flags(&nodes.world, &urls, waited));
    waiter.expect_message("is held by");
    holder.tell("end");
    holder.end().code(0);
    let second = waiter.line();
    waiter.end().code(0);
    let fence = |line: &str| line.strip_prefix("up ").and_then(|fence| fence.parse::<u64>().ok());
    assert!(fence(&first).expect("a number") < fence(&second).expect("a number"));
    assert!(!nodes.world.path("began").exists());
}

/// A majority answers the waiter, so one unreachable node does not count as a silent store.
#[test]
fn a_waiter_is_not_told_that_the_store_is_silent_while_one_server_is_down() {
    let nodes = Nodes::start(3);
    nodes.servers[2].kill();
    let mut holder = start(nodes.run(&[], "echo up; read line; exit 0"));
    holder.expect("up");
    let mut waiter = start(nodes.run(&["-w", "10m"], "echo mine"));
    waiter.expect_message("is held by");
    holder.tell("end");
    holder.end().code(0);
    waiter.expect("mine");
    let done = waiter.end();
    assert!(!done.code(0).stderr.contains("does not answer"), "{}", done.stderr);
}

#[test]
fn a_run_outlives_one_server_and_ends_its_command_when_the_majority_is_gone() {
    let nodes = Nodes::start(3);
    let script = "trap 'exit 0' TERM; echo up; while :; do sleep 0.02; done";
    let mut holder = start(nodes.run(&["--ttl", "2s"], script));
    holder.expect("up");
    let lease = |server: &RedisServer| server.command(&["PTTL", "x"]).int();
    nodes.servers[0].kill();
    for server in &nodes.servers[1..] {
        // Each renewal is a third of the ttl after the last one.
        for _ in 0..3 {
            until("it falls below a renewal's worth", || lease(server) < 1_500);
            until("it is renewed", || lease(server) > 1_700);
        }
    }
    assert_eq!(nodes.inspect()["state"], "held");
    nodes.servers[1].kill();
    holder.end().code(79).says("telling the command to stop");
}

#[test]
fn calls_inside_a_run_reach_its_whole_quorum_wherever_they_are() {
    let nodes = Nodes::start(3);
    let exe = env!("CARGO_BIN_EXE_leasehold");
    let urls = nodes.urls();
    std::fs::write(nodes.world.path("urls"), format!("# three\n{}\n", urls.join("\n\n")))
        .expect("a file");
    let script = format!(
        "cd /; echo $LEASEHOLD_URL$LEASEHOLD_URL_FILE; echo $LEASEHOLD_STORE; \
         {exe} inspect x --json; {exe} run inner -- {exe} ls --json"
    );
    let mut command = nodes.world.bare();
    command.args(["--url-file", "urls", "run", "x", "--", "sh", "-c", &script]);
    let done = finish(command);
    let mut lines = done.code(0).stdout.lines();
    // The command gets the path of the file, which works in any directory.
    let file = nodes.world.path("urls");
    assert_eq!(lines.next(), file.to_str());
    let labels: Vec<_> = urls.iter().map(|url| format!("{url}/0")).collect();
    assert_eq!(lines.next(), Some(&*labels.join(", ")));
    let mut object = || serde_json::from_str::<Value>(lines.next().expect("one more")).expect("it");
    let seen = object();
    assert_eq!((&seen["state"], seen["votes"].as_array().map(Vec::len)), (&json!("held"), Some(3)));
    assert_eq!([object()["name"].clone(), object()["name"].clone()], ["inner", "x"]);
    assert_eq!(done.stderr, "");
    let done = finish(nodes.run(&[], "echo $LEASEHOLD_URL"));
    assert_eq!(done.code(0).stdout, urls.join(" ") + "\n", "URLs by flags are handed on whole");
    let inside = format!("{exe} run x -- true");
    finish(nodes.run(&[], &inside)).code(0).says("joined the lock of the outer leasehold command");
}

#[test]
fn acquire_renew_release_and_unlock_work_over_a_quorum() {
    let nodes = Nodes::start(3);
    let taken = finish(nodes.leasehold(["acquire", "x", "--ttl", "1m", "--json"]));
    let grant: Value = serde_json::from_str(&taken.code(0).stdout).expect("JSON");
    let token = grant["token"].as_str().expect("a token");
    finish(nodes.leasehold(["renew", "x", "--token", token, "--ttl", "2m"])).code(0);
    finish(nodes.leasehold(["release", "x", "--token", token])).code(0);
    finish(nodes.leasehold(["release", "x", "--token", token])).code(79);
    finish(nodes.leasehold(["acquire", "x", "--ttl", "1m"])).code(0);
    nodes.servers[2].kill();
    let unlock = ["unlock", "x", "--force", "--yes", "--why", "the test"];
    finish(nodes.leasehold(unlock)).code(0).says("was ended");
    assert_eq!(nodes.inspect()["state"], "free");
    assert_eq!(finish(nodes.leasehold(["ls"])).code(0).stdout, "");
}

/// Of three servers, one is down. If two answered, the client might have a majority of them before
/// it hears the third URL.
#[test]
fn two_urls_of_one_server_are_refused_however_they_are_written() {
    let nodes = Nodes::start(2);
    let [one, other] = &nodes.servers[..] else { unreachable!("two were started") };
    let port = one.port();
    other.kill();
    for second in
        [one.url(), format!("{}/0", one.url()), format!("redis://localhost:{port}"), one.unix_url()]
    {
        for urls in [vec![one.url(), second.clone()], vec![one.url(), other.url(), second.clone()]]
        {
            let command = by_flags(&nodes.world, &urls, ["run", "x", "--", "touch", "began"]);
            let done = finish(command);
            done.code(78).says("is the same store as").says("independent of one another");
        }
    }
    assert!(!nodes.world.path("began").exists());
}

#[test]
fn a_replica_never_votes_beside_its_primary() {
    let primary = RedisServer::builder().config("repl-diskless-sync-delay", "0").start();
    let replicaof = format!("127.0.0.1 {}", primary.port());
    let replica = RedisServer::builder().config("replicaof", &replicaof).start();
    until("it is a copy", || {
        replica.command(&["INFO", "replication"]).text().contains("master_link_status:up")
    });
    let third = RedisServer::start();
    third.kill();
    let nodes = Nodes::of(vec![primary, replica, third]);
    let done = finish(nodes.leasehold(["run", "x", "--", "touch", "began"]));
    // The code is 78 if the replica has the probe already, so that it is seen to be the same store.
    // Otherwise the node is unusable, and the code is 69.
    assert!([69, 78].contains(&done.status.code().expect("a code")), "{done:?}");
    done.says("replica").says(&nodes.urls()[1]);
    assert!(!nodes.world.path("began").exists());
}

/// Two votes decide here, and only one server answers. If two servers answered, the client might
/// not wait for a slow proxy.
#[test]
fn a_proxy_before_a_server_is_that_server() {
    let one = RedisServer::start();
    let port = one.port();
    let nodes = Nodes::of(vec![one, RedisServer::start()]);
    nodes.servers[1].kill();
    let proxied = Proxy::to(port);
    let urls = [nodes.urls()[0].clone(), nodes.urls()[1].clone(), proxied.url()];
    let done = finish(by_flags(&nodes.world, &urls, ["run", "x", "--", "touch", "began"]));
    done.code(78).says("is the same store as");
    assert!(!nodes.world.path("began").exists());
}

/// The lock is added at the node that lacked it. Otherwise, the loss of one more server would end
/// the lock.
#[test]
fn a_server_that_comes_back_during_a_run_counts_for_it() {
    let nodes = Nodes::start(3);
    nodes.servers[0].kill();
    let mut holder = start(nodes.run(&["--ttl", "2s"], "echo up; read line; exit 3"));
    holder.expect("up");
    nodes.servers[0].restart();
    let has_it = |server: &RedisServer| server.command(&["EXISTS", "x"]).int() == 1;
    until("it has the lock there, too", || has_it(&nodes.servers[0]));
    nodes.servers[1].kill();
    let lease = || nodes.servers[2].command(&["PTTL", "x"]).int();
    for _ in 0..3 {
        until("it falls below a renewal's worth", || lease() < 1_500);
        until("it is renewed", || lease() > 1_700);
    }
    holder.tell("end");
    holder.end().code(3);
}

#[test]
fn one_url_is_no_quorum_and_an_even_number_makes_one() {
    let nodes = Nodes::start(4);
    let urls = nodes.urls();
    for (count, may_be_down) in [(1, 0), (2, 0), (4, 1)] {
        let urls = &urls[..count];
        let ask = || finish(by_flags(&nodes.world, urls, ["run", "x", "--", "echo", "mine"]));
        let seen = finish(by_flags(&nodes.world, urls, ["inspect", "x", "--json"]));
        let seen: Value = serde_json::from_str(&seen.code(0).stdout).expect("JSON");
        let votes = seen["votes"].as_array().map(Vec::len);
        assert_eq!(votes, (count > 1).then_some(count));
        for down in 0..=may_be_down {
            assert_eq!(ask().code(0).stdout, "mine\n", "{down} of {count} are down");
            nodes.servers[down].kill();
        }
        let done = ask();
        done.code(69).says("no server listens there");
        if count > 1 {
            done.says(&format!("{} of {count} nodes", count - may_be_down - 1));
        }
        (0..=may_be_down).for_each(|down| nodes.servers[down].restart());
    }
}

#[test]
fn when_all_servers_are_down_each_of_them_is_named() {
    let nodes = Nodes::start(3);
    nodes.servers.iter().for_each(RedisServer::kill);
    let done = nodes.assert_refused(69, "0 of 3 nodes can be used");
    assert_eq!(done.stderr.lines().count(), 1, "a log has one line:\n{}", done.stderr);
    for url in nodes.urls() {
        done.says(&format!("{url}/0: no server listens there"));
    }
    for args in [&["ls", "--json"][..], &["inspect", "x", "--json"]] {
        let done = finish(nodes.leasehold(args));
        let error: Value = serde_json::from_str(&done.code(69).stderr).expect("JSON");
        assert_eq!(error["kind"], "unavailable");
    }
}

#[test]
fn a_wrong_password_at_one_of_three_servers_is_reported_and_not_outvoted() {
    let guarded = RedisServer::builder().config("requirepass", "hunter2").start();
    let port = guarded.port();
    let nodes = Nodes::of(vec![RedisServer::start(), guarded, RedisServer::start()]);
    let mut urls = nodes.urls();
    for (url, code) in [
        (format!("redis://:hunter3@127.0.0.1:{port}"), 77),
        (format!("redis://:hunter2@127.0.0.1:{port}"), 0),
    ] {
        urls[1].clone_from(&url);
        let mut command = nodes.world.bare();
        command.env("LEASEHOLD_URL", urls.join(" ")).args(["run", "x", "-v", "--", "true"]);
        let done = finish(command);
        done.code(code);
        assert!(!done.stderr.contains("hunter"), "{}", done.stderr);
        if code != 0 {
            done.says("2 of 3 nodes can be used").says("does not accept this user and password");
        }
        let done = finish(by_flags(&nodes.world, &urls, ["inspect", "x"]));
        done.code(code).says("can be seen by everybody");
    }
}

/// Three servers and their URLs. The third is reached only through a slow proxy.
fn with_one_far(far: RedisServer, way: Duration) -> (Nodes, Proxy, Vec<String>) {
    let proxy = Proxy::to(far.port());
    proxy.delay(Way::Both, way);
    let nodes = Nodes::of(vec![RedisServer::start(), RedisServer::start(), far]);
    let mut urls = nodes.urls();
    urls[2] = proxy.url();
    (nodes, proxy, urls)
}

/// Only this command can put the lock on the far server, since its process ends.
#[test]
fn one_command_reaches_a_server_that_is_merely_far() {
    let (nodes, _proxy, urls) = with_one_far(RedisServer::start(), Duration::from_millis(30));
    let leasehold = |args: &[&str]| finish(by_flags(&nodes.world, &urls, args));
    let has_it = || nodes.servers[2].command(&["EXISTS", "x"]).int() == 1;
    let taken = leasehold(&["acquire", "x", "--ttl", "10m", "--json"]);
    let grant: Value = serde_json::from_str(&taken.code(0).stdout).expect("JSON");
    until("it has the lock there, too", has_it);
    let seen = leasehold(&["inspect", "x", "--json"]);
    let seen: Value = serde_json::from_str(&seen.code(0).stdout).expect("JSON");
    assert_eq!(seen["votes"][2]["error"], Value::Null, "{seen}");
    leasehold(&["release", "x", "--token", grant["token"].as_str().expect("one")]).code(0);
    until("it is free there, too", || !has_it());
}

/// Two of three grant the lock, so it is not taken.
#[test]
fn a_run_that_does_not_wait_counts_the_vote_of_a_server_that_is_merely_far() {
    let (nodes, _proxy, urls) = with_one_far(RedisServer::start(), Duration::from_millis(30));
    nodes.servers[0].command(&["SET", "x", "left behind", "PX", "600000"]);
    let tried = ["run", "x", "-n", "--ttl", "1m", "--", "echo", "mine"];
    assert_eq!(finish(by_flags(&nodes.world, &urls, tried)).code(0).stdout, "mine\n");
}

#[test]
fn a_wrong_password_at_a_distant_server_is_reported() {
    let guarded = RedisServer::builder().config("requirepass", "hunter2").start();
    let (nodes, proxy, mut urls) = with_one_far(guarded, Duration::from_millis(200));
    urls[2] = format!("redis://:hunter3@127.0.0.1:{}", proxy.port());
    let unlock = ["unlock", "x", "--force", "--yes", "--why", "the test"];
    for args in [&["inspect", "x"][..], &["ls"], &["acquire", "x", "--ttl", "1m"], &unlock] {
        let done = finish(by_flags(&nodes.world, &urls, args));
        done.code(77).says("does not accept this user and password");
    }
}

#[test]
fn a_key_of_another_type_at_one_server_is_outvoted_shown_and_left_alone() {
    let nodes = Nodes::start(3);
    nodes.servers[0].command(&["RPUSH", "x", "data"]);
    finish(nodes.run(&[], "exit 7")).code(7);
    let votes = nodes.inspect()["votes"].clone();
    let error = votes[0]["error"].as_str().expect("it shows none");
    assert!(error.contains("not a lock of this kind"), "{votes}");
    assert_eq!((&votes[1]["error"], &votes[2]["error"]), (&Value::Null, &Value::Null));
    nodes.servers[1..].iter().for_each(|server| drop(server.command(&["RPUSH", "x", "data"])));
    let done = nodes.assert_refused(78, "not a lock of this kind");
    for (server, url) in nodes.servers.iter().zip(nodes.urls()) {
        done.says(&url);
        assert_eq!(server.command(&["LRANGE", "x", "0", "-1"]).texts(), ["data"]);
    }
    finish(nodes.leasehold(["inspect", "x"])).code(78).says("not a lock of this kind");
}

/// The rights of GUARANTEES.md. A client without the right to inspect a node cannot tell it from
/// another.
#[test]
fn the_documented_rights_are_enough_and_without_those_of_the_probe_nothing_begins() {
    let take = "+eval +evalsha +get +set +del +exists +incr +incrby +decr +pexpire +pttl +time \
                +hset +hget +hmget +zrank +zcard";
    let nodes = Nodes::start(2);
    let of_lock = "~x ~{x}:* ~:lh:client:*";
    let of_probe = "~leasehold:probe:* ~{leasehold:probe:*";
    for (user, rights, is_enough) in [
        ("whole", format!("{take} +zrange +zcount {of_lock} {of_probe}"), true),
        ("blind", format!("{take} {of_lock} {of_probe}"), false),
        ("keyless", format!("{take} +zrange +zcount {of_lock}"), false),
    ] {
        let mut urls = Vec::new();
        for server in &nodes.servers {
            let rights = format!("ACL SETUSER {user} on >word resetchannels -@all {rights}");
            server.command(&rights.split_whitespace().collect::<Vec<_>>());
            urls.push(format!("redis://{user}:word@127.0.0.1:{}", server.port()));
        }
        let done = finish(by_flags(&nodes.world, &urls, ["run", "x", "--", "echo", "mine"]));
        if is_enough {
            assert_eq!(done.code(0).stdout, "mine\n");
        } else {
            done.code(77).says("0 of 2 nodes can be used").says("no right");
            let twice = [urls[0].clone(), urls[0].clone()];
            finish(by_flags(&nodes.world, &twice, ["run", "x", "--", "true"])).code(77);
        }
    }
}

#[test]
fn the_next_instance_leads_although_one_of_three_servers_is_down() {
    let nodes = Nodes::start(3);
    let script = "echo $LEASEHOLD_FENCE; exec sleep 1000";
    let elect = || {
        let args = ["elect", "x", "--ttl", "5m", "--", "sh", "-c", script];
        start(nodes.leasehold(args))
    };
    let mut first = elect();
    let before: u64 = first.line().parse().expect("a fencing token");
    let mut second = elect();
    second.expect_message("is held by");
    nodes.servers[0].kill();
    first.kill(Signal::TERM);
    first.end().signal(Signal::TERM);
    assert!(second.line().parse::<u64>().expect("a fencing token") > before);
    second.kill(Signal::TERM);
    second.end().signal(Signal::TERM);
}
