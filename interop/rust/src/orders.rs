//! The orders, and the answers of a program. See `interop/README.md`. The bench of
//! Leasehold compiles this file too, so all programs in Rust are measured by the same code.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinSet;

/// A library that the bench measures.
pub(crate) trait Library: Clone + Send + Sync + 'static {
    /// The value that the holder of a lock keeps.
    type Held: Send + 'static;

    /// Takes a lock, however long that takes.
    fn take(&self, key: &str) -> impl Future<Output = Result<Self::Held, String>> + Send;

    /// Releases it, and waits for the answer.
    fn release(held: Self::Held) -> impl Future<Output = Result<(), String>> + Send;
}

/// Obeys until standard input ends. The first failure ends the program.
pub(crate) async fn obey<L: Library>(library: L) -> Result<(), String> {
    let mut lines = lines();
    let (taken, mut newly_held) = unbounded_channel();
    let mut running = JoinSet::new();
    let mut held = HashMap::new();
    println!("ready");
    loop {
        let line = tokio::select! {
            biased;
            Some((key, lock)) = newly_held.recv() => {
                held.insert(key, lock);
                continue;
            }
            Some(ended) = running.join_next() => {
                ended.map_err(|error| error.to_string()).flatten()?;
                continue;
            }
            line = lines.recv() => line,
        };
        let Some(line) = line else { return Ok(()) };
        let strange = || format!("`{line}` is not an order");
        let (order, key, numbers) = words(&line).ok_or_else(strange)?;
        let library = library.clone();
        match (order, &numbers[..]) {
            ("roundtrip", [count]) => roundtrip(&library, &key, *count).await?,
            ("throughput", [tasks, ms]) => throughput(&library, &key, *tasks, *ms).await?,
            ("hot", [tasks, from, until]) => hot(&library, &key, *tasks, [*from, *until]).await?,
            ("contend", [tasks, hold_ms]) => {
                let hold = Duration::from_millis(*hold_ms);
                for task in 0..*tasks {
                    running.spawn(contend(library.clone(), key.clone(), task, hold));
                }
            }
            ("hold", [count]) => held.extend(hold(&library, &key, *count).await?),
            ("wait", [count]) => {
                for _ in 0..*count {
                    let (library, key) = (library.clone(), key.clone());
                    running.spawn(async move { library.take(&key).await.map(drop) });
                }
                println!("waiting");
            }
            ("lock", []) => {
                let taken = taken.clone();
                running.spawn(async move {
                    let lock = library.take(&key).await?;
                    let at = now_ns();
                    // Keep the lock before the answer, since an order to release it may follow.
                    let said = format!("held {key} {at}");
                    let kept = taken.send((key, lock));
                    println!("{said}");
                    kept.map_err(|_| "nobody keeps the lock".to_owned())
                });
            }
            ("unlock", []) => {
                let lock = held.remove(&key).ok_or_else(strange)?;
                running.spawn(async move {
                    let at = now_ns();
                    L::release(lock).await?;
                    println!("freed {key} {at}");
                    Ok(())
                });
            }
            _ => return Err(strange()),
        }
    }
}

/// The lines of standard input. They are read by a thread, so that nothing waits for them.
fn lines() -> UnboundedReceiver<String> {
    let (send, lines) = unbounded_channel();
    std::thread::spawn(move || {
        let mut lines = std::io::stdin().lines().map_while(Result::ok);
        lines.try_for_each(|line| send.send(line)).ok()
    });
    lines
}

/// An order, its key, and its numbers.
fn words(line: &str) -> Option<(&str, String, Vec<u64>)> {
    let mut words = line.split(' ');
    let (order, key) = (words.next()?, words.next()?.to_owned());
    Some((order, key, words.map(|word| word.parse().ok()).collect::<Option<_>>()?))
}

/// Locks and releases, one after the other.
async fn roundtrip<L: Library>(library: &L, key: &str, count: u64) -> Result<(), String> {
    let mut line = "times".to_owned();
    for _ in 0..count {
        let from = now_ns();
        L::release(library.take(key).await?).await?;
        line += &format!(" {}", now_ns() - from);
    }
    println!("{line}");
    Ok(())
}

/// Each task has a key of its own.
async fn throughput<L: Library>(library: &L, key: &str, tasks: u64, ms: u64) -> Result<(), String> {
    let cycles = Arc::new(AtomicU64::new(0));
    let from = now_ns();
    let until = from + ms * 1_000_000;
    let mut running = JoinSet::new();
    for task in 0..tasks {
        let (library, key, cycles) = (library.clone(), format!("{key}:{task}"), cycles.clone());
        running.spawn(async move {
            while now_ns() < until {
                L::release(library.take(&key).await?).await?;
                cycles.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        });
    }
    all(running).await?;
    println!("cycles {} {}", cycles.load(Ordering::Relaxed), now_ns() - from);
    Ok(())
}

/// All tasks of all processes want one key, from one moment to another.
async fn hot<L: Library>(
    library: &L,
    key: &str,
    tasks: u64,
    [from, until]: [u64; 2],
) -> Result<(), String> {
    let figures: Arc<[AtomicU64; 4]> = Arc::default();
    tokio::time::sleep(Duration::from_nanos(from.saturating_sub(now_ns()))).await;
    let mut running = JoinSet::new();
    for _ in 0..tasks {
        let (library, key, figures) = (library.clone(), key.to_owned(), Arc::clone(&figures));
        running.spawn(async move {
            let [cycles, waits, longest, sum] = &*figures;
            loop {
                let asked = now_ns();
                if asked >= until {
                    return Ok(());
                }
                let lock = library.take(&key).await?;
                let got = now_ns();
                L::release(lock).await?;
                cycles.fetch_add(u64::from(got < until), Ordering::Relaxed);
                waits.fetch_add(1, Ordering::Relaxed);
                longest.fetch_max(got - asked, Ordering::Relaxed);
                sum.fetch_add(got - asked, Ordering::Relaxed);
            }
        });
    }
    all(running).await?;
    let [cycles, waits, longest, sum] = figures.each_ref().map(|it| it.load(Ordering::Relaxed));
    println!("hot {cycles} {waits} {longest} {sum}");
    Ok(())
}

/// Takes many keys, and keeps them.
async fn hold<L: Library>(
    library: &L,
    key: &str,
    count: u64,
) -> Result<HashMap<String, L::Held>, String> {
    let mut held = HashMap::new();
    for n in 0..count {
        let key = format!("{key}:{n}");
        let lock = library.take(&key).await?;
        held.insert(key, lock);
    }
    println!("holding");
    Ok(held)
}

/// Takes the key, holds it and releases it, until the program ends.
async fn contend<L: Library>(
    library: L,
    key: String,
    task: u64,
    hold: Duration,
) -> Result<(), String> {
    loop {
        let lock = library.take(&key).await?;
        println!("acquired {task} {}", now_ns());
        tokio::time::sleep(hold).await;
        println!("released {task} {}", now_ns());
        L::release(lock).await?;
    }
}

async fn all(mut running: JoinSet<Result<(), String>>) -> Result<(), String> {
    while let Some(ended) = running.join_next().await {
        ended.map_err(|error| error.to_string()).flatten()?;
    }
    Ok(())
}

/// The clock that all processes of a machine share.
pub(crate) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}
