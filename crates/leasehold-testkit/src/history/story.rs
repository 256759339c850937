//! A history, sorted by keys, calls, windows and processes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use leasehold::core::Moment;

use super::bounds::Bounds;
use super::event::{
    Block, CallId, CallKind, Event, Outcome, ProcessId, Request, Share, Standing, What, WindowId,
};
use super::life::Life;
use super::permits::Permits;
use super::weather::Weather;
use super::window::Window;

#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) id: CallId,
    pub(super) process: ProcessId,
    pub(super) kind: CallKind,
    pub(super) limit: Option<Duration>,
    pub(super) called: Moment,
    pub(super) returned: Option<(Moment, Outcome)>,
    /// How many missing counts of a latch the call saw.
    pub(super) left: Option<u32>,
    /// The observer that called, and the term of the leader that it saw.
    pub(super) saw: Option<(u32, u64)>,
    /// The share of the key that it wants, if holders share keys and the history says so.
    pub(super) wants: Option<Share>,
}

impl Call {
    pub(super) fn name(&self) -> String {
        let (kind, id) = (self.kind, self.id.0);
        format!("call {id} ({kind:?}) of process {}", self.process.0)
    }
}

/// A request that the server carried out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Served<'a> {
    /// Its number among all events.
    pub(super) number: usize,
    pub(super) at: Moment,
    pub(super) request: Request,
    pub(super) token: &'a str,
    pub(super) before: Option<&'a str>,
    pub(super) after: Option<&'a str>,
    pub(super) left: Duration,
    pub(super) block: Option<Block>,
    /// `None` for a copy.
    pub(super) travelled: Option<Duration>,
}

impl Served<'_> {
    /// Whether the owner keeps the key that it offered to others.
    pub(super) fn is_kept(&self) -> bool {
        let owner = Some(self.token);
        self.request == Request::Keep && self.before == owner && self.after == owner
    }
}

/// A request for a key that holders share, which the server carried out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stood<'a> {
    pub(super) at: Moment,
    pub(super) request: Request,
    pub(super) token: &'a str,
    pub(super) before: &'a Standing,
    pub(super) after: &'a Standing,
    /// `None` for a copy.
    pub(super) travelled: Option<Duration>,
}

/// All events of one key.
#[derive(Debug, Default)]
pub(super) struct OfKey<'a> {
    /// In the order of their beginnings.
    pub(super) windows: Vec<Window<'a>>,
    pub(super) calls: Vec<Call>,
    pub(super) served: Vec<Served<'a>>,
    /// The requests that the server carried out, if holders share the key.
    pub(super) stood: Vec<Stood<'a>>,
    /// When the server made each owner token a holder of the key.
    pub(super) owned: HashMap<&'a str, Vec<Moment>>,
    /// How many permits it has, and when that changed.
    pub(super) permits: Permits,
    /// How many starts there are in each period, if its permits are starts.
    pub(super) limit: Option<(u32, Duration)>,
    /// How many counts open it, if it is a latch.
    pub(super) latch: Option<u32>,
    /// How many parties there are, if it is a barrier.
    pub(super) barrier: Option<u32>,
    /// The longest ttl of a leader, if it is an election.
    pub(super) elects: Option<Duration>,
}

impl<'a> OfKey<'a> {
    /// When operators ended leases of each owner token. The operator names the token, so a step
    /// that ends another lease is no eviction. One token can have several leases, because a request
    /// can arrive once more after the lease that it asked for.
    fn evictions(&self) -> HashMap<&'a str, Vec<Moment>> {
        let ends_alone =
            |step: &&Served<'_>| step.before == Some(step.token) && step.after != Some(step.token);
        let ends_share = |step: &&Stood<'_>| {
            step.before.is_holder(step.token) && !step.after.is_holder(step.token)
        };
        let alone = self.served.iter().filter(|step| step.request == Request::Evict);
        let alone = alone.filter(ends_alone).map(|step| (step.token, step.at));
        let shared = self.stood.iter().filter(|step| step.request == Request::Evict);
        let mut evictions: HashMap<_, Vec<_>> = HashMap::new();
        for (token, at) in alone.chain(shared.filter(ends_share).map(|step| (step.token, step.at)))
        {
            evictions.entry(token).or_default().push(at);
        }
        evictions
    }

    /// When the lease of a window began at the server.
    fn granted(&self, window: &Window<'_>) -> Moment {
        let (token, began) = (window.token, window.began);
        let alone = self.served.iter().take_while(|step| step.at <= began);
        let alone = alone.filter(|step| step.before != Some(token) && step.after == Some(token));
        let shared = self.stood.iter().take_while(|step| step.at <= began);
        let shared =
            shared.filter(|step| !step.before.is_holder(token) && step.after.is_holder(token));
        alone.map(|step| step.at).chain(shared.map(|step| step.at)).max().unwrap_or(began)
    }

    /// When an operator ended the lease of each window.
    fn evicted(&self) -> Vec<Option<Moment>> {
        let evictions = self.evictions();
        let of_window = |window: &Window<'_>| {
            let (all, granted) = (evictions.get(window.token)?, self.granted(window));
            all.iter().copied().find(|evicted| *evicted >= granted)
        };
        self.windows.iter().map(of_window).collect()
    }
}

/// A whole history.
#[derive(Debug)]
pub(super) struct Story<'a> {
    pub(super) events: &'a [Event],
    pub(super) bounds: &'a Bounds,
    /// The moment of the last event.
    pub(super) end: Moment,
    pub(super) is_over: bool,
    /// Whether the server ever forgets anything.
    pub(super) may_forget: bool,
    /// Whether holders share keys.
    pub(super) is_shared: bool,
    /// Whether some locks are taken together. A lock that waits for the others has no window yet.
    pub(super) takes_several: bool,
    pub(super) keys: BTreeMap<&'a str, OfKey<'a>>,
    /// The keys of our locks.
    pub(super) ours: BTreeSet<&'a str>,
    pub(super) weather: Weather<'a>,
    lives: HashMap<ProcessId, Life>,
    nobody: Life,
    windows: HashMap<WindowId, (&'a str, usize)>,
    /// When each owner token was first requested.
    asked: HashMap<&'a str, Moment>,
    calls: HashMap<CallId, (&'a str, usize)>,
}

impl<'a> Story<'a> {
    pub(super) fn new(events: &'a [Event], bounds: &'a Bounds) -> Self {
        assert!(events.is_sorted_by_key(|event| event.at), "a history is told in order of time");
        let mut story = Self {
            events,
            bounds,
            end: events.last().map_or_else(Moment::default, |event| event.at),
            is_over: false,
            may_forget: false,
            is_shared: false,
            takes_several: false,
            keys: BTreeMap::new(),
            ours: BTreeSet::new(),
            weather: Weather::new(bounds),
            lives: HashMap::new(),
            nobody: Life::default(),
            windows: HashMap::new(),
            asked: HashMap::new(),
            calls: HashMap::new(),
        };
        for (number, event) in events.iter().enumerate() {
            story.tell(number, event);
        }
        story.close();
        story
    }

    /// The life of a process.
    pub(super) fn life(&self, process: ProcessId) -> &Life {
        self.lives.get(&process).unwrap_or(&self.nobody)
    }

    /// Whether any step of the server is in the history.
    pub(super) fn sees_steps(&self) -> bool {
        self.keys.values().any(|of_key| !of_key.served.is_empty() || !of_key.stood.is_empty())
    }

    pub(super) fn window(&self, id: WindowId) -> &Window<'a> {
        let (key, index) = self.windows[&id];
        &self.keys[key].windows[index]
    }

    fn tell(&mut self, number: usize, event: &'a Event) {
        let at = event.at;
        match &event.what {
            What::Called { .. }
            | What::Returned { .. }
            | What::Remains { .. }
            | What::Leads { .. } => self.tell_call(at, &event.what),
            What::Limits { .. }
            | What::Latches { .. }
            | What::Meets { .. }
            | What::Elects { .. } => self.tell_use(&event.what),
            What::Granted { .. } => self.tell_grant(at, &event.what),
            What::Extended { window, until } => self.window_mut(*window).until = *until,
            What::Shares { .. } | What::Wants { .. } | What::Resizes { .. } => {
                self.tell_share(at, &event.what);
            }
            What::HoldsUntil { window, until } => self.window_mut(*window).limit = Some(*until),
            What::Stood { .. } => self.tell_stood(at, &event.what),
            What::Keeps { window, span } => self.window_mut(*window).keeps = *span,
            What::LeavesTaken { window } => self.window_mut(*window).is_left_taken = true,
            What::ToldLost { window } => {
                let window = self.window_mut(*window);
                window.told.get_or_insert(at);
                window.closed.get_or_insert(number);
            }
            What::GaveUp { window } => {
                let window = self.window_mut(*window);
                window.gave_up.get_or_insert(at);
                window.closed.get_or_insert(number);
            }
            What::Stopped { process } => self.lives.entry(*process).or_default().stop(at),
            What::Resumed { process } => self.resume(at, *process),
            What::Crashed { process } => {
                self.lives.entry(*process).or_default().crashed.get_or_insert(at);
                self.weather.crashed(at);
            }
            What::Sent { key, .. } | What::SentTo { key, .. } => {
                self.ours.insert(key);
            }
            What::Served { .. } => self.tell_served(number, at, &event.what),
            What::Over => self.is_over = true,
            What::FaultBegan { fault, kind } => self.weather.began(at, *fault, kind),
            What::FaultEnded { fault } => self.weather.ended(at, *fault),
            What::Forgot => {
                self.may_forget = true;
                self.weather.disturb(at, at);
            }
            What::Compared { window, owner, left, .. } => {
                let window = self.window_mut(*window);
                let is_owner = owner.as_deref() == Some(window.token);
                let left = if is_owner { *left } else { Duration::ZERO };
                window.stored_until = at + left;
            }
            What::Key { .. } | What::Hinted { .. } | What::GrantedAt { .. } => {}
        }
    }

    /// Notes the use of a key for anything but locks.
    fn tell_use(&mut self, what: &'a What) {
        match what {
            What::Elects { key, ttl } => {
                let elects = &mut self.keys.entry(key).or_default().elects;
                *elects = (*elects).max(Some(*ttl));
                return;
            }
            What::Limits { key, of, per } => {
                self.keys.entry(key).or_default().limit = Some((*of, *per));
            }
            What::Latches { key, of } => self.keys.entry(key).or_default().latch = Some(*of),
            What::Meets { key, of } => self.keys.entry(key).or_default().barrier = Some(*of),
            _ => return,
        }
        self.is_shared = true;
    }

    fn tell_call(&mut self, at: Moment, what: &'a What) {
        match what {
            What::Called { call, process, key, kind, limit } => {
                self.ours.insert(key);
                self.takes_several |= *kind == CallKind::LockAll;
                let calls = &mut self.keys.entry(key).or_default().calls;
                self.calls.insert(*call, (key, calls.len()));
                let (id, process, kind, limit) = (*call, *process, *kind, *limit);
                calls.push(Call {
                    id,
                    process,
                    kind,
                    limit,
                    called: at,
                    returned: None,
                    left: None,
                    saw: None,
                    wants: None,
                });
            }
            What::Returned { call, outcome } => {
                let (key, index) = self.calls[call];
                let of_key = self.keys.get_mut(key).expect("a key that was called for");
                of_key.calls[index].returned.get_or_insert((at, *outcome));
                if *outcome == Outcome::Done {
                    of_key.permits.resized(*call, at);
                }
            }
            What::Remains { call, left } => self.call_mut(*call).left = Some(*left),
            What::Leads { call, observer, term } => {
                self.call_mut(*call).saw = term.map(|term| (*observer, term));
            }
            _ => {}
        }
    }

    fn call_mut(&mut self, id: CallId) -> &mut Call {
        let (key, index) = self.calls[&id];
        &mut self.keys.get_mut(key).expect("a key that was called for").calls[index]
    }

    fn tell_share(&mut self, at: Moment, what: &'a What) {
        match what {
            What::Shares { window, share } => {
                self.is_shared = true;
                let (key, index) = self.windows[window];
                let of_key = self.keys.get_mut(key).expect("a key that was granted");
                of_key.windows[index].share = *share;
                of_key.permits.are_known(*share);
            }
            What::Wants { call, share } => {
                let (key, index) = self.calls[call];
                let of_key = self.keys.get_mut(key).expect("a key that was called for");
                of_key.calls[index].wants = Some(*share);
                of_key.permits.are_known(*share);
            }
            What::Resizes { key, of, call } => {
                self.keys.entry(key).or_default().permits.resizes(*call, at, *of);
            }
            _ => {}
        }
    }

    fn tell_grant(&mut self, at: Moment, what: &'a What) {
        let What::Granted { window: id, call, token, fence, until } = what else { return };
        let (key, index) = self.calls[call];
        let of_key = self.keys.get_mut(key).expect("a key that was called for");
        let Call { called, process, .. } = of_key.calls[index];
        let called = *self.asked.entry(token).or_insert(called);
        self.windows.insert(*id, (key, of_key.windows.len()));
        of_key.windows.push(Window {
            id: *id,
            called,
            process,
            token,
            fence: *fence,
            began: at,
            until: *until,
            told: None,
            gave_up: None,
            crashed: None,
            evicted: None,
            closed: None,
            keeps: Duration::ZERO,
            is_left_taken: false,
            stored_until: at,
            share: Share::Alone,
            limit: None,
        });
    }

    fn tell_served(&mut self, number: usize, at: Moment, what: &'a What) {
        let What::Served { request, key, token, before, after, left, block, travelled } = what
        else {
            return;
        };
        self.ours.insert(key);
        let of_key = self.keys.entry(key).or_default();
        if let Some(owner) = after.as_deref().filter(|_| before != after) {
            of_key.owned.entry(owner).or_default().push(at);
        }
        // A holder may give up before anybody compares its window again.
        if *request == Request::Renew && after.as_deref() == Some(&**token) {
            let of_token = of_key.windows.iter_mut().rev().find(|window| window.token == &**token);
            if let Some(window) = of_token {
                window.stored_until = window.stored_until.max(at + *left);
            }
        }
        of_key.served.push(Served {
            number,
            at,
            request: *request,
            token,
            before: before.as_deref(),
            after: after.as_deref(),
            left: *left,
            block: *block,
            travelled: *travelled,
        });
    }

    fn tell_stood(&mut self, at: Moment, what: &'a What) {
        let What::Stood { request, key, token, before, after, travelled } = what else { return };
        self.is_shared = true;
        self.ours.insert(key);
        let of_key = self.keys.entry(key).or_default();
        for (token, _) in after.holders.iter().filter(|(token, _)| !before.is_holder(token)) {
            of_key.owned.entry(token).or_default().push(at);
        }
        of_key.permits.stand(at, before.of, after.of);
        let (request, travelled) = (*request, *travelled);
        of_key.stood.push(Stood { at, request, token, before, after, travelled });
    }

    fn window_mut(&mut self, id: WindowId) -> &mut Window<'a> {
        let (key, index) = self.windows[&id];
        &mut self.keys.get_mut(key).expect("a key that was granted").windows[index]
    }

    fn resume(&mut self, at: Moment, process: ProcessId) {
        let stopped = self.lives.entry(process).or_default().resume(at);
        if let Some(stopped) = stopped.filter(|stopped| at.since(*stopped) >= self.bounds.hiccup) {
            self.weather.disturb(stopped, at);
        }
    }

    /// Fills in facts that are known only after all events.
    fn close(&mut self) {
        for life in self.lives.values() {
            if let Some(stopped) = life.stands_since() {
                self.weather.disturb(stopped, life.crashed.unwrap_or(self.end));
            }
        }
        self.weather.settle();
        for of_key in self.keys.values_mut() {
            let evicted = of_key.evicted();
            for (window, evicted) in of_key.windows.iter_mut().zip(evicted) {
                window.evicted = evicted;
                window.crashed = self.lives.get(&window.process).and_then(|life| life.crashed);
            }
        }
    }
}
