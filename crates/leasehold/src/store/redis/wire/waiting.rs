//! Requests without an answer, and their callers.

use std::sync::Arc;

use super::redirect::{Answering, Redirect};
use crate::store::redis::codec::command::{Command, NoAnswer, Value};

pub(super) type Reply = Result<Value, NoAnswer>;

/// A request, and who waits for its answer.
pub(super) type Step = (Command, Waiting);

/// Steps that were sent in one call.
pub(super) struct Several(pub(super) Vec<Step>);

impl Several {
    /// The callers that wait for the answers, one for each step.
    pub(super) fn waiting(self) -> impl Iterator<Item = Waiting> {
        self.0.into_iter().map(|(_, waiting)| waiting)
    }
}

/// A command without an answer.
pub(super) enum Sent {
    One(Waiting),
    Several(Several),
    /// A request for copies of all earlier writes, and all callers that wait for it.
    Confirmation(Vec<Answering>),
}

impl Sent {
    /// Tells all its callers that the connection ended.
    pub(super) fn fail(self, why: &NoAnswer) {
        match self {
            Self::One(waiting) => waiting.answer(Err(why.clone())),
            Self::Several(several) => {
                several.waiting().for_each(|waiting| waiting.answer(Err(why.clone())));
            }
            Self::Confirmation(callers) => answer_all(callers, &Err(why.clone())),
        }
    }
}

/// Hands one answer to all callers.
pub(super) fn answer_all(callers: Vec<Answering>, answer: &Reply) {
    for caller in callers {
        // A caller that gave up needs no answer.
        let _gone = caller.send(answer.clone());
    }
}

/// A request without an answer.
pub(super) struct Waiting {
    answering: Answering,
    /// The receiver of a refusal; `None` if only this server can serve the request.
    redirect: Option<Arc<dyn Redirect>>,
    /// Whether the answer shows if there are several servers, see [`gathering`](super::gathering).
    is_in_doubt: bool,
}

impl Waiting {
    pub(super) const fn new(answering: Answering, redirect: Option<Arc<dyn Redirect>>) -> Self {
        Self { answering, redirect, is_in_doubt: false }
    }

    pub(super) fn in_doubt(self) -> Self {
        Self { is_in_doubt: true, ..self }
    }

    /// Whether another server may have to serve the request.
    pub(super) const fn may_go_elsewhere(&self) -> bool {
        self.redirect.is_some()
    }

    pub(super) const fn is_in_doubt(&self) -> bool {
        self.is_in_doubt
    }

    /// Hands the answer to the caller, or a refusal to the code that may pass the request on.
    pub(super) fn answer(self, answer: Reply) {
        match (self.redirect, answer) {
            (Some(redirect), Err(refused @ NoAnswer::Refused { .. })) => {
                redirect.was_refused(refused, self.answering);
            }
            (redirect, answer) => {
                if let Some(redirect) = redirect {
                    redirect.was_answered();
                }
                // A caller that gave up needs no answer.
                let _gone = self.answering.send(answer);
            }
        }
    }
}
