//! A process that uses the library. Its tasks lock, hold, renew and release, and report everything.

use std::io::Read as _;
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold::core::Moment;
use leasehold::{Client, Error, ErrorKind, Guard, Lost, Release, RwLock};
use tokio::task::JoinSet;

use super::shares::{self, Wish};
use super::teller::Teller;
use super::{part_of, span};
use crate::history::event::{CallId, CallKind, Outcome, ProcessId, Share, What, WindowId};
use crate::virtual_host::SeededRandom;

/// The separator of the URLs of a quorum.
pub const BETWEEN_URLS: &str = ";";

/// The longest time that a call takes besides its wait. It covers the limits of its requests, a new
/// connection, and a busy machine.
const CALL_LIMIT: Duration = Duration::from_secs(8);

/// How often a holder looks at its guard.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// One wish in this many is for a lock that holders share.
const SHARED_ONE_IN: usize = 4;

/// One writer in this many becomes a reader.
const DOWNGRADED_ONE_IN: usize = 3;

/// How often a process checks whether it stood still.
const BEAT: Duration = Duration::from_millis(10);

/// The settings from its command line.
#[derive(Clone, Debug)]
pub struct WorkerPlan {
    /// The URL of the store, or several of a quorum.
    pub url: String,
    /// The ttl of its locks.
    pub ttl: Duration,
    /// The names of its locks. The first is the most contended one, and the last is held for long.
    pub keys: Vec<String>,
    /// Whether it also takes locks that holders share.
    pub shares: bool,
    /// How many tasks it has.
    pub tasks: u32,
    /// The number of the process.
    pub process: ProcessId,
    /// The seed of its choices.
    pub seed: u64,
}

/// A lock that a task has, as the checker knows it.
struct Held {
    guard: Guard,
    window: WindowId,
    until: Moment,
}

struct Worker {
    plan: WorkerPlan,
    client: Client,
    teller: Arc<Teller>,
    ending: Arc<AtomicBool>,
}

/// Works until its standard input ends.
#[must_use]
pub fn run(plan: WorkerPlan) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("the process may open a few descriptors");
    let ending = Arc::new(AtomicBool::new(false));
    let teller = Arc::new(Teller::new(plan.process));
    let told_to_end = Arc::clone(&ending);
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        told_to_end.store(true, Ordering::Release);
    });
    beat(Arc::clone(&teller));
    runtime.block_on(async {
        let Some(client) = connect(&plan, &teller, &ending).await else { return };
        let worker = Arc::new(Worker { plan, client, teller, ending });
        let mut tasks = JoinSet::new();
        for task in 0..worker.plan.tasks {
            let seed = worker.plan.seed.wrapping_add(u64::from(task) << 32);
            tasks.spawn(Arc::clone(&worker).work(SeededRandom::new(seed)));
        }
        tasks.join_all().await;
        let _left = worker.client.clone().shutdown(Duration::from_secs(2)).await;
    });
    ExitCode::SUCCESS
}

/// Reports when the process stood still.
fn beat(teller: Arc<Teller>) {
    std::thread::spawn(move || {
        let mut last = teller.now();
        loop {
            std::thread::park_timeout(BEAT);
            let now = teller.now();
            teller.tell_if_it_stood_still(last, now, BEAT);
            last = now;
        }
    });
}

async fn connect(plan: &WorkerPlan, teller: &Teller, ending: &AtomicBool) -> Option<Client> {
    while !ending.load(Ordering::Acquire) {
        let builder = if plan.url.contains(BETWEEN_URLS) {
            Client::quorum(plan.url.split(BETWEEN_URLS))
        } else {
            Client::builder(&plan.url)
        };
        match builder.ttl(plan.ttl).connect().await {
            Ok(client) => return Some(client),
            Err(_) => teller.host().sleep_until(teller.now() + Duration::from_millis(50)).await,
        }
    }
    None
}

impl Worker {
    async fn work(self: Arc<Self>, mut random: SeededRandom) {
        while !self.ending.load(Ordering::Acquire) && !self.teller.is_used_up() {
            self.take_turn(&mut random).await;
            self.pause(span(&mut random, 10, 50)).await;
        }
    }

    /// Asks for a lock, holds it, and gives it up. A writer may become a reader first.
    async fn take_turn(&self, random: &mut SeededRandom) {
        let (wish, key) = self.wish(random);
        let Some(held) = self.ask(&wish, &key, random).await else { return };
        let Some(mut held) = self.hold(held, random).await else { return };
        if let Wish::Write(lock) = &wish
            && random.once_in(DOWNGRADED_ONE_IN)
        {
            let Some(reader) = self.downgrade(lock, held).await else { return };
            let Some(reader) = self.hold(reader, random).await else { return };
            held = reader;
        }
        self.part(held.guard, Some(held.window), random).await;
    }

    async fn pause(&self, span: Duration) {
        self.teller.host().sleep_until(self.teller.now() + span).await;
    }

    /// A lock, and its name.
    fn wish(&self, random: &mut SeededRandom) -> (Wish, String) {
        if self.plan.shares && random.once_in(SHARED_ONE_IN) {
            let wish = Wish::of_shared(&self.client, random);
            let name = wish.shared_name().expect("no mutex").to_owned();
            return (wish, name);
        }
        let keys = &self.plan.keys;
        let key = &keys[random.below(keys.len()).min(random.below(keys.len()))];
        (Wish::Mutex(self.client.mutex(key)), key.clone())
    }

    async fn ask(&self, wish: &Wish, key: &str, random: &mut SeededRandom) -> Option<Held> {
        let wait = span(random, 20, 500);
        let (kind, limit) = match random.below(100) {
            0..50 => (CallKind::TryLock, CALL_LIMIT),
            _ => (CallKind::Lock, wait + CALL_LIMIT),
        };
        let is_dropped = random.once_in(12);
        let call = self.called(key, kind, limit);
        let answer = async {
            match kind {
                CallKind::TryLock => wish.try_lock().await,
                _ => wish.lock_timeout(wait).await.map(Some),
            }
        };
        let answer = tokio::select! {
            biased;
            answer = answer => answer,
            () = self.pause(wait / 10), if is_dropped => {
                self.returned(call, Outcome::Dropped);
                return None;
            }
        };
        match answer {
            Ok(Some(guard)) => Some(self.granted(call, guard, wish.share())),
            Ok(None) => {
                self.returned(call, Outcome::Taken);
                None
            }
            Err(error) => {
                self.returned(call, outcome(&error));
                None
            }
        }
    }

    fn granted(&self, call: CallId, guard: Guard, share: Option<Share>) -> Held {
        let window = WindowId(self.teller.number());
        let now = self.teller.now();
        let until = now + guard.remaining();
        self.teller.tell_at(now, What::Returned { call, outcome: Outcome::Granted });
        let fence = guard.fencing_token().map(leasehold::FencingToken::get);
        assert!(fence.is_some() || share.is_some(), "each exclusive grant has a fencing token");
        let token = guard.token().as_str().into();
        self.teller.tell_at(now, What::Granted { window, call, token, fence, until });
        if let Some(share) = share {
            self.teller.tell_at(now, What::Shares { window, share });
        }
        Held { guard, window, until }
    }

    /// Holds a lock for a while. Returns it, or gives it up if it is lost.
    async fn hold(&self, held: Held, random: &mut SeededRandom) -> Option<Held> {
        let Held { guard, window, mut until } = held;
        let is_for_long = self.plan.keys.last().is_some_and(|last| last == guard.name());
        // Holders that share a lock hold it longer, so that their windows overlap.
        let is_shared = shares::NAMES.contains(&guard.name());
        let (short, longer) = if is_shared { (50, 90) } else { (85, 97) };
        let holds = match random.below(100) {
            // This may be much longer than a lease lives without renewal. A holder that is cut off
            // meanwhile must notice.
            _ if is_for_long => part_of(random, self.plan.ttl, 50, 400),
            drawn if drawn < short => span(random, 0, 15),
            drawn if drawn < longer => span(random, 50, 250),
            _ => part_of(random, self.plan.ttl, 100, 200),
        };
        let ends = self.teller.now() + holds;
        let mut lost = std::pin::pin!(guard.lost());
        while self.teller.now() < ends && !self.ending.load(Ordering::Acquire) {
            let left = ends.since(self.teller.now());
            tokio::select! {
                biased;
                _ = &mut lost => {
                    self.teller.tell(What::ToldLost { window });
                    self.part(guard, None, random).await;
                    return None;
                }
                () = self.pause(left.min(LOOK_EVERY)) => {}
            }
            let renews = holds > LOOK_EVERY && random.once_in(10);
            if renews && self.renew(&guard, lost.as_mut()).await.is_err() {
                self.teller.tell(What::ToldLost { window });
                self.part(guard, None, random).await;
                return None;
            }
            self.look(&guard, window, &mut until);
        }
        Some(Held { guard, window, until })
    }

    /// Downgrades a writer. Returns the reader's lock, unless the downgrade fails.
    async fn downgrade(&self, lock: &RwLock, writer: Held) -> Option<Held> {
        let now = self.teller.now();
        self.teller.tell_at(now, What::GaveUp { window: writer.window });
        let call = self.called_at(now, writer.guard.name(), CallKind::Lock, CALL_LIMIT);
        match lock.downgrade(writer.guard).await {
            Ok(reader) => Some(self.granted(call, reader, Some(Share::Reader))),
            Err(error) => {
                self.returned(call, outcome(&error));
                None
            }
        }
    }

    /// Reports until when the holder relies on the guard, if that has changed.
    fn look(&self, guard: &Guard, window: WindowId, until: &mut Moment) {
        let now = self.teller.now();
        let seen = now + guard.remaining();
        if guard.is_held() && seen.since(*until) > Duration::from_millis(1) {
            *until = seen;
            self.teller.tell_at(now, What::Extended { window, until: seen });
        }
    }

    /// Renews now, unless the lease is lost first.
    async fn renew(
        &self,
        guard: &Guard,
        lost: Pin<&mut (impl Future<Output = Lost> + Send)>,
    ) -> Result<(), Lost> {
        let call = self.called(guard.name(), CallKind::Renew, CALL_LIMIT);
        let outcome = tokio::select! {
            biased;
            lost = lost => {
                self.returned(call, Outcome::Dropped);
                return Err(lost);
            }
            renewed = guard.renew() => match renewed {
                Ok(()) => Outcome::Renewed,
                Err(error) => outcome(&error),
            },
        };
        self.returned(call, outcome);
        Ok(())
    }

    /// Releases or drops a guard. Its window may be open or already over.
    async fn part(&self, guard: Guard, open: Option<WindowId>, random: &mut SeededRandom) {
        let is_dropped = random.once_in(3);
        let name = guard.name().to_owned();
        // The checker recognises a window and its release by their common moment.
        let now = self.teller.now();
        if let Some(window) = open {
            self.teller.tell_at(now, What::GaveUp { window });
        }
        if is_dropped {
            return drop(guard);
        }
        let call = self.called_at(now, &name, CallKind::Release, CALL_LIMIT);
        let outcome = match guard.release().await {
            Ok(Release::Released) => Outcome::Released,
            Ok(Release::NotHeld) => Outcome::NotHeld,
            Err(error) => outcome(&error),
        };
        self.returned(call, outcome);
    }

    fn called(&self, key: &str, kind: CallKind, limit: Duration) -> CallId {
        self.called_at(self.teller.now(), key, kind, limit)
    }

    fn called_at(&self, at: Moment, key: &str, kind: CallKind, limit: Duration) -> CallId {
        let call = CallId(self.teller.number());
        let (process, key, limit) = (self.teller.process(), key.into(), Some(limit));
        self.teller.tell_at(at, What::Called { call, process, key, kind, limit });
        call
    }

    fn returned(&self, call: CallId, outcome: Outcome) {
        self.teller.tell(What::Returned { call, outcome });
    }
}

/// The outcome of an error. An error that no fault explains also goes to standard error.
fn outcome(error: &Error) -> Outcome {
    match error.kind() {
        ErrorKind::Unavailable => Outcome::Unavailable,
        ErrorKind::Unknown => Outcome::Unknown,
        ErrorKind::Lost => Outcome::Lost,
        ErrorKind::WaitElapsed => Outcome::WaitElapsed,
        _ => {
            eprintln!("an error that no fault explains: {error:?}");
            Outcome::Failed
        }
    }
}
