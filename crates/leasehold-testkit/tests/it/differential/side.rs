//! One of the stores, and its answers.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use leasehold::core::FencingBlock;
use leasehold::store::{
    Acquired, Afterwards, AnyStore, Evicted, Hint, HintSink, Line, Page, Refusal, Released,
    Renewal, Renewed, Snapshot, Store, Why,
};
use leasehold::{Error, ErrorKind, FencingToken, Key, OwnerToken};
use leasehold_testkit::VirtualHost;
use leasehold_testkit::conformance::Opener;

use super::Exclusion;
use super::request::{Owner, Request};

/// A store, two handles on it, and its highest fencing tokens.
pub(super) struct Side {
    opener: Opener,
    handles: [AnyStore; 2],
    /// The highest known token of each key.
    highest: HashMap<Key, u64>,
    ears: Vec<Arc<Ear>>,
}

/// A block of tokens, relative to the tokens known before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rise {
    by: i64,
    count: u32,
}

/// The answer of a store, in a form that can be compared with another store's.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Answer {
    Granted(Option<Rise>),
    /// `stands`: the ask took no place in line.
    Taken {
        retry_in: Option<Duration>,
        ahead: u32,
        token: Afterwards,
        stands: bool,
    },
    /// `raised`: the block before a raise, if there was one, and the block after it.
    Renewed {
        raised: [Option<Rise>; 2],
        wanted: bool,
    },
    Lost,
    Kept(Option<Rise>),
    Released(Released),
    Inspected(Snapshot, Vec<Option<Rise>>),
    Listed(Page),
    Evicted(Evicted),
    Heard(Vec<(Key, OwnerToken, u32, Option<Rise>)>),
    Refused(ErrorKind),
    /// The answer was not awaited.
    Nothing,
}

impl Side {
    pub(super) async fn open(opener: Opener) -> Self {
        let handles = [opener().await, opener().await];
        Self { opener, handles, highest: HashMap::new(), ears: Vec::new() }
    }

    /// Records the hints for an owner, which uses only this handle.
    pub(super) fn hear(&mut self, owner: &Owner, handle: usize) {
        let ear = Arc::new(Ear::default());
        let sink: Arc<dyn HintSink> = ear.clone();
        let sink: Weak<dyn HintSink> = Arc::downgrade(&sink);
        self.handles[handle].watch(&owner.client, sink);
        self.ears.push(ear);
    }

    /// The hand-overs that were announced since the last call.
    pub(super) fn heard(&mut self) -> Answer {
        let hints = self.ears.iter().flat_map(|ear| ear.take());
        let mut granted: Vec<_> = hints
            .filter_map(|hint| match hint {
                Hint::Granted { key, owner, fencing, ask_no } => {
                    Some((key, owner, ask_no, fencing))
                }
                _ => None,
            })
            .collect();
        granted.sort_by_key(|(key, owner, ask_no, _)| (key.clone(), owner.clone(), *ask_no));
        let rises = granted.into_iter().map(|(key, owner, ask_no, fencing)| {
            let rise = self.rise(&key, fencing);
            (key, owner, ask_no, rise)
        });
        Answer::Heard(rises.collect())
    }

    /// Records a block, and returns its position relative to earlier ones.
    fn rise(&mut self, key: &Key, block: Option<FencingBlock>) -> Option<Rise> {
        let block = block?;
        let highest = self.highest.entry(key.clone()).or_insert_with(|| block.first.get() - 1);
        let signed = |token| i64::try_from(token).expect("a fencing token is below 2^53");
        let by = signed(block.first.get()) - signed(*highest);
        *highest = (*highest).max(block.first.get() + u64::from(block.count) - 1);
        Some(Rise { by, count: block.count })
    }

    pub(super) async fn ask(
        &mut self,
        host: &VirtualHost,
        handle: usize,
        request: Request,
    ) -> Answer {
        self.answer(host, handle, request)
            .await
            .unwrap_or_else(|error| Answer::Refused(error.kind()))
    }

    async fn answer(
        &mut self,
        host: &VirtualHost,
        handle: usize,
        request: Request,
    ) -> Result<Answer, Error> {
        let store = self.handles[handle].clone();
        Ok(match request {
            Request::Acquire(ask) => {
                let (key, stands) = (ask.key.clone(), ask.line == Line::None);
                match store.acquire(ask).await? {
                    Acquired::Granted { fencing } => Answer::Granted(self.rise(&key, fencing)),
                    Acquired::Refused(Refusal { why, retry_in, ahead, token, .. }) => {
                        assert!(matches!(why, Why::Taken), "{why:?}");
                        Answer::Taken { retry_in, ahead, token, stands }
                    }
                }
            }
            Request::Abandon(ask) => {
                drop(store.acquire(ask));
                host.settle().await;
                Answer::Nothing
            }
            Request::Renew { lease, ttl, raise, reserve, idle } => {
                let key = lease.key.clone();
                let at_least = raise.zip(self.highest.get(&key)).map(|(by, from)| from + by);
                let at_least = at_least.and_then(FencingToken::new);
                let mut renewal = Renewal::new(lease, ttl);
                (renewal.at_least, renewal.reserve, renewal.idle) = (at_least, reserve, idle);
                match store.renew(renewal).await? {
                    Renewed::Renewed { fencing, raised_from, wanted, .. } => {
                        // These are relative to the tokens before the renewal.
                        let raised = [raised_from, fencing].map(|block| self.rise(&key, block));
                        Answer::Renewed { raised, wanted }
                    }
                    Renewed::Lost => Answer::Lost,
                }
            }
            Request::Release(lease, on_release) => {
                let key = lease.key.clone();
                match store.release(lease, on_release).await? {
                    Released::Kept { fencing } => Answer::Kept(self.rise(&key, fencing)),
                    other => Answer::Released(other),
                }
            }
            Request::Inspect(key) => {
                let mut snapshot = store.inspect(key.clone()).await?;
                // This number is absolute, and belongs to no holder.
                snapshot.fencing = None;
                // Stores keep holders that share a key in any order.
                snapshot.holders.sort_by(|one, other| one.token.cmp(&other.token));
                let blocks: Vec<_> =
                    snapshot.holders.iter_mut().map(|holder| holder.fencing.take()).collect();
                let rises = blocks.into_iter().map(|block| self.rise(&key, block)).collect();
                Answer::Inspected(snapshot, rises)
            }
            Request::List(pattern) => {
                let tools = store.browse().expect("tools");
                Answer::Listed(tools.list(pattern, None).await?)
            }
            Request::Evict(key, owner) => {
                let seen = owner.as_str().as_bytes().to_vec();
                let tools = store.browse().expect("tools");
                Answer::Evicted(tools.evict(key, seen, "a test".to_owned()).await?)
            }
            Request::Open => {
                self.handles[handle] = (self.opener)().await;
                Answer::Nothing
            }
            Request::Pass(_) => unreachable!("time passes for all at once"),
        })
    }

    /// Whether the store has nothing of the lock except the lock itself.
    pub(super) async fn is_bare(&self, key: &Key) -> bool {
        let snapshot = self.handles[0].inspect(key.clone()).await.expect("answered");
        let says_nothing =
            |holder: &leasehold::store::Holder| holder.fencing.is_none() && holder.why.is_none();
        snapshot.waiting == 0 && snapshot.holders.iter().all(says_nothing)
    }
}

impl Answer {
    /// The number of hints of grants in it.
    pub(super) fn grants(&self) -> usize {
        if let Self::Heard(hints) = self { hints.len() } else { 0 }
    }

    /// The answer without the excluded parts. `bare` are the keys that some stores do not list.
    pub(super) fn seen(self, excludes: impl Fn(Exclusion) -> bool, bare: &[Key]) -> Self {
        let rise = |rise: Option<Rise>| {
            let leap = |rise: Rise| Rise { by: i64::from(rise.by > 0), count: 1 };
            if excludes(Exclusion::LeapingTokens) { rise.map(leap) } else { rise }
        };
        match self {
            Self::Granted(block) => Self::Granted(rise(block)),
            Self::Renewed { raised, wanted } => Self::Renewed { raised: raised.map(rise), wanted },
            Self::Kept(block) => Self::Kept(rise(block)),
            Self::Heard(hints) => {
                let seen = hints.into_iter().map(|(key, owner, no, it)| (key, owner, no, rise(it)));
                Self::Heard(seen.collect())
            }
            Self::Taken { retry_in, token, stands: true, .. } => {
                Self::Taken { retry_in, ahead: 0, token, stands: true }
            }
            Self::Inspected(mut snapshot, blocks) => {
                if excludes(Exclusion::Since) {
                    snapshot.holders.iter_mut().for_each(|holder| holder.since = None);
                    snapshot.waiters.iter_mut().for_each(|waiter| waiter.since = None);
                }
                if excludes(Exclusion::HoldersTtl) {
                    snapshot.holders.iter_mut().for_each(|holder| holder.ttl = None);
                }
                Self::Inspected(snapshot, blocks.into_iter().map(rise).collect())
            }
            Self::Listed(mut page) => {
                if excludes(Exclusion::BareLocks) {
                    page.keys.retain(|key| !bare.contains(key));
                }
                Self::Listed(page)
            }
            same => same,
        }
    }
}

/// Collects hints.
#[derive(Default)]
struct Ear(Mutex<Vec<Hint>>);

impl Ear {
    fn take(&self) -> Vec<Hint> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl HintSink for Ear {
    fn hint(&self, hint: Hint) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(hint);
    }
}
