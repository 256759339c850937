//! A store that logs each request, with the change that it made, in the history.

use std::future::ready;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use leasehold::core::Moment;
use leasehold::core::token::{ClientId, OwnerToken};
use leasehold::store::{
    Acquired, Ask, BoxAnswer, Hint, HintSink, LeaseId, Line, OnRelease, Released, Renewal, Renewed,
    Store,
};
use leasehold::{Error, ErrorKind, Key};

use super::{Held, Local};
use crate::history::event::{Name, Request, What};
use crate::simulation::asked::Asked;
use crate::simulation::process::Process;

/// The store of one process, with the teller that logs its requests.
pub(super) struct Told<S> {
    store: S,
    teller: Arc<Teller>,
}

/// Logs the requests of one process and their effects in the history.
pub(super) struct Teller {
    local: Arc<Local>,
    process: Process,
    /// Requests without an answer, in the order in which they were sent.
    open: Mutex<Vec<Arc<dyn Open>>>,
    relays: Mutex<Vec<(ClientId, Arc<Relay>)>>,
}

impl<S> Told<S> {
    pub(super) const fn new(store: S, teller: Arc<Teller>) -> Self {
        Self { store, teller }
    }
}

impl Teller {
    pub(super) fn new(local: Arc<Local>, process: Process) -> Arc<Self> {
        Arc::new(Self { local, process, open: Mutex::default(), relays: Mutex::default() })
    }

    pub(super) const fn process(&self) -> &Process {
        &self.process
    }

    /// Sends a request. The requests of a dead process have no effect.
    fn send<T: Answer>(
        self: &Arc<Self>,
        request: Request,
        (key, owner): (&Key, &OwnerToken),
        submit: impl FnOnce() -> BoxAnswer<T>,
    ) -> BoxAnswer<T> {
        if self.process.is_dead() {
            return Box::pin(ready(Err(Error::new(ErrorKind::Unavailable, "it is dead"))));
        }
        let asked = Asked { request, key: key.as_str().into(), token: owner.as_str().into() };
        let Local { log, .. } = &*self.local;
        log.push(What::Sent {
            process: self.process.id(),
            call: log.present(&asked.key),
            request,
            key: Arc::clone(&asked.key),
            token: Arc::clone(&asked.token),
        });
        let before = self.local.held(&asked.key).map(|held| held.owner);
        let answering = Answering::Asked(submit());
        let state = Mutex::new(State { before, answering, waker: None });
        let sent = Arc::new(Sent { asked, at: log.now(), state });
        lock(&self.open).push(sent.clone());
        self.tell_answers(false);
        let teller = Arc::clone(self);
        Box::pin(std::future::poll_fn(move |context| sent.poll(&teller, context)))
    }

    /// Call this when the store's thread is about to carry out requests.
    pub(super) fn begins(&self) {
        for sent in lock(&self.open).iter() {
            sent.begins(self.local.held(&sent.asked().key).map(|held| held.owner));
        }
    }

    /// Call this when the store's thread has carried out requests.
    pub(super) fn settle(&self) {
        self.tell_answers(true);
    }

    /// Logs the answers that have come since. The store carries out requests in the order in which
    /// they were sent. Between several requests for one key, the owner follows from the answers.
    fn tell_answers(&self, by_thread: bool) {
        let mut answered = Vec::new();
        lock(&self.open).retain(|sent| {
            let implied = sent.answered();
            answered.extend(implied.map(|implied| (Arc::clone(sent), implied)));
            implied.is_none()
        });
        for (number, (sent, implied)) in answered.iter().enumerate() {
            let Some(implied) = implied else {
                self.local.note_refusal();
                continue;
            };
            let key = &sent.asked().key;
            let later = answered[number + 1..].iter();
            let mut later = later.filter(|(later, _)| later.asked().key == *key).peekable();
            let before = sent.before();
            let (next, last) = (later.peek().map(|(next, _)| next), self.local.held(key));
            let last_owner = last.as_ref().map(|held| &held.owner);
            let token = match implied.after {
                _ if next.is_none() => last_owner.cloned(),
                Owner::Asker => Some(Arc::clone(&sent.asked().token)),
                Owner::AsBefore => before.clone(),
                Owner::Nobody => None,
                Owner::Unknown => {
                    let next = later.filter_map(|(sent, implied)| {
                        implied.map(|implied| (&sent.asked().token, implied))
                    });
                    owner_between(before.as_ref(), next, last_owner)
                }
            };
            let held = token.map(|owner| match last {
                Some(last) if last.owner == owner => last,
                _ => Held { owner, left: Duration::ZERO, fencing: None },
            });
            if let Some(next) = next {
                next.begins(held.as_ref().map(|held| Arc::clone(&held.owner)));
            }
            self.local.note_answer(by_thread);
            let Asked { request, key, token } = sent.asked();
            let log = &self.local.log;
            if self.local.is_shared {
                continue;
            }
            log.push(What::Served {
                request: *request,
                key: Arc::clone(key),
                token: Arc::clone(token),
                before,
                after: held.as_ref().map(|held| Arc::clone(&held.owner)),
                left: held.as_ref().map_or(Duration::ZERO, |held| held.left),
                block: held.and_then(|held| held.fencing),
                travelled: Some(log.now().since(sent.sent())),
            });
        }
    }
}

/// The owner of a key between a request whose answer does not say it and the next ones, each with
/// its asker. `before` was the owner before that request, `last` is the owner after all of them.
fn owner_between<'a>(
    before: Option<&Name>,
    next: impl Iterator<Item = (&'a Name, Implied)>,
    last: Option<&Name>,
) -> Option<Name> {
    for (asker, implied) in next {
        match implied {
            Implied { was_asker: true, .. } => return Some(Arc::clone(asker)),
            // Either it was the owner already, or it found the key free.
            Implied { after: Owner::Asker, .. } => {
                return before.filter(|before| *before == asker).cloned();
            }
            _ => {}
        }
    }
    last.cloned()
}

/// The owner of the key, as far as it follows from an answer.
#[derive(Clone, Copy)]
struct Implied {
    /// Whether the asker was the owner before.
    was_asker: bool,
    after: Owner,
}

/// The owner of a key after a request.
#[derive(Clone, Copy)]
enum Owner {
    Asker,
    AsBefore,
    Nobody,
    Unknown,
}

/// An answer that says who owns the key.
trait Answer: Send + 'static {
    fn implied(&self) -> Implied;
}

impl Answer for Acquired {
    fn implied(&self) -> Implied {
        let after = match self {
            Self::Granted { .. } => Owner::Asker,
            // The store may have handed the key over.
            _ => Owner::Unknown,
        };
        Implied { was_asker: false, after }
    }
}

impl Answer for Renewed {
    fn implied(&self) -> Implied {
        Implied { was_asker: !matches!(self, Self::Lost), after: Owner::AsBefore }
    }
}

impl Answer for Released {
    fn implied(&self) -> Implied {
        let after = match self {
            Self::Freed => Owner::Nobody,
            Self::NotHeld => Owner::AsBefore,
            _ => Owner::Unknown,
        };
        Implied { was_asker: !matches!(self, Self::NotHeld), after }
    }
}

struct Sent<T> {
    asked: Asked,
    at: Moment,
    state: Mutex<State<T>>,
}

struct State<T> {
    /// The owner of the key before the request was carried out.
    before: Option<Name>,
    answering: Answering<T>,
    /// Wakes the task that waits for the answer.
    waker: Option<Waker>,
}

enum Answering<T> {
    Asked(BoxAnswer<T>),
    Answered(Result<T, Error>),
    Taken,
}

/// A sent request with any type of answer.
trait Open: Send + Sync {
    fn asked(&self) -> &Asked;
    fn sent(&self) -> Moment;
    fn before(&self) -> Option<Name>;
    fn begins(&self, before: Option<Name>);
    /// The owner that follows from the answer. `None` if there is no answer, `Some(None)` if the
    /// request was refused.
    fn answered(&self) -> Option<Option<Implied>>;
}

impl<T: Answer> Sent<T> {
    fn poll(&self, teller: &Teller, context: &mut Context<'_>) -> Poll<Result<T, Error>> {
        let mut state = lock(&self.state);
        state.waker = Some(context.waker().clone());
        if !state.is_answered(context) {
            return Poll::Pending;
        }
        drop(state);
        teller.tell_answers(true);
        match std::mem::replace(&mut lock(&self.state).answering, Answering::Taken) {
            Answering::Answered(answer) => Poll::Ready(answer),
            Answering::Asked(_) | Answering::Taken => {
                unreachable!("an answer is taken once, by the task that waits for it")
            }
        }
    }
}

impl<T: Answer> State<T> {
    fn is_answered(&mut self, context: &mut Context<'_>) -> bool {
        if let Answering::Asked(answer) = &mut self.answering
            && let Poll::Ready(answer) = Pin::new(answer).poll(context)
        {
            self.answering = Answering::Answered(answer);
        }
        !matches!(self.answering, Answering::Asked(_))
    }
}

impl<T: Answer> Open for Sent<T> {
    fn asked(&self) -> &Asked {
        &self.asked
    }

    fn sent(&self) -> Moment {
        self.at
    }

    fn before(&self) -> Option<Name> {
        lock(&self.state).before.clone()
    }

    fn begins(&self, before: Option<Name>) {
        lock(&self.state).before = before;
    }

    fn answered(&self) -> Option<Option<Implied>> {
        let mut state = lock(&self.state);
        // The task that waits for the answer must be woken in any case.
        let waker = state.waker.clone();
        let waker = waker.as_ref().unwrap_or(Waker::noop());
        if !state.is_answered(&mut Context::from_waker(waker)) {
            return None;
        }
        Some(match &state.answering {
            Answering::Answered(Ok(answer)) => Some(answer.implied()),
            _ => None,
        })
    }
}

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<S: Store> Store for Told<S> {
    fn acquire(&self, ask: Ask) -> BoxAnswer<Acquired> {
        let place = match &ask.line {
            // Only a client that joins the line gets a turn.
            Line::Join { waiter_ttl, .. } => Some(waiter_ttl.get()),
            _ => None,
        };
        let of = (ask.key.clone(), ask.owner.clone());
        let submit = || self.store.acquire(ask);
        self.teller.send(Request::Ask { place }, (&of.0, &of.1), submit)
    }

    fn renew(&self, renewal: Renewal) -> BoxAnswer<Renewed> {
        let of = renewal.lease.clone();
        let submit = || self.store.renew(renewal);
        self.teller.send(Request::Renew, (&of.key, &of.owner), submit)
    }

    fn release(&self, lease: LeaseId, on_release: OnRelease) -> BoxAnswer<Released> {
        let request = match on_release {
            OnRelease::KeepIfAlone { .. } => Request::Keep,
            OnRelease::Downgrade { .. } => Request::Downgrade,
            _ => Request::Release,
        };
        let of = lease.clone();
        let submit = || self.store.release(lease, on_release);
        self.teller.send(request, (&of.key, &of.owner), submit)
    }

    fn watch(&self, inbox: &ClientId, sink: Weak<dyn HintSink>) {
        let teller = Arc::downgrade(&self.teller);
        let relay = Arc::new(Relay { sink, teller });
        let relayed: Arc<dyn HintSink> = relay.clone();
        self.store.watch(inbox, Arc::downgrade(&relayed));
        lock(&self.teller.relays).push((inbox.clone(), relay));
    }

    crate::forward!(store: inspect, rest);
}

/// Passes on the hints for one inbox, and logs each hint that another client waits.
struct Relay {
    sink: Weak<dyn HintSink>,
    teller: Weak<Teller>,
}

impl HintSink for Relay {
    fn hint(&self, hint: Hint) {
        let Some(teller) = self.teller.upgrade().filter(|teller| !teller.process.is_dead()) else {
            return;
        };
        if let Hint::Wanted { key } = &hint {
            let (process, key) = (teller.process.id(), key.as_str().into());
            teller.local.log.push(What::Hinted { process, key });
        }
        if let Some(sink) = self.sink.upgrade() {
            sink.hint(hint);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread carries out several requests at once, and the file shows the last owner only.
    #[test]
    fn the_owner_between_two_requests_follows_from_the_next_answers() {
        let names = ["a", "b"].map(Name::from);
        let [a, b] = &names;
        let was = |asker, after| (asker, Implied { was_asker: true, after });
        let not = |asker, after| (asker, Implied { was_asker: false, after });
        for (before, next, last, owner) in [
            (None, vec![], Some(a), Some(a)),
            (Some(a), vec![was(a, Owner::Unknown)], Some(b), Some(a)),
            (Some(a), vec![not(b, Owner::AsBefore), was(a, Owner::Nobody)], None, Some(a)),
            (Some(b), vec![not(b, Owner::Asker), was(b, Owner::Unknown)], Some(a), Some(b)),
            (Some(a), vec![not(b, Owner::Asker)], Some(b), None),
        ] {
            let told = format!("{before:?} {last:?}");
            assert_eq!(owner_between(before, next.into_iter(), last).as_ref(), owner, "{told}");
        }
    }
}
