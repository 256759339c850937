//! Owner tokens whose grants this store has released by itself.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::core::error::{Error, ErrorKind};
use crate::core::key::Key;
use crate::core::token::OwnerToken;

/// How many tokens are remembered, the newest ones. A caller that still uses an older token has
/// waited for longer than that many shortfalls take.
const SPENT_MAX: usize = 1_024;

/// Tokens whose grants were released because there were too few copies, newest last. Such a release
/// may arrive late or twice. It would then end a newer grant of the same token, so the token must
/// not be used again.
///
/// A session then goes on with a fresh token. A quorum, though, asks each node with the same token
/// for as long as it waits. It also uses the token of the lease when it asks a node that lacks it.
#[derive(Default)]
pub(super) struct Spent(Mutex<VecDeque<(Key, OwnerToken)>>);

impl Spent {
    pub(super) fn add(&self, key: Key, token: OwnerToken) {
        let mut spent = self.lock();
        if spent.len() == SPENT_MAX {
            spent.pop_front();
        }
        spent.push_back((key, token));
    }

    /// The error if this token must not be used again for that key. `None` if it may be used.
    pub(super) fn look(&self, key: &Key, token: &OwnerToken) -> Option<Error> {
        if !self.lock().iter().any(|spent| spent.0 == *key && spent.1 == *token) {
            return None;
        }
        let message = "the grant of this owner token was released, since it had too few copies; no \
                       request was sent, use a fresh token";
        Some(Error::new(ErrorKind::Unavailable, message).with_name(key.as_str()))
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(Key, OwnerToken)>> {
        // Every change leaves the list complete, so it is valid even after a panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_tokens_are_remembered_for_their_key() {
        let token = |number: usize| OwnerToken::new(format!("token-{number}")).expect("a token");
        let [key, other] = ["a", "b"].map(|name| Key::new(name).expect("a name"));
        let spent = Spent::default();
        for number in 0..=SPENT_MAX {
            assert!(spent.look(&key, &token(number)).is_none(), "it is not spent yet");
            spent.add(key.clone(), token(number));
            let error = spent.look(&key, &token(number)).expect("it is");
            assert_eq!(error.kind(), ErrorKind::Unavailable);
            assert!(spent.look(&other, &token(number)).is_none(), "it is another lock");
        }
        assert!(spent.look(&key, &token(0)).is_none(), "it is forgotten");
        assert!(spent.look(&key, &token(1)).is_some(), "it is remembered");
    }
}
