//! The conformance suite on ZooKeeper.

#![allow(missing_docs, reason = "a test binary")]

use leasehold::host::SystemHost;
use leasehold::store::from_url;
use leasehold_conformance::{Opener, run_in_whole_seconds};
use leasehold_testkit::real_suite::every_case_holds;
use leasehold_testkit::servers::ZookeeperPath;

/// How many cases may be cut short. Some cases need an exact end.
const CUT_MAX: usize = 12;

/// A new path for each case. Some cases have leases of a day, and no lease may be longer than three
/// quarters of a session.
fn setup() -> Opener {
    let path = ZookeeperPath::lend();
    Box::new(move || {
        let url = path.url("172800s");
        Box::pin(async move { from_url(&url, SystemHost::shared()).await.expect("it is there") })
    })
}

#[test]
fn every_case_of_the_suite_holds_on_zookeeper() {
    every_case_holds(run_in_whole_seconds, setup, CUT_MAX);
}
