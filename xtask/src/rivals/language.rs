//! The languages of the programs in `interop/`, and how each is built.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{root, step};

/// A language that has a program. Files in its folder pin all versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Language {
    Go,
    Java,
    Node,
    Python,
    Rust,
}

/// The command line of a program, with its first arguments.
pub(crate) type Program = Vec<OsString>;

impl Language {
    /// Its name for people.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Go => "Go",
            Self::Java => "Java",
            Self::Node => "Node",
            Self::Python => "Python",
            Self::Rust => "Rust",
        }
    }

    /// Builds its program. An error names the missing tool, or contains the log.
    pub(crate) fn build(self) -> Result<Program, String> {
        for (program, argument) in self.tools() {
            if !step::succeeds(Command::new(program).arg(argument)) {
                let name = self.name();
                return Err(format!("`{program}` is missing; programs in {name} need it"));
            }
        }
        let built = match self {
            Self::Go => go(),
            Self::Java => java(),
            Self::Node => node(),
            Self::Python => python(),
            Self::Rust => rust(),
        };
        built.map_err(|error| format!("cannot build the program: {error}"))
    }

    /// The tools that it needs, each with an argument that makes it end at once.
    const fn tools(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Go => &[("go", "version")],
            Self::Java => &[("javac", "-version"), ("mvn", "-version")],
            Self::Node => &[("node", "--version"), ("npm", "--version")],
            Self::Python => &[("python3", "--version")],
            Self::Rust => &[],
        }
    }

    /// The folder of its sources.
    fn sources(self) -> PathBuf {
        root().join("interop").join(self.name().to_lowercase())
    }

    /// The folder in which its programs are built.
    fn built(self) -> PathBuf {
        root().join("target").join("interop").join(self.name().to_lowercase())
    }
}

fn go() -> Result<Program, String> {
    let home = Language::Go.built().join("bin");
    let mut command = Command::new("go");
    // `go build` puts all programs into an existing directory.
    std::fs::create_dir_all(&home).map_err(|error| error.to_string())?;
    command.args(["build", "-mod=readonly", "-o"]).arg(&home).arg("./...");
    step::output(command.current_dir(Language::Go.sources()))?;
    Ok(vec![home.join("bench").into()])
}

fn python() -> Result<Program, String> {
    let (home, sources) = (Language::Python.built(), Language::Python.sources());
    step::output(Command::new("python3").args(["-m", "venv"]).arg(&home))?;
    let python = home.join("bin/python");
    let mut install = Command::new(&python);
    install.args(["-m", "pip", "install", "--quiet", "--require-hashes", "--requirement"]);
    step::output(install.arg(sources.join("requirements.txt")))?;
    Ok(vec![python.into(), sources.join("bench.py").into()])
}

fn rust() -> Result<Program, String> {
    let (home, mut command) = (Language::Rust.built(), step::cargo());
    command.args(["build", "--quiet", "--release", "--locked", "--target-dir"]);
    step::output(command.arg(&home).current_dir(Language::Rust.sources()))?;
    Ok(vec![home.join("release").join("bench").into()])
}

fn node() -> Result<Program, String> {
    let (home, sources) = (Language::Node.built(), Language::Node.sources());
    // Packages are installed beside the program that imports them.
    for file in ["package.json", "package-lock.json", "bench.js"] {
        copy(&sources.join(file), &home.join(file))?;
    }
    let mut install = Command::new("npm");
    install.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]);
    step::output(install.current_dir(&home))?;
    Ok(vec!["node".into(), home.join("bench.js").into()])
}

fn java() -> Result<Program, String> {
    let (home, sources) = (Language::Java.built(), Language::Java.sources());
    let (libraries, classes) = (home.join("lib"), home.join("classes"));
    let mut install = Command::new("mvn");
    install.args(["--quiet", "--batch-mode", "dependency:copy-dependencies"]);
    install.arg("-DincludeScope=runtime");
    install.arg(format!("-DoutputDirectory={}", libraries.display()));
    step::output(install.current_dir(&sources))?;
    let path = format!("{}/*", libraries.display());
    let mut compile = Command::new("javac");
    compile.args(["-cp", &path, "-d"]).arg(&classes).arg(sources.join("Bench.java"));
    step::output(&mut compile)?;
    let path = format!("{}:{path}", classes.display());
    Ok(["java", "-cp", &path, "Bench"].map(OsString::from).to_vec())
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    let directory = to.parent().expect("it is a file");
    std::fs::create_dir_all(directory)
        .and_then(|()| std::fs::copy(from, to))
        .map(|_| ())
        .map_err(|error| format!("cannot write {}: {error}", to.display()))
}
