//! Programs in C for steps that neither a shell nor safe Rust can do. The tests need a C compiler
//! anyway, for the bundled SQLite.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The program `programs/tree.c`, compiled.
pub(crate) fn tree() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| compiled("tree", &["-pthread"]))
}

/// `tree` in this shape, as words of a shell script whose `$1` is the directory of its world.
pub(crate) fn tree_in(shape: &str) -> String {
    format!("{} {shape}", tree().display())
}

/// The library `programs/late.c`, compiled.
pub(crate) fn late() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| compiled("late", &["-shared", "-fPIC"]))
}

/// The program `programs/refuse.c`, compiled.
pub(crate) fn refuse() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| compiled("refuse", &[]))
}

fn compiled(name: &str, options: &[&str]) -> PathBuf {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/programs");
    // Other test processes may be using the program, so it must appear complete.
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let mine = program.with_extension(std::process::id().to_string());
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-Wall", "-Wextra"]).args(options).arg("-o").arg(&mine);
    compiler.arg(sources.join(name).with_extension("c"));
    assert!(compiler.status().expect("a C compiler, `cc`").success(), "{compiler:?}");
    std::fs::rename(&mine, &program).expect("our own file");
    program
}
