//! A store of your own, as small as the contract allows: leases in one table.
//!
//! The table stands in for a database with a lazy client, which sends a statement when its future
//! is polled. [`InOrder`] makes a proper store of it. The store has no line and sends no hints, so
//! waiters poll.
//!
//! ```text
//! cargo run -p leasehold --example own_store
//! ```

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use leasehold::core::token::ClientId;
use leasehold::core::{FencingBlock, Moment, WallTime};
use leasehold::host::{Host, SystemHost};
use leasehold::store::{
    Acquired, Ask, BoxAnswer, Browse, Capabilities, Claim, ClientRecord, HintSink, Holder, InOrder,
    LeaseId, Line, OnRelease, Reach, Refusal, Released, Renewal, Renewed, Snapshot, Store,
};
use leasehold::{Client, Error, ErrorKind, Key, OwnerToken, Release};

/// One row: a lease, and the counter of fencing tokens, which outlives the lease.
#[derive(Default)]
struct Row {
    lease: Option<Lease>,
    counter: u64,
}

struct Lease {
    owner: OwnerToken,
    ends: Moment,
    since: WallTime,
    fencing: Option<FencingBlock>,
    why: Option<Arc<str>>,
    client: Option<Arc<ClientRecord>>,
    idle: bool,
}

impl Row {
    /// The lease, if it has not ended.
    fn living(&mut self, now: Moment) -> Option<&mut Lease> {
        if self.lease.as_ref().is_some_and(|lease| lease.ends <= now) {
            self.lease = None;
        }
        self.lease.as_mut()
    }

    /// The next fencing tokens.
    fn reserve(&mut self, reserve: u32) -> Option<FencingBlock> {
        let (block, counter) = FencingBlock::after(self.counter, reserve)?;
        self.counter = counter;
        Some(block)
    }
}

/// The table of leases. A clone shares the rows, as another connection does.
#[derive(Clone)]
pub(crate) struct Table {
    rows: Arc<Mutex<BTreeMap<Key, Row>>>,
    host: Arc<dyn Host>,
}

impl Table {
    /// An empty table, on the clock of `host`.
    pub(crate) fn new(host: Arc<dyn Host>) -> Self {
        Self { rows: Arc::default(), host }
    }

    /// The table as a store, with queues of its own.
    pub(crate) fn store(&self) -> InOrder<Self> {
        InOrder::new(self.clone(), Arc::clone(&self.host))
    }

    /// One statement, which is carried out when it is polled, in one step.
    fn statement<T, F>(&self, key: Key, step: F) -> BoxAnswer<T>
    where
        T: 'static,
        F: FnOnce(&mut Row, Moment, WallTime) -> Result<T, Error> + Send + 'static,
    {
        let (rows, host) = (Arc::clone(&self.rows), Arc::clone(&self.host));
        Box::pin(async move {
            let mut rows = rows.lock().expect("no statement panics");
            step(rows.entry(key).or_default(), host.now(), host.wall())
        })
    }
}

/// Refuses every claim and every kind of line but the simplest.
fn known(claim: Claim, line: &Line) -> Result<(), Error> {
    match (claim, line) {
        (Claim::Exclusive | Claim::Plain, Line::None) => Ok(()),
        _ => Err(Error::new(ErrorKind::Unsupported, "one owner at a time, without a line")),
    }
}

impl Store for Table {
    fn acquire(&self, ask: Ask) -> BoxAnswer<Acquired> {
        self.statement(ask.key, move |row, now, wall| {
            known(ask.claim, &ask.line)?;
            let ends = now + ask.ttl.get();
            match row.living(now) {
                Some(lease) if lease.owner == ask.owner => {
                    // A lost answer is repaired by asking again. It never shortens the lease.
                    lease.ends = lease.ends.max(ends);
                    return Ok(Acquired::Granted { fencing: lease.fencing });
                }
                Some(lease) => {
                    let retry_in = Some(lease.ends.since(now));
                    return Ok(Refusal::taken(retry_in, 0).into());
                }
                None => {}
            }
            let fencing = row.reserve(ask.reserve);
            let (client, why) = ask.note.map_or((None, None), |note| (note.client, note.why));
            let (owner, since, idle) = (ask.owner, wall, false);
            row.lease = Some(Lease { owner, ends, since, fencing, why, client, idle });
            Ok(Acquired::Granted { fencing })
        })
    }

    fn renew(&self, renewal: Renewal) -> BoxAnswer<Renewed> {
        self.statement(renewal.lease.key, move |row, now, _| {
            // The counter is raised only if the lease is ours, and never lowered.
            let is_ours = row.living(now).is_some_and(|lease| lease.owner == renewal.lease.owner);
            let Some(at_least) = is_ours.then(|| renewal.at_least.map_or(0, |token| token.get()))
            else {
                return Ok(Renewed::Lost);
            };
            let raised = if at_least > row.counter {
                row.counter = at_least - 1;
                row.reserve(1)
            } else {
                None
            };
            let reserved = row.reserve(renewal.reserve);
            let lease = row.living(now).expect("it was there just now");
            let raised_from = lease.fencing.filter(|_| raised.is_some());
            lease.fencing = reserved.or(raised).or(lease.fencing);
            lease.ends = lease.ends.max(now + renewal.ttl.get());
            lease.idle = renewal.idle;
            Ok(Renewed::Renewed {
                fencing: lease.fencing,
                raised_from,
                wanted: false,
                revoked: None,
            })
        })
    }

    fn release(&self, lease: LeaseId, on_release: OnRelease) -> BoxAnswer<Released> {
        self.statement(lease.key, move |row, now, wall| {
            if row.living(now).is_none_or(|held| held.owner != lease.owner) {
                return Ok(Released::NotHeld);
            }
            match on_release {
                OnRelease::Free | OnRelease::FreeAndWake => {
                    row.lease = None;
                    Ok(Released::Freed)
                }
                OnRelease::KeepIfAlone { owner, ttl, reserve, .. } => {
                    let before = row.lease.take().expect("it is the owner's");
                    let fencing = row.reserve(reserve);
                    let ends = now + ttl.get();
                    row.lease =
                        Some(Lease { owner, ends, since: wall, fencing, idle: false, ..before });
                    Ok(Released::Kept { fencing })
                }
                // An error means that the lease is as before.
                _ => Err(Error::new(ErrorKind::Unsupported, "an unknown way to release")),
            }
        })
    }

    fn inspect(&self, key: Key) -> BoxAnswer<Snapshot> {
        self.statement(key, |row, now, _| {
            let mut snapshot = Snapshot::default();
            if let Some(lease) = row.living(now) {
                let mut holder = Holder::new(lease.owner.as_str());
                holder.client = lease.client.as_deref().cloned();
                holder.why = lease.why.as_deref().map(str::to_owned);
                holder.since = Some(lease.since);
                holder.ttl_left = Some(lease.ends.since(now));
                holder.fencing = lease.fencing;
                holder.idle = lease.idle;
                snapshot.holders.push(holder);
            }
            snapshot.fencing = leasehold::FencingToken::new(row.counter);
            Ok(snapshot)
        })
    }

    fn watch(&self, _: &ClientId, _: Weak<dyn HintSink>) {}

    fn listen(&self, _: &ClientId) {}

    fn capabilities(&self) -> Capabilities {
        let mut promised = Capabilities::NONE;
        promised.fencing = true;
        promised.reask = true;
        (promised.detached, promised.frees) = (true, true);
        promised.reach = Reach::Process;
        promised
    }

    fn browse(&self) -> Option<&dyn Browse> {
        None
    }

    fn label(&self) -> String {
        "table:".to_owned()
    }
}

/// Two clients lock one name, one after the other.
pub(crate) async fn lock_twice() -> Result<(), Error> {
    let store = Table::new(SystemHost::shared()).store();
    let anna = Client::with_store(store.clone()).connect().await?.mutex("report");
    let bert = Client::with_store(store).connect().await?.mutex("report");
    let hers = anna.lock().await?;
    assert!(bert.try_lock().await?.is_none(), "it is taken");
    let waiting = bert.lock_timeout(Duration::from_secs(5));
    let (released, his) = tokio::join!(hers.release(), waiting);
    assert_eq!(released?, Release::Released);
    let his = his?;
    println!("{} is held, with fencing token {:?}", his.name(), his.fencing_token());
    assert_eq!(his.release().await?, Release::Released);
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    lock_twice().await
}
