//! The contender of rslock. See ../README.md.

use std::io::Read as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rslock::LockManager;
use rustix::time::{ClockId, clock_gettime};

fn say(event: &str) {
    let now = clock_gettime(ClockId::Monotonic);
    let at = now.tv_sec * 1_000_000_000 + now.tv_nsec;
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970");
    println!("{event} {at} {}", wall.as_millis());
}

#[tokio::main]
async fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [address, name, tasks, hold_ms, ttl_ms] = args.as_slice() else {
        eprintln!("usage: contender ADDRESS NAME TASKS HOLD_MS TTL_MS");
        std::process::exit(64);
    };
    let number = |text: &String| text.parse::<u64>().expect("a number");
    let (hold, ttl) = (number(hold_ms), number(ttl_ms));
    let over = Arc::new(AtomicBool::new(false));
    say("start");
    let mut running = Vec::new();
    for task in 0..number(tasks) {
        let (over, name, url) = (Arc::clone(&over), name.clone(), format!("redis://{address}"));
        running.push(tokio::spawn(async move {
            let locks = LockManager::new(vec![url]);
            while !over.load(Ordering::Relaxed) {
                // Fails after three tries of its own, 200 ms apart.
                let Ok(lock) = locks.lock(name.as_bytes(), Duration::from_millis(ttl)).await else {
                    continue;
                };
                say(&format!("acquired {task}"));
                tokio::time::sleep(Duration::from_millis(hold)).await;
                say(&format!("released {task}"));
                locks.unlock(&lock).await;
            }
        }));
    }
    std::thread::spawn(move || {
        let _read = std::io::stdin().read_to_end(&mut Vec::new());
        over.store(true, Ordering::Relaxed);
    });
    for task in running {
        task.await.expect("it does not panic");
    }
}
