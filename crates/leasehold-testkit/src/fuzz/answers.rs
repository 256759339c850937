//! Fuzzes the Redis store with the bytes of a hostile server.

use std::future::ready;
use std::sync::{Arc, Weak};
use std::time::Duration;

use leasehold::core::token::ClientId;
use leasehold::host::Host as _;
use leasehold::store::redis::{Access, Connector, Opening, RedisConnector, RedisStore};
use leasehold::store::{
    Ask, Browse as _, Claim, HintSink, LeaseId, Line as Place, OnRelease, Store as _,
};
use leasehold::{Key, OwnerToken, Ttl};

use crate::protocol::{self, Answer, Command, Line, Value, greeting, served};
use crate::{Deaf, VirtualHost};

/// The time limit of all requests together: twice the longest limit of one request.
const LIMIT: Duration = Duration::from_secs(30);

/// How long a client may take to listen. This is longer than the limits of its steps.
const LISTENED: Duration = Duration::from_secs(3);

/// Runs a client against a server that sends these bytes and closes the connection. Checks that
/// requests and subscriptions end. The server sends the bytes after the handshake. If they begin
/// with `!`, it sends them instead of an answer of the handshake. If they begin with `>`, it speaks
/// RESP3 to subscribers.
///
/// # Panics
///
/// If the store panics, or a request does not end.
pub fn answers(data: &[u8]) {
    for hostile_to in [Client::Asking, Client::Listening] {
        let host = VirtualHost::new(1);
        let hostile = Hostile { data: data.into(), hostile_to };
        let store = RedisStore::open(hostile, host.clone());
        host.run(async {
            match hostile_to {
                Client::Asking => {
                    let ended = host.within(LIMIT, ask(&store)).await;
                    assert!(ended.is_some(), "the requests do not end");
                }
                Client::Listening => listen(&store, &host).await,
            }
        });
        drop(store);
        host.drop_tasks();
    }
}

fn key() -> Key {
    Key::new("a").expect("a name")
}

fn client(byte: u8) -> ClientId {
    ClientId::from_random([byte; ClientId::CHARS])
}

fn owner() -> OwnerToken {
    OwnerToken::from_random([7; OwnerToken::RANDOM_BYTES], &client(7))
}

async fn ask(store: &RedisStore) {
    let lease = LeaseId { key: key(), owner: owner(), claim: Claim::Exclusive };
    let _answers = tokio::join!(
        store.inspect(key()),
        store.release(lease, OnRelease::Free),
        store.list("*", None),
    );
}

/// Listens for two clients. The first one waits behind a foreign holder, so the store wants to be
/// told of changes of its key.
async fn listen(store: &RedisStore, host: &VirtualHost) {
    let sink: Arc<dyn HintSink> = Arc::new(Deaf);
    for byte in [0, 1] {
        store.watch(&client(byte), Arc::downgrade(&sink) as Weak<dyn HintSink>);
        store.listen(&client(byte));
    }
    let start = host.now();
    while host.now().since(start) < LISTENED {
        let mut ask = Ask::new(key(), owner(), Claim::Exclusive, Ttl::DEFAULT);
        let (waiter_ttl, handed_ttl) = (Ttl::DEFAULT, Ttl::DEFAULT);
        ask.line = Place::Join { waiter_ttl, handed_ttl, ask_no: 1, inbox: client(0) };
        let refused = host.within(LIMIT, store.acquire(ask)).await.expect("an ask ends");
        assert!(refused.is_ok(), "its own connection is fine: {refused:?}");
        host.advance(Duration::from_millis(100)).await;
    }
}

/// The clients of a server.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Client {
    Asking,
    Listening,
}

struct Hostile {
    data: Arc<[u8]>,
    hostile_to: Client,
}

impl Connector for Hostile {
    fn open(&self) -> Opening {
        let (data, hostile_to) = (Arc::clone(&self.data), self.hostile_to);
        let (mut requests, mut listens) = (0, false);
        let serve = move |line: &Line, command: Command| {
            requests += 1;
            listens |= command.name() == b"HELLO";
            let instead = data.strip_prefix(b"!");
            // A handshake has three requests, or four if the client wants to listen.
            let is_hostile = match hostile_to {
                Client::Asking => instead.is_some() || requests > 3,
                Client::Listening => listens && (instead.is_some() || requests > 4),
            };
            if is_hostile {
                line.tell(instead.unwrap_or(&data));
                line.close();
            } else {
                line.answer(polite(&command, data.starts_with(b">")));
            }
        };
        Box::pin(ready(Ok(served(serve).0)))
    }

    fn label(&self) -> String {
        "redis://hostile".to_owned()
    }

    fn access(&self) -> Access {
        RedisConnector::new("redis://hostile/3").expect("a good URL").access()
    }
}

fn polite(command: &Command, resp3: bool) -> Vec<u8> {
    match command.name() {
        b"SELECT" => b"+OK\r\n".to_vec(),
        b"HELLO" if resp3 => b"%0\r\n".to_vec(),
        b"CLIENT" if resp3 => b"+OK\r\n".to_vec(),
        _ => greeting(command, ["", ""]).unwrap_or_else(|| protocol::answer(&taken())),
    }
}

/// The answer to an ask for a key with a foreign holder.
fn taken() -> Answer {
    let (number, foreigner) = (Value::Int, Value::Bytes(b"?".to_vec()));
    Ok(Value::Array(vec![number(0), number(500), number(0), foreigner, number(0)]))
}
