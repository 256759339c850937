//! Tests that the child of `leasehold run` dies in time when its server is out of reach.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold::core::Moment;
use leasehold::host::{Host as _, SystemHost};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::record::BlackHoles;
use super::span;
use crate::history::event::What;
use crate::history::from_line;
use crate::servers::process::Process;
use crate::servers::{PATIENCE, Proxy, RedisServer, Way};
use crate::virtual_host::SeededRandom;

/// How many children are tested side by side.
const AT_ONCE: u64 = 4;

/// How often a child reports that it lives.
const ALIVE_EVERY_MS: u64 = 2;

/// How long to wait for the death of a child.
const LIMIT: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };

/// The end of one child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fate {
    /// Whether the child ignored the request to stop.
    pub stubborn: bool,
    /// When it last reported that it lives.
    pub last_word: Moment,
    /// When it was seen to be dead.
    pub seen_dead: Moment,
    /// The earliest moment at which the server frees the key.
    pub freed: Moment,
}

impl Fate {
    /// Whether it was dead before the server could free the key.
    #[must_use]
    pub fn in_time(&self) -> bool {
        self.last_word < self.freed && self.seen_dead < self.freed
    }
}

/// Tests that many children. Every second child ignores the request to stop.
///
/// # Panics
///
/// If a server or a process does not start or does not end.
pub fn run(chaos: &Path, leasehold: &Path, times: u64, seed: u64) -> BlackHoles {
    let server = RedisServer::start();
    let (next, in_time) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE.min(times) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= times {
                        return;
                    }
                    let mut random = SeededRandom::new(seed.wrapping_add(number));
                    let fate = fall(&server, chaos, leasehold, number, &mut random);
                    if fate.in_time() {
                        in_time.fetch_add(1, Ordering::Relaxed);
                    } else {
                        println!("black hole {number}: not dead in time: {fate:?}");
                    }
                }
            });
        }
    });
    BlackHoles { tried: times, child_dead_in_time: in_time.into_inner() }
}

/// Tests one child. At some moment, the network to its server begins to swallow everything.
fn fall(
    server: &RedisServer,
    chaos: &Path,
    leasehold: &Path,
    number: u64,
    random: &mut SeededRandom,
) -> Fate {
    let (key, stubborn) = (format!("hole-{number}"), number % 2 == 1);
    let proxy = Proxy::to(server.port());
    let child = format!(
        "{}exec {} child --process 1 --lives-ms 60000 --every-ms {ALIVE_EVERY_MS}",
        if stubborn { "trap '' TERM; " } else { "" },
        chaos.display()
    );
    let url = proxy.url();
    let args = ["-q", "run", &key, "--url", &url, "--ttl", "1s", "--", "sh", "-c", &child];
    let log = tempfile::tempfile().expect("a temporary file");
    let program = leasehold.to_str().expect("a path in UTF-8");
    let started = Process::start_piped(program, &args, &log);
    let (process, _stdin, stdout) = started.expect("a process can be started");
    let mut lines = std::io::BufRead::split(std::io::BufReader::new(stdout), b'\n');
    let mut next = || {
        let line = lines.next()?.ok()?;
        from_line(&String::from_utf8_lossy(&line)).ok()
    };
    next().expect("the child begins");
    let child = child_of(process.pid());
    // The network fails at any moment between two renewals.
    let falls = SystemHost.now() + span(random, 0, 1_000);
    let mut last_word = SystemHost.now();
    while last_word < falls {
        last_word = next().expect("the child lives").at;
    }
    proxy.hold(Way::Both);
    let freed = freed_at(server, &key);
    assert_eq!(poll(&mut [PollFd::new(&child, PollFlags::IN)], Some(&LIMIT)), Ok(1), "it dies");
    let seen_dead = SystemHost.now();
    while let Some(event) = next() {
        if matches!(event.what, What::Extended { .. }) {
            last_word = event.at;
        }
    }
    assert!(process.ends_within(PATIENCE), "`leasehold run` ends");
    Fate { stubborn, last_word, seen_dead, freed }
}

/// The child of a process.
fn child_of(pid: i32) -> OwnedFd {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let children = children.expect("the kernel tells who is whose child");
    let child = children.split_whitespace().next().and_then(|child| child.parse().ok());
    let child = child.and_then(Pid::from_raw).expect("it has a child");
    pidfd_open(child, PidfdFlags::empty()).expect("the child lives")
}

/// The earliest moment at which the server can free a key that is not renewed.
fn freed_at(server: &RedisServer, key: &str) -> Moment {
    // The server rounds down, and keeps a key until the end of its last millisecond.
    let asked = SystemHost.now();
    let left = server.command(&["PTTL", key]).int();
    asked + Duration::from_millis(u64::try_from(left).expect("the child holds the lock"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_in_time_only_if_it_is_seen_dead_before_the_key_is_free() {
        let at = |ms: u64| Moment::from_nanos(ms * 1_000_000);
        let fate = |last_word, seen_dead| Fate {
            stubborn: true,
            last_word: at(last_word),
            seen_dead: at(seen_dead),
            freed: at(1_000),
        };
        assert!(fate(970, 980).in_time());
        assert!(!fate(970, 1_000).in_time());
        assert!(!fate(1_001, 1_002).in_time());
    }
}
