//! Fuzzes the Redis store with replies of any shape to its scripts.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use leasehold::core::token::ClientId;
use leasehold::store::{
    Acquired, AnyStore, Ask, Claim, ClientRecord, LeaseId, Line, Note, OnRelease, RedisStore,
    Released, Renewal, Renewed, Snapshot, Store,
};
use leasehold::{Client, Error, FencingToken, Key, OwnerToken, Ttl};

use super::served::Served;
use crate::VirtualHost;
use crate::protocol::{Answer, Refused, Value};

/// The time limit of one step, which is twice the longest limit of a request.
const LIMIT: Duration = Duration::from_secs(30);

/// The largest depth of a reply.
const DEPTH_MAX: usize = 6;

/// Reads the bytes as protocol replies with one value per line. The bytes of a string follow `$` on
/// the same line. Each step of a store gets these replies, beginning with the first, and so does a
/// client that locks and releases. Every step must end, and every number must be within its bounds.
///
/// # Panics
///
/// If one of these is not true.
pub fn replies(data: &[u8]) {
    let answers = answers(data);
    for step in STEPS {
        let host = VirtualHost::new(1);
        let served = Served::new(answers.clone(), Ok(Value::Nil));
        host.run(async {
            let store = RedisStore::connect_with(served, host.clone()).await;
            let store = AnyStore::new(store.expect("the server lets everybody in"));
            let step = step(store, Arc::clone(&host));
            let ended = host.within(LIMIT, step).await.expect("a step ends in time");
            if let Err(error) = ended {
                let shown = error.to_string();
                assert!(!shown.contains(char::is_control), "{shown:?}");
            }
        });
        host.drop_tasks();
    }
}

type Step = fn(AnyStore, Arc<VirtualHost>) -> Stepping;
type Stepping = std::pin::Pin<Box<dyn Future<Output = Result<(), Error>>>>;

const STEPS: [Step; 9] = [
    |store, _| Box::pin(async move { acquire(&store).await }),
    |store, _| Box::pin(async move { renew(&store).await }),
    |store, _| Box::pin(async move { release(&store, OnRelease::Free).await }),
    |store, _| {
        let keep =
            OnRelease::KeepIfAlone { owner: heir(), ttl: Ttl::DEFAULT, reserve: 8, opens: false };
        Box::pin(async move { release(&store, keep).await })
    },
    |store, _| Box::pin(async move { inspect(&store).await }),
    |store, _| Box::pin(async move { list(&store, "*").await }),
    |store, _| Box::pin(async move { list(&store, "a").await }),
    |store, _| {
        Box::pin(async move {
            let tools = store.browse().expect("it has tools");
            tools.evict(key(), b"seen".to_vec(), "a test".to_owned()).await.map(|_| ())
        })
    },
    |store, host| Box::pin(lock(store, host)),
];

fn key() -> Key {
    Key::new("a").expect("a name")
}

fn client() -> ClientId {
    ClientId::from_random([7; ClientId::CHARS])
}

fn lease() -> LeaseId {
    let owner = OwnerToken::from_random([7; OwnerToken::RANDOM_BYTES], &client());
    LeaseId { key: key(), owner, claim: Claim::Exclusive }
}

/// Checks that the fencing tokens are within bounds, including the last one of the block.
fn check_block(block: Option<leasehold::core::FencingBlock>) {
    if let Some(block) = block {
        let last = block.first.get().checked_add(u64::from(block.count)).map(|end| end - 1);
        assert!(block.count > 0 && last.is_some_and(|last| last <= FencingToken::MAX));
    }
}

async fn acquire(store: &AnyStore) -> Result<(), Error> {
    let LeaseId { key, owner, claim } = lease();
    let (waiter_ttl, handed_ttl) = (Ttl::DEFAULT, Ttl::DEFAULT);
    let line = Line::Join { waiter_ttl, handed_ttl, ask_no: 1, inbox: client() };
    let record = Arc::new(ClientRecord::new(client()));
    let mut ask = Ask::new(key, owner, claim, Ttl::DEFAULT);
    ask.line = line;
    ask.note = Some(Note::new(Some(record), Some("why".into())));
    ask.reserve = 4;
    if let Acquired::Granted { fencing } = store.acquire(ask).await? {
        check_block(fencing);
    }
    Ok(())
}

async fn renew(store: &AnyStore) -> Result<(), Error> {
    let mut renewal = Renewal::new(lease(), Ttl::DEFAULT);
    renewal.at_least = FencingToken::new(5);
    renewal.reserve = 1;
    if let Renewed::Renewed { fencing, .. } = store.renew(renewal).await? {
        check_block(fencing);
    }
    Ok(())
}

async fn release(store: &AnyStore, on_release: OnRelease) -> Result<(), Error> {
    if let Released::Kept { fencing } = store.release(lease(), on_release).await? {
        check_block(fencing);
    }
    Ok(())
}

async fn inspect(store: &AnyStore) -> Result<(), Error> {
    let snapshot = store.inspect(key()).await?;
    assert!(snapshot.waiters.len() <= Snapshot::WAITERS_SHOWN_MAX);
    snapshot.holders.iter().for_each(|holder| check_block(holder.fencing));
    let _shown = format!("{snapshot:?}");
    Ok(())
}

async fn list(store: &AnyStore, pattern: &str) -> Result<(), Error> {
    let tools = store.browse().expect("it has tools");
    let page = tools.list(pattern, None).await?;
    assert!(page.keys.is_sorted());
    Ok(())
}

/// Locks, waits seven seconds, and releases. The answers to the renewals change nothing.
async fn lock(store: AnyStore, host: Arc<VirtualHost>) -> Result<(), Error> {
    let client = Client::with_store(store).host(host.clone()).connect().await?;
    let guard = client.mutex("a").lock_timeout(Duration::from_secs(3)).await;
    if let Ok(guard) = &guard {
        host.advance(Duration::from_secs(7)).await;
        let _held = (guard.is_held(), guard.remaining(), guard.fencing_token());
    }
    drop(guard);
    let _left = client.shutdown(Duration::from_secs(3)).await;
    Ok(())
}

/// The replies that the bytes describe. `None` is the end of the connection.
fn answers(data: &[u8]) -> VecDeque<Option<Answer>> {
    let mut lines = data.split(|byte| *byte == b'\n');
    let mut answers = VecDeque::new();
    while let Some(line) = lines.next() {
        answers.push_back(match line {
            [b'-', text @ ..] => Some(Err(Refused(String::from_utf8_lossy(text).into_owned()))),
            [b'!', ..] => None,
            _ => Some(Ok(value(line, &mut lines, 0))),
        });
    }
    answers
}

fn value<'a>(line: &[u8], rest: &mut impl Iterator<Item = &'a [u8]>, depth: usize) -> Value {
    let number = |text: &[u8]| str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    match line {
        [b':', text @ ..] => number(text).map_or(Value::Nil, Value::Int),
        [b'$', bytes @ ..] => Value::Bytes(bytes.to_vec()),
        [b'*', count @ ..] if depth < DEPTH_MAX => {
            // The number of lines limits this loop, even if the count is larger.
            let count = number(count).and_then(|count| usize::try_from(count).ok()).unwrap_or(0);
            let mut values = Vec::new();
            while values.len() < count {
                let Some(line) = rest.next() else { break };
                values.push(value(line, rest, depth + 1));
            }
            Value::Array(values)
        }
        _ => Value::Nil,
    }
}

fn heir() -> OwnerToken {
    OwnerToken::new("heir").expect("a token")
}
