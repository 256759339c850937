//! A store that loses, refuses and delays requests as a test says.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use leasehold::core::Moment;
use leasehold::core::token::ClientId;
use leasehold::core::validity::command_limit;
use leasehold::host::Host;
use leasehold::store::{
    Acquired, Ask, BoxAnswer, Hint, HintSink, LeaseId, OnRelease, Released, Renewal, Renewed,
    Snapshot, Store,
};
use leasehold::{Error, ErrorKind, Key, Ttl};

use crate::virtual_host::SeededRandom;

/// A kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Request {
    /// [`Store::acquire`].
    Acquire,
    /// [`Store::renew`].
    Renew,
    /// [`Store::release`].
    Release,
    /// [`Store::inspect`].
    Inspect,
}

impl Request {
    /// All kinds of requests.
    pub const ALL: [Self; 4] = [Self::Acquire, Self::Renew, Self::Release, Self::Inspect];
}

/// The fate of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The store refuses it before it has an effect: `Unavailable`, at once.
    Refuse,
    /// The store refuses it because a right is missing: `Denied`, at once.
    Deny,
    /// The request never arrives: `Unknown`, after the command limit.
    LoseRequest,
    /// The request takes effect, but its answer never arrives: `Unknown`, after the command limit.
    LoseReply,
    /// The request takes effect at once, but its answer comes this much later.
    Late(Duration),
}

/// The fate of hints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hints {
    /// Hints arrive.
    #[default]
    Arrive,
    /// Hints are lost.
    AreLost,
    /// Each hint arrives twice.
    AreDoubled,
}

/// Controls the faults of every store that it [decorates](Self::decorate). Clones share the
/// settings.
#[derive(Clone)]
pub struct Faults {
    host: Arc<dyn Host>,
    orders: Arc<Mutex<Orders>>,
}

struct Orders {
    once: Vec<(Request, Fault)>,
    always: HashMap<Request, Fault>,
    /// A random fault hits one request in this many.
    one_in: Option<usize>,
    delay_max: Duration,
    /// The kind of requests that are answered one after the other, the time that each request
    /// takes, and when the last one is done.
    in_turn: Option<(Request, Duration, Moment)>,
    hints: Hints,
    counts: HashMap<Request, usize>,
    sinks: Vec<(ClientId, Arc<Relay>)>,
    random: SeededRandom,
}

impl Faults {
    /// Starts without faults. Random choices follow from the random bytes of `host`.
    #[must_use]
    pub fn new(host: Arc<dyn Host>) -> Self {
        let mut seed = [0; 8];
        host.random(&mut seed);
        let orders = Orders {
            once: Vec::new(),
            always: HashMap::new(),
            one_in: None,
            delay_max: Duration::ZERO,
            in_turn: None,
            hints: Hints::default(),
            counts: HashMap::new(),
            sinks: Vec::new(),
            random: SeededRandom::new(u64::from_le_bytes(seed)),
        };
        Self { host, orders: Arc::new(Mutex::new(orders)) }
    }

    /// Wraps a store so that it has these faults.
    #[must_use]
    pub fn decorate<S: Store>(&self, store: S) -> FaultyStore<S> {
        FaultyStore { store, faults: self.clone() }
    }

    /// The next request of that kind meets `fault`. Several such faults are used in their order.
    pub fn next(&self, request: Request, fault: Fault) {
        self.orders().once.push((request, fault));
    }

    /// From now on, every request of that kind meets `fault`.
    pub fn from_now_on(&self, request: Request, fault: Fault) {
        self.orders().always.insert(request, fault);
    }

    /// From now on, every request meets `fault`.
    pub fn all_from_now_on(&self, fault: Fault) {
        self.orders().always.extend(Request::ALL.map(|request| (request, fault)));
    }

    /// Ends all faults that were set *from now on*.
    pub fn end_outage(&self) {
        self.orders().always.clear();
    }

    /// From now on, one request in this many meets a random fault.
    pub fn one_in(&self, requests: usize) {
        self.orders().one_in = Some(requests);
    }

    /// From now on, every answer comes late by a random time up to `most`.
    pub fn delay_up_to(&self, most: Duration) {
        self.orders().delay_max = most;
    }

    /// From now on, requests of that kind are answered one after the other, and each one takes this
    /// long. Abandoned requests take as long, because a server does not know that no client waits.
    pub fn in_turn(&self, request: Request, takes: Duration) {
        self.orders().in_turn = Some((request, takes, self.host.now()));
    }

    /// Sets the fate of hints from now on.
    pub fn hints(&self, hints: Hints) {
        self.orders().hints = hints;
    }

    /// Ends all faults.
    pub fn heal(&self) {
        let mut orders = self.orders();
        orders.once.clear();
        orders.always.clear();
        orders.one_in = None;
        orders.delay_max = Duration::ZERO;
        orders.in_turn = None;
        orders.hints = Hints::Arrive;
    }

    /// How many requests of that kind were made, with any outcome.
    #[must_use]
    pub fn count(&self, request: Request) -> usize {
        self.orders().counts.get(&request).copied().unwrap_or(0)
    }

    /// Sends a forged hint to every client that takes hints.
    pub fn forge(&self, hint: &Hint) {
        let sinks: Vec<_> =
            self.orders().sinks.iter().filter_map(|(_, relay)| relay.sink.upgrade()).collect();
        for sink in sinks {
            sink.hint(hint.clone());
        }
    }

    /// The ids of the clients that take hints, in the order in which they came.
    #[must_use]
    pub fn inboxes(&self) -> Vec<ClientId> {
        self.orders().sinks.iter().map(|(id, _)| id.clone()).collect()
    }

    fn orders(&self) -> MutexGuard<'_, Orders> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Carries out one request with its fault, within `limit`.
    fn carry<T: Send + 'static>(
        &self,
        request: Request,
        limit: Duration,
        submit: impl FnOnce() -> BoxAnswer<T>,
    ) -> BoxAnswer<T> {
        let now = self.host.now();
        let (fault, delay) = self.orders().draw(request, limit);
        let fault = fault.or_else(|| self.orders().queue(request, limit, now));
        // Submit the request before this returns, as the contract demands.
        let answer = match fault {
            Some(Fault::Refuse | Fault::Deny | Fault::LoseRequest) => None,
            Some(Fault::LoseReply | Fault::Late(_)) | None => Some(submit()),
        };
        let host = Arc::clone(&self.host);
        Box::pin(async move {
            let pause = async |span: Duration| {
                if !span.is_zero() {
                    host.sleep_until(host.now() + span).await;
                }
            };
            match (fault, answer) {
                (Some(Fault::Refuse), _) | (None, None) => {
                    pause(delay).await;
                    Err(Error::new(ErrorKind::Unavailable, "refused to order"))
                }
                (Some(Fault::Deny), _) => {
                    pause(delay).await;
                    Err(Error::new(ErrorKind::Denied, "denied to order"))
                }
                (Some(Fault::LoseReply | Fault::LoseRequest), answer) => {
                    drop(answer);
                    pause(limit).await;
                    Err(Error::new(ErrorKind::Unknown, "lost to order"))
                }
                (Some(Fault::Late(by)), Some(answer)) => {
                    let answer = answer.await;
                    pause(by).await;
                    answer
                }
                (_, Some(answer)) => {
                    let answer = answer.await;
                    pause(delay).await;
                    answer
                }
                (Some(Fault::Late(_)), None) => unreachable!("a late request was submitted"),
            }
        })
    }
}

impl Orders {
    /// The fault of a request, and the delay of its answer, which is at most `limit`.
    fn draw(&mut self, request: Request, limit: Duration) -> (Option<Fault>, Duration) {
        *self.counts.entry(request).or_default() += 1;
        let most = self.delay_max.min(limit);
        let nanos = usize::try_from(most.as_nanos()).expect("a delay is short");
        let delay = self.random.below(nanos + 1);
        let delay = Duration::from_nanos(u64::try_from(delay).expect("a delay is short"));
        let next = self.once.iter().position(|(wanted, _)| *wanted == request);
        let ordered = next.map(|at| self.once.remove(at).1);
        let ordered = ordered.or_else(|| self.always.get(&request).copied());
        let fault = ordered.or_else(|| match self.one_in {
            Some(requests) if self.random.once_in(requests) => Some(match self.random.below(3) {
                0 => Fault::Refuse,
                1 => Fault::LoseRequest,
                _ => Fault::LoseReply,
            }),
            _ => None,
        });
        (fault, delay)
    }

    /// The fate of a request that must wait for earlier ones of its kind.
    fn queue(&mut self, request: Request, limit: Duration, now: Moment) -> Option<Fault> {
        let (_, takes, done_at) = self.in_turn.as_mut().filter(|(kind, ..)| *kind == request)?;
        *done_at = (*done_at).max(now) + *takes;
        let late = done_at.since(now);
        Some(if late < limit { Fault::Late(late) } else { Fault::LoseReply })
    }
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let orders = self.orders();
        f.debug_struct("Faults")
            .field("once", &orders.once)
            .field("always", &orders.always)
            .field("one_in", &orders.one_in)
            .field("delay_max", &orders.delay_max)
            .field("hints", &orders.hints)
            .finish_non_exhaustive()
    }
}

/// A store whose requests meet the faults of a [`Faults`].
#[derive(Clone, Debug)]
pub struct FaultyStore<S> {
    store: S,
    faults: Faults,
}

impl<S: Store> Store for FaultyStore<S> {
    fn acquire(&self, ask: Ask) -> BoxAnswer<Acquired> {
        let limit = command_limit(ask.ttl);
        self.faults.carry(Request::Acquire, limit, || self.store.acquire(ask))
    }

    fn renew(&self, renewal: Renewal) -> BoxAnswer<Renewed> {
        let limit = command_limit(renewal.ttl);
        self.faults.carry(Request::Renew, limit, || self.store.renew(renewal))
    }

    fn release(&self, lease: LeaseId, on_release: OnRelease) -> BoxAnswer<Released> {
        let limit = command_limit(Ttl::MAX);
        self.faults.carry(Request::Release, limit, || self.store.release(lease, on_release))
    }

    fn inspect(&self, key: Key) -> BoxAnswer<Snapshot> {
        let limit = command_limit(Ttl::MAX);
        self.faults.carry(Request::Inspect, limit, || self.store.inspect(key))
    }

    fn watch(&self, inbox: &ClientId, sink: Weak<dyn HintSink>) {
        let relay = Arc::new(Relay { sink, orders: Arc::downgrade(&self.faults.orders) });
        let relayed: Arc<dyn HintSink> = relay.clone();
        self.store.watch(inbox, Arc::downgrade(&relayed));
        self.faults.orders().sinks.push((inbox.clone(), relay));
    }

    crate::forward!(store: rest);
}

/// Passes hints on, or loses or doubles them.
struct Relay {
    sink: Weak<dyn HintSink>,
    orders: Weak<Mutex<Orders>>,
}

impl HintSink for Relay {
    fn hint(&self, hint: Hint) {
        let orders = self.orders.upgrade();
        let fate = orders.map_or(Hints::Arrive, |orders| {
            orders.lock().unwrap_or_else(PoisonError::into_inner).hints
        });
        let Some(sink) = self.sink.upgrade() else { return };
        match fate {
            Hints::Arrive => sink.hint(hint),
            Hints::AreLost => {}
            Hints::AreDoubled => {
                sink.hint(hint.clone());
                sink.hint(hint);
            }
        }
    }
}
