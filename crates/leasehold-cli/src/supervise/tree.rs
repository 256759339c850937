//! The processes below us: finding them, and sending them signals.
//!
//! We are the *subreaper* of everything below us. So a process that loses its parent becomes our
//! child, even after it moved to a session of its own. So only `wait` knows whether any process is
//! left, and nothing here decides that. A scan of /proc only names processes to signal, and it may
//! miss some. A caller that must reach all of them repeats the scan until `wait` knows of none.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs;
use std::time::Duration;

use leasehold::host::{Host as _, SystemHost};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, getpid, kill_process, pidfd_open, pidfd_send_signal, waitid,
};

use super::by_wait::{ByWait, HAS_ENDED, has_children};
use crate::process::{Process, is_keeper, read};
use crate::signals::is_passed_on;

/// The processes below this one.
#[derive(Debug)]
pub(crate) struct Tree {
    us: i32,
    /// Used if `/proc` does not show our own pid namespace, since its pids mean nothing to us then.
    without_proc: Option<ByWait>,
    /// Children from before we began: if a shell replaced itself by us, its background jobs became
    /// our children. We leave them alone. No other process can get the pid of a stranger until the
    /// stranger [is reaped](Self::forget).
    strangers: HashSet<i32>,
}

/// How many processes there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Census {
    /// The number of living processes.
    pub(crate) alive: u32,
    /// The time that the scan took.
    pub(crate) took: Duration,
}

impl Census {
    /// Scans that are shorter than this need no reserve, so their differences do not matter.
    const SHORT: Duration = Duration::from_millis(1);

    /// Whether this census differs from `known`: another number of processes, or a scan that took
    /// more than twice or less than half as long.
    pub(super) fn is_news_after(&self, known: &Self) -> bool {
        let (now, then) = (self.took.max(Self::SHORT), known.took.max(Self::SHORT));
        self.alive != known.alive || now > then * 2 || then > now * 2
    }
}

impl Tree {
    /// The processes that appear below us from now on.
    pub(crate) fn new() -> Self {
        let us = getpid().as_raw_nonzero().get();
        let without_proc = (!is_shown_in_proc(us)).then(ByWait::new);
        let mut tree = Self { us, without_proc, strangers: HashSet::new() };
        if has_children() {
            tree.strangers = tree.all_children().into_iter().collect();
        }
        tree
    }

    /// Looks for orphans that strangers have left to us. While the keeper lives, it adopts those of
    /// the command, so every other child of ours is a stranger.
    pub(crate) fn adopt_strangers(&mut self, keeper: Pid) {
        // Only a stranger can leave us another one.
        if self.strangers.is_empty() || self.without_proc.is_some() {
            return;
        }
        let Some(mut children) = children_in_proc(self.us, true) else { return };
        children.retain(|pid| *pid != keeper.as_raw_nonzero().get());
        // Look at the keeper last. If it still lives, none of these children came from it.
        if matches!(waitid(WaitId::Pid(keeper), HAS_ENDED), Ok(None)) {
            self.strangers.extend(children);
        }
    }

    /// Forgets a child that was reaped, since another process may get its pid now.
    pub(crate) fn forget(&mut self, pid: Pid) {
        self.strangers.remove(&pid.as_raw_nonzero().get());
    }

    /// Whether there are strangers, and no other child is left.
    pub(crate) fn has_only_strangers(&mut self) -> bool {
        let has_strangers = !self.strangers.is_empty();
        has_strangers && self.all_children().iter().all(|pid| self.strangers.contains(pid))
    }

    /// Whether there may be processes that no scan has reached yet. Then the scans should follow
    /// each other without long pauses.
    pub(crate) fn is_not_seen_yet(&self) -> bool {
        self.without_proc.as_ref().is_some_and(|by_wait| !by_wait.has_seen_all())
    }

    /// How many processes are alive.
    pub(crate) fn census(&mut self) -> Census {
        let began = SystemHost.now();
        let mut alive = 0;
        if self.without_proc.is_none() {
            self.walk(|process| alive += u32::from(!process.is_dead));
        } else {
            alive = u32::try_from(self.ours().len()).unwrap_or(u32::MAX);
        }
        Census { alive, took: SystemHost.now().since(began) }
    }

    /// Signals every process that one scan finds.
    ///
    /// Another `leasehold run` below us passes some signals on. These are not sent to the processes
    /// under its keeper, since these processes would get them twice, which could mean two requests.
    /// A keeper gets no signal that may end it, since nobody would kill its processes then.
    pub(crate) fn signal(&mut self, signals: &[Signal]) {
        // Our children keep their pids until we reap them, and nothing reaps here. A signal fails
        // if the process has ended or belongs to another user.
        let send = |pid: i32, is_keeper: bool| {
            for signal in signals.iter().filter(|it| !is_keeper || is_for_keepers(**it)) {
                let _ = Pid::from_raw(pid).map(|pid| kill_process(pid, *signal));
            }
        };
        if let Some(by_wait) = &mut self.without_proc {
            let strangers = &self.strangers;
            // Signal each process at once, since one that forks and ends is gone when the scan is
            // over.
            return by_wait.look(|pid| {
                if !strangers.contains(&pid) {
                    // Nothing here tells which processes are keepers.
                    send(pid, false);
                }
            });
        }
        let spares_keepers = !signals.iter().all(|signal| is_for_keepers(*signal));
        let direct = |pid: i32| send(pid, spares_keepers && is_keeper(pid));
        let first: HashSet<i32> = self.ours().into_iter().collect();
        first.iter().for_each(|pid| direct(*pid));
        let us = self.us;
        let mut kept_by_others = HashSet::new();
        self.walk_with(|pid, parent| {
            if parent == us {
                if !first.contains(&pid) {
                    direct(pid);
                }
                return read(pid);
            }
            // Open the handle first. If the pid still names a child of that parent, so does the
            // handle. Linux before 5.3 has no handles, and some sandboxes allow none.
            let raw = Pid::from_raw(pid)?;
            let handle = match pidfd_open(raw, PidfdFlags::empty()) {
                Err(Errno::SRCH) => return None,
                handle => handle.ok(),
            };
            let process = read(pid)?;
            let is_kept = process.is_keeper || kept_by_others.contains(&parent);
            if is_kept {
                kept_by_others.insert(pid);
            }
            if [parent, us].contains(&process.parent) {
                for signal in signals {
                    let ends_a_keeper = process.is_keeper && !is_for_keepers(*signal);
                    let comes_twice = is_kept && is_passed_on(*signal);
                    if !ends_a_keeper && !comes_twice {
                        let _ = match &handle {
                            Some(handle) => pidfd_send_signal(handle, *signal),
                            None => kill_process(raw, *signal),
                        };
                    }
                }
            }
            Some(process)
        });
    }

    /// Our children, without the strangers.
    fn ours(&mut self) -> Vec<i32> {
        let mut children = self.children();
        children.retain(|pid| !self.strangers.contains(pid));
        children
    }

    /// Our children; without /proc, those that were found so far.
    fn children(&mut self) -> Vec<i32> {
        if let Some(by_wait) = &mut self.without_proc {
            by_wait.look(drop);
            return by_wait.known();
        }
        children_in_proc(self.us, true)
            .unwrap_or_else(|| by_parent().remove(&self.us).unwrap_or_default())
    }

    /// Our children. Without /proc, this takes seconds.
    fn all_children(&mut self) -> Vec<i32> {
        if let Some(by_wait) = &mut self.without_proc {
            by_wait.look_at_all();
        }
        self.children()
    }

    fn walk(&mut self, mut seen: impl FnMut(&Process)) {
        self.walk_with(|pid, _| {
            let process = read(pid)?;
            seen(&process);
            Some(process)
        });
    }

    /// Visits everything below us, parents first. `visit` gets a pid and its parent's pid.
    fn walk_with(&mut self, mut visit: impl FnMut(i32, i32) -> Option<Process>) {
        let mut next: VecDeque<(i32, i32)> =
            self.ours().into_iter().map(|pid| (pid, self.us)).collect();
        // A listing is not a snapshot, and a pid that was used again must not lead to an endless
        // loop.
        let mut known = HashSet::from([self.us]);
        let mut listing = None;
        while let Some((pid, parent)) = next.pop_front() {
            if !known.insert(pid) {
                continue;
            }
            let Some(process) = visit(pid, parent) else { continue };
            let children = match &listing {
                None => children_in_proc(pid, process.has_threads),
                Some(_) => None,
            };
            let children = children.unwrap_or_else(|| {
                let listing: &mut HashMap<i32, Vec<i32>> = listing.get_or_insert_with(by_parent);
                listing.remove(&pid).unwrap_or_default()
            });
            next.extend(children.into_iter().map(|child| (child, pid)));
        }
    }
}

/// Whether `/proc` shows our own pid namespace, in which we are `us`.
pub(super) fn is_shown_in_proc(us: i32) -> bool {
    let itself = fs::read_link("/proc/self").ok();
    itself.is_some_and(|path| path.to_str() == Some(&us.to_string()))
}

/// The children of a process, if the kernel lists them by parent.
fn children_in_proc(pid: i32, has_threads: bool) -> Option<Vec<i32>> {
    let tasks = format!("/proc/{pid}/task");
    let of = |task: &str| fs::read_to_string(format!("{tasks}/{task}/children"));
    let numbers = |text: String| {
        text.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<i32>>()
    };
    if !has_threads {
        return match of(&pid.to_string()) {
            Ok(text) => Some(numbers(text)),
            // The process ended just now, so its children are ours; or the kernel has no such file.
            Err(_) => (!fs::exists(&tasks).unwrap_or(false)).then(Vec::new),
        };
    }
    let mut children = Vec::new();
    // The process may have ended just now: then its children are ours.
    let Ok(entries) = fs::read_dir(&tasks) else { return Some(children) };
    for task in entries.flatten() {
        match of(&task.file_name().to_string_lossy()) {
            Ok(text) => children.extend(numbers(text)),
            // Either the thread ended and its children went to another thread, or the kernel has no
            // such file.
            Err(_) if task.path().exists() => return None,
            Err(_) => {}
        }
    }
    Some(children)
}

/// All processes that /proc shows, by parent.
fn by_parent() -> HashMap<i32, Vec<i32>> {
    let mut all: HashMap<i32, Vec<i32>> = HashMap::new();
    let Ok(entries) = fs::read_dir("/proc") else { return all };
    for entry in entries.flatten() {
        let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
        if let Some(process) = pid.and_then(read) {
            all.entry(process.parent).or_default().push(process.pid);
        }
    }
    all
}

/// Whether a keeper gets this signal from a keeper above it.
fn is_for_keepers(signal: Signal) -> bool {
    [Signal::KILL, Signal::CONT].contains(&signal)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Otherwise one slow look would let the command be stopped too early until it forks or ends.
    #[test]
    fn a_look_of_another_length_is_news_even_if_the_number_is_the_same() {
        let census = |alive, us| Census { alive, took: Duration::from_micros(us) };
        let is_news = |known, later: Census| later.is_news_after(&known);
        assert!(is_news(census(1, 400), census(2, 400)));
        assert!(is_news(census(1, 500_000), census(1, 249_000)));
        assert!(is_news(census(1, 500_000), census(1, 300)));
        assert!(is_news(census(1, 300), census(1, 2_001)));
        for (before, after) in [(300, 900), (900, 300), (5_000, 10_000), (10_000, 5_000)] {
            assert!(!is_news(census(1, before), census(1, after)), "{before} {after}");
        }
    }

    #[test]
    fn children_are_found_with_and_without_proc() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().expect("sleep(1)");
        let pid = i32::try_from(child.id()).expect("a pid");
        // Other tests of this process may have children as well.
        let mut tree = Tree { strangers: HashSet::new(), ..Tree::new() };
        assert!(tree.without_proc.is_none() && has_children());
        let without_proc = Some(ByWait::new());
        let mut blind = Tree { without_proc, strangers: HashSet::new(), ..Tree::new() };
        let listed = by_parent().remove(&tree.us).unwrap_or_default();
        for found in [tree.children(), blind.children(), listed] {
            assert!(found.contains(&pid), "{found:?}");
        }
        assert!(tree.census().alive >= 1);
        tree.strangers.insert(pid);
        assert!(!tree.ours().contains(&pid), "a stranger is left alone");
        child.kill().expect("it is ours");
        child.wait().expect("it is ours");
        assert!(!blind.children().contains(&pid));
    }
}
