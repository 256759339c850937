//! A copy of the sources, in which bugs are planted. All bugs share one copy, so that only the
//! files that a bug changes are built again.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::bug::Bug;
use crate::step;

/// The directory of the copy, from the root of the repository.
const COPY: &str = "target/planted/src";

/// The copy.
#[derive(Debug)]
pub(super) struct Copy {
    /// The repository.
    repository: PathBuf,
    /// The directory of the sources.
    pub(super) root: PathBuf,
    /// The directory of the build.
    pub(super) target: PathBuf,
}

impl Copy {
    /// Copies the files of the work tree below `root`, except those that git ignores. Writes only
    /// files that changed since the last copy, since cargo rebuilds every file that was written.
    pub(super) fn of(root: &Path) -> Result<Self, String> {
        let below = root.join("target/planted");
        let copy = Self {
            repository: root.to_owned(),
            root: root.join(COPY),
            target: below.join("build"),
        };
        std::fs::create_dir_all(&copy.root)
            .map_err(|error| format!("cannot make {COPY}: {error}"))?;
        // Use two indexes of our own, so that the user's index stays as it is.
        let git = |index: &str, args: &[&str]| {
            let mut git = Command::new("git");
            git.args(args).current_dir(root).env("GIT_INDEX_FILE", below.join(index));
            step::output(&mut git)
        };
        git("index-of-sources", &["add", "--all"])?;
        let tree = git("index-of-sources", &["write-tree"])?;
        let into = format!("--work-tree={COPY}");
        git("index-of-copy", &[&into, "read-tree", "--reset", "-u", tree.trim()])?;
        Ok(copy)
    }

    /// Runs `work` while the bug is in the copy.
    pub(super) fn with<T>(&self, bug: &Bug, work: impl FnOnce() -> T) -> Result<T, String> {
        let directory = format!("--directory={COPY}");
        bug.apply(&self.repository, &[&directory])?;
        let result = work();
        bug.apply(&self.repository, &[&directory, "--reverse"])?;
        Ok(result)
    }
}

#[cfg(test)]
mod tests {
    use super::super::bug::PLANTED;
    use super::*;

    #[test]
    fn a_copy_follows_its_sources_and_is_put_back_after_each_bug() {
        let place = std::env::temp_dir().join(format!("xtask-copy-{}", std::process::id()));
        let path = |name: &str| place.join(name);
        let text = |name: &str| std::fs::read_to_string(path(name)).ok();
        std::fs::create_dir_all(path(PLANTED)).expect("a directory");
        std::fs::write(path("a"), "a\n").expect("a file");
        std::fs::write(path("b"), "b\n").expect("a file");
        std::fs::write(path(".gitignore"), "/target\n").expect("a file");
        let diff = "--- a/a\n+++ b/a\n@@ -1 +1 @@\n-a\n+wrong\n";
        let patch = format!("It is wrong.\n\nCaught by: rule\n\n{diff}");
        std::fs::write(path(&format!("{PLANTED}/rule--x.patch")), &patch).expect("a file");
        let bug = Bug::named("rule--x", &patch).expect("a bug");
        step::output(Command::new("git").args(["init", "-q"]).current_dir(&place)).expect("git");
        let copy = Copy::of(&place).expect("copied");
        let during = copy.with(&bug, || text("target/planted/src/a")).expect("changed");
        assert_eq!(during.as_deref(), Some("wrong\n"));
        assert_eq!(text("target/planted/src/a").as_deref(), Some("a\n"));
        std::fs::remove_file(path("b")).expect("removed");
        std::fs::write(path("a"), "c\n").expect("a file");
        let copy = Copy::of(&place).expect("copied again");
        assert_eq!(text("target/planted/src/b"), None);
        assert_eq!(text("target/planted/src/a").as_deref(), Some("c\n"));
        let error = copy.with(&bug, || ()).expect_err("does not apply any more");
        assert!(error.contains("rule--x.patch does not apply any more"), "{error}");
        std::fs::remove_dir_all(&place).expect("removed");
    }
}
