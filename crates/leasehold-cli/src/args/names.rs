//! The names of locks on the command line.

use std::ops::Deref;

use clap::Args;

/// The lock that the command is about.
#[derive(Clone, Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Name {
    /// The lock
    #[arg(value_name = "NAME")]
    plain: Option<String>,
    /// The lock, for names that begin with a hyphen: --name=-x
    #[arg(long = "name", value_name = "NAME", allow_hyphen_values = true)]
    flagged: Option<String>,
}

impl Deref for Name {
    type Target = str;

    fn deref(&self) -> &str {
        self.plain.as_deref().or(self.flagged.as_deref()).unwrap_or_default()
    }
}

/// The locks that the command is about.
#[derive(Clone, Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Names {
    /// The lock. Several are taken together or not at all
    #[arg(value_name = "NAME")]
    plain: Vec<String>,
    /// The lock, for names that begin with a hyphen: --name=-x. May be repeated
    #[arg(long = "name", value_name = "NAME", allow_hyphen_values = true)]
    flagged: Vec<String>,
}

impl Deref for Names {
    type Target = [String];

    fn deref(&self) -> &[String] {
        if self.plain.is_empty() { &self.flagged } else { &self.plain }
    }
}

impl From<&Name> for String {
    fn from(name: &Name) -> Self {
        (**name).to_owned()
    }
}
