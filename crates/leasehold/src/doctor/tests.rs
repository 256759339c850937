//! Tests of the events that several stores together survive.

use super::database::examined;
use super::database::tests::healthy as database;
use super::server::tests::healthy as server;
use super::*;
use crate::store::{DatabaseFacts, Keeping};

const POWER: &str = "a power loss of a minority of the servers";
const FAILOVER: &str = "a failover to a replica that lacks a lease";

/// A database whose server waits for its disk or not, with this many standbys.
fn keeping(has_fsync: bool, standbys: u32) -> Examined {
    let mut facts = database();
    let about = facts.about.as_mut().expect("it is known");
    let (commit, names_standbys) = ("on".to_owned(), true);
    about.keeping = Keeping::Postgres { commit, has_fsync, standbys, names_standbys };
    examined(facts, Ttl::DEFAULT)
}

fn server_that_waits_for_its_disk() -> Facts {
    Facts { appendfsync: Ok("always".to_owned()), ..server() }
}

/// The order of the URLs must not matter, nor which engine comes last.
#[test]
fn a_quorum_survives_no_more_than_its_weakest_node_does() {
    let table = [
        (vec![(true, 0), (true, 0), (true, 0)], 0, true),
        (vec![(false, 0), (true, 0), (true, 0)], 0, false),
        (vec![(true, 0), (true, 0), (false, 0)], 0, false),
        (vec![(true, 0), (true, 0)], 1, true),
        (vec![(false, 0), (true, 0)], 1, false),
        (vec![(true, 0), (false, 0)], 1, false),
    ];
    for (databases, servers, is_survived) in table {
        let found = Found {
            others: databases.iter().map(|&(fsync, count)| keeping(fsync, count)).collect(),
            servers: (0..servers).map(|_| server_that_waits_for_its_disk()).collect(),
            ..Found::default()
        };
        let diagnosis = judge(found, Ttl::DEFAULT);
        let told = format!("{databases:?} {servers}: {diagnosis:?}");
        assert_eq!(diagnosis.survives.contains(&POWER), is_survived, "{told}");
        assert_eq!(diagnosis.does_not_survive.contains(&POWER), !is_survived, "{told}");
    }
}

#[test]
fn a_quorum_grants_locks_if_more_than_half_of_its_nodes_do_and_none_refuses() {
    let (silent, refuses) = (Some(ErrorKind::Unavailable), Some(ErrorKind::Denied));
    for (nodes, grants) in [
        (&[None][..], true),
        (&[silent], false),
        (&[None, silent], false),
        (&[None, None, silent], true),
        (&[None, silent, silent], false),
        (&[None, None, silent, silent], false),
        (&[None, None, None, silent, silent], true),
        // A wrong password is final, wherever it is.
        (&[None, None, refuses], false),
        (&[refuses, None, None], false),
    ] {
        let node = |(number, kind): (usize, &Option<ErrorKind>)| {
            let mut facts = DatabaseFacts { label: format!("node {number}"), ..database() };
            if let Some(kind) = kind {
                facts.refused = Some(Error::new(*kind, "it is so"));
                facts.about = None;
            }
            examined(facts, Ttl::DEFAULT)
        };
        let others = nodes.iter().enumerate().map(node).collect();
        let diagnosis = judge(Found { others, ..Found::default() }, Ttl::DEFAULT);
        let refused = ["anything: the store grants no locks now"];
        assert_eq!(diagnosis.does_not_survive == refused, !grants, "{nodes:?}: {diagnosis:?}");
        assert_eq!(diagnosis.survives.is_empty(), !grants, "{nodes:?}: {diagnosis:?}");
    }
}

#[test]
fn a_standby_of_any_node_may_take_over() {
    for standbys in [[1, 0, 0], [0, 0, 1], [0, 0, 0]] {
        let others = standbys.iter().map(|&count| keeping(true, count)).collect();
        let diagnosis = judge(Found { others, ..Found::default() }, Ttl::DEFAULT);
        let is_named = diagnosis.does_not_survive.contains(&FAILOVER);
        assert_eq!(is_named, standbys != [0, 0, 0], "{standbys:?}: {diagnosis:?}");
    }
}
