//! A proxy in between that knows few commands, such as twemproxy. Locks work, waiters poll, and
//! errors name what does not work.
#![allow(clippy::disallowed_methods, reason = "servers live in real time, on threads of their own")]

use leasehold::{Client, ErrorKind, Release};
use leasehold_testkit::servers::{NarrowProxy, RedisServer, Unknown};

use super::connecting::{check, connect};
use crate::on_event::warnings;

#[tokio::test]
async fn a_database_behind_a_proxy_without_select_is_refused_with_the_remedy() {
    let server = RedisServer::start();
    for (unknown, kind, more) in [
        (Unknown::Closes, ErrorKind::Unavailable, "a proxy without SELECT"),
        (Unknown::Refuses, ErrorKind::Config, "does not know `SELECT`, so perhaps"),
    ] {
        let proxy = NarrowProxy::before(&server, unknown);
        let url = format!("{}/1", proxy.url());
        check(connect(&url).await, kind, "leave the database out of the URL");
        check(connect(&url).await, kind, more);
        assert_eq!(proxy.refused(), ["SELECT"; 2], "it is the command that the error names");
        connect(&proxy.url()).await.unwrap_or_else(|error| panic!("without a database: {error}"));
    }
    let proxy = NarrowProxy::before(&server, Unknown::Closes);
    let url = format!("{}?replicas=1", proxy.url());
    check(connect(&url).await, ErrorKind::Unavailable, "leave `replicas` out of the URL");
}

#[tokio::test]
async fn locks_work_behind_a_proxy_and_a_warning_says_that_waiters_poll() {
    for unknown in [Unknown::Closes, Unknown::Refuses] {
        let server = RedisServer::start();
        let proxy = NarrowProxy::before(&server, unknown);
        let (_warned, mut warnings) = warnings();
        let [holder, waiter] =
            [Client::connect(&proxy.url()).await, Client::connect(&proxy.url()).await]
                .map(|client| client.unwrap_or_else(|error| panic!("{error}")));
        let held = holder.mutex("a").lock().await.expect("the lock is free");
        let waiting = waiter.mutex("a");
        let mut waiting = std::pin::pin!(waiting.lock());
        // The waiter finds out that it gets no wake-ups.
        let warning = tokio::select! {
            biased;
            got = &mut waiting => panic!("the lock is held: {got:?}"),
            warning = warnings.recv() => warning.expect("the test holds the sender"),
        };
        assert!(warning.contains("sends no wake-ups"), "{warning}");
        assert_eq!(warning.contains("perhaps a proxy"), unknown == Unknown::Closes, "{warning}");
        let vain = proxy.refused().iter().filter(|command| *command == "HELLO").count();
        assert_eq!(held.release().await.expect("the server answers"), Release::Released);
        let got = waiting.await.expect("it polls");
        assert!(got.is_held());
        assert_eq!(got.release().await.expect("the server answers"), Release::Released);
        // Meanwhile, the waiter has not tried to listen again.
        let tried = proxy.refused().iter().filter(|command| *command == "HELLO").count();
        assert_eq!(tried, vain, "{:?}", proxy.refused());
        assert!(warnings.try_recv().is_err(), "it is reported once");
    }
}
