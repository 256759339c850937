//! The other libraries.

use std::ffi::OsString;

use crate::rivals::Language;

/// Another library.
#[derive(Debug)]
pub(super) struct Rival {
    /// Its name on the command line.
    pub(super) name: &'static str,
    language: Language,
    /// The arguments that choose it, if its program knows several libraries.
    chosen_by: &'static [&'static str],
}

pub(super) static RIVALS: [Rival; 4] = [
    Rival { name: "redsync", language: Language::Go, chosen_by: &["redsync"] },
    Rival { name: "bsm", language: Language::Go, chosen_by: &["bsm"] },
    Rival { name: "redis-py", language: Language::Python, chosen_by: &[] },
    Rival { name: "rslock", language: Language::Rust, chosen_by: &[] },
];

impl Rival {
    /// Builds its program. Returns the program, and its first arguments. An error has the log.
    pub(super) fn build(&self) -> Result<Vec<OsString>, String> {
        let mut program = self.language.build()?.contender;
        program.extend(self.chosen_by.iter().map(OsString::from));
        Ok(program)
    }
}
