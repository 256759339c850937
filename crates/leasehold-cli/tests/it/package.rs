//! How the command is built and installed.

use std::path::Path;

fn read(file: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::fs::read_to_string(root.join(file)).expect("a file of this workspace")
}

/// With symbols, the command is seven times as large.
#[test]
fn the_installed_program_has_no_symbols() {
    let manifest = read("Cargo.toml");
    let (_, after) = manifest.split_once("\n[profile.release]\n").expect("the profile");
    let profile = after.split("\n[").next().unwrap_or_default();
    assert!(profile.lines().any(|line| line == "strip = \"symbols\""), "{profile}");
}

/// Without `--locked`, cargo takes the newest versions of that day.
#[test]
fn an_install_gets_the_versions_that_were_tested() {
    let readme = read("README.md");
    for (_, after) in readme.match_indices("cargo install").map(|(at, _)| readme.split_at(at)) {
        let line = after.lines().next().unwrap_or_default();
        assert!(line.contains("--locked"), "{line}");
    }
}
