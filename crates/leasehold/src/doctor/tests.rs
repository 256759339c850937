//! Tests of the events that several stores together survive.

use super::database::examined;
use super::database::tests::healthy as database;
use super::server::tests::healthy as server;
use super::*;
use crate::store::Keeping;

const POWER: &str = "a power loss of a minority of the servers";
const FAILOVER: &str = "a failover to a replica that lacks a lease";

/// A database whose server waits for its disk or not, with this many standbys.
fn keeping(has_fsync: bool, standbys: u32) -> Examined {
    let mut facts = database();
    let about = facts.about.as_mut().expect("it is known");
    about.keeping = Keeping::Postgres { commit: "on".to_owned(), has_fsync, standbys };
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
fn a_standby_of_any_node_may_take_over() {
    for standbys in [[1, 0, 0], [0, 0, 1], [0, 0, 0]] {
        let others = standbys.iter().map(|&count| keeping(true, count)).collect();
        let diagnosis = judge(Found { others, ..Found::default() }, Ttl::DEFAULT);
        let is_named = diagnosis.does_not_survive.contains(&FAILOVER);
        assert_eq!(is_named, standbys != [0, 0, 0], "{standbys:?}: {diagnosis:?}");
    }
}
