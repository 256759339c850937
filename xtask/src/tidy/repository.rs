//! The files that the rules check.

use std::path::Path;

use super::source::Source;

/// The directory of the library's source.
pub(crate) const LIBRARY: &str = "crates/leasehold/src/";

/// The source directories of all crates that users add to their programs.
pub(crate) const LIBRARIES: [&str; 2] = [LIBRARY, "crates/leasehold-compat/src/"];

/// All text files of the repository, by their path from its root.
#[derive(Debug)]
pub(crate) struct Repository {
    files: Vec<File>,
}

/// One text file.
#[derive(Debug)]
pub(crate) struct File {
    /// The path from the root, with slashes.
    pub(crate) path: String,
    /// The content.
    pub(crate) text: String,
    /// The parsed content, if it is Rust.
    pub(crate) rust: Option<Source>,
}

impl File {
    fn new(path: String, text: String) -> Self {
        let rust = path.ends_with(".rs").then(|| Source::new(&text, is_test_path(&path)));
        Self { path, text, rust }
    }

    /// Whether its path ends in `.extension`.
    pub(crate) fn is(&self, extension: &str) -> bool {
        self.path.rsplit_once('.').is_some_and(|(_, end)| end == extension)
    }
}

/// Whether a file contains only code for tests.
fn is_test_path(path: &str) -> bool {
    path.contains("/tests/")
        || path.ends_with("tests.rs")
        || path.starts_with("crates/leasehold-testkit/")
}

impl Repository {
    /// Reads everything below `root` except the directories of cargo and git.
    pub(crate) fn read(root: &Path) -> Result<Self, String> {
        let mut files = Vec::new();
        let mut directories = vec![root.to_owned()];
        while let Some(directory) = directories.pop() {
            let entries = std::fs::read_dir(&directory)
                .map_err(|error| format!("cannot list {}: {error}", directory.display()))?;
            for entry in entries {
                let entry = entry.map_err(|error| format!("cannot list: {error}"))?;
                let (path, name) = (entry.path(), entry.file_name());
                let kind = entry.file_type().map_err(|error| format!("cannot look at: {error}"))?;
                if kind.is_dir() && name != "target" && name != ".git" {
                    directories.push(path);
                } else if kind.is_file() {
                    let shown = path.strip_prefix(root).expect("it lies below the root");
                    let shown = shown.to_string_lossy().replace('\\', "/");
                    // A file that is not UTF-8 is not text.
                    if let Ok(text) = std::fs::read_to_string(&path) {
                        files.push(File::new(shown, text));
                    }
                }
            }
        }
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(Self { files })
    }

    /// A repository with these files, for the tests of rules.
    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        let file = |(path, text): &(&str, &str)| File::new((*path).to_owned(), (*text).to_owned());
        Self { files: files.iter().map(file).collect() }
    }

    /// All files.
    pub(crate) fn files(&self) -> &[File] {
        &self.files
    }

    /// The file of that path.
    pub(crate) fn file(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    /// The Rust files below `prefix`, with their paths from there.
    pub(crate) fn rust<'a>(
        &'a self,
        prefix: &'a str,
    ) -> impl Iterator<Item = (&'a File, &'a str, &'a Source)> {
        self.files.iter().filter_map(move |file| {
            Some((file, file.path.strip_prefix(prefix)?, file.rust.as_ref()?))
        })
    }
}
