//! Asks all nodes at the same time and combines their answers.

use std::future::poll_fn;
use std::task::Poll;

use leasehold::host::Sleep;
use leasehold::{Error as Cause, ErrorKind};

use super::error::Error;
use super::nodes::{Asked, Said};

/// The combined answers of the nodes.
#[derive(Debug)]
pub(super) struct Outcome {
    /// How many nodes said yes.
    pub(super) yes: usize,
    /// The errors of the other nodes, if any.
    pub(super) error: Option<Error>,
}

/// When a round ends.
#[derive(Clone, Copy)]
pub(super) struct Rule {
    pub(super) quorum: usize,
    /// Whether it ends as soon as a quorum agrees.
    pub(super) fail_fast: bool,
}

/// The answers so far.
struct Tally {
    rule: Rule,
    yes: usize,
    taken: Vec<usize>,
    errors: Vec<(usize, Error)>,
}

impl Rule {
    /// Waits for the answers, at most until `limit`. Requests whose answers are not awaited may
    /// still take effect.
    pub(super) async fn gather(self, mut asked: Vec<Asked>, mut limit: Option<Sleep>) -> Outcome {
        let mut tally = Tally::new(self);
        poll_fn(|context| {
            let mut at = 0;
            while at < asked.len() {
                let Poll::Ready(answer) = asked[at].1.as_mut().poll(context) else {
                    at += 1;
                    continue;
                };
                let (node, _) = asked.remove(at);
                tally.count(node, answer);
                if tally.is_decided() {
                    return Poll::Ready(());
                }
            }
            if asked.is_empty() {
                return Poll::Ready(());
            }
            match &mut limit {
                Some(limit) => limit.as_mut().poll(context),
                None => Poll::Pending,
            }
        })
        .await;
        if !tally.is_decided() {
            for (node, _) in asked {
                let message =
                    "no answer came in time; the request to this node may still take effect";
                tally.count(node, Err(Cause::new(ErrorKind::Unknown, message)));
            }
        }
        tally.outcome()
    }

    /// The outcome if the time was over before anything was asked.
    pub(super) fn too_late(self, nodes: impl Iterator<Item = usize>) -> Outcome {
        let mut tally = Tally::new(self);
        for node in nodes {
            let message = "the timeout had already elapsed; no request was sent";
            tally.count(node, Err(Cause::new(ErrorKind::Unavailable, message)));
        }
        tally.outcome()
    }
}

impl Tally {
    const fn new(rule: Rule) -> Self {
        Self { rule, yes: 0, taken: Vec::new(), errors: Vec::new() }
    }

    fn count(&mut self, node: usize, answer: Result<Said, Cause>) {
        let error = match answer {
            Ok(Said::Yes) => {
                self.yes += 1;
                return;
            }
            Ok(Said::Taken) => {
                self.taken.push(node);
                Error::NodeTaken { node }
            }
            Ok(Said::Expired) => Error::LockAlreadyExpired,
            Err(source) => Error::Redis { node, source },
        };
        self.errors.push((node, error));
    }

    /// Whether no further answer is needed.
    fn is_decided(&self) -> bool {
        let Rule { quorum, fail_fast } = self.rule;
        fail_fast && (self.yes >= quorum || self.taken.len() >= quorum)
    }

    fn outcome(mut self) -> Outcome {
        let error = if self.taken.len() >= self.rule.quorum {
            self.taken.sort_unstable();
            Some(Error::Taken { nodes: self.taken })
        } else {
            self.errors.sort_by_key(|(node, _)| *node);
            Error::join(self.errors.into_iter().map(|(_, error)| error).collect())
        };
        Outcome { yes: self.yes, error }
    }
}
