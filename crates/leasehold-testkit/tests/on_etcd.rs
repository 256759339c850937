//! The conformance suite on etcd.

#![allow(missing_docs, reason = "a test binary")]

use leasehold::host::SystemHost;
use leasehold::store::from_url;
use leasehold_conformance::{Opener, run_in_whole_seconds};
use leasehold_testkit::real_suite::every_case_holds;
use leasehold_testkit::servers::EtcdPrefix;

/// Some cases need an exact end.
const CUT_MAX: usize = 12;

/// A new prefix for each case.
fn setup() -> Opener {
    let prefix = EtcdPrefix::lend();
    Box::new(move || {
        let url = prefix.url();
        Box::pin(async move { from_url(&url, SystemHost::shared()).await.expect("it is there") })
    })
}

#[test]
fn every_case_of_the_suite_holds_on_etcd() {
    every_case_holds(run_in_whole_seconds, setup, CUT_MAX);
}
