//! Many tasks lock and release keys that nobody else wants. Measures the cycles per second of one
//! client.

use std::time::Duration;

use leasehold::{Client, Error, ErrorKind, Mutex};

use crate::bare_lock::BareLock;
use crate::cycles::{Cycle, Until, rate};
use crate::figure::{Compared, Report};
use crate::yardstick::is_redis;

/// How many keys exist. The tasks share them equally, and no key has two tasks.
const KEYS: usize = 4_000;

const TASKS: [usize; 3] = [1, 100, 1_000];

const YARDSTICK: &str = "pipelined SET and compare-and-delete";

/// One way of locking a key.
#[derive(Clone, Copy)]
struct Way {
    name: &'static str,
    /// The prefix of the keys of this way.
    keys: &'static str,
    /// With a fencing token and a line, or with nothing but the lock.
    fenced: bool,
    /// With `lock`, which waits if needed, or with `try_lock`.
    waits: bool,
    /// Whether each key is new to the connection.
    cold: bool,
    /// The goal for many tasks, as a fraction of the yardstick.
    goal: f64,
}

const WAYS: [Way; 4] = [
    Way { name: "fenced, warm", keys: "w", fenced: true, waits: true, cold: false, goal: 0.6 },
    Way { name: "fenced, cold", keys: "c", fenced: true, waits: true, cold: true, goal: 0.6 },
    Way { name: "unfenced", keys: "u", fenced: false, waits: true, cold: false, goal: 0.85 },
    Way { name: "unfenced try", keys: "t", fenced: false, waits: false, cold: false, goal: 0.85 },
];

/// One task of Leasehold's side.
struct Locks {
    keys: Vec<Mutex>,
    waits: bool,
}

impl Cycle for Locks {
    async fn run(&mut self, time: usize) -> Result<(), Error> {
        let mutex = &self.keys[time % self.keys.len()];
        let guard = if self.waits { Some(mutex.lock().await?) } else { mutex.try_lock().await? };
        let guard = guard.ok_or_else(|| Error::new(ErrorKind::Closed, "the key was not free"))?;
        let _released = guard.release().await?;
        Ok(())
    }
}

impl Cycle for BareLock {
    async fn run(&mut self, time: usize) -> Result<(), Error> {
        self.set_and_delete(time).await
    }
}

pub(crate) async fn measure(url: &str, rounds: usize, ms: u64) -> Result<Report, Error> {
    let span = Duration::from_millis(ms);
    let client = Client::connect(url).await?;
    let bare = if is_redis(url) { Some(BareLock::connect(url).await?) } else { None };
    // On other stores, counters are not cached per connection.
    let ways: Vec<Way> = WAYS.into_iter().filter(|way| bare.is_some() || !way.cold).collect();
    let mut report = Report::new("throughput");
    for tasks in TASKS {
        let (mut ours, mut theirs) = (vec![Vec::new(); ways.len()], Vec::new());
        for round in 0..=rounds {
            let mut of_bare = None;
            if let Some(bare) = &bare {
                let with_keys = |task| bare.with_keys(names("b", task, tasks));
                let bare = (0..tasks).map(with_keys).collect();
                of_bare = Some(rate(bare, Until::Elapsed(span)).await?);
            }
            let mut rates = Vec::with_capacity(ways.len());
            for way in &ways {
                rates.push(rate_of(&client, url, *way, tasks, span).await?);
            }
            // The first round warms up.
            if round > 0 {
                theirs.extend(of_bare);
                ours.iter_mut().zip(rates).for_each(|(ours, rate)| ours.push(rate));
            }
        }
        let subject = format!("{KEYS} keys, tasks: {tasks}");
        for (way, ours) in ways.iter().zip(&ours) {
            if bare.is_none() {
                report.add(&subject, way.name, ours, "/s");
                continue;
            }
            let compared = Compared { ours, theirs: &theirs, unit: "/s", to: YARDSTICK };
            let figure = report.ratio(&subject, way.name, compared);
            if tasks == 1_000 {
                figure.at_least(way.goal);
            }
        }
    }
    Ok(report)
}

async fn rate_of(
    client: &Client,
    url: &str,
    way: Way,
    tasks: usize,
    span: Duration,
) -> Result<f64, Error> {
    // A counter is cold until its key was locked over the same connection.
    let (client, until) = if way.cold {
        let fresh = Client::connect(url).await?;
        let _released = fresh.mutex("bench:throughput:script").lock().await?.release().await?;
        (fresh, Until::Done(KEYS / tasks))
    } else {
        (client.clone(), Until::Elapsed(span))
    };
    let of_task = |task| {
        let names = names(way.keys, task, tasks).into_iter();
        let mutex = |name| match client.mutex(name) {
            mutex if way.fenced => mutex,
            mutex => mutex.fencing(false).unqueued(),
        };
        let keys = names.map(mutex).collect();
        Locks { keys, waits: way.waits }
    };
    rate((0..tasks).map(of_task).collect(), until).await
}

/// The keys of one of `tasks` tasks.
fn names(whose: &str, task: usize, tasks: usize) -> Vec<String> {
    (0..KEYS / tasks).map(|key| format!("bench:throughput:{whose}:{task:04}:{key:04}")).collect()
}
