//! The states of a wire, and the changes between them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};

use super::known::Known;
use super::pipeline::Pipeline;
use super::queue::{Queued, Sending, Sent, refuse_all, send, send_all};
use super::redirect::{Passed, Unsent};
use super::serving::{Home, Serving};
use super::ticks::Ticks;
use super::{CONNECT_LIMIT, Request, Retry, connection_lost};
use crate::core::backoff::{Backoff, Delays};
use crate::core::error::Error;
use crate::core::moment::Moment;
use crate::host::{Host, random_u32};
use crate::store::redis::LIMIT;
use crate::store::redis::codec::command::{Command, NoAnswer, Value};
use crate::store::redis::connector::Connector;
use crate::store::redis::terms::copies::{Reply, WITHIN_MAX};
use crate::store::within;
use crate::unpoisoned::Unpoisoned;

/// How long a probe waits for its answer.
const PROBE_LIMIT: Duration = Duration::from_millis(250);

/// The pauses between failed attempts to connect, and after connections that were left too soon.
const RECONNECT: Backoff =
    Backoff { first: Duration::from_millis(10), longest: Duration::from_millis(500) };

/// A connection that lasted this long is replaced at once when it is left. If connections are left
/// sooner, a proxy keeps switching servers, so each new connection waits for a pause.
const LASTING: Duration = Duration::from_secs(1);

/// How many left connections stay open for their last answers. Further ones end at once.
const LEFT_MAX: usize = 4;

/// The state that all handles of a wire share.
pub(in crate::store::redis) struct Shared {
    pub(super) host: Arc<dyn Host>,
    connector: Arc<dyn Connector>,
    /// Where a connection is made, unless the runtime there fails to make it.
    home: Home,
    state: Unpoisoned<State>,
    pub(super) ticks: Arc<Ticks>,
    pub(super) in_flight: AtomicUsize,
    /// How many answers have come.
    answered: AtomicUsize,
    /// How many connections were left and are still open.
    left: Arc<AtomicUsize>,
}

struct State {
    /// Where the next connection is made, or where the current one was made.
    home: Home,
    phase: Phase,
    /// Rises with every attempt to connect, so that late reports about an older attempt are
    /// recognized.
    generation: u64,
    /// The latest connection that was given up because the server was silent.
    silent: Option<u64>,
    delays: Delays,
    /// The pauses after connections that were left.
    leaving: Delays,
    /// The earliest time for the next connection after such a pause.
    not_before: Moment,
}

enum Phase {
    Closed {
        not_before: Moment,
        why: Option<Error>,
    },
    /// `since`: when connecting begins, after the pause if there is one.
    Connecting {
        since: Moment,
        queue: VecDeque<Queued>,
        kill: Arc<Notify>,
    },
    /// `probing`: requests that wait until the probe is answered. `None` without a probe.
    Open {
        since: Moment,
        pipeline: Arc<Pipeline>,
        known: Known,
        kill: Arc<Notify>,
        probing: Option<VecDeque<Queued>>,
    },
}

impl Phase {
    /// The closed phase without a pause, so the next attempt to connect may begin.
    const CLOSED: Self = Self::Closed { not_before: Moment::from_nanos(0), why: None };
}

/// The first step of a request.
pub(super) enum Submitted {
    Sent(Sent),
    Queued(Sending),
    Refused(Error),
}

impl Shared {
    pub(super) fn new(host: Arc<dyn Host>, connector: Arc<dyn Connector>, home: Home) -> Self {
        let state = State {
            home,
            phase: Phase::CLOSED,
            generation: 0,
            silent: None,
            delays: RECONNECT.delays(),
            leaving: RECONNECT.delays(),
            not_before: Moment::default(),
        };
        Self {
            ticks: Ticks::new(Arc::clone(&host)),
            host,
            connector,
            home,
            state: Unpoisoned::new(state),
            in_flight: AtomicUsize::new(0),
            answered: AtomicUsize::new(0),
            left: Arc::default(),
        }
    }

    pub(super) fn submit(self: &Arc<Self>, request: Box<dyn Request>) -> Submitted {
        let mut state = self.state.lock();
        let generation = state.generation;
        match &mut state.phase {
            Phase::Open { pipeline, known, probing: None, .. } => match request.refusal(known) {
                Some(error) => Submitted::Refused(error),
                None => Submitted::Sent(send(pipeline, known, request, generation)),
            },
            // Queue requests until the probe is answered. Sending now would only create more
            // unknown outcomes.
            Phase::Open { probing: Some(queue), .. } | Phase::Connecting { queue, .. } => {
                let (sent, receiver) = oneshot::channel();
                queue.push_back(Queued::Ours { request, sent });
                Submitted::Queued(receiver)
            }
            Phase::Closed { not_before, why: Some(why) } if self.host.now() < *not_before => {
                Submitted::Refused(why.clone())
            }
            Phase::Closed { .. } => {
                let (sent, receiver) = oneshot::channel();
                self.connect(state, VecDeque::from([Queued::Ours { request, sent }]));
                Submitted::Queued(receiver)
            }
        }
    }

    /// Sends or queues a request that another server refused, in the order of all requests. Returns
    /// it if there is no connection.
    pub(in crate::store::redis) fn pass(self: &Arc<Self>, passed: Passed) -> Option<Unsent> {
        let mut state = self.state.lock();
        match &mut state.phase {
            Phase::Open { pipeline, probing: None, .. } => return pipeline.pass(passed),
            Phase::Open { probing: Some(queue), .. } | Phase::Connecting { queue, .. } => {
                queue.push_back(Queued::Passed(passed));
            }
            Phase::Closed { not_before, why: Some(why) } if self.host.now() < *not_before => {
                return Some(passed.unsent(why.clone()));
            }
            Phase::Closed { .. } => self.connect(state, VecDeque::from([Queued::Passed(passed)])),
        }
        None
    }

    /// The number of the latest connection.
    pub(super) fn generation(&self) -> u64 {
        self.state.lock().generation
    }

    pub(in crate::store::redis) fn is_open(&self) -> bool {
        matches!(self.state.lock().phase, Phase::Open { .. })
    }

    pub(in crate::store::redis) fn is_closed(&self) -> bool {
        matches!(self.state.lock().phase, Phase::Closed { .. })
    }

    /// Forgets for which keys the counter was raised on this connection.
    pub(in crate::store::redis) fn forget_counters(&self) {
        if let Phase::Open { known, .. } = &mut self.state.lock().phase {
            known.forget_counters();
        }
    }

    pub(in crate::store::redis) fn forget_scripts(&self) {
        if let Phase::Open { known, .. } = &mut self.state.lock().phase {
            known.forget_scripts();
        }
    }

    /// Suspects the current connection, because a request that was passed to it had no answer in
    /// time.
    pub(in crate::store::redis) fn suspect_now(self: &Arc<Self>) {
        let generation = self.state.lock().generation;
        self.suspect(generation);
    }

    /// Starts another connection for queued requests.
    fn connect(self: &Arc<Self>, mut state: MutexGuard<'_, State>, queue: VecDeque<Queued>) {
        let kill = Arc::new(Notify::new());
        state.generation += 1;
        let wire = Arc::downgrade(self);
        let generation = state.generation;
        let since = state.not_before.max(self.host.now());
        let serving = Serving { wire, generation, not_before: since, kill: Arc::clone(&kill) };
        let home = state.home;
        state.phase = Phase::Connecting { since, queue, kill };
        drop(state);
        self.serve(home, serving);
    }

    /// Closes the open connection. Requests that wait for a probe on it move to a new connection.
    fn replace(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        let Phase::Open { probing, .. } = std::mem::replace(&mut state.phase, Phase::CLOSED) else {
            unreachable!("only an open connection is replaced")
        };
        state.home = self.home;
        if let Some(queue) = probing.filter(|queue| !queue.is_empty()) {
            self.connect(state, queue);
        }
    }

    fn serve(&self, home: Home, serving: Serving) {
        let task = serving.serve(Arc::clone(&self.connector), Arc::clone(&self.host));
        home.spawn(&self.host, Box::pin(task));
    }

    /// Takes back a request that waits for the connection, unless it was sent or refused.
    pub(super) fn take_back(self: &Arc<Self>, mut sending: Sending) -> Option<Result<Sent, Error>> {
        // The queue is sent under the same lock. So a caller can rely on "no request was sent".
        let state = self.state.lock();
        sending.close();
        let sent = sending.try_recv().ok();
        // The connecting task has its own limit. If it did not stop by itself, nobody drives its
        // runtime.
        if let Phase::Connecting { since, .. } = &state.phase
            && self.host.now().since(*since) > CONNECT_LIMIT
        {
            self.connect_on_host(state);
        }
        sent
    }

    pub(super) fn learn(&self, sent: &mut Sent, answer: &Value) {
        if sent.request.teaches() {
            let mut state = self.state.lock();
            let generation = state.generation;
            if let Phase::Open { known, .. } = &mut state.phase
                && generation == sent.generation
            {
                sent.request.was_answered(known, answer);
            }
        }
    }

    /// Lets a request learn what the server has. If the connection is still the same, later
    /// requests on it learn this too.
    pub(super) fn was_probed(&self, sent: &mut Sent, answers: &[Result<Value, NoAnswer>]) {
        let mut state = self.state.lock();
        let generation = state.generation;
        match &mut state.phase {
            Phase::Open { known, .. } if generation == sent.generation => {
                sent.request.was_probed(known, answers);
            }
            _ => sent.request.was_probed(&mut Known::default(), answers),
        }
    }

    /// Decides what happens to a request that the server refused.
    pub(super) fn again(&self, sent: &mut Sent, code: &str, text: &str) -> Retry {
        let mut state = self.state.lock();
        let generation = state.generation;
        match &mut state.phase {
            Phase::Open { known, .. } if generation == sent.generation => {
                sent.request.was_refused(known, code, text)
            }
            // There is another connection now, about which nothing is known.
            _ => sent.request.was_refused(&mut Known::default(), code, text),
        }
    }

    /// Counts an answer, which shows that the server is not silent.
    pub(super) fn note_answer(&self, reply: Option<&Result<Reply, NoAnswer>>) {
        if let Some(Ok(_) | Err(NoAnswer::Refused { .. })) = reply {
            self.answered.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Sends a probe, because a request was not answered in time. Gives the connection up if the
    /// server does not answer the probe either.
    pub(super) fn suspect(self: &Arc<Self>, suspected: u64) {
        let mut state = self.state.lock();
        let generation = state.generation;
        let Phase::Open { pipeline, probing, .. } = &mut state.phase else { return };
        if generation != suspected || probing.is_some() {
            return;
        }
        *probing = Some(VecDeque::new());
        let pong = pipeline.submit(&Command::new("PING"));
        drop(state);
        let wire = Arc::downgrade(self);
        let host = Arc::clone(&self.host);
        let answered = self.answered.load(Ordering::Relaxed);
        // A server that waits for copies is not silent.
        let waits = self.connector.access().terms.copies.is_any();
        let limit = PROBE_LIMIT + if waits { WITHIN_MAX } else { Duration::ZERO };
        self.host.spawn(Box::pin(async move {
            let pong = async { Ok(pong.await) };
            let alive = match within(host, limit, pong).await {
                // A refusal is an answer too.
                Ok(Ok(_) | Err(NoAnswer::Refused { .. })) => true,
                Ok(Err(_)) | Err(_) => false,
            };
            if let Some(wire) = wire.upgrade() {
                // Behind many requests, the answer to a probe comes late although the server works.
                // Repeating all requests on a new connection would only slow the server down.
                let alive = alive || wire.answered.load(Ordering::Relaxed) != answered;
                wire.probed(suspected, alive);
            }
        }));
    }

    /// Whether a connection was given up because the server did not answer.
    pub(super) fn was_silent(&self, generation: u64) -> bool {
        self.state.lock().silent == Some(generation)
    }

    fn probed(self: &Arc<Self>, probed: u64, alive: bool) {
        let mut state = self.state.lock();
        if state.generation != probed {
            return;
        }
        let Phase::Open { pipeline, known, probing, kill, .. } = &mut state.phase else { return };
        if alive {
            let queue = probing.take().unwrap_or_default();
            let late = send_all(queue, pipeline, known, (probed, self.host.now()));
            drop(state);
            late.into_iter().for_each(Unsent::refuse);
            return;
        }
        kill.notify_one();
        state.silent = Some(probed);
        self.replace(state);
        tracing::warn!(server = self.connector.label(), "the server is silent; reconnecting");
    }

    /// Notes that the connection is made, and sends the queued requests.
    pub(super) fn opened(
        &self,
        generation: u64,
        pipeline: Arc<Pipeline>,
        mut known: Known,
        kill: Arc<Notify>,
    ) {
        let mut state = self.state.lock();
        if state.generation != generation {
            return;
        }
        state.delays.reset();
        let mut late = Vec::new();
        if let Phase::Connecting { queue, .. } = std::mem::replace(&mut state.phase, Phase::CLOSED)
        {
            late = send_all(queue, &pipeline, &mut known, (generation, self.host.now()));
        }
        state.phase = Phase::Open { since: self.host.now(), pipeline, known, kill, probing: None };
        drop(state);
        late.into_iter().for_each(Unsent::refuse);
    }

    /// Notes that the connection could not be made, or that its task is gone.
    pub(super) fn failed(&self, generation: u64, why: &Error) {
        let mut state = self.state.lock();
        if state.generation != generation {
            return;
        }
        let pause = state.delays.next(random_u32(&*self.host));
        let now = self.host.now();
        // Count the pause from the start of the attempt. A slow attempt was pause enough, and a
        // stopped server should be reached as soon as it continues.
        let not_before = match &state.phase {
            Phase::Connecting { since, .. } => now.max(*since + pause),
            Phase::Open { .. } | Phase::Closed { .. } => now + pause,
        };
        let closed = Phase::Closed { not_before, why: Some(why.clone()) };
        if let Phase::Connecting { queue, .. } = std::mem::replace(&mut state.phase, closed) {
            drop(state);
            refuse_all(queue, why);
        }
    }

    /// Notes that an open connection has ended.
    pub(super) fn ended(self: &Arc<Self>, generation: u64) {
        let state = self.state.lock();
        if state.generation == generation && matches!(state.phase, Phase::Open { .. }) {
            self.replace(state);
            tracing::debug!(server = self.connector.label(), "the connection ended");
        }
    }

    /// Leaves the connection, because it may lead to another server than at first, or to a replica.
    /// New requests use a new connection, after a pause if the old one was new too. Requests under
    /// way are still answered if the answer is in time.
    pub(super) fn leave(self: &Arc<Self>, generation: u64) {
        let mut state = self.state.lock();
        let Phase::Open { kill, since, .. } = &state.phase else { return };
        if state.generation != generation {
            return;
        }
        let (kill, now) = (Arc::clone(kill), self.host.now());
        if now.since(*since) >= LASTING {
            state.leaving.reset();
        } else {
            let pause = state.leaving.next(random_u32(&*self.host));
            state.not_before = now + pause;
        }
        self.replace(state);
        tracing::warn!(
            server = self.connector.label(),
            "this connection may lead to another server than at first, or to a replica; \
             reconnecting"
        );
        let (host, left) = (Arc::clone(&self.host), Arc::clone(&self.left));
        if left.fetch_add(1, Ordering::Relaxed) >= LEFT_MAX {
            left.fetch_sub(1, Ordering::Relaxed);
            return kill.notify_one();
        }
        self.host.spawn(Box::pin(async move {
            host.sleep_until(host.now() + LIMIT).await;
            kill.notify_one();
            left.fetch_sub(1, Ordering::Relaxed);
        }));
    }

    /// Moves the connecting to the host's own thread, because its task ended without a report. The
    /// runtime of the caller shut down, or has no I/O.
    pub(super) fn abandoned(self: &Arc<Self>, generation: u64) {
        let state = self.state.lock();
        let is_connecting = matches!(state.phase, Phase::Connecting { .. });
        if state.generation != generation || !is_connecting {
            return;
        }
        if state.home == Home::Host {
            drop(state);
            return self.failed(generation, &connection_lost());
        }
        self.connect_on_host(state);
    }

    /// Moves the connecting to the host's own thread, because the runtime of the caller does not do
    /// it.
    fn connect_on_host(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        if let Phase::Connecting { queue, kill, .. } =
            std::mem::replace(&mut state.phase, Phase::CLOSED)
        {
            kill.notify_one();
            state.home = Home::Host;
            self.connect(state, queue);
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let state = self.state.lock();
        if let Phase::Open { kill, .. } | Phase::Connecting { kill, .. } = &state.phase {
            kill.notify_one();
        }
    }
}
