//! Who descends from us, as /proc shows it.
//!
//! We are the *subreaper* of everything below: what loses its parent becomes our child, also after
//! it moved to a session of its own. So the walk from us down finds every process that the command
//! started and that still lives.

use std::collections::HashSet;
use std::fs;

use rustix::process::{Pid, PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal};

/// One process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Process {
    pid: i32,
    parent: i32,
    dead: bool,
    /// With the pid, this names a process for good: pids come again.
    started: u64,
}

/// The children that we have already. A shell that replaced itself by us leaves us its own
/// background jobs: they are none of our business.
pub(crate) fn children() -> HashSet<i32> {
    let us = getpid().as_raw_nonzero().get();
    processes()
        .into_iter()
        .filter(|process| process.parent == us)
        .map(|process| process.pid)
        .collect()
}

/// How many processes below us are alive, leaving out `strangers` and what is below them.
pub(crate) fn count(strangers: &HashSet<i32>) -> usize {
    below_us(strangers).len()
}

/// Signals every process below us that is alive.
pub(crate) fn signal(strangers: &HashSet<i32>, signals: &[Signal]) {
    for process in below_us(strangers) {
        let Some(pid) = Pid::from_raw(process.pid) else { continue };
        // The handle is taken first and the process looked at again through its pid: if it is still
        // the same one, the handle is of that one, too.
        let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else { continue };
        if read(process.pid).is_some_and(|again| again.started == process.started) {
            for signal in signals {
                // It may end at any time, and then needs no signal.
                let _ = pidfd_send_signal(&handle, *signal);
            }
        }
    }
}

fn below_us(strangers: &HashSet<i32>) -> Vec<Process> {
    let us = getpid().as_raw_nonzero().get();
    descendants(&processes(), us, strangers)
}

fn descendants(all: &[Process], of: i32, strangers: &HashSet<i32>) -> Vec<Process> {
    let mut found: Vec<Process> = Vec::new();
    let mut parents = vec![of];
    while let Some(parent) = parents.pop() {
        for process in all.iter().filter(|process| process.parent == parent) {
            // A listing is no snapshot; a pid that came again must not lead in a circle.
            let known = found.iter().any(|other| other.pid == process.pid);
            if !known && process.pid != of && !strangers.contains(&process.pid) {
                found.push(*process);
                parents.push(process.pid);
            }
        }
    }
    found.retain(|process| !process.dead);
    found
}

fn processes() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries.flatten().filter_map(|entry| read(entry.file_name().to_str()?.parse().ok()?)).collect()
}

fn read(pid: i32) -> Option<Process> {
    parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Reads `/proc/PID/stat`, see proc(5). The name of the command, in parentheses, may hold anything.
fn parse(stat: &str) -> Option<Process> {
    let pid = stat.split_once(' ')?.0.parse().ok()?;
    let fields: Vec<&str> = stat[stat.rfind(')')? + 1..].split_ascii_whitespace().collect();
    Some(Process {
        pid,
        parent: fields.get(1)?.parse().ok()?,
        dead: matches!(*fields.first()?, "Z" | "X" | "x"),
        started: fields.get(19)?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_read_whatever_its_name_is() {
        let stat = "42 (a) Z 1 (b) S 7 42 42 0 -1 4194304 1 0 0 0 1 2 3 4 20 0 1 0 987 1000 1";
        let expected = Process { pid: 42, parent: 7, dead: false, started: 987 };
        assert_eq!(parse(stat), Some(expected));
        for broken in ["", "42", "42 (x", "42 (x)", "42 (x) S 7", "x (x) S 7"] {
            assert_eq!(parse(broken), None, "{broken}");
        }
    }

    #[test]
    fn only_what_is_alive_and_below_is_found_and_strangers_are_left_alone() {
        let process = |pid, parent| Process { pid, parent, dead: false, started: 0 };
        let all = [
            process(1, 0),
            process(10, 1),
            process(11, 10),
            Process { dead: true, ..process(12, 10) },
            process(13, 11),
            process(20, 10),
            process(21, 20),
            process(30, 1),
        ];
        let strangers = HashSet::from([20]);
        let mut pids: Vec<i32> =
            descendants(&all, 10, &strangers).iter().map(|process| process.pid).collect();
        pids.sort_unstable();
        assert_eq!(pids, [11, 13]);
    }

    #[test]
    fn a_listing_with_a_circle_in_it_ends() {
        let process = |pid, parent| Process { pid, parent, dead: false, started: 0 };
        let all = [process(2, 3), process(3, 2), process(2, 1)];
        assert_eq!(descendants(&all, 1, &HashSet::new()).len(), 2);
    }
}
