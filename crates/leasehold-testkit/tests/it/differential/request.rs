//! The requests to the stores.

use std::collections::HashMap;

use leasehold::core::Moment;
use leasehold::core::token::ClientId;
use leasehold::store::{Ask, Claim, LeaseId, Line, Note, OnRelease};
use leasehold::{Key, OwnerToken, Ttl};
use leasehold_testkit::conformance::ttl;
use leasehold_testkit::virtual_host::SeededRandom;

/// The keys of the requests.
pub(super) const KEYS: [&str; 3] = ["a", "b", "c"];

/// The ingredients of the requests of a seed. Times are in ms.
pub(super) struct Plan {
    /// The number of requests.
    pub(super) requests: usize,
    /// The number of owners, and how many of the keys they use.
    pub(super) owners: usize,
    keys: usize,
    /// The ttls of leases.
    ttls: [u64; 5],
    /// The ttls of places, and of leases that are handed over.
    waits: [u64; 3],
    /// The spans of time between requests.
    passes: [u64; 5],
    /// How far above the highest known fencing token the counter is raised.
    raises: &'static [u64],
    /// Whether stores take part that are not exact in the last millisecond.
    pub(super) blurred: bool,
    /// Whether the hints of each request are awaited before the next one.
    pub(super) hears: bool,
    /// Whether every second owner shares its keys.
    pub(super) shares: bool,
}

/// A number far ahead of all clocks, so that no counter reaches it by itself.
const FAR: u64 = 10_000_000_000;

/// Leases and places end exactly at the time of a request.
pub(super) const EXACT: Plan = Plan {
    requests: 400,
    owners: 6,
    keys: 3,
    ttls: [10, 50, 200, 1_000, 5_000],
    waits: [10, 100, 1_000],
    passes: [1, 9, 60, 300, 2_000],
    raises: &[0, 1, FAR],
    blurred: false,
    hears: false,
    shares: false,
};

/// Time passes by multiples of 7 ms, and nothing lives for such a span or for a little less.
pub(super) const WHOLE: Plan = Plan {
    requests: 400,
    owners: 6,
    keys: 3,
    ttls: [10, 52, 199, 997, 5_001],
    waits: [10, 101, 997],
    passes: [7, 14, 63, 301, 2_002],
    raises: &[0, FAR],
    blurred: true,
    hears: false,
    shares: false,
};

/// All hints arrive before the next request. There are few owners and one key, so there are many
/// hand-overs.
pub(super) const UNHURRIED: Plan = Plan {
    requests: 250,
    owners: 3,
    keys: 1,
    ttls: [199, 500, 997, 2_001, 5_001],
    waits: [101, 500, 997],
    passes: [7, 14, 63, 301, 2_002],
    raises: &[0, FAR],
    blurred: true,
    hears: true,
    shares: false,
};

/// Like [`WHOLE`], but readers share keys, with writers in between.
pub(super) const SHARED: Plan =
    Plan { requests: 600, owners: 8, keys: 2, raises: &[0], shares: true, ..WHOLE };

/// An owner token and its client.
#[derive(Clone, Debug)]
pub(super) struct Owner {
    pub(super) token: OwnerToken,
    pub(super) client: ClientId,
}

/// The owners of a seed.
pub(super) fn owners(random: &mut SeededRandom, count: usize) -> Vec<Owner> {
    let mut owner = || {
        let (mut id, mut token) = ([0; ClientId::CHARS], [0; OwnerToken::RANDOM_BYTES]);
        random.fill(&mut id);
        random.fill(&mut token);
        let client = ClientId::from_random(id);
        Owner { token: OwnerToken::from_random(token, &client), client }
    };
    (0..count).map(|_| owner()).collect()
}

/// A request, the same for all stores.
#[derive(Clone, Debug)]
pub(super) enum Request {
    Acquire(Ask),
    /// An ask whose answer nobody awaits. It still takes effect.
    Abandon(Ask),
    Renew {
        lease: LeaseId,
        ttl: Ttl,
        /// How far above the highest known token the counter must be.
        raise: Option<u64>,
        reserve: u32,
        idle: bool,
    },
    Release(LeaseId, OnRelease),
    Inspect(Key),
    List(&'static str),
    Evict(Key, OwnerToken),
    /// Replaces the handle with a new one, which knows nothing yet.
    Open,
    Pass(u64),
}

/// Draws the next request and its owner.
pub(super) fn draw(random: &mut SeededRandom, owners: &[Owner], plan: &Plan) -> (usize, Request) {
    let key = Key::new(KEYS[random.below(plan.keys)]).expect("a name");
    let number = random.below(owners.len());
    let owner = owners[number].token.clone();
    let span = ttl(plan.ttls[random.below(5)]);
    let reserve = [0, 1, 1, 4][random.below(4)];
    let shares = plan.shares && number % 2 == 1;
    // A reader of the library wants no fencing tokens.
    let (claim, reserve) =
        if shares { (Claim::Shared, reserve / 4) } else { (Claim::Exclusive, reserve) };
    // A token that asks again asks for the same number. Without a counter, Redis cannot tell a
    // lease without fencing tokens from a lease whose counter was lost.
    let asked = match number % 4 {
        _ if shares => reserve,
        0 => 0,
        _ => reserve.max(1),
    };
    let lease = LeaseId { key: key.clone(), owner: owner.clone(), claim };
    let request = match random.below(40) {
        0..13 => Request::Acquire(ask(random, plan, lease, &owners[number].client, asked)),
        13 if plan.hears => Request::Inspect(key),
        13 => Request::Abandon(ask(random, plan, lease, &owners[number].client, asked)),
        14..20 => {
            let raise = random.once_in(3).then(|| plan.raises[random.below(plan.raises.len())]);
            let idle = random.once_in(3);
            // A quorum shares no keys, and no client keeps a share without a guard.
            let (raise, idle) = if shares { (None, false) } else { (raise, idle) };
            Request::Renew { lease, ttl: span, raise, reserve: reserve / 4, idle }
        }
        20..24 => Request::Release(lease, OnRelease::Free),
        24 | 25 => Request::Release(lease, OnRelease::FreeAndWake),
        26 | 27 if shares => Request::Release(lease, OnRelease::Free),
        26 if plan.shares => {
            let owner = OwnerToken::new(format!("reader-{}", random.below(1_000_000)));
            let owner = owner.expect("a token");
            Request::Release(lease, OnRelease::Downgrade { owner, ttl: span })
        }
        26 | 27 => {
            // Use a fresh token, or the token of an owner without a place in line, which is
            // equivalent.
            let mut bytes = [0; OwnerToken::RANDOM_BYTES];
            random.fill(&mut bytes);
            let fresh = OwnerToken::from_random(bytes, &owners[number].client);
            let owner = if random.once_in(2) { owner } else { fresh };
            Request::Release(
                lease,
                OnRelease::KeepIfAlone { owner, ttl: span, reserve, opens: false },
            )
        }
        28 | 29 => Request::Inspect(key),
        30 => Request::List(["*", "a", "?"][random.below(3)]),
        31 if plan.hears => Request::List("*"),
        31 => Request::Open,
        32 | 33 => Request::Evict(key, owner),
        _ => Request::Pass(plan.passes[random.below(5)]),
    };
    (number, request)
}

fn ask(
    random: &mut SeededRandom,
    plan: &Plan,
    lease: LeaseId,
    client: &ClientId,
    reserve: u32,
) -> Ask {
    let span = ttl(plan.ttls[random.below(5)]);
    let waiter_ttl = ttl(plan.waits[random.below(3)]);
    let handed_ttl = ttl(plan.waits[random.below(3)]);
    let ask_no = u32::try_from(random.below(5)).expect("small");
    let inbox = client.clone();
    let line = match random.below(6) {
        0 | 1 => Line::None,
        // Only a quorum watches, and a quorum shares no keys.
        2 if lease.claim == Claim::Shared => Line::None,
        2 => Line::Watch { waiter_ttl, ask_no, inbox },
        _ => Line::Join { waiter_ttl, handed_ttl, ask_no, inbox },
    };
    let why = [None, None, Some("nightly | report")][random.below(3)];
    let LeaseId { key, owner, claim } = lease;
    let mut ask = Ask::new(key, owner, claim, span);
    ask.line = line;
    ask.note = why.map(|why| Note::new(None, Some(why.into())));
    ask.reserve = reserve;
    ask
}

/// The latest end of each place. An owner whose place has expired leaves the line first.
#[derive(Default)]
pub(super) struct Places(HashMap<(Key, OwnerToken), Moment>);

impl Places {
    pub(super) fn spare_the_dead(&mut self, request: Request, now: Moment) -> Request {
        let (Request::Acquire(ask) | Request::Abandon(ask)) = &request else { return request };
        let (Line::Join { waiter_ttl, .. } | Line::Watch { waiter_ttl, .. }) = &ask.line else {
            return request;
        };
        let (key, owner) = (ask.key.clone(), ask.owner.clone());
        let before = self.0.remove(&(key.clone(), owner.clone()));
        if before.is_some_and(|until| until <= now) {
            return Request::Release(LeaseId { key, owner, claim: ask.claim }, OnRelease::Free);
        }
        let until = now + waiter_ttl.get();
        self.0.insert((key, owner), before.map_or(until, |before| before.max(until)));
        request
    }
}
