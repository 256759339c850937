//! Scenarios in which nobody else wants a lock: `roundtrip`, `distant`, `throughput` and `held`.

use super::bench::{Bench, TTL_MS, Usage, WARM_UP, float, pause, quantile};
use crate::rivals::{Process, Subject};

/// How many pairs of lock and release a turn measures.
const PAIRS: u64 = 1_500;

/// The number of pairs with a distant server, and how much longer a trip to it takes.
const DISTANT_PAIRS: u64 = 300;
const DISTANCE_US: u64 = 1_000;

/// How many tasks lock their own keys, one number for each run, and for how long.
const TASKS: [u64; 4] = [1, 10, 100, 1_000];
const SPAN_MS: u64 = 300;

/// The number of tasks at which the processor time is measured.
const TASKS_OF_CPU: u64 = 100;

/// How many locks are held, and for how long. In that time, locks are renewed once.
const HELD: u64 = 1_000;
const HELD_MS: u64 = 3_400;

/// The times of one lock and its release, in µs: p50 and p99.
pub(super) fn roundtrip(bench: &mut Bench, subject: &Subject) -> Result<Vec<f64>, String> {
    let [mut process] = bench.processes(subject)?;
    let times = times(&mut process, subject, PAIRS, 0.99)?;
    bench.keep(subject, [process]);
    Ok(times)
}

/// Like [`roundtrip`], with a server that is farther away.
pub(super) fn distant(bench: &mut Bench, subject: &Subject) -> Result<Vec<f64>, String> {
    let (_distance, address) = bench.distance(DISTANCE_US)?;
    let mut process = bench.start_at(subject, &address, TTL_MS)?;
    process.tell(&format!("roundtrip warm:{} {WARM_UP}", subject.name))?;
    process.hear("times")?;
    times(&mut process, subject, DISTANT_PAIRS, 0.99)
}

/// The times of this many pairs, in µs: p50, and another quantile.
pub(super) fn times(
    process: &mut Process,
    subject: &Subject,
    pairs: u64,
    other: f64,
) -> Result<Vec<f64>, String> {
    process.tell(&format!("roundtrip alone:{} {pairs}", subject.name))?;
    let times = process.hear("times")?;
    let times: Option<Vec<u64>> = times.iter().map(|time| time.parse().ok()).collect();
    let mut times = times.ok_or("it said no times")?;
    Ok(vec![quantile(&mut times, 0.5)? / 1e3, quantile(&mut times, other)? / 1e3])
}

/// The cycles per second of more and more tasks, and the processor time of one cycle, in µs.
pub(super) fn throughput(bench: &mut Bench, subject: &Subject) -> Result<Vec<f64>, String> {
    let [mut process] = bench.processes(subject)?;
    let (mut figures, mut cpu_us) = (Vec::new(), 0.0);
    for tasks in TASKS {
        let before = Usage::of(&process)?;
        process.tell(&format!("throughput own:{} {tasks} {SPAN_MS}", subject.name))?;
        let [cycles, ns] = process.numbers("cycles")?;
        figures.push(float(cycles) / (float(ns) / 1e9));
        if tasks == TASKS_OF_CPU {
            let used_ms = Usage::of(&process)?.cpu_ms - before.cpu_ms;
            cpu_us = float(used_ms) * 1e3 / float(cycles.max(1));
        }
    }
    figures.push(cpu_us);
    bench.keep(subject, [process]);
    Ok(figures)
}

/// The costs of a held lock: bytes in the client, bytes at the server, and the processor time that
/// the client needs for all locks while nothing happens, in percent of a core.
pub(super) fn held(bench: &mut Bench, subject: &Subject) -> Result<Vec<f64>, String> {
    let mut process = bench.start(subject, TTL_MS)?;
    process.tell(&format!("roundtrip warm:{} {WARM_UP}", subject.name))?;
    process.hear("times")?;
    let (before, at_server) = (Usage::of(&process)?, bench.server.memory_of_keys()?);
    process.tell(&format!("hold held:{} {HELD}", subject.name))?;
    process.hear("holding")?;
    let (held, held_at_server) = (Usage::of(&process)?, bench.server.memory_of_keys()?);
    pause(HELD_MS);
    let after = Usage::of(&process)?;
    // The process is not kept, since no later turn needs its locks.
    process.kill();
    bench.server.flush()?;
    let each = |before: u64, after: u64| float(after.saturating_sub(before)) / float(HELD);
    Ok(vec![
        each(before.resident, held.resident),
        each(at_server, held_at_server),
        float(after.cpu_ms - held.cpu_ms) / float(HELD_MS) * 100.0,
    ])
}
