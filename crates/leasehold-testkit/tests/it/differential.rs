//! Each store against the reference: the same requests at the same moments get the same answers.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use leasehold::core::token::ClientId;
use leasehold::core::{FencingBlock, Moment};
use leasehold::host::Host;
use leasehold::store::{
    Acquired, AnyStore, Ask, Claim, LeaseId, Line, Note, Otherwise, Released, Renewal, Renewed,
    Store,
};
use leasehold::{Error, Key, OwnerToken};
use leasehold_testkit::VirtualHost;
use leasehold_testkit::conformance::{Opener, ms, ttl};
use leasehold_testkit::virtual_host::SeededRandom;

use crate::stores;

/// How many requests each seed makes.
const REQUESTS: usize = 400;

/// What a store may do otherwise than the reference, and what the requests are made of.
pub(crate) struct Leeway {
    /// In ms: how long leases live, how long places and what is handed to them, how much time
    /// passes.
    pub(crate) ttls: [u64; 5],
    pub(crate) waits: [u64; 3],
    pub(crate) passes: [u64; 5],
    /// Fencing tokens rise as they like, and fewer may be reserved than were asked for.
    pub(crate) leaps: bool,
    /// It has a time of day of its own, and does not always know since when a key is held. A key
    /// is not listed if nothing but the lock was written.
    pub(crate) terse: bool,
}

/// None: whatever is not a store's own affair.
const NONE: Leeway = Leeway {
    ttls: [10, 50, 200, 1_000, 5_000],
    waits: [10, 100, 1_000],
    passes: [1, 9, 60, 300, 2_000],
    leaps: false,
    terse: false,
};

/// One store, the owners that ask it, and what its fencing tokens were so far.
struct Side {
    handles: [AnyStore; 2],
    leeway: &'static Leeway,
    /// The highest token of each key so far: absolute numbers are each store's own affair.
    highest: HashMap<Key, u64>,
}

impl Side {
    /// A block as seen from the one before, so that two stores can be compared.
    fn relative(&mut self, key: &Key, block: Option<FencingBlock>) -> Option<(i64, u32)> {
        let block = block?;
        let first = i64::from(block.first);
        let highest = self.highest.entry(key.clone()).or_insert_with(|| block.first.get() - 1);
        let before = i64::try_from(*highest).expect("a fencing token is below 2^53");
        *highest = (*highest).max(block.first.get() + u64::from(block.count) - 1);
        if self.leeway.leaps {
            // Either the block that was known before, or one after it.
            return Some(((first > before).into(), 1));
        }
        Some((first - before, block.count))
    }
}

/// A request, the same for both stores.
#[derive(Clone, Debug)]
enum Request {
    Acquire(Ask),
    Renew(Renewal),
    Release(LeaseId, Otherwise),
    Inspect(Key),
    List(&'static str),
    Evict(Key, OwnerToken),
    Pass(u64),
}

fn draw(random: &mut SeededRandom, owners: &[(OwnerToken, ClientId)], leeway: &Leeway) -> Request {
    let key = Key::new(["a", "b", "c"][random.below(3)]).expect("a name");
    let (owner, id) = owners[random.below(owners.len())].clone();
    let span = ttl(leeway.ttls[random.below(5)]);
    let reserve = [0, 1, 1, 4][random.below(4)];
    let lease = LeaseId { key: key.clone(), owner: owner.clone(), claim: Claim::Exclusive };
    match random.below(20) {
        0..7 => {
            let waiter_ttl = ttl(leeway.waits[random.below(3)]);
            let handed_ttl = ttl(leeway.waits[random.below(3)]);
            let ask_no = u32::try_from(random.below(5)).expect("small");
            let line = match random.below(6) {
                0 | 1 => Line::Stand,
                2 => Line::Watch { waiter_ttl, inbox: id },
                _ => Line::Join { waiter_ttl, handed_ttl, ask_no, inbox: id },
            };
            let claim = Claim::Exclusive;
            let why = [None, None, Some("nightly | report")][random.below(3)];
            let note = why.map(|why| Note { client: None, why: Some(why.into()) });
            Request::Acquire(Ask { key, owner, claim, ttl: span, line, note, reserve })
        }
        7..10 => Request::Renew(Renewal { lease, ttl: span, at_least: None, reserve: reserve / 4 }),
        10..13 => Request::Release(lease, Otherwise::Free),
        13 => Request::Release(lease, Otherwise::Keep { ttl: span, reserve }),
        14 => Request::Inspect(key),
        15 if leeway.terse => Request::Inspect(key),
        15 => Request::List(["*", "a", "?"][random.below(3)]),
        16 => Request::Evict(key, owner),
        _ => Request::Pass(leeway.passes[random.below(5)]),
    }
}

/// Until when places live at most. A place that died keeps its turn if it is refreshed before it
/// is dropped, and when that is is each store's own affair: whoever had such a place leaves it
/// first.
#[derive(Default)]
struct Places(HashMap<(Key, OwnerToken), Moment>);

impl Places {
    fn spare_the_dead(&mut self, request: Request, now: Moment) -> Request {
        let Request::Acquire(ask) = &request else { return request };
        let (Line::Join { waiter_ttl, .. } | Line::Watch { waiter_ttl, .. }) = &ask.line else {
            return request;
        };
        let (key, owner) = (ask.key.clone(), ask.owner.clone());
        let before = self.0.remove(&(key.clone(), owner.clone()));
        if before.is_some_and(|until| until <= now) {
            return Request::Release(LeaseId { key, owner, claim: ask.claim }, Otherwise::Free);
        }
        let until = now + waiter_ttl.get();
        self.0.insert((key, owner), before.map_or(until, |before| before.max(until)));
        request
    }
}

impl Side {
    async fn play(&mut self, handle: usize, request: Request) -> String {
        let store = self.handles[handle].clone();
        match request {
            Request::Acquire(ask) => {
                let (key, stands_by) = (ask.key.clone(), ask.line == Line::Stand);
                show(store.acquire(ask).await.map(|answer| match answer {
                    Acquired::Granted { fencing } => {
                        format!("granted {:?}", self.relative(&key, fencing))
                    }
                    // Who only stands by may be told of places that are dead and not dropped yet.
                    Acquired::Taken { retry_in, .. } if stands_by => format!("taken {retry_in:?}"),
                    taken @ Acquired::Taken { .. } => format!("{taken:?}"),
                }))
            }
            Request::Renew(renewal) => {
                let key = renewal.lease.key.clone();
                show(store.renew(renewal).await.map(|answer| match answer {
                    Renewed::Renewed { fencing, wanted } => {
                        format!("renewed {:?} {wanted}", self.relative(&key, fencing))
                    }
                    Renewed::Lost => "lost".to_owned(),
                }))
            }
            Request::Release(lease, otherwise) => {
                let key = lease.key.clone();
                show(store.release(lease, otherwise).await.map(|answer| match answer {
                    Released::Kept { fencing } => {
                        format!("kept {:?}", self.relative(&key, fencing))
                    }
                    other => format!("{other:?}"),
                }))
            }
            Request::Inspect(key) => {
                let mut snapshot = store.inspect(key.clone()).await.expect("answered");
                snapshot.fencing = None;
                let terse = self.leeway.terse;
                for waiter in &mut snapshot.waiters {
                    waiter.since = waiter.since.filter(|_| !terse);
                }
                let holders: Vec<_> = snapshot
                    .holders
                    .into_iter()
                    .map(|mut holder| {
                        holder.since = holder.since.filter(|_| !terse);
                        (self.relative(&key, holder.fencing.take()), holder)
                    })
                    .collect();
                format!("{holders:?} {:?} {}", snapshot.waiters, snapshot.waiting)
            }
            Request::List(pattern) => {
                let tools = store.browse().expect("tools");
                format!("{:?}", tools.list(pattern, None).await.expect("answered"))
            }
            Request::Evict(key, owner) => {
                let seen = owner.as_str().as_bytes().to_vec();
                let tools = store.browse().expect("tools");
                format!("{:?}", tools.evict(key, seen, "a test".to_owned()).await)
            }
            Request::Pass(_) => unreachable!("time passes for both at once"),
        }
    }
}

fn show(answer: Result<impl fmt::Display, Error>) -> String {
    match answer {
        Ok(answer) => answer.to_string(),
        Err(error) => format!("{:?}", error.kind()),
    }
}

/// Plays one seed to the reference and to the store that `setup` makes, and looks `after_each`
/// request at whatever the caller wants to see.
pub(crate) async fn compare(
    host: &Arc<VirtualHost>,
    seed: u64,
    setup: impl FnOnce(&Arc<VirtualHost>) -> Opener,
    leeway: &'static Leeway,
    after_each: impl Fn(),
) {
    let mut sides = Vec::new();
    for opener in [stores::memory(host), setup(host)] {
        let handles = [opener().await, opener().await];
        sides.push((Side { handles, leeway, highest: HashMap::new() }, opener));
    }
    let mut random = SeededRandom::new(seed);
    let owners: Vec<_> = (0..6)
        .map(|_| {
            let (mut id, mut token) = ([0; ClientId::CHARS], [0; OwnerToken::RANDOM_BYTES]);
            random.fill(&mut id);
            random.fill(&mut token);
            let id = ClientId::from_random(id);
            (OwnerToken::from_random(token, &id), id)
        })
        .collect();
    let (mut log, mut places) = (Vec::new(), Places::default());
    for number in 0..REQUESTS {
        let request = places.spare_the_dead(draw(&mut random, &owners, leeway), host.now());
        if let Request::Pass(span) = request {
            host.advance(ms(span)).await;
            continue;
        }
        let handle = random.below(2);
        let now = host.now();
        let memory = sides[0].0.play(0, request.clone()).await;
        let other = sides[1].0.play(handle, request.clone()).await;
        after_each();
        log.push(format!("{number} at {now:?}: {request:?} -> {memory}"));
        assert_eq!(memory, other, "{}\nrequest {number} of seed {seed}", log.join("\n"));
        assert_eq!(host.now(), now, "neither store takes virtual time");
    }
}

#[test]
fn a_file_answers_what_the_reference_answers() {
    for seed in 0..60 {
        let host = VirtualHost::new(seed);
        host.run(compare(&host, seed, stores::sqlite, &NONE, || ()));
        host.drop_tasks();
    }
}
