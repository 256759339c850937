//! A test client: its requests, and the hints that it receives.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use leasehold::core::token::ClientId;
use leasehold::store::{
    Acquired, AnyStore, Ask, Claim, ClientRecord, Hint, HintSink, LeaseId, Line, Note, OnRelease,
    Reach, Released, Renewal, Renewed, Store,
};
use leasehold::{Error, FencingToken, Key, OwnerToken, Ttl};

use crate::time::Time;

/// A client with one acquisition: an id, an owner token, and an inbox.
#[derive(Clone, Debug)]
pub struct Actor {
    time: Time,
    store: AnyStore,
    id: ClientId,
    owner: OwnerToken,
    number: u32,
    inbox: Arc<Inbox>,
}

impl Actor {
    pub(super) fn new(time: &Time, store: AnyStore, number: u32) -> Self {
        let mut random = [0; ClientId::CHARS];
        time.random(&mut random);
        let id = ClientId::from_random(random);
        let inbox = Inbox::watch(&store, &id);
        let owner = fresh_token(time, &id);
        Self { time: time.clone(), store, id, owner, number, inbox }
    }

    /// Another acquisition of the same client.
    #[must_use]
    pub fn another(&self) -> Self {
        Self { owner: fresh_token(&self.time, &self.id), ..self.clone() }
    }

    /// The same client with a given token.
    #[must_use]
    pub fn with_token(&self, owner: OwnerToken) -> Self {
        Self { owner, ..self.clone() }
    }

    /// The same acquisition through another handle.
    #[must_use]
    pub fn through(&self, store: &AnyStore) -> Self {
        Self { store: store.clone(), ..self.clone() }
    }

    /// Its owner token.
    #[must_use]
    pub fn owner(&self) -> &OwnerToken {
        &self.owner
    }

    /// The id of the client.
    #[must_use]
    pub fn id(&self) -> &ClientId {
        &self.id
    }

    /// The record in which it describes itself.
    #[must_use]
    pub fn record(&self) -> ClientRecord {
        let mut record = ClientRecord::new(self.id.clone());
        record.host = "machine-1".to_owned();
        record.pid = 4_000 + self.number;
        record.user = "ada".to_owned();
        record.command = format!("work --part {}", self.number);
        record
    }

    /// An acquire. By default it is exclusive, for 10 s, without waiting, without a note, and with
    /// one fencing token.
    pub fn ask(&self, key: &Key) -> Asking {
        let mut ask = Ask::new(key.clone(), self.owner.clone(), Claim::Exclusive, ttl(10_000));
        ask.reserve = 1;
        Asking { actor: self.clone(), ask }
    }

    /// The lease of its acquisition.
    #[must_use]
    pub fn lease(&self, key: &Key) -> LeaseId {
        LeaseId { key: key.clone(), owner: self.owner.clone(), claim: Claim::Exclusive }
    }

    /// Continues as `heir` with a shared lease instead of its exclusive one.
    pub fn downgrade_to(
        &self,
        heir: &Self,
        key: &Key,
        ttl_ms: u64,
    ) -> impl Future<Output = Result<Released, Error>> + Send + 'static + use<> {
        let on_release = OnRelease::Downgrade { owner: heir.owner.clone(), ttl: ttl(ttl_ms) };
        boxed(self.store.release(self.lease(key), on_release))
    }

    /// Renews its lease for that many milliseconds.
    pub fn renew(
        &self,
        key: &Key,
        ttl_ms: u64,
    ) -> impl Future<Output = Result<Renewed, Error>> + Send + 'static + use<> {
        self.renew_at_least(key, ttl_ms, None, 0)
    }

    /// Renews its lease with this claim instead of [`Claim::Exclusive`].
    pub fn renew_as(
        &self,
        key: &Key,
        claim: Claim,
        ttl_ms: u64,
    ) -> impl Future<Output = Result<Renewed, Error>> + Send + 'static + use<> {
        let (lease, ttl) = (LeaseId { claim, ..self.lease(key) }, ttl(ttl_ms));
        boxed(self.store.renew(Renewal::new(lease, ttl)))
    }

    /// Renews a lease that is kept without a guard.
    pub fn renew_idle(
        &self,
        key: &Key,
        ttl_ms: u64,
    ) -> impl Future<Output = Result<Renewed, Error>> + Send + 'static + use<> {
        let mut renewal = Renewal::new(self.lease(key), ttl(ttl_ms));
        renewal.idle = true;
        boxed(self.store.renew(renewal))
    }

    /// Renews its lease, and raises the counter or reserves further tokens.
    pub fn renew_at_least(
        &self,
        key: &Key,
        ttl_ms: u64,
        at_least: Option<u64>,
        reserve: u32,
    ) -> impl Future<Output = Result<Renewed, Error>> + Send + 'static + use<> {
        let at_least = at_least.map(|number| FencingToken::new(number).expect("within bounds"));
        let mut renewal = Renewal::new(self.lease(key), ttl(ttl_ms));
        renewal.at_least = at_least;
        renewal.reserve = reserve;
        boxed(self.store.renew(renewal))
    }

    /// Releases its lease.
    pub fn release(
        &self,
        key: &Key,
    ) -> impl Future<Output = Result<Released, Error>> + Send + 'static + use<> {
        boxed(self.store.release(self.lease(key), OnRelease::Free))
    }

    /// Releases its lease, and leaves the key to the first client that asks.
    pub fn free(
        &self,
        key: &Key,
    ) -> impl Future<Output = Result<Released, Error>> + Send + 'static + use<> {
        boxed(self.store.release(self.lease(key), OnRelease::FreeAndWake))
    }

    /// Releases its lease, and lets the store open the key if that is due.
    pub fn open(
        &self,
        key: &Key,
    ) -> impl Future<Output = Result<Released, Error>> + Send + 'static + use<> {
        boxed(self.store.release(self.lease(key), OnRelease::Open))
    }

    /// Releases another claim.
    pub fn release_as(
        &self,
        key: &Key,
        claim: Claim,
    ) -> impl Future<Output = Result<Released, Error>> + Send + 'static + use<> {
        let lease = LeaseId { claim, ..self.lease(key) };
        boxed(self.store.release(lease, OnRelease::Free))
    }

    /// Releases its lease, and makes `heir` the owner if nobody waits.
    pub fn keep_for(
        &self,
        heir: &Self,
        key: &Key,
        ttl_ms: u64,
        reserve: u32,
    ) -> impl Future<Output = Result<Released, Error>> + Send + 'static + use<> {
        let on_release = OnRelease::KeepIfAlone {
            owner: heir.owner.clone(),
            ttl: ttl(ttl_ms),
            reserve,
            opens: false,
        };
        boxed(self.store.release(self.lease(key), on_release))
    }

    /// Releases its lease, and makes `heir` the owner if nobody waits and the store does not open
    /// the key.
    pub fn keep_or_open(
        &self,
        heir: &Self,
        key: &Key,
        ttl_ms: u64,
        reserve: u32,
    ) -> impl Future<Output = Result<Released, Error>> + Send + 'static + use<> {
        let (owner, ttl) = (heir.owner.clone(), ttl(ttl_ms));
        let on_release = OnRelease::KeepIfAlone { owner, ttl, reserve, opens: true };
        boxed(self.store.release(self.lease(key), on_release))
    }

    /// Takes all hints out of the inbox.
    #[must_use]
    pub fn hints(&self) -> Vec<Hint> {
        std::mem::take(&mut *self.inbox.hints())
    }

    /// Waits for a hint that `wanted` picks, and takes it out of the inbox. Other hints stay.
    ///
    /// # Panics
    ///
    /// If no such hint comes in time.
    pub async fn hint<T>(&self, wanted: impl Fn(&Hint) -> Option<T>) -> T {
        let limit = self.time.hint_limit();
        let until = self.time.now() + limit;
        loop {
            {
                let mut hints = self.inbox.hints();
                let found =
                    hints.iter().enumerate().find_map(|(at, hint)| Some((at, wanted(hint)?)));
                if let Some((at, picked)) = found {
                    hints.remove(at);
                    return picked;
                }
            }
            assert!(
                self.time.now() < until,
                "the hint did not come within {limit:?}; there came {:?}",
                self.hints()
            );
            self.time.pass(Duration::from_millis(1)).await;
        }
    }

    /// Waits for a `wanted` hint, as [`hint`](Self::hint) does, if the store promises hints at all.
    ///
    /// # Panics
    ///
    /// If no such hint comes in time.
    pub async fn expect_hint(&self, wanted: impl Fn(&Hint) -> bool) {
        if self.store.capabilities().hints != Reach::Nobody {
            self.hint(|hint| wanted(hint).then_some(())).await;
        }
    }

    /// Sends all further hints to a new inbox instead of the old one.
    #[must_use]
    pub fn watch_anew(&self) -> Self {
        Self { inbox: Inbox::watch(&self.store, &self.id), ..self.clone() }
    }
}

fn fresh_token(time: &Time, id: &ClientId) -> OwnerToken {
    let mut random = [0; OwnerToken::RANDOM_BYTES];
    time.random(&mut random);
    OwnerToken::from_random(random, id)
}

/// An answer that does not borrow the store, so it can be kept or dropped at will.
fn boxed<T: 'static>(
    answer: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> leasehold::store::BoxAnswer<T> {
    Box::pin(answer)
}

/// A builder of an acquire.
#[derive(Debug)]
#[must_use = "an ask is sent by `send`"]
pub struct Asking {
    actor: Actor,
    ask: Ask,
}

impl Asking {
    /// Sets the ttl in milliseconds.
    pub fn ttl(mut self, ttl_ms: u64) -> Self {
        self.ask.ttl = ttl(ttl_ms);
        self
    }

    /// Sets the ttl.
    pub fn for_ttl(mut self, ttl: Ttl) -> Self {
        self.ask.ttl = ttl;
        self
    }

    /// Sets the claim.
    pub fn claim(mut self, claim: Claim) -> Self {
        self.ask.claim = claim;
        self
    }

    /// Sets the number of fencing tokens.
    pub fn reserve(mut self, reserve: u32) -> Self {
        self.ask.reserve = reserve;
        self
    }

    /// Shares the key, without a fencing token.
    pub fn shared(self) -> Self {
        self.claim(Claim::Shared).reserve(0)
    }

    /// Wants some of the permits of the key.
    pub fn permits(self, want: u32, of: u32) -> Self {
        self.claim(Claim::Permits { want, of })
    }

    /// Joins the line as ask number 1. The place and the handed lease last 3 s each.
    pub fn join(self) -> Self {
        self.join_as(1, 3_000, 3_000)
    }

    /// Joins the line as [`join`](Self::join) does, if the store promises a line.
    pub fn join_or_try(self) -> Self {
        if self.actor.store.capabilities().line { self.join() } else { self }
    }

    /// Joins the line.
    pub fn join_as(mut self, ask_no: u32, waiter_ttl_ms: u64, handed_ttl_ms: u64) -> Self {
        self.ask.line = Line::Join {
            waiter_ttl: ttl(waiter_ttl_ms),
            handed_ttl: ttl(handed_ttl_ms),
            ask_no,
            inbox: self.actor.id.clone(),
        };
        self
    }

    /// Takes a place that is only woken, for that many milliseconds.
    pub fn watch(mut self, waiter_ttl_ms: u64) -> Self {
        let (waiter_ttl, inbox) = (ttl(waiter_ttl_ms), self.actor.id.clone());
        self.ask.line = Line::Watch { waiter_ttl, ask_no: 1, inbox };
        self
    }

    /// Adds the record of its client.
    pub fn named(mut self) -> Self {
        let client = Some(Arc::new(self.actor.record()));
        let why = self.ask.note.take().and_then(|note| note.why);
        self.ask.note = Some(Note::new(client, why));
        self
    }

    /// Adds a reason.
    pub fn why(mut self, why: &str) -> Self {
        let client = self.ask.note.take().and_then(|note| note.client);
        self.ask.note = Some(Note::new(client, Some(why.into())));
        self
    }

    /// Sends the acquire.
    pub fn send(self) -> leasehold::store::BoxAnswer<Acquired> {
        boxed(self.actor.store.acquire(self.ask))
    }
}

/// The hints of a client.
#[derive(Debug, Default)]
struct Inbox(Mutex<Vec<Hint>>);

impl Inbox {
    fn watch(store: &AnyStore, id: &ClientId) -> Arc<Self> {
        let inbox = Arc::new(Self::default());
        let sink: Arc<dyn HintSink> = inbox.clone();
        let sink: Weak<dyn HintSink> = Arc::downgrade(&sink);
        store.watch(id, sink);
        inbox
    }

    fn hints(&self) -> MutexGuard<'_, Vec<Hint>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HintSink for Inbox {
    fn hint(&self, hint: Hint) {
        // A store may send `Missed` at any time. It proves nothing, and no case counts it.
        if hint != Hint::Missed {
            self.hints().push(hint);
        }
    }
}

/// A key with that name.
///
/// # Panics
///
/// If the name is not valid.
#[must_use]
pub fn key(name: &str) -> Key {
    Key::new(name).expect("a name that passes")
}

/// A ttl in milliseconds.
///
/// # Panics
///
/// If it is out of bounds.
#[must_use]
pub fn ttl(ms: u64) -> Ttl {
    Ttl::new(Duration::from_millis(ms)).expect("a ttl within bounds")
}
