//! Single processes, as /proc shows them.

use std::fs;

use rustix::process::{Pid, getpgid, getpgrp, getpid, getppid, getsid};

/// The name of a [keeper](crate::supervise::keeper) that ps(1) shows. It differs from ours, so that
/// ending `leasehold` by name spares it.
pub(crate) const KEEPER_NAME: &str = "lh-keeper";

/// One process, as `/proc/PID/stat` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    pub(crate) parent: i32,
    /// No thread is left. After the main thread has ended, other threads may live on.
    pub(crate) is_dead: bool,
    pub(crate) has_threads: bool,
    /// Whether it bears the name of a keeper.
    pub(crate) is_keeper: bool,
    /// When it was forked, in ticks of the kernel.
    pub(crate) started: u64,
}

/// Whether a process bears the name of a keeper.
pub(crate) fn is_keeper(pid: i32) -> bool {
    read(pid).is_some_and(|process| process.is_keeper)
}

/// Reads one process; `None` if there is none, or no /proc.
pub(crate) fn read(pid: i32) -> Option<Process> {
    parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Reads `/proc/PID/stat`, see proc(5). The command name in parentheses can contain anything.
fn parse(stat: &str) -> Option<Process> {
    let pid = stat.split_once(' ')?.0.parse().ok()?;
    let (name, fields) = stat.split_once(" (")?.1.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
    let threads: u32 = fields.get(17)?.parse().ok()?;
    Some(Process {
        pid,
        parent: fields.get(1)?.parse().ok()?,
        is_dead: matches!(*fields.first()?, "Z" | "X" | "x") && threads <= 1,
        has_threads: threads > 1,
        is_keeper: name == KEEPER_NAME,
        started: fields.get(19)?.parse().ok()?,
    })
}

/// Whether somebody could continue us if we stopped: a process above us, in our session, leads
/// another job. For the kernel, a keeper above us or of our command looks like such a shell.
pub(crate) fn can_be_continued() -> bool {
    let (group, session) = (getpgrp(), getsid(None).ok());
    let mut above = getppid();
    while let Some(pid) = above {
        if getsid(Some(pid)).ok() != session {
            return false;
        }
        let Some(process) = read(pid.as_raw_nonzero().get()) else { return true };
        if !process.is_keeper && getpgid(Some(pid)).ok() != Some(group) {
            return true;
        }
        above = Pid::from_raw(process.parent);
    }
    false
}

/// Whether we are the first process of our pid namespace, which no signal of its own stops.
pub(crate) fn is_first() -> bool {
    getpid().as_raw_nonzero().get() == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_read_whatever_its_name_is() {
        let stat = "42 (a) Z 1 (b) S 7 42 42 0 -1 4194304 1 0 0 0 1 2 3 4 20 0 1 0 987 1000 1";
        let expected = Process {
            pid: 42,
            parent: 7,
            is_dead: false,
            has_threads: false,
            is_keeper: false,
            started: 987,
        };
        assert_eq!(parse(stat), Some(expected));
        let keeper = stat.replace("a) Z 1 (b", KEEPER_NAME);
        assert_eq!(parse(&keeper), Some(Process { is_keeper: true, ..expected }));
        for broken in ["", "42", "42 (x", "42 (x)", "42 (x) S 7", "x (x) S 7"] {
            assert_eq!(parse(broken), None, "{broken}");
        }
    }

    #[test]
    fn a_process_whose_main_thread_has_ended_is_dead_only_without_other_threads() {
        let of = |threads: u32| {
            let stat = format!("42 (x) Z 7 42 42 0 -1 4 1 0 0 0 1 2 3 4 20 0 {threads} 0 9 1 1");
            parse(&stat).expect("a process").is_dead
        };
        assert!(of(1) && !of(2));
    }
}
