//! Small libraries in C that a program loads before its own.

use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// The compiled libraries, by the name of their source. Each is compiled once for each process and
/// kept in memory, so that no file is left behind.
static COMPILED: Mutex<Vec<(&str, &[u8])>> = Mutex::new(Vec::new());

/// The library of that source.
///
/// # Panics
///
/// If it cannot be compiled.
pub(super) fn compiled(name: &'static str, source: &str) -> &'static [u8] {
    // The map is valid even after a panic.
    let mut known = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, library)) = known.iter().find(|(known, _)| *known == name) {
        return library;
    }
    let library = compile(name, source).leak();
    known.push((name, library));
    library
}

fn compile(name: &str, text: &str) -> Vec<u8> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (source, library) = (dir.path().join(name), dir.path().join("compiled.so"));
    std::fs::write(&source, text).expect("the directory takes files");
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let mut command = Command::new(&compiler);
    command.args(["-shared", "-fPIC", "-O2", "-o"]).arg(&library).arg(&source);
    match command.output() {
        Ok(output) if output.status.success() => {
            std::fs::read(&library).expect("what was compiled can be read")
        }
        Ok(output) => {
            let complaint = String::from_utf8_lossy(&output.stderr);
            panic!("`{compiler}` does not compile `{name}` of the test kit:\n{complaint}")
        }
        Err(error) => panic!(
            "the C compiler `{compiler}` does not run ({error}), and `{name}` of the test kit \
             needs it: install your system's, on Debian gcc and libc6-dev"
        ),
    }
}
