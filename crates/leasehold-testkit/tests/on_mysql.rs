//! The conformance suite on MariaDB.

#![allow(missing_docs, reason = "a test binary")]

use leasehold::host::SystemHost;
use leasehold::store::from_url;
use leasehold_conformance::{Opener, run_in_real_time};
use leasehold_testkit::real_suite::every_case_holds;
use leasehold_testkit::servers::mysql::MysqlDatabase;

const CUT_MAX: usize = 12;

/// A new database for each case.
fn setup() -> Opener {
    let database = MysqlDatabase::lend();
    Box::new(move || {
        let url = database.url();
        Box::pin(async move { from_url(&url, SystemHost::shared()).await.expect("it is there") })
    })
}

#[test]
fn every_case_of_the_suite_holds_on_mysql() {
    every_case_holds(run_in_real_time, setup, CUT_MAX);
}
