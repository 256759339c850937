//! The state that all parts of one run share.

mod supervised;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use leasehold::core::Moment;
use leasehold::host::Host;
use leasehold::{FencingToken, Guard, Leadership, Run};

pub use self::supervised::{Supervised, Supervisor};
use super::backend::Backend;
use super::log::Log;
use super::plan::{Plan, Sharing};
use super::process::Process;
use crate::VirtualHost;
use crate::history::event::{CallId, CallKind, Name, Outcome, ProcessId, Share, What, WindowId};

pub(super) struct World {
    pub(super) host: Arc<VirtualHost>,
    pub(super) plan: Plan,
    pub(super) backend: Backend,
    /// Decides how holders use their locks; `None` if they decide themselves.
    pub(super) supervisor: Option<Arc<dyn Supervisor>>,
    pub(super) log: Log,
    /// Until when the clients work.
    pub(super) end: Moment,
    /// For each client, whether its futures are dropped half way at the moment.
    pub(super) dropping: Vec<AtomicBool>,
    windows: Mutex<BTreeMap<WindowId, Window>>,
    calls: AtomicU32,
    grants: AtomicU32,
    numbered: AtomicU32,
    /// Counts of events that only some kinds of worlds have.
    did: Mutex<BTreeMap<&'static str, u64>>,
    looks: AtomicU32,
    /// The clients whose processes are about to crash.
    dying: Mutex<Vec<usize>>,
    /// How many permits each key has, as far as the clients know.
    permits: Mutex<BTreeMap<Name, u32>>,
    /// Until when the clients work if they had too few grants before `end`.
    late_end: Moment,
}

/// From this number of guards on, only a part of a process's guards is checked at a time. The
/// second number is how many such parts there are.
const MANY: usize = 200;
const IN_TURNS: u32 = 16;

/// How long after the end the clients may take to finish.
const ENDS_WITHIN: Duration = Duration::from_secs(60);

/// A run with fewer grants says little.
const ACQUISITIONS_MIN: u32 = 100;

/// A lease that a process relies on.
struct Window {
    process: Process,
    key: Name,
    token: Name,
    relied: Relied,
    until: Moment,
}

/// The source from which a process knows until when it may rely on a lease.
enum Relied {
    /// From its guard.
    Guard(Weak<dyn Guards>),
    /// From its own calculation: until this moment of its own clock.
    Until(Moment),
}

/// The value that a process keeps while it relies on a lease.
pub(super) trait Guards: Send + Sync + 'static {
    fn guard(&self) -> &Guard;

    /// The number that rises with each grant.
    fn fence(&self) -> Option<FencingToken> {
        self.guard().fencing_token()
    }
}

impl Guards for Guard {
    fn guard(&self) -> &Guard {
        self
    }
}

impl Guards for Run {
    fn guard(&self) -> &Guard {
        self.guard()
    }
}

impl Guards for Leadership {
    fn guard(&self) -> &Guard {
        self.guard()
    }

    fn fence(&self) -> Option<FencingToken> {
        Some(self.term())
    }
}

impl World {
    pub(super) fn new(
        host: &Arc<VirtualHost>,
        plan: Plan,
        backend: Backend,
        supervisor: Option<Arc<dyn Supervisor>>,
        log: Log,
    ) -> Arc<Self> {
        Arc::new(Self {
            host: Arc::clone(host),
            end: host.now() + plan.span,
            late_end: host.now() + plan.span * 2,
            dropping: plan.clients.iter().map(|_| AtomicBool::new(false)).collect(),
            plan,
            backend,
            supervisor,
            log,
            windows: Mutex::default(),
            calls: AtomicU32::new(0),
            grants: AtomicU32::new(0),
            numbered: AtomicU32::new(0),
            did: Mutex::default(),
            looks: AtomicU32::new(0),
            dying: Mutex::default(),
            permits: Mutex::default(),
        })
    }

    /// Whether the clients go on. They work until the end of the run, or longer if there were too
    /// few grants.
    pub(super) fn goes_on(&self) -> bool {
        let granted = self.grants.load(Ordering::Relaxed);
        let is_enough = granted >= ACQUISITIONS_MIN || self.plan.pace > 1;
        self.host.now() < self.end || !is_enough && self.host.now() < self.late_end
    }

    /// When the run stops waiting for clients to finish.
    pub(super) fn gives_up_at(&self) -> Moment {
        self.late_end + ENDS_WITHIN
    }

    /// Returns a number that no process, window or fault has yet.
    pub(super) fn number(&self) -> u32 {
        self.numbered.fetch_add(1, Ordering::Relaxed)
    }

    /// Logs the start of a call of the library.
    pub(super) fn called(
        &self,
        process: &Process,
        key: &Name,
        kind: CallKind,
        limit: Option<Duration>,
    ) -> CallId {
        let call = CallId(self.calls.fetch_add(1, Ordering::Relaxed));
        let (process, key) = (process.id(), Arc::clone(key));
        self.log.push(What::Called { call, process, key, kind, limit });
        call
    }

    /// Logs the end of a call.
    pub(super) fn returned(&self, call: CallId, outcome: Outcome) {
        self.log.push(What::Returned { call, outcome });
    }

    /// Logs that a call returned a guard.
    pub(super) fn granted(
        &self,
        call: CallId,
        process: &Process,
        key: &Name,
        held: &Arc<impl Guards>,
    ) -> WindowId {
        let guard = held.guard();
        let window = WindowId(self.number());
        self.grants.fetch_add(1, Ordering::Relaxed);
        if let Some(supervisor) = &self.supervisor {
            supervisor.granted(key);
        }
        let token: Name = Arc::from(guard.token().as_str());
        let until = self.until(process, guard);
        self.log.push(What::Granted {
            window,
            call,
            token: Arc::clone(&token),
            fence: held.fence().map(FencingToken::get),
            until,
        });
        let held: Weak<_> = Arc::downgrade(held);
        let relied = Relied::Guard(held);
        let held = Window { process: process.clone(), key: Arc::clone(key), token, relied, until };
        self.windows().insert(window, held);
        // A grant that came by a message may end soon.
        self.look(|id, _| id == window);
        window
    }

    /// Logs the share of its key that a window has, directly after its grant.
    pub(super) fn shares(&self, window: WindowId, share: Share) {
        self.log.push(What::Shares { window, share });
        match share {
            Share::Alone => {}
            Share::Reader => self.did("read"),
            Share::Permits { .. } => self.did("took permits"),
        }
    }

    /// Logs the share of its key that a call wants, directly after its beginning.
    pub(super) fn wants(&self, call: CallId, share: Share) {
        self.log.push(What::Wants { call, share });
    }

    /// Logs how long the hold of a window that just began lasts at most.
    pub(super) fn holds_for(&self, window: WindowId, process: &Process, span: Duration) {
        let until = self.host.now() + process.on_common_clock(span);
        self.log.push(What::HoldsUntil { window, until });
    }

    /// How many permits a key has; 0 if keys have none.
    pub(super) fn permits(&self, key: &Name) -> u32 {
        let Some(Sharing::Permits { of, .. }) = self.plan.sharing else { return 0 };
        let known = self.permits.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(key).copied().unwrap_or(of)
    }

    /// Records that the clients now know how many permits a key has.
    pub(super) fn set_permits(&self, key: &Name, of: u32) {
        let mut known = self.permits.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(Arc::clone(key), of);
    }

    /// Logs that a process relies on a lease without a guard, until a moment of its own clock.
    pub(super) fn relies(
        &self,
        call: CallId,
        process: &Process,
        key: &Name,
        token: &str,
        own_until: Moment,
    ) -> WindowId {
        let window = WindowId(self.number());
        let until = self.on_common_clock(process, own_until);
        let token: Name = Arc::from(token);
        let (fence, granted) = (None, Arc::clone(&token));
        self.log.push(What::Granted { window, call, token: granted, fence, until });
        let (process, key) = (process.clone(), Arc::clone(key));
        let relied = Relied::Until(own_until);
        self.windows().insert(window, Window { process, key, token, relied, until });
        self.look(|id, _| id == window);
        window
    }

    /// Records that a process relies on a window until a moment of its own clock, whatever its
    /// guard says.
    pub(super) fn relies_until(&self, window: WindowId, own_until: Moment) {
        if let Some(held) = self.windows().get_mut(&window) {
            held.relied = Relied::Until(own_until);
        }
        self.look(|id, _| id == window);
    }

    /// Logs that the holder leaves the key taken, at least until a moment of its own clock.
    pub(super) fn leaves_taken(&self, window: WindowId, own_until: Moment) {
        self.log.push(What::LeavesTaken { window });
        self.relies_until(window, own_until);
    }

    /// Counts an event that only some kinds of worlds have.
    pub(super) fn did(&self, what: &'static str) {
        let mut did = self.did.lock().unwrap_or_else(PoisonError::into_inner);
        *did.entry(what).or_default() += 1;
    }

    /// All counts.
    pub(super) fn all_did(&self) -> BTreeMap<&'static str, u64> {
        for (what, times) in self.backend.did() {
            (0..times).for_each(|_| self.did(what));
        }
        self.did.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The keys that its clients contend for, without namespaces.
    pub(super) fn keys(&self) -> Vec<Name> {
        // The second key has its own hash tag, so its companion keys have names of another form.
        let names = ["stock", "cart:{42}", "report", "a b%"];
        names.iter().take(self.plan.keys).map(|name| Arc::from(*name)).collect()
    }

    /// Logs that the holder was told of the loss.
    pub(super) fn told_lost(&self, window: WindowId) {
        self.windows().remove(&window);
        self.log.push(What::ToldLost { window });
    }

    /// After the holder was told of the loss: logs an extension if the guard still claims to be
    /// held.
    pub(super) fn looks_again(&self, process: &Process, window: WindowId, guard: &Guard) {
        if guard.is_held() {
            self.log.push(What::Extended { window, until: self.until(process, guard) });
        }
    }

    /// Logs that the holder gives the lease up.
    pub(super) fn gives_up(&self, window: WindowId, keep_idle: Duration) {
        self.look(|id, _| id == window);
        if self.windows().remove(&window).is_some() {
            if !keep_idle.is_zero() {
                self.log.push(What::Keeps { window, span: keep_idle });
            }
            self.log.push(What::GaveUp { window });
        }
    }

    /// Checks every guard of a process that is about to stand still.
    pub(super) fn look_at(&self, process: &Process) {
        self.look(|_, of| of == process.id());
    }

    /// Checks every guard: until when its process relies on it, and what the server says.
    pub(super) fn look_at_all(&self) {
        let looks = self.looks.fetch_add(1, Ordering::Relaxed);
        let mut guards = BTreeMap::<ProcessId, usize>::new();
        for window in self.windows().values() {
            *guards.entry(window.process.id()).or_default() += 1;
        }
        let has_few = |process| guards.get(&process).is_none_or(|number| *number < MANY);
        self.look(|window, process| has_few(process) || window.0 % IN_TURNS == looks % IN_TURNS);
    }

    /// Makes the process of a client crash soon.
    pub(super) fn dies_soon(&self, client: usize) {
        self.dying.lock().unwrap_or_else(PoisonError::into_inner).push(client);
    }

    /// Takes the clients whose processes are to crash now.
    pub(super) fn take_dying(&self) -> Vec<usize> {
        std::mem::take(&mut *self.dying.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Logs the death of a process. Its guards end with it.
    pub(super) fn died(&self, process: &Process) {
        self.windows().retain(|_, window| window.process.id() != process.id());
        self.log.push(What::Crashed { process: process.id() });
    }

    fn look(&self, which: impl Fn(WindowId, ProcessId) -> bool) {
        let now = self.host.now();
        for (id, window) in self.windows().iter_mut() {
            if !which(*id, window.process.id()) {
                continue;
            }
            let until = match &window.relied {
                Relied::Guard(guard) => {
                    let Some(guard) = guard.upgrade() else { continue };
                    self.until(&window.process, guard.guard())
                }
                Relied::Until(own) => self.on_common_clock(&window.process, *own),
            };
            let remaining = until.since(now);
            if remaining.is_zero() {
                continue;
            }
            if until > window.until {
                window.until = until;
                self.log.push(What::Extended { window: *id, until });
            }
            let owner = self.backend.owner(now, &window.key, &window.token);
            let (owner, left) = owner.map_or((None, Duration::ZERO), |(owner, left)| {
                (Some(if owner == window.token { Arc::clone(&window.token) } else { owner }), left)
            });
            // The server answers in whole milliseconds and rounds down.
            let left = left.saturating_add(Duration::from_millis(1));
            self.log.push(What::Compared { window: *id, remaining, owner, left });
        }
    }

    /// Until when a process relies on a guard, on the common clock.
    fn until(&self, process: &Process, guard: &Guard) -> Moment {
        self.host.now() + process.on_common_clock(guard.remaining())
    }

    fn on_common_clock(&self, process: &Process, own: Moment) -> Moment {
        self.host.now() + process.on_common_clock(own.since(process.now()))
    }

    fn windows(&self) -> MutexGuard<'_, BTreeMap<WindowId, Window>> {
        self.windows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
