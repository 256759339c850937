//! The conformance suite on etcd and on MariaDB, both at the same time, since most of each suite is
//! waiting.

#![allow(missing_docs, reason = "a test binary")]

use leasehold::host::SystemHost;
use leasehold::store::from_url;
use leasehold_conformance::{Opener, run_in_real_time, run_in_whole_seconds};
use leasehold_testkit::real_suite::every_case_holds;
use leasehold_testkit::servers::EtcdPrefix;
use leasehold_testkit::servers::mysql::MysqlDatabase;

/// How many cases may be cut short. Some cases need an exact end.
const CUT_MAX: usize = 12;

/// Opens stores at a URL. `part` is a part of a server that no other case uses.
fn opener<T: 'static>(part: T, url: impl Fn(&T) -> String + 'static) -> Opener {
    Box::new(move || {
        let url = url(&part);
        Box::pin(async move { from_url(&url, SystemHost::shared()).await.expect("it is there") })
    })
}

#[test]
fn every_case_of_the_suite_holds_on_etcd() {
    let setup = || opener(EtcdPrefix::lend(), EtcdPrefix::url);
    every_case_holds(run_in_whole_seconds, setup, CUT_MAX);
}

#[test]
fn every_case_of_the_suite_holds_on_mysql() {
    let setup = || opener(MysqlDatabase::lend(), |database| database.url());
    every_case_holds(run_in_real_time, setup, CUT_MAX);
}
