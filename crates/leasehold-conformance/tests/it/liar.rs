//! A store that breaks one promise, and keeps all others as the store in memory does.

use std::collections::HashMap;
use std::future::ready;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::{Context, Poll, Waker};

use leasehold::core::token::ClientId;
use leasehold::core::{FencingBlock, Moment};
use leasehold::host::Host;
use leasehold::store::{
    Acquired, Ask, BoxAnswer, Browse, Capabilities, Claim, Evicted, FENCE_IDLE, Hint, HintSink,
    Holder, LeaseId, Line, MemoryStore, OnRelease, Page, Refusal, Released, Renewal, Renewed,
    Revocation, Revoked, Snapshot, Store,
};
use leasehold::{Error, ErrorKind, Key, OwnerToken, Ttl};
use leasehold_conformance::ms;

use crate::lies::Lie;

/// The store. Its clones share everything.
#[derive(Clone)]
pub(crate) struct Liar {
    lie: Lie,
    /// Which handle it is.
    handle: u32,
    store: MemoryStore,
    host: Arc<dyn Host>,
    kept: Arc<Mutex<Kept>>,
}

/// The state that the store needs for its lies.
#[derive(Default)]
struct Kept {
    /// The asks of all that joined a line, in order.
    joined: Vec<Ask>,
    /// Leases that end too early.
    ends: HashMap<Key, (LeaseId, Moment)>,
    /// The last holder of each key.
    holders: HashMap<Key, Holder>,
    /// When a key was asked for, and how much its counter lost.
    counters: HashMap<Key, (Moment, u64, u64)>,
    /// The first request to let go for each owner token.
    requests: HashMap<OwnerToken, Arc<Revocation>>,
    grants: u64,
    sinks: Vec<Weak<dyn HintSink>>,
    /// Our own sinks, since the store keeps only weak references.
    echoes: Vec<Arc<dyn HintSink>>,
}

impl Liar {
    pub(crate) fn new(lie: Lie, host: Arc<dyn Host>) -> Self {
        let store = MemoryStore::new(Arc::clone(&host));
        Self { lie, handle: 0, store, host, kept: Arc::default() }
    }

    pub(crate) fn handle(&self, handle: u32) -> Self {
        Self { handle, ..self.clone() }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().expect("no test panics while it holds this")
    }

    fn holder(&self, key: &Key) -> Option<Holder> {
        now(self.store.inspect(key.clone())).expect("answered").holders.pop()
    }

    fn end(&self, lease: LeaseId) -> Result<Released, Error> {
        now(self.store.release(lease, OnRelease::Free))
    }

    /// Ends the leases that were shortened.
    fn end_early(&self) {
        let time = self.host.now();
        let mut kept = self.kept();
        let over = kept.ends.extract_if(|_, (_, ends)| *ends <= time);
        let over: Vec<_> = over.map(|(_, (lease, _))| lease).collect();
        drop(kept);
        for lease in over {
            self.end(lease).expect("answered");
        }
    }

    /// Takes everybody out of a line. Returns what they asked.
    fn clear_line(&self, key: &Key) -> Vec<Ask> {
        let joined: Vec<_> = self.kept().joined.extract_if(.., |ask| ask.key == *key).collect();
        for ask in &joined {
            self.end(ask.lease()).expect("answered");
        }
        joined
    }

    fn join_again(&self, joined: Vec<Ask>) {
        for ask in joined {
            now(self.store.acquire(ask.clone())).expect("answered");
            self.kept().joined.push(ask);
        }
    }

    fn asked(&self, ask: Ask) -> Result<Acquired, Error> {
        let (asked, mut ask) = (ask.clone(), ask);
        match self.lie {
            Lie::ShortensOnAsk | Lie::ShortensOnRenewal => self.end_early(),
            Lie::KeepsDeadPlaces => {
                if let Line::Join { waiter_ttl, .. } = &mut ask.line {
                    *waiter_ttl = Ttl::MAX;
                }
            }
            Lie::EndsEarly => {
                let shorter = ask.ttl.get().saturating_sub(ms(5));
                ask.ttl = Ttl::new(shorter).unwrap_or(ask.ttl);
            }
            Lie::EndsLate => ask.ttl = ask.ttl.with_delay(ms(1_000)),
            Lie::FoldsNames => ask.key = Key::new(ask.key.as_str().to_lowercase())?,
            Lie::CutsTokens => ask.owner = cut(&ask.owner),
            Lie::CountsOwnersForPermits => {
                if let Claim::Permits { want, .. } = &mut ask.claim {
                    *want = 1;
                }
            }
            Lie::OverlapsBlocks => ask.reserve = ask.reserve.min(1),
            Lie::PromisesPermitsInVain if matches!(ask.claim, Claim::Permits { .. }) => {
                return Err(unsupported());
            }
            Lie::ForgetsTheOwner => {
                let held = self.holder(&ask.key);
                let own = held.filter(|held| held.token == ask.owner.as_str().as_bytes());
                if let Some(own) = own {
                    return Ok(Refusal::taken(own.ttl_left, 0).into());
                }
            }
            _ => {}
        }
        let overtaken = match (self.lie, &ask.line) {
            (Lie::LetsNewcomersPass, Line::None) => self.clear_line(&ask.key),
            _ => Vec::new(),
        };
        let answer = now(self.store.acquire(ask));
        self.join_again(overtaken);
        self.answered(&asked, answer)
    }

    /// The answer to an ask, as the store tells it.
    fn answered(&self, asked: &Ask, answer: Result<Acquired, Error>) -> Result<Acquired, Error> {
        let fencing = match answer? {
            Acquired::Refused(_) if self.lie == Lie::GrantsAHeldKey => {
                return Ok(Acquired::Granted { fencing: None });
            }
            Acquired::Refused(refusal) => {
                let joins = matches!(asked.line, Line::Join { .. });
                let mut kept = self.kept();
                if joins && !kept.joined.iter().any(|ask| ask.owner == asked.owner) {
                    kept.joined.push(asked.clone());
                }
                return Ok(refusal.into());
            }
            Acquired::Granted { fencing } => fencing,
        };
        let time = self.host.now();
        let holder = self.holder(&asked.key);
        let mut kept = self.kept();
        kept.joined.retain(|ask| ask.owner != asked.owner);
        kept.grants += 1;
        if let Some(holder) = holder {
            kept.holders.insert(asked.key.clone(), holder);
        }
        if self.lie == Lie::ShortensOnAsk {
            kept.ends.insert(asked.key.clone(), (asked.lease(), time + asked.ttl.get()));
        }
        let fencing = fencing.map(|block| match self.lie {
            Lie::RepeatsTokens => numbers(7, block.count),
            Lie::LowersTokens => numbers(1_000_000 - kept.grants, block.count),
            Lie::OverlapsBlocks => numbers(block.first.get(), asked.reserve),
            Lie::ForgetsIdleCounters => {
                let first = block.first.get();
                let counter = kept.counters.entry(asked.key.clone()).or_insert((time, first, 0));
                if time.since(counter.0) >= FENCE_IDLE {
                    counter.2 = first - 1;
                }
                (counter.0, counter.1) = (time, first);
                numbers(first - counter.2, block.count)
            }
            _ => block,
        });
        let fencing = fencing.filter(|_| self.lie != Lie::PromisesTokensInVain);
        Ok(Acquired::Granted { fencing })
    }

    fn renewed(&self, mut renewal: Renewal) -> Result<Renewed, Error> {
        if self.lie == Lie::CutsTokens {
            renewal.lease.owner = cut(&renewal.lease.owner);
        }
        let (lease, span) = (renewal.lease.clone(), renewal.ttl);
        let mut answer = now(self.store.renew(renewal))?;
        match (&mut answer, self.lie) {
            (Renewed::Renewed { .. }, Lie::ShortensOnRenewal) => {
                let ends = self.host.now() + span.get();
                self.kept().ends.insert(lease.key.clone(), (lease, ends));
            }
            (Renewed::Renewed { wanted, .. }, Lie::HidesWaiters) => *wanted = false,
            (Renewed::Renewed { revoked, .. }, Lie::SwallowsRevocations) => *revoked = None,
            (Renewed::Renewed { revoked, .. }, Lie::RemembersRevocations) => {
                let mut kept = self.kept();
                if let Some(request) = revoked.take() {
                    kept.requests.entry(lease.owner.clone()).or_insert(request);
                }
                *revoked = kept.requests.get(&lease.owner).cloned();
            }
            (Renewed::Lost, Lie::BringsLeasesBack) => {
                let ask = Ask::new(lease.key, lease.owner, lease.claim, span);
                if let Acquired::Granted { fencing } = now(self.store.acquire(ask))? {
                    let (raised_from, wanted, revoked) = (None, false, None);
                    return Ok(Renewed::Renewed { fencing, raised_from, wanted, revoked });
                }
            }
            _ => {}
        }
        Ok(answer)
    }

    fn released(&self, mut lease: LeaseId, how: OnRelease) -> Result<Released, Error> {
        if self.lie == Lie::CutsTokens {
            lease.owner = cut(&lease.owner);
        }
        let held = self.holder(&lease.key);
        let is_own = held.is_some_and(|held| held.token == lease.owner.as_str().as_bytes());
        let how = match self.lie {
            Lie::WakesInsteadOfHandingOver if how == OnRelease::Free => OnRelease::FreeAndWake,
            _ => how,
        };
        match self.lie {
            Lie::KeepsThePlaceOfALeaver if !is_own => return Ok(Released::NotHeld),
            Lie::HandsOverToTheSecond if is_own => {
                let mut first = self.clear_line(&lease.key);
                if first.len() > 1 {
                    first.rotate_left(1);
                }
                self.join_again(first);
            }
            _ => {}
        }
        self.kept().joined.retain(|ask| ask.owner != lease.owner);
        let answer = now(self.store.release(lease.clone(), how))?;
        if answer == Released::NotHeld && self.lie == Lie::ReleasesForAnybody {
            let held = self.holder(&lease.key);
            let owner = held.and_then(|held| OwnerToken::new(text(&held.token)).ok());
            if let Some(owner) = owner {
                return self.end(LeaseId { owner, ..lease });
            }
        }
        Ok(answer)
    }
}

impl Store for Liar {
    fn acquire(&self, ask: Ask) -> BoxAnswer<Acquired> {
        let this = self.clone();
        let at_once = (self.lie != Lie::SendsWhenPolled).then(|| self.asked(ask.clone()));
        Box::pin(async move { at_once.unwrap_or_else(|| this.asked(ask)) })
    }

    fn renew(&self, renewal: Renewal) -> BoxAnswer<Renewed> {
        Box::pin(ready(self.renewed(renewal)))
    }

    fn release(&self, lease: LeaseId, on_release: OnRelease) -> BoxAnswer<Released> {
        Box::pin(ready(self.released(lease, on_release)))
    }

    fn inspect(&self, key: Key) -> BoxAnswer<Snapshot> {
        let mut answer = now(self.store.inspect(key.clone()));
        if let (Lie::ShowsDeadHolders, Ok(snapshot)) = (self.lie, &mut answer)
            && snapshot.holders.is_empty()
        {
            snapshot.holders.extend(self.kept().holders.get(&key).cloned());
        }
        Box::pin(ready(answer))
    }

    fn watch(&self, inbox: &ClientId, sink: Weak<dyn HintSink>) {
        match self.lie {
            Lie::LosesHints => {}
            Lie::TellsEverybody => {
                let echo: Arc<dyn HintSink> = Arc::new(Echo(Arc::clone(&self.kept)));
                self.store.watch(inbox, Arc::downgrade(&echo));
                let mut kept = self.kept();
                kept.sinks.push(sink);
                kept.echoes.push(echo);
            }
            _ => self.store.watch(inbox, sink),
        }
    }

    fn listen(&self, inbox: &ClientId) {
        self.store.listen(inbox);
    }

    fn resize(&self, key: Key, of: u32) -> BoxAnswer<Option<u32>> {
        self.store.resize(key, of)
    }

    fn capabilities(&self) -> Capabilities {
        let mut promised = self.store.capabilities();
        match self.lie {
            Lie::HidesSharing => promised.shared = false,
            Lie::HidesPermits => promised.permits = false,
            Lie::HidesTheLine => promised.line = false,
            Lie::HidesDetaching => promised.detached = false,
            Lie::HidesFreeing => promised.frees = false,
            Lie::HidesTokens => promised.fencing = false,
            Lie::HidesRevoking => promised.revoke = false,
            Lie::HidesTools => promised.browse = false,
            Lie::PromisesByHandle => promised.durable = self.handle == 0,
            _ => {}
        }
        promised
    }

    fn browse(&self) -> Option<&dyn Browse> {
        Some(self)
    }

    fn label(&self) -> String {
        "a liar".to_owned()
    }
}

impl Browse for Liar {
    fn list(&self, pattern: &str, cursor: Option<Key>) -> BoxAnswer<Page> {
        let mut answer = now(self.tools().list(pattern, cursor));
        if let (Lie::ListsWhatEnded, Ok(page)) = (self.lie, &mut answer) {
            page.keys = self.kept().holders.keys().cloned().collect();
            page.keys.sort_unstable();
        }
        Box::pin(ready(answer))
    }

    fn evict(&self, key: Key, seen: Vec<u8>, reason: String) -> BoxAnswer<Evicted> {
        let holder = self.holder(&key).filter(|_| self.lie == Lie::EvictsAnybody);
        self.tools().evict(key, holder.map_or(seen, |holder| holder.token), reason)
    }

    fn revoke(&self, key: Key, seen: Vec<u8>, by: String, why: String) -> BoxAnswer<Revoked> {
        if self.lie == Lie::RevokesEverybody {
            let holders = now(self.store.inspect(key.clone())).expect("answered").holders;
            for holder in holders {
                let asked = self.tools().revoke(key.clone(), holder.token, by.clone(), why.clone());
                assert_eq!(now(asked).expect("answered"), Revoked::Asked);
            }
        }
        self.tools().revoke(key, seen, by, why)
    }
}

impl Liar {
    fn tools(&self) -> &dyn Browse {
        self.store.browse().expect("the store in memory has tools")
    }
}

/// Passes each hint to everybody.
struct Echo(Arc<Mutex<Kept>>);

impl HintSink for Echo {
    fn hint(&self, hint: Hint) {
        let sinks = self.0.lock().expect("no test panics while it holds this").sinks.clone();
        for sink in sinks.iter().filter_map(Weak::upgrade) {
            sink.hint(hint.clone());
        }
    }
}

/// The answer of the store in memory, which is there at once.
fn now<T>(answer: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let mut answer = Box::pin(answer);
    match answer.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => unreachable!("the store in memory answers at once"),
    }
}

fn numbers(first: u64, count: u32) -> FencingBlock {
    let (block, _) = FencingBlock::after(first - 1, count).expect("a few numbers");
    block
}

fn cut(owner: &OwnerToken) -> OwnerToken {
    let short: String = owner.as_str().chars().take(6).collect();
    OwnerToken::new(short).expect("the beginning of a token")
}

fn text(token: &[u8]) -> &str {
    std::str::from_utf8(token).expect("tokens are ASCII")
}

fn unsupported() -> Error {
    Error::new(ErrorKind::Unsupported, "no permits; nothing was sent")
}
