//! `leasehold doctor` on a cluster: each node is examined, and so is the cluster as a whole.

use leasehold_testkit::servers::Cluster;

use super::*;

#[test]
fn a_healthy_cluster_passes_and_each_of_its_primaries_is_examined() {
    let cluster = Cluster::builder().config("cluster-require-full-coverage", "no").start();
    let report = examine(&[&cluster.url()], &[]);
    report.fails_only(&[]).finds("reachable", "ok", "3 of 3 nodes of the URL");
    report.finds("slots", "ok", "3 primaries").finds("failover", "ok", "1 or more replicas");
    report.finds("cluster", "ok", "cluster_state:ok").finds("mode", "ok", "node of the cluster");
    report.finds("node-timeout", "ok", "about 3500 ms").finds(
        "full-coverage",
        "ok",
        "still served",
    );
    for id in ["release", "wake-up", "expiry", "rights", "leftovers"] {
        let of_nodes = report.checks().iter().filter(|check| check["id"] == id);
        let verdicts: Vec<_> = of_nodes.map(|check| &check["verdict"]).collect();
        assert_eq!(verdicts, ["ok"; 3], "{id}: {report:#?}");
    }
    assert_eq!(report.with("unknown"), BTreeSet::new(), "{report:#?}");
    assert!(report.has("survives", "the loss of its node"), "{report:#?}");
    assert!(report.has("does_not_survive", "a failover to a replica"), "{report:#?}");
    assert!(!report.has("survives", "minority"), "three primaries are not a quorum: {report:#?}");
    for node in &cluster.nodes()[..3] {
        assert_eq!(node.command(&["DBSIZE"]).int(), 0, "nothing is left");
    }
    // No failover keeps a lock with this ttl.
    examine(&[&cluster.url()], &["--ttl", "2s"]).finds("node-timeout", "warn", "node-timeout 3000");
}

#[test]
fn a_cluster_with_a_fault_is_named() {
    let cluster = Cluster::builder().without_replicas().start();
    let report = examine(&[&cluster.url()], &[]);
    report.fails_only(&[]).finds("failover", "warn", "3 of 3 primaries have no replica");
    report.finds("full-coverage", "warn", "cluster-require-full-coverage no");
    assert!(report.has("does_not_survive", "the loss of its node"), "{report:#?}");
    for node in cluster.nodes() {
        node.command(&["CONFIG", "SET", "cluster-node-timeout", "15000"]);
        node.command(&["CONFIG", "SET", "cluster-require-full-coverage", "no"]);
    }
    let slow = examine(&[&cluster.url()], &[]);
    slow.fails_only(&[]).finds("node-timeout", "warn", "takes about 24 s; the ttl is 10 s");
    // Leave a slot to no node.
    for node in cluster.nodes() {
        node.command(&["CLUSTER", "DELSLOTS", "7"]);
    }
    let report = examine(&[&cluster.url()], &[]);
    report.fails_only(&["slots"]).finds("slots", "fail", "1 slots have no node: 7");
    assert!(!report.has("does_not_survive", "grants no locks"), "{report:#?}");
    // With full coverage, a missing slot stops all nodes, as soon as they look at their slots
    // again.
    for node in cluster.nodes() {
        node.command(&["CONFIG", "SET", "cluster-require-full-coverage", "yes"]);
        node.command(&["CLUSTER", "DELSLOTS", "8"]);
        until("the node is down", || {
            node.command(&["CLUSTER", "INFO"]).text().contains("cluster_state:fail")
        });
    }
    let report = examine(&[&cluster.url()], &[]);
    report.finds("cluster", "fail", "cluster_state:fail").finds("slots", "fail", "7-8");
    assert!(report.has("does_not_survive", "grants no locks"), "{report:#?}");
    report.done.code(2);
}

#[test]
fn a_node_of_a_cluster_that_is_down_is_named() {
    let cluster =
        Cluster::builder().without_replicas().config("cluster-require-full-coverage", "no").start();
    cluster.nodes()[1].kill();
    until("the others know", || {
        let others = [&cluster.nodes()[0], &cluster.nodes()[2]];
        others.into_iter().all(|node| {
            let said = node.command(&["CLUSTER", "INFO"]).text();
            said.contains("cluster_slots_fail:5461") && said.contains("cluster_state:ok")
        })
    });
    let report = examine(&[&cluster.url()], &[]);
    report.fails_only(&["reachable"]).finds("reachable", "fail", "no server listens there");
    report.finds("reachable", "warn", "2 of 3 nodes of the URL");
    report.finds("cluster", "warn", "5461 slots belong to nodes that failed");
    assert!(report.has("does_not_survive", "failed a check"), "{report:#?}");
    assert!(report.has("survives", "the crash of a holder"), "the other nodes grant: {report:#?}");
}

#[test]
fn a_cluster_that_is_none_fails_with_the_reason() {
    let server = RedisServer::start();
    let report = examine(&[&format!("redis+cluster://127.0.0.1:{}", server.port())], &[]);
    report.fails_only(&["reachable"]).finds("reachable", "fail", "cluster");
    assert!(report.has("does_not_survive", "grants no locks"), "{report:#?}");
    server.kill();
    let report = examine(&[&format!("redis+cluster://127.0.0.1:{}", server.port())], &[]);
    report.fails_only(&["reachable"]).finds("reachable", "fail", "no server listens there");
}

#[test]
fn a_user_of_a_cluster_with_the_printed_rights_is_examined_in_full() {
    let cluster = Cluster::builder().without_replicas().start();
    let login = |url: &str| url.replace("://", &format!("://app:{SECRET}@"));
    let url = login(&cluster.url());
    let world = World::sqlite();
    let mut command = world.bare();
    command.args(["doctor", "--url", &url, "--print-acl", "app:"]);
    let rule = finish(command).code(0).stdout.trim().replace("PASSWORD", SECRET);
    // A server before 7.0 knows no subcommands of these.
    let rule = if version() >= (7, 0) {
        rule
    } else {
        let rule = rule.replace("+client|tracking", "");
        let rule = rule.replace("+spublish +ssubscribe +sunsubscribe", "");
        rule.replace("+cluster|slots +cluster|info", "+cluster")
    };
    for node in cluster.nodes() {
        node.command(&rule.split_whitespace().collect::<Vec<_>>());
    }
    let report = examine(&[&url], &["--namespace", "app"]);
    report.fails_only(&[]).finds("rights", "ok", "`app`").finds("wake-up", "ok", "arrived");
    // No user for locks should read the configuration, which has passwords.
    let unknown = BTreeSet::from(["full-coverage", "node-timeout", "powers"]);
    assert_eq!(report.with("unknown"), unknown, "{report:#?}");
    if version() >= (7, 0) {
        let node = &cluster.nodes()[0];
        node.command(&["ACL", "SETUSER", "app", "-ssubscribe"]);
        let report = examine(&[&url], &["--namespace", "app"]);
        report.fails_only(&[]).finds("wake-up", "warn", "no right to shard channels");
        node.command(&["ACL", "SETUSER", "app", "+ssubscribe"]);
    }
    for node in cluster.nodes() {
        node.command(&["ACL", "SETUSER", "app", "-asking"]);
    }
    let report = examine(&[&url], &["--namespace", "app"]);
    report.fails_only(&["rights"]).finds("rights", "fail", "ACL SETUSER app +asking");
}
