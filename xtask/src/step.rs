//! Running other programs.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The cargo that runs us.
pub(crate) fn cargo() -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(cargo);
    command.current_dir(crate::root());
    command
}

/// Runs a command that shares our output streams.
pub(crate) fn run(command: &mut Command) -> Result<(), String> {
    let shown = shown(command);
    let status = command
        .stdin(Stdio::null())
        .status()
        .map_err(|error| format!("cannot start `{shown}`: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("`{shown}` failed: {status}")) }
}

/// Whether a command runs and succeeds. Its output is discarded.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// The output of a command.
pub(crate) fn output(command: &mut Command) -> Result<String, String> {
    let shown = shown(command);
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("cannot start `{shown}`: {error}"))?;
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr);
        return Err(format!("`{shown}` failed: {}\n{}", output.status, complaint.trim_end()));
    }
    String::from_utf8(output.stdout).map_err(|_| format!("`{shown}` printed no UTF-8"))
}

/// The current commit for records, marked if the work tree is dirty. `unknown` without git.
pub(crate) fn commit() -> String {
    let mut git = Command::new("git");
    git.args(["describe", "--always", "--dirty", "--exclude=*", "--abbrev=12"]);
    let described = output(git.current_dir(crate::root()));
    described.map_or_else(|_| "unknown".to_owned(), |commit| commit.trim().to_owned())
}

/// The date of today for records.
pub(crate) fn today() -> Result<String, String> {
    output(Command::new("date").args(["-u", "+%F"])).map(|date| date.trim().to_owned())
}

/// The path of a release build of a program.
pub(crate) fn released(program: &str) -> PathBuf {
    built("release", program)
}

/// The path of a program that cargo has built, in that folder of its target.
pub(crate) fn built(folder: &str, program: &str) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| OsString::from("target"));
    crate::root().join(target).join(folder).join(program)
}

/// The command line of a command.
fn shown(command: &Command) -> String {
    let program = std::path::Path::new(command.get_program());
    let program = program.file_name().unwrap_or_else(|| command.get_program());
    std::iter::once(program)
        .chain(command.get_args())
        .map(|word| word.to_string_lossy().into_owned())
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_shown_as_one_would_type_it() {
        assert_eq!(shown(Command::new("/usr/bin/cargo").args(["fmt", "--all"])), "cargo fmt --all");
    }

    #[test]
    fn a_failing_command_is_an_error_that_names_it() {
        let error = run(cargo().arg("--no-such-flag").stderr(Stdio::null())).expect_err("bad flag");
        assert!(error.contains("cargo --no-such-flag` failed"), "{error}");
    }
}
