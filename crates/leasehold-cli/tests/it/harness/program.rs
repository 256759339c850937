//! Programs in C for what neither a shell nor safe Rust can do. The tests need a C compiler anyway:
//! the bundled SQLite is compiled.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The program `programs/tree.c`, compiled.
pub(crate) fn tree() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/programs/tree.c");
        // Tests of other processes may use it already, so it appears as a whole.
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("tree");
        let mine = program.with_extension(std::process::id().to_string());
        let mut compiler = Command::new("cc");
        compiler.args(["-O1", "-Wall", "-Wextra", "-pthread", "-o"]).arg(&mine).arg(source);
        assert!(compiler.status().expect("a C compiler, `cc`").success(), "{compiler:?}");
        std::fs::rename(&mine, &program).expect("our own file");
        program
    })
}

/// `tree` in this shape, as words of a shell script that has the directory of its world as `$1`.
pub(crate) fn tree_in(shape: &str) -> String {
    format!("{} {shape}", tree().display())
}
