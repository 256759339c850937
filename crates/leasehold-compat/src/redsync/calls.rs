//! How the calls of a mutex work.

use leasehold::core::Moment;
use leasehold::store::Store;
use leasehold::{Key, OwnerToken};

use super::Mutex;
use super::error::Error;
use super::mutex::Held;
use super::nodes::{Asked, Nodes};
use super::options::{Terms, token};
use super::round::{Outcome, Rule};

impl<S: Store> Mutex<S> {
    pub(super) async fn lock_until(&self, tries: u32, end: Option<Moment>) -> Result<(), Error> {
        let terms = self.terms()?;
        let owner = self.options.gen_value(&*self.host)?;
        for tried in 0..tries {
            if tried > 0 && !self.pause(tried, end).await {
                return Err(Error::Elapsed);
            }
            let error = match self.attempt(&terms, &owner, end).await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            if let (true, Some(error)) = (tried + 1 == tries, error) {
                return Err(error);
            }
        }
        Err(Error::Failed)
    }

    /// Waits for the next try. Returns `false` if the time for all tries is over.
    async fn pause(&self, tried: u32, end: Option<Moment>) -> bool {
        let next = self.host.now() + self.options.delay(&*self.host, tried);
        self.host.sleep_until(end.map_or(next, |end| next.min(end))).await;
        end.is_none_or(|end| self.host.now() < end)
    }

    /// Makes one try. On failure, returns the errors of the nodes, if any, and releases everything.
    async fn attempt(
        &self,
        terms: &Terms,
        owner: &OwnerToken,
        end: Option<Moment>,
    ) -> Result<(), Option<Error>> {
        let began = self.host.now();
        let limit = earlier(began + terms.timeout, end);
        let (nodes, key, may_hold) = (&self.nodes, &terms.key, limit > began);
        let mut tried = Tried { nodes, key, owner, may_hold };
        let ask = || self.nodes.acquire(&terms.key, owner, terms.ttl);
        let Outcome { yes, error } = self.act(Some(limit), ask).await;
        let now = self.host.now();
        let until = began + terms.validity;
        if yes >= self.nodes.quorum() && now < until {
            tried.may_hold = false;
            *self.held() = Held { value: Some(owner.as_str().to_owned()), until: Some(until) };
            return Ok(());
        }
        if tried.may_hold {
            // The releases are sent even if no time is left. Only the wait for the answers is
            // limited.
            let asked = tried.give_back();
            let limit = earlier(now + terms.timeout, end);
            let limit = Some(self.host.sleep_until(limit));
            let _undone = self.rule().gather(asked, limit).await;
        }
        Err(error)
    }

    pub(super) async fn unlock_until(&self, end: Option<Moment>) -> Result<bool, Error> {
        let terms = self.terms()?;
        let outcome = match self.owner()? {
            Some(owner) => self.act(end, || self.nodes.release(&terms.key, &owner)).await,
            None => self.act(end, || self.nodes.look(&terms.key)).await,
        };
        self.judge(outcome)
    }

    pub(super) async fn extend_until(&self, end: Option<Moment>) -> Result<bool, Error> {
        let Terms { key, ttl, validity, .. } = self.terms()?;
        let owner = self.owner()?;
        let began = self.host.now();
        let ask = || match &owner {
            Some(owner) if self.options.set_nx_on_extend => self.nodes.acquire(&key, owner, ttl),
            Some(owner) => self.nodes.renew(&key, owner, ttl),
            None => self.nodes.refuse(),
        };
        let outcome = self.act(end, ask).await;
        if !self.judge(outcome)? {
            return Ok(false);
        }
        let until = began + validity;
        if self.host.now() >= until {
            return Err(Error::ExtendFailed);
        }
        self.held().until = Some(until);
        Ok(true)
    }

    pub(super) async fn valid_until(&self, end: Option<Moment>) -> Result<bool, Error> {
        let terms = self.terms()?;
        let owner = self.owner()?;
        let ask = || match &owner {
            Some(owner) => self.nodes.compare(&terms.key, owner),
            None => self.nodes.refuse(),
        };
        let outcome = self.act(end, ask).await;
        self.judge(outcome)
    }

    /// Asks all nodes and waits for their answers, at most until `limit`. Sends nothing if that
    /// time is over.
    async fn act(&self, limit: Option<Moment>, ask: impl FnOnce() -> Vec<Asked>) -> Outcome {
        if limit.is_some_and(|limit| limit <= self.host.now()) {
            return self.rule().too_late(self.nodes.each());
        }
        let timer = limit.map(|limit| self.host.sleep_until(limit));
        self.rule().gather(ask(), timer).await
    }

    fn terms(&self) -> Result<Terms, Error> {
        let terms = self.options.terms(self.name())?;
        let allowed = self.nodes.allow_reasking(&terms.key);
        allowed.map(|()| terms).map_err(|source| Error::Config { source })
    }

    fn judge(&self, outcome: Outcome) -> Result<bool, Error> {
        let has_quorum = outcome.yes >= self.nodes.quorum();
        match outcome.error {
            Some(error) if !has_quorum => Err(error),
            _ => Ok(has_quorum),
        }
    }

    fn rule(&self) -> Rule {
        Rule { quorum: self.nodes.quorum(), fail_fast: self.options.fail_fast }
    }

    /// The owner of the lock of the last call, if its value is known.
    fn owner(&self) -> Result<Option<OwnerToken>, Error> {
        self.held().value.as_deref().map(token).transpose()
    }
}

/// A value with which the nodes were asked. Dropping it releases possible grants.
struct Tried<'a, S: Store> {
    nodes: &'a Nodes<S>,
    key: &'a Key,
    owner: &'a OwnerToken,
    may_hold: bool,
}

impl<S: Store> Tried<'_, S> {
    /// Releases possible grants. The requests are sent after the asks, before this returns.
    fn give_back(&mut self) -> Vec<Asked> {
        self.may_hold = false;
        self.nodes.give_back(self.key, self.owner)
    }
}

impl<S: Store> Drop for Tried<'_, S> {
    fn drop(&mut self) {
        if self.may_hold {
            // If a release gets lost too, the key ends by itself.
            drop(self.give_back());
        }
    }
}

fn earlier(limit: Moment, end: Option<Moment>) -> Moment {
    end.map_or(limit, |end| limit.min(end))
}
