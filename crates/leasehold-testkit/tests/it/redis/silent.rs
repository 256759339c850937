//! A socket through which nothing gets any more is replaced in time. If a server answers only some
//! requests, an inspection shows what is known.

use std::sync::Arc;
use std::time::Duration;

use leasehold::core::token::ClientId;
use leasehold::host::Host as _;
use leasehold::store::redis::RedisStore;
use leasehold::store::{HintSink, Store as _};
use leasehold::{Client, Identity, Key, OwnerToken};
use leasehold_testkit::protocol::Value;
use leasehold_testkit::servers::{Proxy, RedisServer};
use leasehold_testkit::{Deaf, VirtualHost};

use super::fake::{Fake, numbers, refused};

const STEP: Duration = Duration::from_millis(10);

/// The times after a socket died.
struct Seen {
    /// The time until a renewal was answered over another connection.
    in_use: Duration,
    /// The part of that time from the first renewal that was not answered.
    from_the_first: Duration,
}

/// Holds a lock, and lets all sockets die this long after a renewal.
fn a_socket_dies(ttl: Duration, after: Duration) -> Seen {
    let host = VirtualHost::new(0);
    let fake = Fake::default();
    let seen = host.run(async {
        let store = RedisStore::connect_with(fake.clone(), host.clone()).await.expect("connected");
        let client = Client::with_store(store).host(host.clone()).ttl(ttl);
        let client = client.identity(Identity::anonymous()).connect().await.expect("connected");
        fake.answer(numbers(&[1, 7, 1]));
        let held = client.mutex("a").lock().await.expect("it is free");
        (0..10).for_each(|_| fake.answer(numbers(&[1, 7, 1, 0])));
        held.renew().await.expect("answered");
        host.advance(after).await;
        let _before = fake.seen();
        let (dead, died) = (fake.attempts(), host.now());
        assert_eq!(dead, 2, "one for asks, and one for renewals");
        fake.let_sockets_die();
        let mut first = None;
        let in_use = loop {
            host.advance(STEP).await;
            let renewals =
                fake.seen().into_iter().filter(|(_, words)| words[0].starts_with("EVAL"));
            let connections: Vec<_> = renewals.map(|(connection, _)| connection).collect();
            if connections.iter().any(|connection| *connection > dead) {
                break host.now();
            }
            if !connections.is_empty() {
                first.get_or_insert_with(|| host.now());
            }
            assert!(held.is_held(), "the socket was not replaced in time");
        };
        host.advance(ttl).await;
        assert!(held.is_held(), "it is renewed over the new connection");
        let from_the_first = in_use.since(first.expect("a renewal was due"));
        Seen { in_use: in_use.since(died), from_the_first }
    });
    host.drop_tasks();
    seen
}

/// The holder notices by its next renewal at the latest, about a third of the ttl later.
#[test]
fn a_silent_socket_is_replaced_and_in_use_again_soon_after_the_first_renewal_that_it_swallows() {
    let two_s = Duration::from_secs(2);
    for ttl in [1, 10, 60].map(Duration::from_secs) {
        for tenth in 0..10 {
            let Seen { in_use, from_the_first } = a_socket_dies(ttl, ttl / 30 * tenth);
            assert!(from_the_first <= two_s.max(ttl / 3), "{ttl:?}, {tenth}: {from_the_first:?}");
            // Renewals wait for a common tick, of which a ttl has thirty.
            let noticed_in = ttl / 3 + ttl / 30;
            assert!(in_use <= noticed_in + two_s, "{ttl:?}, {tenth}: {in_use:?}");
        }
    }
}

/// New connections pass.
#[tokio::test]
async fn at_a_real_server_a_lock_is_kept_although_all_sockets_to_it_fall_silent() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.port());
    let client = Client::connect(&proxy.url()).await.expect("connected");
    let held = client.mutex("a").ttl(Duration::from_mins(1)).lock().await.expect("it is free");
    // Renewals have a connection of their own, opened by the first.
    held.renew().await.expect("answered");
    proxy.strand();
    while let Err(error) = held.renew().await {
        assert!(held.is_held() && error.is_retryable(), "{error}");
    }
    let taken = loop {
        match client.mutex("b").try_lock().await {
            Ok(taken) => break taken,
            Err(error) => assert!(error.is_retryable(), "{error}"),
        }
    };
    assert!(taken.is_some() && held.is_held());
}

/// The client sends no other requests over it, so only its checks show that the other end is gone.
#[test]
fn a_silent_connection_for_hints_is_replaced() {
    let (host, fake) = (VirtualHost::new(0), Fake::default());
    let bytes = |text: &str| Value::Bytes(text.into());
    let confirmed = Value::Array(vec![bytes("subscribe"), bytes("inbox"), Value::Int(1)]);
    fake.on("SUBSCRIBE", [Ok(confirmed)]);
    let sink: Arc<dyn HintSink> = Arc::new(Deaf);
    let inbox = ClientId::from_random([1; ClientId::CHARS]);
    host.run(async {
        let store = RedisStore::open(fake.clone(), host.clone());
        store.watch(&inbox, Arc::downgrade(&sink));
        store.listen(&inbox);
        host.advance(Duration::from_mins(1)).await;
        assert_eq!(fake.attempts(), 1, "it answers");
        fake.let_sockets_die();
        host.advance(Duration::from_secs(15)).await;
        assert_eq!(fake.attempts(), 2);
        assert!(fake.seen().iter().any(|(number, words)| *number == 2 && words[0] == "SUBSCRIBE"));
    });
    host.drop_tasks();
}

#[test]
fn a_look_at_a_lock_shows_what_it_has_after_a_second_without_the_records_of_clients() {
    let (host, fake) = (VirtualHost::new(0), Fake::default());
    let client = ClientId::from_random([1; ClientId::CHARS]);
    let owner = OwnerToken::from_random([2; OwnerToken::RANDOM_BYTES], &client);
    let token = Value::Bytes(owner.as_str().into());
    let (number, nothing) = (Value::Int, || Value::Array(Vec::new()));
    let seen = Ok(Value::Array(vec![
        token,
        number(9_000),
        Value::Nil,
        Value::Nil,
        number(0),
        nothing(),
        nothing(),
        number(0),
        number(0),
    ]));
    host.run(async {
        let store = RedisStore::connect_with(fake.clone(), host.clone()).await.expect("connected");
        let look = || store.inspect(Key::new("a").expect("a name"));
        let late = fake.answer_late(seen.clone());
        let looking = host.task(look());
        host.advance(Duration::from_millis(700)).await;
        late.say();
        fake.set_silent(true);
        host.advance(Duration::from_millis(200)).await;
        assert!(!looking.is_finished(), "the record may come");
        host.advance(Duration::from_millis(150)).await;
        assert!(looking.is_finished(), "a second has passed");
        assert_eq!(looking.await.expect("the lock was seen").holders.len(), 1);
        fake.set_silent(false);
        fake.answer(seen);
        fake.on("MGET", [refused("LOADING the dataset")]);
        assert_eq!(look().await.expect("the lock was seen").holders.len(), 1);
    });
    host.drop_tasks();
}
