//! Requests that wait for a connection, and how they are sent.

use std::collections::VecDeque;

use tokio::sync::oneshot;

use super::known::Known;
use super::pipeline::{Pending, Pipeline};
use super::redirect::{Passed, Unsent};
use super::{Request, connection_lost};
use crate::core::error::Error;
use crate::core::moment::Moment;
use crate::store::redis::terms::copies::Replying;

/// A request that waits for the connection.
pub(super) enum Queued {
    Ours { request: Box<dyn Request>, sent: oneshot::Sender<Result<Sent, Error>> },
    Passed(Passed),
}

/// A request that was sent.
pub(super) struct Sent {
    pub(super) request: Box<dyn Request>,
    pub(super) reply: Replying,
    pub(super) generation: u64,
    /// The answers to the probes behind it.
    pub(super) probes: Vec<Pending>,
}

/// The future of a queued request. It fails if no connection is made.
pub(super) type Sending = oneshot::Receiver<Result<Sent, Error>>;

pub(super) fn send(
    pipeline: &Pipeline,
    known: &mut Known,
    mut request: Box<dyn Request>,
    generation: u64,
) -> Sent {
    let command = request.command(known);
    let confirmation = request.confirmation(known);
    let (answering, answer) = oneshot::channel();
    pipeline.submit_for(command, answering, request.redirect());
    let answer = Pending(answer);
    let confirming = confirmation.map(|asked| (asked, pipeline.confirm(asked)));
    let probes = request.probes(known).iter().map(|probe| pipeline.submit(probe)).collect();
    Sent { request, reply: Replying::new(answer, confirming), generation, probes }
}

/// Sends all requests, in order. Returns the passed requests that cannot be sent, or come too late.
pub(super) fn send_all(
    queue: VecDeque<Queued>,
    pipeline: &Pipeline,
    known: &mut Known,
    (generation, now): (u64, Moment),
) -> Vec<Unsent> {
    let mut late = Vec::new();
    for queued in queue {
        match queued {
            Queued::Passed(passed) if passed.request.deadline() <= now => {
                late.push(passed.unsent(connection_lost()));
            }
            Queued::Passed(passed) => late.extend(pipeline.pass(passed)),
            // This caller gave up and was told that no request was sent.
            Queued::Ours { sent, .. } if sent.is_closed() => {}
            Queued::Ours { request, sent } => {
                let outcome = match request.refusal(known) {
                    Some(error) => Err(error),
                    None => Ok(send(pipeline, known, request, generation)),
                };
                // A caller that has just given up needs no answer.
                let _gone = sent.send(outcome);
            }
        }
    }
    late
}

/// Refuses all requests, because no connection was made.
pub(super) fn refuse_all(queue: VecDeque<Queued>, why: &Error) {
    for queued in queue {
        match queued {
            Queued::Passed(passed) => passed.unsent(why.clone()).refuse(),
            // A caller that gave up needs no answer.
            Queued::Ours { sent, .. } => drop(sent.send(Err(why.clone()))),
        }
    }
}
