//! One file for each command.

pub(crate) mod acquire;
pub(crate) mod doctor;
pub(crate) mod elect;
mod holding;
pub(crate) mod inspect;
mod join;
pub(crate) mod ls;
pub(crate) mod migrate;
mod once;
pub(crate) mod release;
pub(crate) mod renew;
pub(crate) mod resize;
mod revoke;
pub(crate) mod run;
pub(crate) mod strict;
pub(crate) mod unlock;
mod variables;

use leasehold::{Client, ErrorKind, OwnerToken};

use crate::environment::{NAME, TOKEN};
use crate::exit::{DRAIN, Exit, Failure};
use crate::output::escape;
use crate::settings::Settings;
use crate::talk::Talk;

/// The context of every command.
pub(crate) struct Context {
    /// The store.
    pub(crate) settings: Settings,
    /// The messages.
    pub(crate) talk: Talk,
    /// JSON instead of text on stdout.
    pub(crate) json: bool,
}

/// The token of a lease, and its origin.
struct Given {
    token: OwnerToken,
    /// Whether the token came from the environment, which may contain the token of another lock.
    inherited: bool,
}

/// The token in the environment. Under a run with several locks, this is the token of the lock
/// called `name`.
fn inherited(name: &str) -> Option<String> {
    // A token that is not valid UTF-8 is refused later, for a wrong character.
    let tokens = std::env::var_os(TOKEN)?.to_string_lossy().into_owned();
    let names = std::env::var(NAME).unwrap_or_default();
    let mut locks = names.lines().zip(tokens.lines());
    match locks.find(|(of, _)| *of == name) {
        Some((_, token)) => Some(token.to_owned()),
        None => Some(tokens).filter(|tokens| !tokens.contains('\n')),
    }
}

impl Given {
    /// Takes the token from the flag, or else from the environment.
    fn new(flag: Option<&str>, name: &str) -> Result<Self, Failure> {
        let text = match flag {
            Some(text) => text.to_owned(),
            None => inherited(name).ok_or_else(|| {
                Failure::config(
                    "no token of this lock was given; the store was not contacted; pass the token \
                     that `leasehold acquire` printed: in LEASEHOLD_TOKEN, or by --token",
                )
                .about(name)
            })?,
        };
        let token = OwnerToken::new(text).map_err(|error| {
            let origin = if flag.is_some() { "--token" } else { TOKEN };
            Failure::config(format!("{origin} is not usable: {error}")).about(name)
        })?;
        Ok(Self { token, inherited: flag.is_none() })
    }

    /// The failure if the token from the environment belongs to another lock. That is the lock of
    /// the last `acquire`, or is unknown if yet another token holds this lock.
    async fn mistaken(&self, client: &Client, name: &str) -> Option<Failure> {
        if !self.inherited {
            return None;
        }
        let last = std::env::var(NAME).ok().filter(|last| last != name);
        let why = match last {
            Some(last) if self.holds(client, &last).await == Some(true) => {
                format!("it belongs to `{}`", escape(&last))
            }
            _ if self.holds(client, name).await == Some(false) => {
                "another token holds it now, so this token is of another lock, or its lease has \
                 ended"
                    .to_owned()
            }
            _ => return None,
        };
        let message = format!(
            "`{name}`: LEASEHOLD_TOKEN is not the token of this lock: {why}; nothing was changed; \
             write LEASEHOLD_TOKEN=TOKEN before the command, with the token that `leasehold \
             acquire` printed for `{name}`",
            name = escape(name)
        );
        Some(Failure::new(Exit::LOST, ErrorKind::Lost.as_str(), message).about(name))
    }

    /// Whether this token holds the lock. `None` if no holder is known.
    async fn holds(&self, client: &Client, name: &str) -> Option<bool> {
        let seen = tokio::time::timeout(DRAIN, client.inspect(name)).await.ok()?.ok()?;
        let ours = self.token.as_str().as_bytes();
        (!seen.holders.is_empty()).then(|| seen.holders.iter().any(|holder| holder.token == ours))
    }
}
