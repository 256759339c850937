//! Whether a keeper is above this process, and so kills it when the lock of that keeper is lost.
//!
//! The environment names the keeper, and may have been copied anywhere: to another process tree, by
//! `docker exec` or by ssh. So we follow our parents in `/proc` up to the keeper. If that fails for
//! any reason, there is no proof.

use std::fmt;
use std::fs;

use rustix::process::{getpid, getuid};

use super::tree::is_shown_in_proc;
use crate::hash::fnv_1a;
use crate::process::{Process, read};

/// The most ancestors to look at.
const DEPTH_MAX: usize = 10_000;

/// How many walks to try, each from ourselves upwards.
const WALKS_MAX: usize = 5;

/// A keeper. Its mark tells it from other processes with its pid: later ones, and those of other
/// containers and machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeeperId {
    pid: i32,
    mark: u64,
}

impl KeeperId {
    /// The id of this process as a keeper.
    pub(super) fn ours() -> Option<Self> {
        let pid = our_pid()?;
        Some(Self { pid, mark: mark(&read(pid)?)? })
    }

    /// Reads what `Display` wrote.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (pid, mark) = text.split_once('.')?;
        Some(Self { pid: pid.parse().ok()?, mark: u64::from_str_radix(mark, 16).ok()? })
    }

    /// Whether this process surely descends from that keeper, which may kill it.
    pub(crate) fn is_above_us(self) -> bool {
        self.find().is_some_and(|keeper| {
            !keeper.is_dead && mark(&keeper) == Some(self.mark) && may_kill_us(keeper.pid)
        })
    }

    /// Our ancestor with the pid of the keeper.
    fn find(self) -> Option<Process> {
        // A parent that ends during a walk ends the walk, since we have another parent by then.
        (0..WALKS_MAX).find_map(|_| self.walk())
    }

    fn walk(self) -> Option<Process> {
        let mut process = read(our_pid()?)?;
        for _ in 0..DEPTH_MAX {
            let parent = read(process.parent)?;
            // A parent is older than its child. A younger process got the pid of a parent that has
            // ended meanwhile.
            if parent.started > process.started {
                return None;
            }
            if parent.pid == self.pid {
                return Some(parent);
            }
            process = parent;
        }
        None
    }
}

impl fmt::Display for KeeperId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:x}", self.pid, self.mark)
    }
}

/// Our pid, if `/proc` shows the processes of our namespace.
fn our_pid() -> Option<i32> {
    let pid = getpid().as_raw_nonzero().get();
    is_shown_in_proc(pid).then_some(pid)
}

fn mark(process: &Process) -> Option<u64> {
    let namespace = fs::read_link("/proc/self/ns/pid").ok()?;
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(mark_of(process, namespace.to_str()?, boot.trim()))
}

fn mark_of(process: &Process, namespace: &str, boot: &str) -> u64 {
    let Process { pid, started, .. } = process;
    fnv_1a(format!("{pid} {started} {namespace} {boot}").as_bytes())
}

/// Whether the kernel lets that process kill us, because it has our user or is root.
fn may_kill_us(pid: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    let effective = users.and_then(|users| users.split_whitespace().nth(1)?.parse().ok());
    effective.is_some_and(|user: u32| user == 0 || user == getuid().as_raw())
}

#[cfg(test)]
mod tests {
    use rustix::process::getppid;

    use super::*;

    fn id_of(pid: i32) -> KeeperId {
        KeeperId { pid, mark: mark(&read(pid).expect("it lives")).expect("Linux tells") }
    }

    #[test]
    fn only_an_ancestor_is_above_us() {
        let parent = id_of(getppid().expect("a parent").as_raw_nonzero().get());
        assert!(parent.is_above_us());
        assert!(!KeeperId::ours().expect("Linux tells").is_above_us(), "not above itself");
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().expect("sleep(1)");
        let below = id_of(i32::try_from(child.id()).expect("a pid"));
        assert!(!below.is_above_us(), "below us");
        child.kill().expect("it is ours");
        child.wait().expect("it is ours");
        assert!(!below.is_above_us(), "dead");
    }

    #[test]
    fn another_process_with_the_pid_of_an_ancestor_is_not_above_us() {
        let parent = id_of(getppid().expect("a parent").as_raw_nonzero().get());
        let mark = parent.mark ^ 1;
        assert!(!KeeperId { mark, ..parent }.is_above_us());
    }

    /// Another build of `leasehold` below this keeper must find the same mark.
    #[test]
    fn a_keeper_has_the_same_mark_in_every_build() {
        let ours = read(our_pid().expect("Linux tells")).expect("we live");
        let keeper = Process { pid: 7, started: 11, ..ours };
        assert_eq!(mark_of(&keeper, "pid:[4026531836]", "b007"), 0xc7ec_5ef7_4972_f84c);
    }

    #[test]
    fn a_keeper_is_read_as_it_was_written() {
        let ours = KeeperId::ours().expect("Linux tells");
        assert_eq!(KeeperId::parse(&ours.to_string()), Some(ours));
        for text in ["", "-", "12", "12.", ".ff", "x.ff", "12.xyz"] {
            assert_eq!(KeeperId::parse(text), None, "{text}");
        }
    }
}
