//! Programs with tests, as cargo builds them.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::step;

/// A part of a package that cargo builds into one test program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TestProgram {
    /// The arguments of cargo that select it.
    pub(crate) picked_by: Vec<String>,
    path: PathBuf,
    /// The directory of its package.
    directory: PathBuf,
}

impl TestProgram {
    /// Builds the parts that the arguments choose, by this cargo. Returns their programs.
    pub(crate) fn build(
        mut cargo: Command,
        args: &[&str],
        picked_by: &[String],
    ) -> Result<Vec<Self>, String> {
        cargo.args(["test", "--no-run", "--locked", "--message-format", "json"]);
        let messages = step::output(cargo.args(args).args(picked_by))?;
        Ok(messages.lines().filter_map(Self::read).collect())
    }

    /// Reads the program from a message of cargo, if the message is about a test program.
    fn read(message: &str) -> Option<Self> {
        let message: Value = serde_json::from_str(message).ok()?;
        let is_test = message["profile"]["test"].as_bool()?;
        let path = message["executable"].as_str()?;
        let directory = PathBuf::from(message["manifest_path"].as_str()?).parent()?.to_owned();
        let name = message["target"]["name"].as_str()?;
        let picked_by = match message["target"]["kind"][0].as_str()? {
            "lib" => vec!["--lib".to_owned()],
            kind @ ("bin" | "test") => vec![format!("--{kind}"), name.to_owned()],
            _ => return None,
        };
        is_test.then(|| Self { picked_by, path: path.into(), directory })
    }

    /// Whether it belongs to the package with that name.
    pub(crate) fn is_of(&self, package: &str) -> bool {
        self.directory.ends_with(Path::new("crates").join(package))
    }

    /// The command that runs its tests in the directory where cargo would run them.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.current_dir(&self.directory);
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_programs_with_tests_are_read() {
        let message = |kind: &str, is_test: bool| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/p/Cargo.toml","target":
                {{"kind":["{kind}"],"name":"it"}},"profile":{{"test":{is_test}}},
                "executable":"/t/it-1"}}"#
            )
        };
        let picked_by = |kind: &str, is_test| {
            TestProgram::read(&message(kind, is_test)).map(|program| program.picked_by.join(" "))
        };
        assert_eq!(picked_by("lib", true).as_deref(), Some("--lib"));
        assert_eq!(picked_by("bin", true).as_deref(), Some("--bin it"));
        assert_eq!(picked_by("test", true).as_deref(), Some("--test it"));
        assert_eq!(picked_by("bin", false), None);
        assert_eq!(picked_by("example", true), None);
        assert_eq!(TestProgram::read(r#"{"reason":"build-finished","success":true}"#), None);
    }

    #[test]
    fn a_program_is_of_the_package_whose_directory_it_has() {
        let directory = PathBuf::from("/somewhere/crates/leasehold-cli");
        let program = TestProgram { picked_by: Vec::new(), path: "/t/it-1".into(), directory };
        assert!(program.is_of("leasehold-cli"));
        assert!(!program.is_of("leasehold") && !program.is_of("cli"));
    }
}
