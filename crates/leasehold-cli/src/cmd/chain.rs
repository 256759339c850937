//! The locks of enclosing runs, for commands that ask for a lock while they run under one.

use std::ffi::OsString;

use leasehold::store::Claim;
use leasehold::{Client, ErrorKind, OwnerToken};

use crate::environment::{CHAIN, TOKEN};
use crate::exit::Failure;
use crate::output::escape;

/// How many locks are remembered. If there are more, the outermost are forgotten.
const TOKENS_MAX: usize = 256;

/// The owner tokens of the enclosing runs, the innermost last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Chain(Vec<String>);

impl Chain {
    /// The chain in the environment.
    pub(crate) fn inherited() -> Self {
        Self::read(std::env::var_os(CHAIN))
    }

    fn read(text: Option<OsString>) -> Self {
        let text = text.and_then(|text| text.into_string().ok()).unwrap_or_default();
        let all: Vec<_> = text.split_ascii_whitespace().map(str::to_owned).collect();
        Self(all[all.len().saturating_sub(TOKENS_MAX)..].to_vec())
    }

    /// The chain for the environment of a command that runs under more locks.
    pub(crate) fn with<'a>(mut self, tokens: impl IntoIterator<Item = &'a OwnerToken>) -> String {
        self.0.extend(tokens.into_iter().map(|token| token.as_str().to_owned()));
        self.0[self.0.len().saturating_sub(TOKENS_MAX)..].join(" ")
    }

    /// Adds the tokens that a script may have set for its commands.
    pub(crate) fn and_token(mut self) -> Self {
        let text = std::env::var(TOKEN).unwrap_or_default();
        self.0.extend(text.split_ascii_whitespace().map(str::to_owned));
        self
    }

    /// Refuses a lock that an enclosing run holds: waiting for it would never end.
    pub(crate) async fn refuse(&self, client: &Client, name: &str) -> Result<(), Failure> {
        if self.0.is_empty() {
            return Ok(());
        }
        let seen = match client.inspect(name).await {
            Ok(seen) => seen,
            // A user may have the right to take locks but not to inspect them.
            Err(error) if error.kind() == ErrorKind::Denied => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let is_ours = |token: &[u8]| self.0.iter().any(|ours| ours.as_bytes() == token);
        let Some(ours) = seen.holders.iter().find(|holder| is_ours(&holder.token)) else {
            return Ok(());
        };
        let (how, why) = match ours.claim {
            Claim::Shared => (
                "shared",
                "a second share would wait behind whoever waits for the lock alone, and a share \
                 cannot become the whole lock",
            ),
            _ => ("held", "waiting would never end"),
        };
        Err(Failure::config(format!(
            "`{}` is already {how} by an outer leasehold command or by this shell, and {why}; \
             nothing was changed; run the inner command without leasehold, or use another name",
            escape(name)
        ))
        .about(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_grows_by_each_run_and_is_bounded() {
        let token = |text: &str| OwnerToken::new(text).expect("a token");
        assert_eq!(Chain::default().with([&token("a")]), "a");
        assert_eq!(Chain::default().with([&token("a"), &token("b")]), "a b");
        let mut text = "a".to_owned();
        for number in 0..300 {
            text = Chain::read(Some(text.into())).with([&token(&format!("t{number}"))]);
        }
        let all: Vec<_> = text.split(' ').collect();
        assert_eq!((all.len(), all[0], all[255]), (TOKENS_MAX, "t44", "t299"));
    }
}
