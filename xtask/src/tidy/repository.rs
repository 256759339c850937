//! The files that the rules check.

use std::path::Path;

/// The directory of the library's source.
pub(crate) const LIBRARY: &str = "crates/leasehold/src/";

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
}

/// A line of code.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Line {
    /// Its number, from 1.
    pub(crate) number: usize,
    /// The code, without texts and without a comment at its end.
    pub(crate) code: String,
    /// Whether it is compiled only for tests.
    pub(crate) in_test: bool,
}

impl File {
    /// Whether its path ends in `.extension`.
    pub(crate) fn is(&self, extension: &str) -> bool {
        self.path.rsplit_once('.').is_some_and(|(_, end)| end == extension)
    }

    /// The lines that are not comments, as rustfmt lays them out.
    pub(crate) fn lines(&self) -> Vec<Line> {
        let is_test = self.path.contains("/tests/")
            || self.path.ends_with("tests.rs")
            || self.path.starts_with("crates/leasehold-conformance/")
            || self.path.starts_with("crates/leasehold-testkit/");
        // The indentation of an item that is compiled only for tests. The line that ends the item
        // has the same indentation.
        let mut item = None;
        let mut lines = Vec::new();
        for (index, line) in self.text.lines().enumerate() {
            let indentation = line.len() - line.trim_start().len();
            if line.trim() == "#[cfg(test)]" {
                item.get_or_insert(indentation);
            }
            let code = line.split('"').step_by(2).collect::<Vec<_>>().join("\"\"");
            let code = code.split(" // ").next().unwrap_or_default();
            if !code.trim_start().starts_with("//") {
                let in_test = is_test || item.is_some();
                lines.push(Line { number: index + 1, code: code.to_owned(), in_test });
            }
            if item == Some(indentation) && line.ends_with(['}', ';']) {
                item = None;
            }
        }
        lines
    }
}

impl Repository {
    /// Reads everything below `root` except the directories of cargo and git.
    pub(crate) fn read(root: &Path) -> Result<Self, String> {
        let mut files = Vec::new();
        let mut directories = vec![root.to_owned()];
        while let Some(directory) = directories.pop() {
            let entries = std::fs::read_dir(&directory)
                .map_err(|error| format!("cannot list {}: {error}", directory.display()))?;
            for path in entries.flatten().map(|entry| entry.path()) {
                if !path.is_dir() {
                    let shown = path.strip_prefix(root).expect("it lies below the root");
                    let shown = shown.to_string_lossy().replace('\\', "/");
                    // A file that is not UTF-8 is not text.
                    if let Ok(text) = std::fs::read_to_string(&path) {
                        files.push(File { path: shown, text });
                    }
                } else if !path.ends_with("target") && !path.ends_with(".git") {
                    directories.push(path);
                }
            }
        }
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(Self { files })
    }

    /// A repository with these files, for the tests of rules.
    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        let file =
            |(path, text): &(&str, &str)| File { path: (*path).into(), text: (*text).into() };
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
    pub(crate) fn rust<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a File, &'a str)> {
        let rust = self.files.iter().filter(|file| file.is("rs"));
        rust.filter_map(move |file| Some((file, file.path.strip_prefix(prefix)?)))
    }
}

/// The first cells of the tables below a heading, with the numbers of their lines.
pub(crate) fn first_cells<'a>(text: &'a str, heading: &str) -> Vec<(usize, &'a str)> {
    text.lines()
        .enumerate()
        .skip_while(|(_, line)| *line != heading)
        .skip(1)
        .take_while(|(_, line)| !line.starts_with("## "))
        .filter_map(|(index, line)| {
            let (cell, _) = line.strip_prefix("| `")?.split_once('`')?;
            Some((index + 1, cell))
        })
        .collect()
}

/// The places of a word that is not part of a longer word. If it ends in punctuation, any character
/// may follow.
pub(crate) fn words<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let is_inside = |c: char| c.is_alphanumeric() || c == '_';
    let (starts, ends) = (word.starts_with(is_inside), word.ends_with(is_inside));
    code.match_indices(word).map(|(at, _)| at).filter(move |at| {
        let continues = (starts && code[..*at].ends_with(is_inside))
            || (ends && code[at + word.len()..].starts_with(is_inside));
        !continues
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_are_left_out_and_tests_are_told_apart() {
        let text = "fn a() {} // why\n//! no\n#[cfg(test)]\nuse b;\nfn c() {\n    // no\n\
                    \x20   #[cfg(test)]\n    {\n        d();\n    }\n    e(\"f // g\");\n}\n\
                    #[cfg(test)]\n#[allow(x)]\nmod tests {\n    fn f() {}\n}\nfn g() {}\n";
        let files = [("src/a.rs", text), ("a/tests/b.rs", "fn h() {}")];
        let repository = Repository::of(&files);
        let lines = |path| repository.file(path).expect("a file").lines();
        let told = |in_test| {
            let told = lines("src/a.rs").into_iter().filter(|line| line.in_test == in_test);
            told.map(|line| line.code.trim().to_owned())
                .filter(|it| it.len() > 1)
                .collect::<Vec<_>>()
        };
        assert_eq!(told(false), ["fn a() {}", "fn c() {", "e(\"\");", "fn g() {}"]);
        let expected = ["#[cfg(test)]", "use b;", "#[cfg(test)]", "d();", "#[cfg(test)]"];
        assert!(told(true).starts_with(&expected.map(str::to_owned)), "{:?}", told(true));
        assert!(told(true).contains(&"fn f() {}".to_owned()));
        assert_eq!(lines("src/a.rs")[1].number, 3);
    }

    #[test]
    fn words_are_found_whole() {
        let found = |word| words("sleep(1); no_sleep(2); sleepless", word).count();
        assert_eq!((found("sleep"), found("sleep("), found("less")), (1, 1, 0));
    }
}
