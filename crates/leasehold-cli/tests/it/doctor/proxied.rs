//! `leasehold doctor` behind a proxy that knows few commands.

use leasehold_testkit::servers::{NarrowProxy, Unknown};

use super::*;

#[test]
fn a_proxy_in_between_is_named_and_the_rest_is_still_examined() {
    let server = RedisServer::start();
    for (unknown, words) in [(Unknown::Closes, "at TIME"), (Unknown::Refuses, "nor TIME")] {
        let proxy = NarrowProxy::before(&server, unknown);
        let report = examine(&[&proxy.url()], &[]);
        report.fails_only(&["one-server"]).finds("one-server", "fail", words);
        report.finds("reachable", "ok", "accepts connections");
        report.finds("release", "ok", "the right one").finds("expiry", "ok", "and then gone");
        report.finds("wake-up", "warn", "without a proxy");
        // Locks work, since their commands run inside scripts. `ls` does not.
        report.finds("rights", "warn", "+scan +mget");
        report.finds("eviction", "unknown", "INFO");
        assert!(report.has("survives", "the crash of a holder"), "{report:#?}");
        assert_eq!(server.command(&["DBSIZE"]).int(), 0, "nothing is left");
    }
    let of_database = NarrowProxy::before(&server, Unknown::Closes);
    let report = examine(&[&format!("{}/1", of_database.url())], &[]);
    report.fails_only(&["reachable"]).finds(
        "reachable",
        "fail",
        "leave the database out of the URL",
    );
}
