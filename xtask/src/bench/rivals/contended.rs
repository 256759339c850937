//! Scenarios in which processes want the same lock: `handoff`, `hot`, `waiters` and `takeover`.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::bench::{Bench, float, pause, quantile};
use crate::rivals::{Process, Subject, now_ns};

/// For how long a turn hands locks over, and how often at most.
const HANDING: Duration = Duration::from_millis(1_200);
const HANDED_MAX: usize = 100;

/// How many keys are handed over side by side if a rival polls seldom. With one key, a turn would
/// measure few hand-overs.
const SIDE_BY_SIDE: u64 = 8;
const SELDOM_MS: u64 = 50;

/// The shortest pause before a release. After it, the other process waits.
const PAUSE_MIN_MS: u64 = 6;

/// How many processes and tasks want the hot key, when they start after the order, and for how
/// long they want it.
const PROCESSES: usize = 4;
const TASKS: u64 = 25;
const BARRIER_NS: u64 = 150_000_000;
const HOT_NS: u64 = 800_000_000;

/// How many tasks of each process wait, after which time the count begins, and for how long it goes
/// on. The count is longer than the ttl, since waiters of some libraries ask again when a ttl ends.
const WAITERS: u64 = 250;
const WAITED_TTL_MS: u64 = 4_000;
const SETTLE_MS: u64 = 1_000;
const COUNTED: Duration = Duration::from_millis(4_200);

/// How often the bench prolongs the lock that stays taken. Some libraries do not renew.
const PROLONGED: Duration = Duration::from_millis(500);

/// How many locks of a process that is killed are taken over, and their ttl.
const TAKEN_OVER: u64 = 8;
const SHORT_TTL_MS: u64 = 2_000;

/// The time from the release in one process to the lock in another one, in ms: p50 and p99.
pub(super) fn handoff(bench: &mut Bench, subject: &Subject) -> Result<Vec<f64>, String> {
    let [mut holder, mut waiter] = bench.processes(subject)?;
    let is_seldom = subject.period_ms >= SELDOM_MS;
    let count = if is_seldom { SIDE_BY_SIDE } else { 1 };
    let keys: Vec<_> = (0..count).map(|n| format!("handed:{}:{n}", subject.name)).collect();
    for key in &keys {
        holder.tell(&format!("lock {key}"))?;
        holder.hear("held")?;
    }
    let (mut times, until, mut round) = (Vec::new(), Instant::now() + HANDING, 0);
    while Instant::now() < until && times.len() < HANDED_MAX {
        hand_over(subject, &keys, round, [&mut holder, &mut waiter], &mut times)?;
        (holder, waiter) = (waiter, holder);
        round += 1;
    }
    for key in &keys {
        holder.tell(&format!("unlock {key}"))?;
        holder.hear("freed")?;
    }
    bench.keep(subject, [holder, waiter]);
    Ok(vec![quantile(&mut times, 0.5)? / 1e6, quantile(&mut times, 0.99)? / 1e6])
}

/// One process releases all keys, each after a pause of its own, and the other process takes them.
fn hand_over(
    subject: &Subject,
    keys: &[String],
    round: u64,
    [holder, waiter]: [&mut Process; 2],
    times: &mut Vec<u64>,
) -> Result<(), String> {
    for key in keys {
        waiter.tell(&format!("lock {key}"))?;
    }
    // The pauses are spread over two periods, so that releases come at all phases of a rival's
    // polling.
    let spread_us = (subject.period_ms * 2).max(8) * 1_000;
    let mut releases: Vec<(u64, &String)> = keys
        .iter()
        .enumerate()
        .map(|(n, key)| {
            let nth = round * 8 + n as u64;
            (PAUSE_MIN_MS * 1_000 + nth * 7_919_000 % spread_us, key)
        })
        .collect();
    releases.sort_unstable();
    let start = Instant::now();
    for (us, key) in releases {
        let at = start + Duration::from_micros(us);
        std::thread::sleep(at.saturating_duration_since(Instant::now()));
        holder.tell(&format!("unlock {key}"))?;
    }
    let mut freed = HashMap::new();
    for _ in keys {
        freed.extend([holder.moment("freed")?]);
    }
    for _ in keys {
        let (key, held) = waiter.moment("held")?;
        let freed = freed.get(&key).ok_or("it holds a key that nobody released")?;
        // No other process can have had the key before the call that releases it.
        times.push(held.checked_sub(*freed).ok_or("two processes had a key at once")?);
    }
    Ok(())
}

/// Many tasks of several processes want one key: cycles per second of all, the longest wait of a
/// task in ms, and that wait divided by the mean one.
pub(super) fn hot(bench: &mut Bench, subject: &Subject) -> Result<Vec<f64>, String> {
    let mut processes: [Process; PROCESSES] = bench.processes(subject)?;
    let from = now_ns() + BARRIER_NS;
    let until = from + HOT_NS;
    for process in &mut processes {
        process.tell(&format!("hot hot:{} {TASKS} {from} {until}", subject.name))?;
    }
    let (mut cycles, mut waits, mut longest, mut sum) = (0, 0, 0, 0);
    for process in &mut processes {
        let [of_cycles, of_waits, of_longest, of_sum] = process.numbers("hot")?;
        cycles += of_cycles;
        waits += of_waits;
        longest = longest.max(of_longest);
        sum += of_sum;
    }
    bench.keep(subject, processes);
    let mean = float(sum) / float(waits.max(1));
    Ok(vec![
        float(cycles) / (float(HOT_NS) / 1e9),
        float(longest) / 1e6,
        float(longest) / mean.max(1.0),
    ])
}

/// Requests per second at the server from tasks that wait for a lock that stays taken.
pub(super) fn waiters(bench: &mut Bench, subject: &Subject) -> Result<Vec<f64>, String> {
    let start = |_| bench.start(subject, WAITED_TTL_MS);
    let mut processes: Vec<Process> = (0..=PROCESSES).map(start).collect::<Result<_, _>>()?;
    let name = format!("waited:{}", subject.name);
    processes[0].tell(&format!("lock {name}"))?;
    processes[0].hear("held")?;
    for process in &mut processes[1..] {
        process.tell(&format!("wait {name} {WAITERS}"))?;
    }
    for process in &mut processes[1..] {
        process.hear("waiting")?;
    }
    let key = subject.key(&name);
    let prolong = || bench.server.prolong(&key, WAITED_TTL_MS);
    prolong()?;
    pause(SETTLE_MS);
    let requests = bench.server.requests_within(COUNTED, PROLONGED, prolong)?;
    processes.iter_mut().try_for_each(Process::must_run)?;
    Ok(vec![float(requests) / COUNTED.as_secs_f64()])
}

/// The time from the end of the ttl of a process that was killed until another process has its
/// lock, in ms: the median and the longest.
pub(super) fn takeover(bench: &mut Bench, subject: &Subject) -> Result<Vec<f64>, String> {
    let mut holder = bench.start(subject, SHORT_TTL_MS)?;
    let mut waiter = bench.start(subject, SHORT_TTL_MS)?;
    // Warm both up before the first ttl begins.
    for process in [&mut holder, &mut waiter] {
        process.tell(&format!("roundtrip warm:{}:{} 20", subject.name, process.id()))?;
        process.hear("times")?;
    }
    let keys: Vec<_> = (0..TAKEN_OVER).map(|n| format!("orphan:{}:{n}", subject.name)).collect();
    for key in &keys {
        holder.tell(&format!("lock {key}"))?;
        holder.hear("held")?;
        pause(13);
    }
    for key in &keys {
        // Locks are taken at different times, so that the ttls end at all phases of a rival's
        // polling.
        waiter.tell(&format!("lock {key}"))?;
        pause(37);
    }
    pause(200);
    holder.kill();
    let mut ends = HashMap::new();
    for key in &keys {
        let left_ms = bench.server.time_left_ms(&subject.key(key))?;
        ends.insert(key.clone(), now_ns() + left_ms * 1_000_000);
    }
    let mut late = Vec::new();
    for _ in &keys {
        let (key, held) = waiter.moment("held")?;
        let end = ends.get(&key).ok_or("it holds a key that nobody held")?;
        late.push(held.saturating_sub(*end));
    }
    Ok(vec![quantile(&mut late, 0.5)? / 1e6, quantile(&mut late, 1.0)? / 1e6])
}
