//! A server's clock that a test controls.
//!
//! A few lines of C replace the server's clock. It reads the numbers that the test wrote into a
//! file that both processes map. With a frozen clock, expiry on the server is exact to the
//! millisecond. To step the clock, the test writes a number.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::preload::compiled;

const SOURCE: &str = include_str!("clock.c");

/// The time of day of one server. Its steady clock is the machine's, so the server's event loop and
/// timeouts go on.
#[derive(Debug)]
pub struct ServerClock {
    page: File,
    set: Mutex<Setting>,
}

/// The contents of the file, in microseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Setting {
    /// Zero while the clock runs.
    frozen: i64,
    offset: i64,
}

impl ServerClock {
    /// Creates a clock with files in that directory. Returns it with the environment of a server
    /// that uses it.
    pub(super) fn in_dir(dir: &Path) -> (Self, [(&'static str, String); 2]) {
        let library = dir.join("clock.so");
        std::fs::write(&library, compiled("clock.c", SOURCE)).expect("the directory takes files");
        let path = dir.join("clock");
        let page = File::create_new(&path).expect("the directory takes files");
        let clock = Self { page, set: Mutex::default() };
        clock.run_free();
        let shown = |path: PathBuf| path.into_os_string().into_string().expect("a path in UTF-8");
        (clock, [("LD_PRELOAD", shown(library)), ("LEASEHOLD_TEST_CLOCK", shown(path))])
    }

    /// Freezes the clock at that many microseconds after 1970.
    ///
    /// # Panics
    ///
    /// At zero, which means a running clock.
    pub fn freeze_at(&self, unix_us: u64) {
        assert!(unix_us > 0, "a clock does not stand at 1970");
        let frozen = i64::try_from(unix_us).expect("a time of these millennia");
        self.change(|set| set.frozen = frozen);
    }

    /// Steps a running or frozen clock by that many microseconds, forward or back.
    pub fn step_by(&self, us: i64) {
        self.change(|set| {
            if set.frozen == 0 {
                set.offset += us;
            } else {
                set.frozen += us;
            }
        });
    }

    /// Shows the machine's time of day again, without any step.
    pub fn run_free(&self) {
        self.change(|set| *set = Setting::default());
    }

    fn set(&self) -> MutexGuard<'_, Setting> {
        // The settings are valid even after a panic.
        self.set.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Setting)) {
        let mut set = self.set();
        change(&mut set);
        // Write each number at once. The server may read between the writes, but never half a
        // number.
        for (number, at) in [(set.frozen, 0), (set.offset, 8)] {
            self.page.write_all_at(&number.to_ne_bytes(), at).expect("the file takes 16 bytes");
        }
    }
}
