//! Forks, and talks to the other process.

use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Write, pipe};
use std::panic::{AssertUnwindSafe, catch_unwind};

use fork::{Fork, fork, waitpid};

/// The child of a fork.
pub(crate) struct Child {
    pid: i32,
    line: Line,
}

/// A connection to the other process.
pub(crate) struct Line {
    from: BufReader<PipeReader>,
    to: PipeWriter,
}

impl Line {
    pub(crate) fn say(&mut self, word: &str) {
        writeln!(self.to, "{word}").expect("the other process listens");
    }

    /// Waits for the next word.
    pub(crate) fn hear(&mut self) -> String {
        let mut word = String::new();
        self.from.read_line(&mut word).expect("the pipe is open");
        assert!(word.ends_with('\n'), "the other process has ended early");
        word.trim_end().to_owned()
    }
}

impl Child {
    /// Forks. The child runs `work` and exits.
    pub(crate) fn fork(work: impl FnOnce(&mut Line)) -> Self {
        let (from_child, to_parent) = pipe().expect("a pipe");
        let (from_parent, to_child) = pipe().expect("a pipe");
        match fork().expect("a fork") {
            Fork::Child => {
                drop((from_child, to_child));
                let mut line = Line { from: BufReader::new(from_parent), to: to_parent };
                let went_well = catch_unwind(AssertUnwindSafe(|| work(&mut line))).is_ok();
                std::process::exit(if went_well { 0 } else { 101 });
            }
            Fork::Parent(pid) => {
                drop((from_parent, to_parent));
                Self { pid, line: Line { from: BufReader::new(from_child), to: to_child } }
            }
        }
    }

    pub(crate) fn line(&mut self) -> &mut Line {
        &mut self.line
    }

    /// Waits for the child, which must exit with 0.
    pub(crate) fn join(self) {
        let status = waitpid(self.pid).expect("it is ours");
        assert_eq!(status, 0, "the child failed");
    }
}
