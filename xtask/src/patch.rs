//! Patches: unified diffs, read and applied to texts. Strict: the context and the removed lines of
//! a hunk must appear in the file exactly once.

/// One patch.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Patch {
    /// The text before the diff.
    pub(crate) header: String,
    /// The changes to each file.
    pub(crate) files: Vec<FilePatch>,
}

/// The changes of a patch to one file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FilePatch {
    /// The path from the root of the repository.
    pub(crate) path: String,
    hunks: Vec<Hunk>,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Hunk {
    before: Vec<String>,
    after: Vec<String>,
}

impl Patch {
    /// Reads a patch.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let (header, diff) = match text.find("--- a/") {
            Some(at) if at == 0 || text[..at].ends_with('\n') => text.split_at(at),
            _ => return Err("there is no diff in it".to_owned()),
        };
        let mut files: Vec<FilePatch> = Vec::new();
        for line in diff.lines() {
            if let Some(path) = line.strip_prefix("--- a/") {
                files.push(FilePatch { path: path.to_owned(), hunks: Vec::new() });
                continue;
            }
            let file = files.last_mut().expect("a diff begins with its first file");
            if let Some(path) = line.strip_prefix("+++ ") {
                if path.strip_prefix("b/") != Some(&file.path) {
                    return Err(format!("it turns {} into {path}", file.path));
                }
            } else if line.starts_with("@@ ") {
                file.hunks.push(Hunk::default());
            } else {
                let hunk = file.hunks.last_mut().ok_or("there is a line before the first @@")?;
                hunk.take(line)?;
            }
        }
        Ok(Self { header: header.to_owned(), files })
    }
}

impl Hunk {
    fn take(&mut self, line: &str) -> Result<(), String> {
        // Editors remove the space at the end of an empty line.
        let (kind, rest) = line.split_at_checked(1).unwrap_or((" ", ""));
        match kind {
            " " => {
                self.before.push(rest.to_owned());
                self.after.push(rest.to_owned());
            }
            "-" => self.before.push(rest.to_owned()),
            "+" => self.after.push(rest.to_owned()),
            _ => return Err(format!("a line of a diff does not begin so: {line}")),
        }
        Ok(())
    }
}

impl FilePatch {
    /// Returns `text` with the changes applied.
    pub(crate) fn apply(&self, text: &str) -> Result<String, String> {
        let mut lines: Vec<&str> = text.lines().collect();
        for hunk in &self.hunks {
            let length = hunk.before.len();
            let places: Vec<usize> = (0..(lines.len() + 1).saturating_sub(length))
                .filter(|at| lines[*at..at + length].iter().eq(hunk.before.iter()))
                .collect();
            let &[at] = places.as_slice() else {
                let first = hunk.before.iter().find(|line| !line.trim().is_empty());
                return Err(format!(
                    "it fits {} in {} {} times, not once",
                    first.map_or("what it changes", |line| line.trim()),
                    self.path,
                    places.len()
                ));
            };
            lines.splice(at..at + length, hunk.after.iter().map(String::as_str));
        }
        Ok(lines.iter().flat_map(|line| [line, "\n"]).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATCH: &str = concat!(
        "What is wrong.\n\n--- a/x.rs\n+++ b/x.rs\n@@ -1,3 +1,3 @@\n a\n-b\n+B\n \n",
        "@@ -9,2 +9,3 @@\n y\n+more\n z\n",
        "--- a/d/y.lua\n+++ b/d/y.lua\n@@ -1 +1 @@\n-one\n+two\n",
    );

    #[test]
    fn a_patch_is_read_and_applied_wherever_its_lines_are_by_now() {
        let patch = Patch::read(PATCH).expect("a patch");
        assert_eq!(patch.header, "What is wrong.\n\n");
        let [x, y] = patch.files.as_slice() else { panic!("two files: {patch:?}") };
        assert_eq!((x.path.as_str(), y.path.as_str()), ("x.rs", "d/y.lua"));
        assert_eq!(x.apply("0\na\nb\n\nc\ny\nz\n").expect("fits"), "0\na\nB\n\nc\ny\nmore\nz\n");
        assert_eq!(y.apply("one\n").expect("fits"), "two\n");
    }

    #[test]
    fn a_patch_that_fits_nowhere_or_twice_is_refused() {
        let patch = Patch::read(PATCH).expect("a patch");
        for (text, times) in [("a\nc\n", "0 times"), ("one\none\n", "2 times"), ("", "0 times")] {
            let error = patch.files[1].apply(text).expect_err(text);
            assert!(error.contains(times), "{error}");
        }
    }

    #[test]
    fn what_is_no_patch_is_refused() {
        for bad in [
            "",
            "words",
            "a --- a/x\n",
            "--- a/x\n+++ b/y\n",
            "--- a/x\n+++ b/x\n x\n",
            "--- a/x\n+++ b/x\n@@ -1 +1 @@\n?\n",
        ] {
            assert!(Patch::read(bad).is_err(), "{bad:?}");
        }
    }
}
