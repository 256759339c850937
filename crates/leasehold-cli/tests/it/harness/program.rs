//! Programs in C for steps that neither a shell nor safe Rust can do. The tests need a C compiler
//! anyway, for the bundled SQLite.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The program `programs/tree.c`, compiled.
pub(crate) fn tree() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/programs/tree.c");
        // Other test processes may be using the program, so it must appear complete.
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("tree");
        let mine = program.with_extension(std::process::id().to_string());
        let mut compiler = Command::new("cc");
        compiler.args(["-O1", "-Wall", "-Wextra", "-pthread", "-o"]).arg(&mine).arg(source);
        assert!(compiler.status().expect("a C compiler, `cc`").success(), "{compiler:?}");
        std::fs::rename(&mine, &program).expect("our own file");
        program
    })
}

/// `tree` in this shape, as words of a shell script whose `$1` is the directory of its world.
pub(crate) fn tree_in(shape: &str) -> String {
    format!("{} {shape}", tree().display())
}
