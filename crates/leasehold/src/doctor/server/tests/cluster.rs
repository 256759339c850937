//! Each fault of a cluster is named.

use super::*;
use crate::doctor::server::{all_checks, cluster, count};
use crate::store::redis::examine::Membership;
use crate::store::redis::examine::cluster::{ClusterFacts, Primary};

fn pairs(all: &[(&str, &str)]) -> Info {
    all.iter().fold(Info::default(), |info, (name, value)| info.with(name, value))
}

/// A node of a healthy cluster with short timeouts.
fn node() -> Facts {
    let mut facts = healthy();
    info(&mut facts, &[("redis_mode", "cluster")]);
    facts.place.url = 1;
    let state = [("cluster_state", "ok"), ("cluster_slots_fail", "0")];
    let settings = [("cluster-node-timeout", "3000"), ("cluster-require-full-coverage", "no")];
    facts.membership = Some(Membership { info: Ok(pairs(&state)), settings: Ok(pairs(&settings)) });
    facts
}

fn whole() -> ClusterFacts {
    let primary = |label: &str| Primary { label: label.to_owned(), slots: 5_461, replicas: 1 };
    ClusterFacts {
        label: "redis+cluster://a,b".to_owned(),
        seeds: vec![("a:6379".to_owned(), None), ("b:6379".to_owned(), None)],
        primaries: ["n1", "n2", "n3"].map(primary).into(),
        uncovered: Vec::new(),
        url: 1,
    }
}

fn is_fault(check: &Check) -> bool {
    check.verdict != Verdict::Ok
}

fn gone(kind: ErrorKind) -> Option<Error> {
    Some(Error::new(kind, "it is gone; no request was sent; start it"))
}

#[test]
fn a_healthy_cluster_has_no_fault_and_is_one_node_of_a_quorum() {
    let (servers, clusters) = ([node(), node(), node()], [whole()]);
    let mut checks = all_checks(&servers, &clusters, Ttl::DEFAULT);
    assert_eq!(checks[0].node, clusters[0].label, "the cluster as a whole comes first");
    checks.retain(is_fault);
    assert_eq!(checks, []);
    assert_eq!(count(&servers, &clusters), 1);
    assert_eq!(count(&[node(), node(), healthy()], &clusters), 2);
    let found = deployment(&servers, &clusters);
    assert!(found.is_cluster && found.has_failover && found.has_replicas && !found.is_strict);
}

#[test]
fn a_cluster_that_loses_locks_with_one_node_is_named() {
    use Verdict::{Fail, Warn};
    type Row = (fn(&mut ClusterFacts), &'static str, Verdict, &'static str);
    let table: [Row; 8] = [
        (|it| it.uncovered = vec![(7, 7), (100, 199)], "slots", Fail, "101 slots have no node: 7"),
        (|it| it.uncovered = (0..9).map(|it| (2 * it, 2 * it)).collect(), "slots", Fail, "8, …"),
        (|it| it.primaries[1].replicas = 0, "failover", Warn, "1 of 3 primaries"),
        (|it| it.primaries.truncate(2), "failover", Warn, "reshard"),
        (|it| it.seeds[1].1 = gone(ErrorKind::Unavailable), "reachable", Warn, "b:6379: it is"),
        (
            |it| {
                it.seeds.iter_mut().for_each(|seed| seed.1 = gone(ErrorKind::Unavailable));
                it.primaries.clear();
            },
            "reachable",
            Fail,
            "start it",
        ),
        (|it| it.primaries.clear(), "reachable", Fail, "--cluster create"),
        (
            |it| {
                it.seeds.iter_mut().for_each(|seed| seed.1 = gone(ErrorKind::Denied));
                it.primaries.clear();
            },
            "reachable",
            Fail,
            "0 of 2",
        ),
    ];
    for (number, (change, id, verdict, words)) in table.into_iter().enumerate() {
        let mut facts = whole();
        change(&mut facts);
        let mut found = cluster::checks(&facts);
        found.retain(is_fault);
        let [check] = &found[..] else { panic!("{number}: {found:?}") };
        assert_eq!((check.id, check.verdict), (id, verdict), "{number}");
        let remedy = check.remedy.as_deref().expect("a remedy");
        assert!(check.evidence.contains(words) || remedy.contains(words), "{check:?}");
        assert_eq!(cluster::is_refused(&facts), check.evidence.contains("0 of 2") && number == 7);
    }
    let bare = |change: fn(&mut ClusterFacts)| {
        let mut facts = whole();
        change(&mut facts);
        deployment(&[node()], &[facts]).has_failover
    };
    assert!(!bare(|it| it.primaries[2].replicas = 0) && !bare(|it| it.primaries.truncate(2)));
}

#[test]
fn a_node_says_what_is_wrong_with_its_cluster() {
    use Verdict::{Fail, Unknown, Warn};
    type Row = (fn(&mut Membership), &'static str, Verdict, &'static str);
    let table: [Row; 9] = [
        (
            |it| it.info = Ok(pairs(&[("cluster_state", "fail"), ("cluster_slots_fail", "9")])),
            "cluster",
            Fail,
            "`cluster_state:fail`; 9 slots",
        ),
        (
            |it| it.info = Ok(pairs(&[("cluster_state", "ok"), ("cluster_slots_fail", "9")])),
            "cluster",
            Warn,
            "9 slots belong to nodes that failed",
        ),
        (
            |it| it.info = Ok(pairs(&[("cluster_state", "ok"), ("cluster_slots_pfail", "9")])),
            "cluster",
            Warn,
            "may be down",
        ),
        (|it| it.info = Err(Gap::Denied), "cluster", Unknown, "+cluster|info"),
        (|it| it.info = Ok(Info::default()), "cluster", Unknown, "does not say"),
        (|it| set(it, "cluster-node-timeout", "15000"), "node-timeout", Warn, "about 24 s"),
        (|it| set(it, "cluster-node-timeout", "x"), "node-timeout", Unknown, "does not say"),
        (|it| set(it, COVERAGE, "yes"), "full-coverage", Warn, "coverage no"),
        (|it| set(it, COVERAGE, "maybe"), "full-coverage", Unknown, "does not say"),
    ];
    for (change, id, verdict, words) in table {
        let mut facts = node();
        change(facts.membership.as_mut().expect("a node"));
        let mut found = checks(&facts, Ttl::DEFAULT);
        found.retain(is_fault);
        let [check] = &found[..] else { panic!("{id}: {found:?}") };
        assert_eq!((check.id, check.verdict), (id, verdict));
        let remedy = check.remedy.as_deref().expect("a remedy");
        assert!(check.evidence.contains(words) || remedy.contains(words), "{check:?}");
    }
    let mut down = node();
    down.write = Err(refused("CLUSTERDOWN it is"));
    let found = checks(&down, Ttl::DEFAULT);
    let writes = found.iter().find(|check| check.id == "writes").expect("it is checked");
    assert_eq!(writes.remedy.as_deref(), Some("see the check `cluster`"));
    let mut denied = node();
    denied.membership.as_mut().expect("a node").settings = Err(Gap::Denied);
    let mut found = checks(&denied, Ttl::DEFAULT);
    found.retain(is_fault);
    let ids: Vec<_> = found.iter().map(|check| check.id).collect();
    assert_eq!(ids, ["node-timeout", "full-coverage"]);
    for check in found {
        assert_eq!(check.verdict, Unknown);
        let remedy = check.remedy.as_deref().expect("a remedy");
        assert!(remedy.starts_with("ask as an administrator: CONFIG GET cluster-"), "{remedy}");
    }
}

const COVERAGE: &str = "cluster-require-full-coverage";

fn set(it: &mut Membership, name: &str, value: &str) {
    it.settings = it.settings.clone().map(|settings| settings.with(name, value));
}

#[test]
fn a_cluster_with_one_failing_node_is_partial_and_with_all_of_them_it_fails() {
    let mut servers = [node(), node(), healthy()];
    for (facts, label) in servers.iter_mut().zip(["n1", "n2", "alone"]) {
        facts.place.label = label.to_owned();
    }
    let clusters = [whole()];
    let merged = |failing: &[&'static str]| {
        let mut failing = failing.iter().copied().collect();
        let is_partial = cluster::merge(&mut failing, &servers, &clusters);
        (failing.into_iter().map(str::to_owned).collect::<Vec<_>>(), is_partial)
    };
    let whole = clusters[0].label.clone();
    assert_eq!(merged(&["n1"]), (vec![], true));
    assert_eq!(merged(&["n1", "n2"]), (vec![whole.clone()], false));
    assert_eq!(merged(&["n2", "alone"]), (vec!["alone".to_owned()], true));
    assert_eq!(merged(&[&*Box::leak(whole.clone().into_boxed_str())]), (vec![whole], false));
}

#[test]
fn nodes_of_one_cluster_are_not_compared_with_each_other() {
    let mut servers = [node(), node()];
    servers.iter_mut().for_each(|it| it.marks = vec![Ok(true), Ok(true)]);
    let all: Vec<_> = servers.iter().collect();
    let mut found = nodes::checks(3, &all);
    found.retain(|check| ["independent-nodes", "distinct-hosts"].contains(&check.id));
    assert!(!found.iter().any(|check| [Verdict::Warn, Verdict::Fail].contains(&check.verdict)));
}
