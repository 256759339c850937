//! `contender` wants one lock all the time, and prints when it has it. `interop/README.md`
//! describes its arguments and its output. The programs of other libraries have the same.

#![allow(clippy::disallowed_methods, reason = "a process of its own, with the real clock")]

use std::io::Read as _;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold::host::{Host as _, SystemHost};
use leasehold::{Client, Error, Mutex, Release};
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::Notify;
use tokio::task::JoinSet;

const USAGE: &str = "usage: contender ADDRESS NAME TASKS HOLD_MS TTL_MS";

fn main() -> Result<(), String> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [address, name, tasks, hold_ms, ttl_ms] = args.as_slice() else {
        return Err(USAGE.to_owned());
    };
    let number = |text: &String| text.parse::<u64>().map_err(|_| USAGE.to_owned());
    let (tasks, hold) = (number(tasks)?, Duration::from_millis(number(hold_ms)?));
    let ttl = Duration::from_millis(number(ttl_ms)?);
    let runtime = tokio::runtime::Runtime::new().map_err(|error| error.to_string())?;
    let url = format!("redis://{address}");
    let done = runtime.block_on(contend(&url, name, tasks, hold, ttl));
    done.map_err(|error| error.to_string())
}

async fn contend(
    url: &str,
    name: &str,
    tasks: u64,
    hold: Duration,
    ttl: Duration,
) -> Result<(), Error> {
    let over = Arc::new(Notify::new());
    let told = Arc::clone(&over);
    std::thread::spawn(move || {
        let _end = std::io::stdin().read_to_end(&mut Vec::new());
        told.notify_one();
    });
    let client = Client::connect(url).await?;
    say("start");
    let mut running = JoinSet::new();
    for task in 0..tasks {
        running.spawn(want(client.mutex(name).ttl(ttl), task, hold));
    }
    tokio::select! {
        () = over.notified() => {}
        Some(failed) = running.join_next() => {
            return failed.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
        }
    }
    // Dropping a guard or a wait releases what it has.
    running.shutdown().await;
    client.shutdown(Duration::from_secs(1)).await;
    Ok(())
}

/// Takes the lock again and again. Ends only with an error.
async fn want(mutex: Mutex, task: u64, hold: Duration) -> Result<(), Error> {
    loop {
        let guard = mutex.lock().await?;
        say(&format!("acquired {task}"));
        SystemHost.sleep_until(SystemHost.now() + hold).await;
        say(&format!("released {task}"));
        assert_eq!(guard.release().await?, Release::Released, "the lock was lost");
    }
}

fn say(event: &str) {
    let now = clock_gettime(ClockId::Monotonic);
    let at = now.tv_sec * 1_000_000_000 + now.tv_nsec;
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    println!("{event} {at} {}", wall.as_millis());
}
