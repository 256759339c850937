//! A copy of the sources, in which bugs are planted. All bugs share one copy, so that only the
//! files that a bug changes are built again.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::bug::Changed;
use crate::step;

/// The copy.
#[derive(Debug)]
pub(super) struct Copy {
    /// The directory of the sources.
    pub(super) root: PathBuf,
    /// The directory of the build.
    pub(super) target: PathBuf,
}

impl Copy {
    /// Copies the files of the work tree below `root`, except those that git ignores.
    pub(super) fn of(root: &Path) -> Result<Self, String> {
        let mut git = Command::new("git");
        git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
        let listed = step::output(git.current_dir(root))?;
        let paths: BTreeSet<&str> = listed.split('\0').filter(|path| !path.is_empty()).collect();
        let below = root.join("target/planted");
        let copy = Self { root: below.join("src"), target: below.join("build") };
        copy.remove_others(&paths)?;
        for path in paths {
            // A file that is deleted in the work tree is not part of the sources.
            if let Ok(bytes) = std::fs::read(root.join(path)) {
                copy.write(path, &bytes)?;
            }
        }
        Ok(copy)
    }

    /// Runs `work` while these files are changed.
    pub(super) fn with<T>(
        &self,
        changed: &[Changed],
        work: impl FnOnce() -> T,
    ) -> Result<T, String> {
        let mut originals = Vec::new();
        for (path, text) in changed {
            let original = std::fs::read(self.root.join(path));
            originals.push((path, original.map_err(|error| format!("{path}: {error}"))?));
            self.write(path, text.as_bytes())?;
        }
        let result = work();
        for (path, original) in originals {
            self.write(path, &original)?;
        }
        Ok(result)
    }

    /// Writes a file if its content differs: cargo rebuilds every file that was written.
    fn write(&self, path: &str, bytes: &[u8]) -> Result<(), String> {
        let target = self.root.join(path);
        if std::fs::read(&target).is_ok_and(|there| there == bytes) {
            return Ok(());
        }
        let directory = target.parent().expect("it lies below the root");
        std::fs::create_dir_all(directory)
            .and_then(|()| std::fs::write(&target, bytes))
            .map_err(|error| format!("cannot write {}: {error}", target.display()))
    }

    /// Removes files of an earlier copy that the sources no longer have: cargo finds tests and
    /// programs by listing directories.
    fn remove_others(&self, paths: &BTreeSet<&str>) -> Result<(), String> {
        let mut directories = vec![self.root.clone()];
        while let Some(directory) = directories.pop() {
            let Ok(entries) = std::fs::read_dir(&directory) else { continue };
            for path in entries.flatten().map(|entry| entry.path()) {
                let name = path.strip_prefix(&self.root).expect("it lies below").to_string_lossy();
                if path.is_dir() {
                    directories.push(path);
                } else if !paths.contains(&*name) {
                    std::fs::remove_file(&path)
                        .map_err(|error| format!("cannot remove {name}: {error}"))?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_follows_its_sources_and_is_put_back_after_each_bug() {
        let place = std::env::temp_dir().join(format!("xtask-copy-{}", std::process::id()));
        let path = |name: &str| place.join(name);
        let text = |name: &str| std::fs::read_to_string(path(name)).ok();
        std::fs::create_dir_all(path("d")).expect("a directory");
        std::fs::write(path("d/a"), "a\n").expect("a file");
        std::fs::write(path("b"), "b\n").expect("a file");
        std::fs::write(path(".gitignore"), "/target\n").expect("a file");
        step::output(Command::new("git").args(["init", "-q"]).current_dir(&place)).expect("git");
        let copy = Copy::of(&place).expect("copied");
        let changed = [("d/a".to_owned(), "wrong\n".to_owned())];
        let during = copy.with(&changed, || text("target/planted/src/d/a")).expect("changed");
        assert_eq!(during.as_deref(), Some("wrong\n"));
        assert_eq!(text("target/planted/src/d/a").as_deref(), Some("a\n"));
        std::fs::remove_file(path("b")).expect("removed");
        Copy::of(&place).expect("copied again");
        assert_eq!(text("target/planted/src/b"), None);
        std::fs::remove_dir_all(&place).expect("removed");
    }
}
