//! A listing looks at every key of the database once, and ends on every server.

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold::host::Host as _;
use leasehold::store::redis::{Connector, Opening, RedisStore};
use leasehold::store::{LISTING_KEYS_MAX, Page, Stopped, Store as _};
use leasehold::{Client, Identity};
use leasehold_testkit::VirtualHost;
use leasehold_testkit::protocol::{self, Command, Line, Value, greeting, served};
use leasehold_testkit::servers::RedisServer;

/// The number of locks. They need more than two pages in stores that have pages.
const LOCKS: usize = 2_500;

/// The number of other keys.
const OTHERS: usize = 200_000;

/// How many keys the server looks at in one step.
const STEP: usize = 1_000;

/// A script that writes keys as the store does: the lock and its counter.
const FILL: &str = "
    for number = 1, tonumber(ARGV[1]) do
      local name = string.format('lock %05d', number)
      redis.call('SET', name, 'token', 'PX', '600000')
      redis.call('SET', '{' .. name .. '}:lh:fence', '1', 'PX', '600000')
      redis.call('SET', '{gone ' .. number .. '}:lh:fence', '1', 'PX', '600000')
    end
    for number = 1, tonumber(ARGV[2]) do
      redis.call('SET', 'other ' .. number, 'x')
    end";

#[tokio::test]
async fn a_listing_of_thousands_of_locks_among_other_keys_is_one_scan() {
    let server = RedisServer::start();
    server.command(&["EVAL", FILL, "0", &LOCKS.to_string(), &OTHERS.to_string()]);
    let client = Client::builder(&server.url()).identity(Identity::anonymous()).connect();
    let client = client.await.expect("it is there");
    server.command(&["CONFIG", "RESETSTAT"]);
    let listing = client.list("*").await.expect("answered");
    assert_eq!(listing.stopped(), None);
    let expected = (1..=LOCKS).map(|number| format!("lock {number:05}"));
    let names = listing.names().iter().map(|key| key.as_str().to_owned());
    assert_eq!(names.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
    let stats = server.command(&["INFO", "commandstats"]).text();
    let scans = stats.lines().find_map(|line| line.strip_prefix("cmdstat_scan:calls="));
    let scans: usize = scans.and_then(|it| it.split(',').next()?.parse().ok()).expect("counted");
    let keys = 3 * LOCKS + OTHERS;
    // A step of the server may be a little shorter or longer.
    assert!(scans <= 2 * keys / STEP, "{scans} steps for {keys} keys");
}

/// A server whose scan never ends.
#[derive(Clone)]
struct Scanning {
    host: Arc<VirtualHost>,
    /// How many new names it sends with each step.
    names: u64,
    /// How long a step takes.
    takes: Duration,
    sent: Arc<AtomicU64>,
    scans: Arc<AtomicU64>,
}

impl Scanning {
    fn new(host: &Arc<VirtualHost>, names: u64, takes: Duration) -> Self {
        let (host, sent, scans) = (Arc::clone(host), Arc::default(), Arc::default());
        Self { host, names, takes, sent, scans }
    }

    fn page(&self) -> Value {
        self.scans.fetch_add(1, Ordering::Relaxed);
        let first = self.sent.fetch_add(self.names, Ordering::Relaxed);
        let name = |number: u64| Value::Bytes(format!("{{{number:012}}}:lh:fence").into_bytes());
        let names = (first..first + self.names).map(name);
        Value::Array(vec![Value::Bytes(b"5".to_vec()), Value::Array(names.collect())])
    }
}

impl Scanning {
    fn serve(&self, line: &Line, command: &Command) {
        if command.name() == b"SCAN" {
            let (page, later) = (protocol::answer(&Ok(self.page())), line.later());
            let sleep = self.host.sleep_until(self.host.now() + self.takes);
            self.host.spawn(Box::pin(async move {
                sleep.await;
                later.say(page);
            }));
            return;
        }
        // A client holds each of these locks.
        let held = || protocol::answer(&Ok(Value::Int(1)));
        line.answer(greeting(command, ["", ""]).unwrap_or_else(held));
    }
}

impl Connector for Scanning {
    fn open(&self) -> Opening {
        let scanning = self.clone();
        let (stream, _line) = served(move |line, command| scanning.serve(line, &command));
        Box::pin(ready(Ok(stream)))
    }

    fn label(&self) -> String {
        "redis://scanning".to_owned()
    }
}

/// The listing of such a server, and the number of its steps.
fn listed(names: u64, takes: Duration) -> (Page, u64) {
    let host = VirtualHost::new(1);
    let mut listed = None;
    let server = Scanning::new(&host, names, takes);
    host.run(async {
        let store = RedisStore::connect_with(server.clone(), host.clone()).await;
        let store = store.expect("it is there");
        let tools = store.browse().expect("it has tools");
        listed = Some(tools.list("*", None).await.expect("it comes to an end"));
    });
    host.drop_tasks();
    (listed.expect("it was asked"), server.scans.load(Ordering::Relaxed))
}

#[test]
fn a_scan_without_an_end_stops_and_says_after_how_many_keys() {
    let (page, scans) = listed(0, Duration::ZERO);
    assert_eq!(page.stopped, Some(Stopped::Keys(50_000_000)));
    assert_eq!((page.keys.len(), page.next, scans), (0, None, 50_000));
}

#[test]
fn a_slow_scan_stops_and_says_after_how_long() {
    let (page, scans) = listed(2, Duration::from_millis(100));
    assert_eq!(page.stopped, Some(Stopped::Time(Duration::from_secs(10))));
    assert_eq!((page.keys.len(), scans), (200, 100));
}

#[test]
fn a_server_that_sends_new_names_for_ever_fills_no_memory() {
    let (page, _) = listed(3, Duration::ZERO);
    assert_eq!(page.stopped, Some(Stopped::Keys(50_000_000)));
    assert_eq!(page.keys.len(), LISTING_KEYS_MAX);
    assert_eq!(page.keys[0].as_str(), "000000000000", "in order");
}

#[test]
fn the_error_of_a_list_says_in_words_where_it_stopped() {
    let table = [
        (Stopped::Names(7), "the list stopped at 7 names, and there are more"),
        (
            Stopped::Keys(9),
            "the list stopped after about 9 keys of the database, so locks may be missing; keep \
             locks in a database of their own",
        ),
        (
            Stopped::Time(Duration::from_secs(10)),
            "the list stopped after 10s, so locks may be missing; keep locks in a database of \
             their own",
        ),
    ];
    for (stopped, text) in table {
        assert_eq!(stopped.to_string(), text);
    }
}
