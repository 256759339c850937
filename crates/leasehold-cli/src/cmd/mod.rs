//! One file for each command.

pub(crate) mod acquire;
pub(crate) mod inspect;
pub(crate) mod ls;
pub(crate) mod release;
pub(crate) mod renew;
pub(crate) mod run;
pub(crate) mod unlock;

use leasehold::OwnerToken;

use crate::exit::Failure;
use crate::settings::Settings;
use crate::talk::Talk;

/// What every command gets.
pub(crate) struct Context {
    /// Which store.
    pub(crate) settings: Settings,
    /// How to talk.
    pub(crate) talk: Talk,
    /// Objects instead of text on stdout.
    pub(crate) json: bool,
}

/// The token of a lease: from the flag, or from the environment.
fn token(flag: Option<&str>, name: &str) -> Result<OwnerToken, Failure> {
    let text = match flag {
        Some(text) => text.to_owned(),
        None => std::env::var("LEASEHOLD_TOKEN").map_err(|_| {
            Failure::config(
                "which lease is meant? give the token that `leasehold acquire` printed by --token \
                 or in LEASEHOLD_TOKEN; the store was not contacted",
            )
            .about(name)
        })?,
    };
    Ok(OwnerToken::new(text)?)
}
