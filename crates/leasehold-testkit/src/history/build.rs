//! Builds histories by hand that read like stories.

use std::collections::HashMap;
use std::time::Duration;

use leasehold::core::Moment;

use super::event::{
    Block, CallId, CallKind, Event, Name, Outcome, ProcessId, Request, Share, Standing, What,
    WindowId,
};
use super::{Bounds, Invariant, Violation, check};

/// An acquire that takes no place in the line.
pub(super) const ASK: Request = Request::Ask { place: None };

/// An acquire that takes a place for three seconds.
pub(super) const JOIN: Request = Request::Ask { place: Some(Duration::from_secs(3)) };

/// The process that is about to change how many permits a key has.
const RESIZES: u32 = 99;

/// The moment this many seconds after the clock's zero.
pub(super) fn s(seconds: f64) -> Moment {
    Moment::from_nanos(0) + Duration::from_secs_f64(seconds)
}

/// A history in the making. The moment and the key apply to all later events. A window is named
/// after its token. As an owner, `""` means nobody.
pub(super) struct Tale {
    events: Vec<Event>,
    now: Moment,
    key: Name,
    calls: u32,
    faults: u32,
    open: HashMap<u32, CallId>,
    behind: HashMap<u32, CallId>,
    windows: HashMap<String, WindowId>,
    bounds: Bounds,
}

/// A new history, about the key `a`.
pub(super) fn tale() -> Tale {
    Tale {
        events: Vec::new(),
        now: s(0.0),
        key: "a".into(),
        calls: 0,
        faults: 0,
        open: HashMap::new(),
        behind: HashMap::new(),
        windows: HashMap::new(),
        bounds: Bounds::of_ttl(Duration::from_secs(10)),
    }
}

fn name(name: &str) -> Option<Name> {
    (!name.is_empty()).then(|| name.into())
}

impl Tale {
    pub(super) fn at(mut self, seconds: f64) -> Self {
        self.now = s(seconds);
        self
    }

    pub(super) fn on(mut self, key: &str) -> Self {
        self.key = key.into();
        self
    }

    /// Gives all leases of the world this lock delay.
    pub(super) fn lock_delay(mut self, seconds: f64) -> Self {
        let delay = Duration::from_secs_f64(seconds);
        (self.bounds.lock_delay, self.bounds.margin) = (delay, delay);
        self
    }

    /// Lines never stand aside.
    pub(super) const fn never_opens(mut self) -> Self {
        self.bounds.opened = Duration::ZERO;
        self
    }

    /// Lines stand aside now and then.
    pub(super) const fn opens(mut self) -> Self {
        self.bounds.opened = Bounds::OPENED;
        self
    }

    fn tell(mut self, what: What) -> Self {
        self.events.push(Event { at: self.now, what });
        self
    }

    pub(super) fn calls(mut self, process: u32, kind: CallKind, limit: Option<f64>) -> Self {
        self.calls += 1;
        let call = CallId(self.calls);
        self.open.insert(process, call);
        let (process, key) = (ProcessId(process), self.key.clone());
        let limit = limit.map(Duration::from_secs_f64);
        self.tell(What::Called { call, process, key, kind, limit })
    }

    /// Another task of a process calls, behind the task whose call is open.
    pub(super) fn also_calls(mut self, process: u32, kind: CallKind) -> Self {
        let first = self.open[&process];
        self = self.calls(process, kind, None);
        self.behind.insert(process, first);
        self
    }

    /// The first of two open calls of a process returns.
    pub(super) fn returns_first(mut self, process: u32, outcome: Outcome) -> Self {
        let call = self.behind.remove(&process).expect("a call behind which another is open");
        self.tell(What::Returned { call, outcome })
    }

    pub(super) fn locks(self, process: u32) -> Self {
        self.calls(process, CallKind::Lock, None)
    }

    pub(super) fn tries(self, process: u32) -> Self {
        self.calls(process, CallKind::TryLock, Some(3.0))
    }

    pub(super) fn returns(mut self, process: u32, outcome: Outcome) -> Self {
        let call = self.open.remove(&process).expect("a call to return from");
        self.tell(What::Returned { call, outcome })
    }

    /// The open call of the process returns a guard.
    pub(super) fn gets(mut self, process: u32, token: &str, fence: u64, until: f64) -> Self {
        let window = WindowId(self.calls);
        self.windows.insert(token.to_owned(), window);
        let call = self.open[&process];
        let (token, fence, until) = (token.into(), Some(fence), s(until));
        let granted = What::Granted { window, call, token, fence, until };
        self.tell(granted).returns(process, Outcome::Granted)
    }

    /// The process calls `lock` and gets a guard in the same moment.
    pub(super) fn takes(self, process: u32, token: &str, fence: u64, until: f64) -> Self {
        self.locks(process).gets(process, token, fence, until)
    }

    /// The window shares its key with others.
    pub(super) fn shares(self, token: &str, share: Share) -> Self {
        let window = self.windows[token];
        self.tell(What::Shares { window, share })
    }

    /// The history is of a key that holders share, and that nobody has.
    pub(super) fn shares_keys(self) -> Self {
        self.steps(JOIN, "", Standing::default(), Standing::default())
    }

    /// A process is about to change how many permits the key has. Nobody knows when it does.
    pub(super) fn resizes(self, of: u32) -> Self {
        let tale = self.calls(RESIZES, CallKind::Resize, None);
        let (key, call) = (tale.key.clone(), tale.open[&RESIZES]);
        tale.tell(What::Resizes { key, of, call })
    }

    /// A process changes how many permits the key has, in no time.
    pub(super) fn resized(self, process: u32, of: u32) -> Self {
        let tale = self.calls(process, CallKind::Resize, None);
        let (key, call) = (tale.key.clone(), tale.open[&process]);
        tale.tell(What::Resizes { key, of, call }).returns(process, Outcome::Done)
    }

    /// The open call of the process wants this share of the key.
    pub(super) fn wants(self, process: u32, share: Share) -> Self {
        let call = self.open[&process];
        self.tell(What::Wants { call, share })
    }

    /// The hold of the window ends at this moment at the latest.
    pub(super) fn holds_until(self, token: &str, until: f64) -> Self {
        let window = self.windows[token];
        self.tell(What::HoldsUntil { window, until: s(until) })
    }

    /// At most this many starts of the key happen in each period.
    pub(super) fn limits(self, of: u32, per: f64) -> Self {
        let (key, per) = (self.key.clone(), Duration::from_secs_f64(per));
        self.tell(What::Limits { key, of, per })
    }

    /// The key is a latch that opens after this many counts.
    pub(super) fn latches(self, of: u32) -> Self {
        let key = self.key.clone();
        self.tell(What::Latches { key, of })
    }

    /// The key is a barrier of this many parties.
    pub(super) fn meets(self, of: u32) -> Self {
        let key = self.key.clone();
        self.tell(What::Meets { key, of })
    }

    /// The key is an election, whose leaders have this ttl.
    pub(super) fn elects(self, ttl: f64) -> Self {
        let (key, ttl) = (self.key.clone(), Duration::from_secs_f64(ttl));
        self.tell(What::Elects { key, ttl })
    }

    /// The open call of the process returns to an observer, which saw the leader of a term.
    pub(super) fn sees_leader(self, process: u32, observer: u32, term: u64) -> Self {
        let (call, term) = (self.open[&process], Some(term));
        self.tell(What::Leads { call, observer, term }).returns(process, Outcome::Done)
    }

    /// The open call of the process returns after it saw this many counts missing.
    pub(super) fn remains(self, process: u32, left: u32) -> Self {
        let call = self.open[&process];
        self.tell(What::Remains { call, left }).returns(process, Outcome::Done)
    }

    /// The open call of the process is refused, since all parties have arrived.
    pub(super) fn remains_taken(self, process: u32) -> Self {
        let call = self.open[&process];
        self.tell(What::Remains { call, left: 0 }).returns(process, Outcome::Taken)
    }

    /// The server carries a request out for a key that holders share.
    pub(super) fn steps(
        self,
        request: Request,
        token: &str,
        before: Standing,
        after: Standing,
    ) -> Self {
        let (key, token) = (self.key.clone(), token.into());
        let travelled = self.oldest_unserved(request, &token);
        self.tell(What::Stood { request, key, token, before, after, travelled })
    }

    pub(super) fn extends(self, token: &str, until: f64) -> Self {
        let window = self.windows[token];
        self.tell(What::Extended { window, until: s(until) })
    }

    pub(super) fn loses(self, token: &str) -> Self {
        let window = self.windows[token];
        self.tell(What::ToldLost { window })
    }

    pub(super) fn gives_up(self, token: &str) -> Self {
        let window = self.windows[token];
        self.tell(What::GaveUp { window })
    }

    pub(super) fn stops(self, process: u32) -> Self {
        self.tell(What::Stopped { process: ProcessId(process) })
    }

    pub(super) fn resumes(self, process: u32) -> Self {
        self.tell(What::Resumed { process: ProcessId(process) })
    }

    pub(super) fn crashes(self, process: u32) -> Self {
        self.tell(What::Crashed { process: ProcessId(process) })
    }

    /// The process sends a request in its open call, or in no call.
    pub(super) fn sends(self, process: u32, request: Request, token: &str) -> Self {
        let call = self.open.get(&process).copied();
        let (process, key, token) = (ProcessId(process), self.key.clone(), token.into());
        self.tell(What::Sent { process, call, request, key, token })
    }

    /// The process sends a request to a node of a quorum.
    pub(super) fn sends_to(self, node: u32, process: u32, request: Request, token: &str) -> Self {
        let call = self.open.get(&process).copied();
        let (process, key, token) = (ProcessId(process), self.key.clone(), token.into());
        self.tell(What::SentTo { node, process, call, request, key, token })
    }

    /// A node of a quorum grants the key.
    pub(super) fn grants_at(self, node: u32, token: &str) -> Self {
        let (key, token, left) = (self.key.clone(), token.into(), Duration::from_secs(10));
        self.tell(What::GrantedAt { node, key, token, left })
    }

    /// The server carries a request out. The owner was `before`, and is `after` from now on.
    pub(super) fn serves(self, request: Request, token: &str, before: &str, after: &str) -> Self {
        let (key, token, left) = (self.key.clone(), token.into(), Duration::from_secs(10));
        let (before, after) = (name(before), name(after));
        let (block, travelled) = (None, self.oldest_unserved(request, &token));
        self.tell(What::Served { request, key, token, before, after, left, block, travelled })
    }

    /// How long ago the oldest unserved request of this kind was sent.
    fn oldest_unserved(&self, request: Request, token: &Name) -> Option<Duration> {
        let kind = std::mem::discriminant(&request);
        let (mut sent, mut served) = (Vec::new(), 0);
        for event in &self.events {
            match &event.what {
                What::Sent { request, token: of, .. }
                    if of == token && std::mem::discriminant(request) == kind =>
                {
                    sent.push(event.at);
                }
                What::Served { request, token: of, .. }
                | What::Stood { request, token: of, .. }
                    if of == token && std::mem::discriminant(request) == kind =>
                {
                    served += 1;
                }
                _ => {}
            }
        }
        sent.get(served).map(|sent| self.now.since(*sent))
    }

    /// The last served request was sent this many seconds before.
    pub(super) fn travelled(mut self, seconds: f64) -> Self {
        match self.events.last_mut().map(|event| &mut event.what) {
            Some(What::Served { travelled, .. }) => {
                *travelled = Some(Duration::from_secs_f64(seconds));
            }
            other => panic!("nothing was served: {other:?}"),
        }
        self
    }

    /// The last served request told the owner `count` fencing tokens, from `first` on.
    pub(super) fn reserves(mut self, first: u64, count: u64) -> Self {
        match self.events.last_mut().map(|event| &mut event.what) {
            Some(What::Served { block, .. }) => *block = Some(Block { first, count }),
            other => panic!("nothing was served: {other:?}"),
        }
        self
    }

    /// The client may keep the lease of a window for this many seconds without a guard.
    pub(super) fn keeps(self, token: &str, span: f64) -> Self {
        let (window, span) = (self.windows[token], Duration::from_secs_f64(span));
        self.tell(What::Keeps { window, span })
    }

    /// The holder of a window leaves its key taken.
    pub(super) fn leaves_taken(self, token: &str) -> Self {
        let window = self.windows[token];
        self.tell(What::LeavesTaken { window })
    }

    /// The process is told that another client waits.
    pub(super) fn hints(self, process: u32) -> Self {
        let (process, key) = (ProcessId(process), self.key.clone());
        self.tell(What::Hinted { process, key })
    }

    pub(super) fn compares(self, token: &str, remaining: f64, owner: &str, left: f64) -> Self {
        let (window, owner) = (self.windows[token], name(owner));
        let remaining = Duration::from_secs_f64(remaining);
        let left = Duration::from_secs_f64(left);
        self.tell(What::Compared { window, remaining, owner, left })
    }

    pub(super) fn sees(self, name: &str, left: Option<f64>) -> Self {
        let left = left.map(Duration::from_secs_f64);
        self.tell(What::Key { name: name.into(), left })
    }

    pub(super) fn over(self) -> Self {
        self.tell(What::Over)
    }

    pub(super) fn fault(mut self, kind: &str) -> Self {
        self.faults += 1;
        let fault = self.faults;
        self.tell(What::FaultBegan { fault, kind: kind.into() })
    }

    /// The last fault ends.
    pub(super) fn heals(self) -> Self {
        let fault = self.faults;
        self.tell(What::FaultEnded { fault })
    }

    pub(super) fn forgets(self) -> Self {
        self.tell(What::Forgot)
    }

    pub(super) fn events(&self) -> &[Event] {
        &self.events
    }

    pub(super) fn bounds(&self) -> &Bounds {
        &self.bounds
    }

    pub(super) fn violations(&self) -> Vec<Violation> {
        check(&self.events, &self.bounds)
    }

    #[track_caller]
    pub(super) fn passes(&self) {
        assert_eq!(self.violations(), []);
    }

    /// Asserts that this promised invariant is broken, and no other.
    #[track_caller]
    pub(super) fn breaks(&self, invariant: Invariant) {
        let violations = self.violations();
        assert!(!violations.is_empty(), "nothing is broken");
        let is_that = |v: &Violation| v.invariant == invariant && v.promised;
        assert!(violations.iter().all(is_that), "{violations:#?}");
    }

    /// Asserts that this invariant is broken without having been promised, and no other.
    #[track_caller]
    pub(super) fn breaks_unpromised(&self, invariant: Invariant) {
        let violations = self.violations();
        assert!(!violations.is_empty(), "nothing is broken");
        let is_that = |v: &Violation| v.invariant == invariant && !v.promised;
        assert!(violations.iter().all(is_that), "{violations:#?}");
    }
}

/// Each kind of event once.
pub(super) fn one_of_each() -> Vec<Event> {
    let tale = tale().at(1.5).fault("delay").heals().forgets().takes(1, "A", 7, 11.25);
    let tale = tale.sends(1, JOIN, "A").serves(ASK, "A", "", "A").extends("A", 12.0);
    let tale = tale.sends(1, Request::Renew, "A").serves(Request::Release, "B", "A", "A");
    let tale = tale.serves(Request::Evict, "A", "A", "").compares("A", 1.0, "A", 0.1);
    let tale = tale.loses("A").gives_up("A").stops(1).resumes(1).crashes(1);
    let tale = tale
        .serves(Request::Keep, "A", "A", "A")
        .reserves(7, 65)
        .keeps("A", 0.5)
        .leaves_taken("A")
        .hints(1);
    let tale = tale
        .sends_to(2, 1, ASK, "A")
        .tries(2)
        .over()
        .sees("a", None)
        .sees("{a}:lh:fence", Some(0.001));
    let tale = tale.takes(4, "B", 8, 20.0).shares("B", Share::Permits { want: 1, of: 2 });
    let tale = tale.holds_until("B", 21.0).resizes(3).tries(5).wants(5, Share::Reader);
    let tale = tale.limits(2, 0.5).latches(3).calls(3, CallKind::Look, None).remains(3, 1);
    let tale = tale.meets(2).elects(0.5).calls(3, CallKind::Observe, None).sees_leader(3, 1, 7);
    tale.events
}
