//! The place where processes write down what happened.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leasehold::Guard;
use leasehold::host::Host;

use super::event::{CallId, CallKind, Event, Outcome, ProcessId, What, WindowId};
use crate::VirtualHost;

/// A history in the making. Clones write to the same history.
#[derive(Clone, Debug, Default)]
pub struct History {
    events: Arc<Mutex<Vec<Event>>>,
    calls: Arc<AtomicU32>,
    windows: Arc<AtomicU32>,
}

impl History {
    /// Adds an event, after all earlier ones.
    pub fn push(&self, event: Event) {
        self.all().push(event);
    }

    /// A new number for a call.
    #[must_use]
    pub fn next_call(&self) -> CallId {
        CallId(self.calls.fetch_add(1, Ordering::Relaxed))
    }

    /// A new number for a window.
    #[must_use]
    pub fn next_window(&self) -> WindowId {
        WindowId(self.windows.fetch_add(1, Ordering::Relaxed))
    }

    /// All events so far.
    #[must_use]
    pub fn events(&self) -> Vec<Event> {
        self.all().clone()
    }

    /// Merges the histories of several witnesses, in order of time.
    #[must_use]
    pub fn merge(witnesses: impl IntoIterator<Item = Vec<Event>>) -> Vec<Event> {
        let mut events: Vec<_> = witnesses.into_iter().flatten().collect();
        events.sort_by_key(|event| event.at);
        events
    }

    fn all(&self) -> MutexGuard<'_, Vec<Event>> {
        // After a panic, the checker needs the events that led to it.
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self, host: &VirtualHost, what: What) {
        self.push(Event { at: host.now(), what });
    }

    /// Logs that a call without a limit begins now on that host.
    pub fn called(
        &self,
        host: &VirtualHost,
        process: ProcessId,
        key: &str,
        kind: CallKind,
    ) -> CallId {
        let call = self.next_call();
        self.now(host, What::Called { call, process, key: key.into(), kind, limit: None });
        call
    }

    /// Logs that a call ends now without a guard.
    pub fn returned(&self, host: &VirtualHost, call: CallId, outcome: Outcome) {
        self.now(host, What::Returned { call, outcome });
    }

    /// Logs that a call ends now with a guard. Its window lasts until [`InUse::end`] or its loss.
    #[must_use]
    pub fn granted(&self, host: &Arc<VirtualHost>, call: CallId, guard: &Guard) -> InUse {
        let (window, until) = (self.next_window(), host.now() + guard.remaining());
        let fence = guard.fencing_token().map(leasehold::FencingToken::get);
        let token = guard.token().as_str().into();
        self.now(host, What::Granted { window, call, token, fence, until });
        self.returned(host, call, Outcome::Granted);
        let in_use = InUse {
            history: self.clone(),
            host: Arc::clone(host),
            window,
            is_over: Arc::default(),
        };
        let (watched, lost) = (in_use.clone(), guard.lost());
        host.spawn(Box::pin(async move {
            lost.await;
            watched.close(What::ToldLost { window });
        }));
        in_use
    }
}

/// An open window, whose guard is in use.
#[derive(Clone, Debug)]
pub struct InUse {
    history: History,
    host: Arc<VirtualHost>,
    window: WindowId,
    is_over: Arc<AtomicBool>,
}

impl InUse {
    /// Logs until when the holder may rely on the guard now.
    pub fn seen(&self, guard: &Guard) {
        if !self.is_over.load(Ordering::Relaxed) && guard.is_held() {
            let until = self.host.now() + guard.remaining();
            self.history.now(&self.host, What::Extended { window: self.window, until });
        }
    }

    /// Logs that the holder gives up now, just before it releases.
    pub fn end(self, guard: &Guard) {
        self.seen(guard);
        self.close(What::GaveUp { window: self.window });
    }

    fn close(&self, what: What) {
        if !self.is_over.swap(true, Ordering::Relaxed) {
            self.history.now(&self.host, what);
        }
    }
}
