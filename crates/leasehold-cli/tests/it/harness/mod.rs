//! A separate world for each test: a home, a store, and processes that are killed at its end.

mod instance;
mod process;
mod program;
mod world;

use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

pub(crate) use self::instance::Instance;
pub(crate) use self::process::{
    Done, Running, finish, finish_as_it_is, full_pipe, start, start_with_stderr,
};
pub(crate) use self::program::{late, refuse, tree, tree_in};
pub(crate) use self::world::World;

/// The longest time for any step before the test gives up: far more than a slow machine needs.
pub(crate) const CEILING: Duration = Duration::from_secs(60);

/// Turns each function over a world into one test for every store.
macro_rules! on_every_store {
    ($($name:ident,)+) => {$(
        mod $name {
            use crate::harness::World;

            #[test]
            fn sqlite() {
                super::$name(&World::sqlite());
            }

            #[test]
            fn redis() {
                super::$name(&World::redis());
            }

            #[test]
            fn on_postgres() {
                super::$name(&World::postgres());
            }
        }
    )+};
}

/// Like `on_every_store`, for tests that take too long on PostgreSQL: they start thousands of
/// processes, each of which connects anew.
macro_rules! on_file_and_redis {
    ($($name:ident,)+) => {$(
        mod $name {
            use crate::harness::World;

            #[test]
            fn sqlite() {
                super::$name(&World::sqlite());
            }

            #[test]
            fn redis() {
                super::$name(&World::redis());
            }
        }
    )+};
}

/// Waits until `holds` is true, by checking it again and again.
#[track_caller]
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < CEILING, "not within {CEILING:?}: {what}");
        std::thread::yield_now();
    }
}

/// Waits until a process that is not our child has ended.
#[track_caller]
pub(crate) fn until_dead(pid: i32) {
    let Ok(handle) = pidfd_open(Pid::from_raw(pid).expect("a pid"), PidfdFlags::empty()) else {
        return;
    };
    let ceiling = Timespec { tv_sec: 60, tv_nsec: 0 };
    let ended = poll(&mut [PollFd::new(&handle, PollFlags::IN)], Some(&ceiling));
    assert_eq!(ended, Ok(1), "process {pid} lives on");
}

/// The parent of a process, from `/proc`.
#[track_caller]
pub(crate) fn parent_of(pid: i32) -> i32 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it lives");
    let after_name = &stat[stat.rfind(')').expect("a name") + 1..];
    after_name.split_whitespace().nth(1).and_then(|pid| pid.parse().ok()).expect("a pid")
}

/// The state letter of a process, as in proc(5); `X` if there is no such process.
pub(crate) fn state_of(pid: i32) -> char {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rfind(')').and_then(|at| stat[at + 1..].trim_start().chars().next());
    state.unwrap_or('X')
}

/// Whether a process lives, even if it is stopped.
pub(crate) fn is_alive(pid: i32) -> bool {
    !matches!(state_of(pid), 'X' | 'Z')
}
