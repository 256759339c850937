//! Fuzzes the SQLite store with files.

use std::sync::Arc;
use std::time::Duration;

use leasehold::core::token::ClientId;
use leasehold::host::Host;
use leasehold::store::{
    AnyStore, Ask, Claim, LeaseId, Line, Note, OnRelease, Renewal, SqliteStore, Store,
};
use leasehold::{Error, FencingToken, Key, OwnerToken, Ttl};

use crate::VirtualHost;

/// A pause between two keys, long enough for all leases and records to be forgotten.
const PAUSE: Duration = Duration::from_secs(1_000);

/// Opens a file with these bytes. The store must refuse it, or end every step. Its answers do not
/// matter, because a user who may write the file decides who holds which lock.
///
/// # Panics
///
/// If a refusal is unclear, or a step does not end.
pub fn files(data: &[u8]) {
    let directory = tempfile::tempdir().expect("a directory for the file");
    let path = directory.path().join("locks.db");
    std::fs::write(&path, data).expect("room for the file");
    let host = VirtualHost::new(1);
    let opened = SqliteStore::open(&path, Arc::clone(&host) as Arc<dyn Host>);
    match opened {
        Err(error) => check_refusal(&error),
        Ok(store) => {
            host.run(async {
                let asked = host.within(PAUSE * 4, ask(&AnyStore::new(store), &host)).await;
                asked.expect("all steps end in time");
            });
        }
    }
    host.drop_tasks();
}

fn check_refusal(error: &Error) {
    let shown = error.to_string();
    assert!(shown.contains("nothing was") && !shown.contains(char::is_control), "{shown}");
}

async fn ask(store: &AnyStore, host: &VirtualHost) {
    let owners = [1, 2].map(|number| {
        let client = ClientId::from_random([number; ClientId::CHARS]);
        (OwnerToken::from_random([number; OwnerToken::RANDOM_BYTES], &client), client)
    });
    for name in ["a", "b", "new"] {
        let key = Key::new(name).expect("a name");
        for (owner, client) in &owners {
            acquire(store, &key, owner, client).await;
        }
        for (owner, _) in &owners {
            let lease = LeaseId { key: key.clone(), owner: owner.clone(), claim: Claim::Exclusive };
            let mut renewal = Renewal::new(lease.clone(), Ttl::DEFAULT);
            renewal.at_least = FencingToken::new(7);
            renewal.reserve = 2;
            let _answer = store.renew(renewal).await;
            let keep = OnRelease::KeepIfAlone {
                owner: heir(),
                ttl: Ttl::DEFAULT,
                reserve: 2,
                opens: false,
            };
            let _answer = store.release(lease.clone(), keep).await;
            let _answer = store.release(lease, OnRelease::Free).await;
        }
        if let Ok(snapshot) = store.inspect(key.clone()).await {
            let _shown = format!("{snapshot:?}");
            let tools = store.browse().expect("it has tools");
            for holder in snapshot.holders {
                let _answer = tools.evict(key.clone(), holder.token, "a test".to_owned()).await;
            }
        }
        host.advance(PAUSE).await;
    }
    let tools = store.browse().expect("it has tools");
    let _answer = tools.list("*", None).await;
}

async fn acquire(store: &AnyStore, key: &Key, owner: &OwnerToken, client: &ClientId) {
    let (waiter_ttl, handed_ttl) = (Ttl::DEFAULT, Ttl::DEFAULT);
    let line = Line::Join { waiter_ttl, handed_ttl, ask_no: 1, inbox: client.clone() };
    let mut ask = Ask::new(key.clone(), owner.clone(), Claim::Exclusive, Ttl::DEFAULT);
    ask.line = line;
    ask.note = Some(Note::new(None, Some("why".into())));
    ask.reserve = 3;
    let _answer = store.acquire(ask).await;
}

fn heir() -> OwnerToken {
    OwnerToken::new("heir").expect("a token")
}
