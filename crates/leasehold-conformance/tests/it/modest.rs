//! A store that promises less than another one, and refuses the rest.

use std::future::ready;
use std::sync::Weak;

use leasehold::core::token::ClientId;
use leasehold::store::{
    Acquired, AnyStore, Ask, BoxAnswer, Browse, Capabilities, Claim, HintSink, LeaseId, Line,
    OnRelease, Reach, Released, Renewal, Renewed, Snapshot, Store,
};
use leasehold::{Error, ErrorKind, Key};

/// The promise that the store does not make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lacks {
    Sharing,
    Permits,
    TheLine,
    Hints,
}

/// The store that promises less.
pub(crate) struct Modest {
    pub(crate) store: AnyStore,
    pub(crate) lacks: Lacks,
}

impl Modest {
    fn allows(&self, claim: Claim) -> bool {
        match claim {
            Claim::Shared => self.lacks != Lacks::Sharing,
            Claim::Permits { .. } => self.lacks != Lacks::Permits,
            _ => true,
        }
    }
}

impl Store for Modest {
    fn acquire(&self, ask: Ask) -> BoxAnswer<Acquired> {
        let joins = matches!(ask.line, Line::Join { .. });
        if !self.allows(ask.claim) || joins && self.lacks == Lacks::TheLine {
            return unsupported();
        }
        self.store.acquire(ask)
    }

    fn renew(&self, renewal: Renewal) -> BoxAnswer<Renewed> {
        self.store.renew(renewal)
    }

    fn release(&self, lease: LeaseId, on_release: OnRelease) -> BoxAnswer<Released> {
        self.store.release(lease, on_release)
    }

    fn inspect(&self, key: Key) -> BoxAnswer<Snapshot> {
        self.store.inspect(key)
    }

    fn watch(&self, inbox: &ClientId, sink: Weak<dyn HintSink>) {
        if self.lacks != Lacks::Hints {
            self.store.watch(inbox, sink);
        }
    }

    fn listen(&self, inbox: &ClientId) {
        self.store.listen(inbox);
    }

    fn resize(&self, key: Key, of: u32) -> BoxAnswer<Option<u32>> {
        if self.allows(Claim::Permits { want: 1, of }) {
            return self.store.resize(key, of);
        }
        unsupported()
    }

    fn capabilities(&self) -> Capabilities {
        let mut promised = self.store.capabilities();
        match self.lacks {
            Lacks::Sharing => promised.shared = false,
            Lacks::Permits => promised.permits = false,
            Lacks::TheLine => promised.line = false,
            Lacks::Hints => promised.hints = Reach::Nobody,
        }
        promised
    }

    fn browse(&self) -> Option<&dyn Browse> {
        self.store.browse()
    }

    fn label(&self) -> String {
        self.store.label()
    }
}

fn unsupported<T: Send + 'static>() -> BoxAnswer<T> {
    Box::pin(ready(Err(Error::new(ErrorKind::Unsupported, "not promised; nothing was sent"))))
}
