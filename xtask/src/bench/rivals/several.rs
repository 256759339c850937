//! The scenario with several servers: `quorum`.

use std::time::{Duration, Instant};

use super::alone::times;
use super::bench::{Bench, TTL_MS, WARM_UP};
use crate::rivals::{Server, Subject};

/// The number of servers, and how many of them may be silent.
const SERVERS: usize = 5;
const SILENT_MAX: usize = 2;

/// How many pairs of lock and release are measured with all servers, and with silent ones. Some
/// libraries take seconds for each pair with silent servers, so they stop early.
const PAIRS: u64 = 300;
const SILENT_PAIRS: usize = 10;
const SILENT_FOR: Duration = Duration::from_secs(8);

/// The times of one lock and its release over five servers, in µs: p50 while all servers answer,
/// then p50 and the longest with one silent server and with two.
pub(super) fn quorum(bench: &mut Bench, subject: &Subject) -> Result<Vec<f64>, String> {
    let servers = (0..SERVERS).map(|_| Server::start()).collect::<Result<Vec<_>, _>>()?;
    let addresses: Vec<_> = servers.iter().map(Server::address).collect();
    let mut process = bench.start_at(subject, &addresses.join(","), TTL_MS)?;
    process.tell(&format!("roundtrip warm:{} {WARM_UP}", subject.name))?;
    process.hear("times")?;
    let mut figures = vec![times(&mut process, subject, PAIRS, 0.5)?[0]];
    for server in &servers[..SILENT_MAX] {
        server.stop()?;
        let (mut each, until) = (Vec::new(), Instant::now() + SILENT_FOR);
        while each.len() < SILENT_PAIRS && (each.is_empty() || Instant::now() < until) {
            each.push(times(&mut process, subject, 1, 1.0)?[0]);
        }
        each.sort_by(f64::total_cmp);
        figures.extend([each[each.len() / 2], each[each.len() - 1]]);
    }
    Ok(figures)
}
