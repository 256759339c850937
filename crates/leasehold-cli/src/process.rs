//! Single processes, as /proc shows them.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use rustix::fs::{Access, access};
use rustix::process::{Signal, getpid};

/// The name of a [keeper](crate::supervise::keeper) that ps(1) shows. It differs from ours, so that
/// ending `leasehold` by name spares it.
pub(crate) const KEEPER_NAME: &str = "lh-keeper";

/// One process, as `/proc/PID/stat` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    pub(crate) parent: i32,
    /// Its process group; 0 if that is outside our pid namespace.
    pub(crate) group: i32,
    /// Its session; 0 if that is outside our pid namespace.
    pub(crate) session: i32,
    /// The number of its terminal; 0 if it has none.
    pub(crate) terminal: i32,
    /// No thread is left. After the main thread has ended, other threads may live on.
    pub(crate) is_dead: bool,
    pub(crate) has_threads: bool,
    /// Whether it bears the name of a keeper.
    pub(crate) is_keeper: bool,
    /// When it was forked, in ticks of the kernel.
    pub(crate) started: u64,
}

/// The file that execvp(3) runs for this word. It is the first executable file in PATH, unless the
/// word is a path.
pub(crate) fn program_file(word: &OsStr) -> Option<PathBuf> {
    let can_run = |file: &PathBuf| file.is_file() && access(file, Access::EXEC_OK).is_ok();
    if word.as_bytes().contains(&b'/') {
        return Some(word.into()).filter(can_run);
    }
    let places = std::env::var_os("PATH")?;
    std::env::split_paths(&places).map(|place| place.join(word)).find(can_run)
}

/// Whether a process bears the name of a keeper.
pub(crate) fn is_keeper(pid: i32) -> bool {
    read(pid).is_some_and(|process| process.is_keeper)
}

/// Reads one process; `None` if there is none, or no /proc.
pub(crate) fn read(pid: i32) -> Option<Process> {
    parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Reads our own process from `/proc/self`. That works even if /proc shows another pid namespace.
fn read_own() -> Option<Process> {
    parse(&fs::read_to_string("/proc/self/stat").ok()?)
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
        group: fields.get(2)?.parse().ok()?,
        session: fields.get(3)?.parse().ok()?,
        terminal: fields.get(4)?.parse().ok()?,
        is_dead: matches!(*fields.first()?, "Z" | "X" | "x") && threads <= 1,
        has_threads: threads > 1,
        is_keeper: name == KEEPER_NAME,
        started: fields.get(19)?.parse().ok()?,
    })
}

/// Whether somebody could continue us if we stopped.
pub(crate) fn can_be_continued() -> bool {
    match read_own() {
        Some(own) => leads_another_job_above(own, read, may_lead_jobs),
        // Without /proc, assume a shell, which is likelier than none.
        None => true,
    }
}

/// Whether a process may be a shell that continues jobs. A shell ignores SIGTSTP, which Ctrl-Z
/// sends. The first process of most containers, such as tini, does not. A keeper is no shell
/// either.
fn may_lead_jobs(process: &Process) -> bool {
    !process.is_keeper && (process.pid != 1 || Ignored::of(1).has(Signal::TSTP))
}

/// Whether we have a terminal. Without /proc, one is likelier than none.
pub(crate) fn has_terminal() -> bool {
    read_own().is_none_or(|own| own.terminal != 0)
}

/// Whether a process is in our process group. False if there is no such process.
pub(crate) fn is_of_our_group(pid: i32) -> bool {
    read(pid).zip(read_own()).is_some_and(|(theirs, own)| theirs.group == own.group)
}

/// Whether a process above `own`, in its session, leads another job and may continue it. A process
/// that cannot be read counts as such a process.
fn leads_another_job_above(
    own: Process,
    read: impl Fn(i32) -> Option<Process>,
    may_lead_jobs: impl Fn(&Process) -> bool,
) -> bool {
    let mut process = own;
    // No process above the leader of a session is in that session. A parent outside our pid
    // namespace has the pid 0 here.
    while process.pid != process.session && process.parent != 0 {
        let Some(above) = read(process.parent) else { return true };
        if above.session != own.session {
            return false;
        }
        if above.group != own.group && may_lead_jobs(&above) {
            return true;
        }
        process = above;
    }
    false
}

/// Whether we are the first process of our pid namespace. No signal from inside the namespace stops
/// that process.
pub(crate) fn is_first() -> bool {
    getpid().as_raw_nonzero().get() == 1
}

/// The signals that a process ignores, as a bit mask.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ignored(u64);

impl Ignored {
    /// The signals that were ignored when we started. Call this before anything changes them.
    /// Rust's runtime has already made us ignore PIPE by then.
    pub(crate) fn at_start() -> Self {
        Self::shown_in("/proc/self/status")
    }

    /// The signals that another process ignores; none if its status cannot be read.
    pub(crate) fn of(pid: i32) -> Self {
        Self::shown_in(&format!("/proc/{pid}/status"))
    }

    fn shown_in(path: &str) -> Self {
        fs::read_to_string(path).map_or(Self(0), |status| Self::in_status(&status))
    }

    fn in_status(status: &str) -> Self {
        let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        Self(mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0))
    }

    /// Whether `signal` is ignored.
    pub(crate) fn has(self, signal: Signal) -> bool {
        self.0 >> (signal.as_raw() - 1) & 1 == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_read_whatever_its_name_is() {
        let stat = "42 (a) Z 1 (b) S 7 43 44 0 -1 4194304 1 0 0 0 1 2 3 4 20 0 1 0 987 1000 1";
        let expected = Process {
            pid: 42,
            parent: 7,
            group: 43,
            session: 44,
            terminal: 0,
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

    /// The kernel shows a group or a session outside our pid namespace as 0.
    #[test]
    fn the_leader_of_another_job_above_us_in_our_session_could_continue_us() {
        let process = |pid, parent, group, session| Process {
            pid,
            parent,
            group,
            session,
            terminal: 0,
            is_dead: false,
            has_threads: false,
            is_keeper: false,
            started: 1,
        };
        let keeper = Process { is_keeper: true, ..process(20, 10, 20, 5) };
        let own = process(30, 20, 30, 5);
        let cases = [
            ("a shell", own, vec![process(20, 10, 20, 5)], true),
            (
                "a script of our job above it a shell",
                process(31, 30, 30, 5),
                vec![process(30, 20, 30, 5), process(20, 10, 20, 5)],
                true,
            ),
            (
                "of our job, and above it one that cannot be read",
                own,
                vec![process(20, 10, 30, 5)],
                true,
            ),
            ("a keeper alone", own, vec![keeper, process(10, 0, 9, 4)], false),
            ("a keeper, above it a shell", own, vec![keeper, process(10, 0, 10, 5)], true),
            ("another session", own, vec![process(20, 10, 20, 4)], false),
            ("a session outside our namespace", own, vec![process(20, 10, 0, 0)], false),
            (
                "one of our job that leads our session",
                process(30, 5, 30, 5),
                vec![process(5, 2, 30, 5)],
                false,
            ),
            ("nobody, as we lead the session", process(5, 2, 5, 5), vec![], false),
            (
                "process 1 of a container, which is not a shell",
                own,
                vec![process(20, 1, 30, 5), process(1, 0, 1, 5)],
                false,
            ),
            ("nobody", process(1, 0, 1, 1), vec![], false),
            ("all of us outside", process(2, 1, 0, 0), vec![process(1, 0, 0, 0)], false),
        ];
        for (above, own, processes, expected) in cases {
            let read = |pid| processes.iter().copied().find(|process| process.pid == pid);
            let is_no_init = |process: &Process| !process.is_keeper && process.pid != 1;
            assert_eq!(leads_another_job_above(own, read, is_no_init), expected, "{above}");
        }
    }

    #[test]
    fn ignored_signals_are_read_from_the_mask() {
        let mask = Ignored::in_status("Name:\tx\nSigIgn:\t0000000000000003\nSigCgt:\tffff\n");
        assert!(mask.has(Signal::HUP) && mask.has(Signal::INT));
        assert!(!mask.has(Signal::TERM) && !mask.has(Signal::QUIT));
        assert_eq!(Ignored::in_status("nothing of that kind").0, 0);
    }
}
