//! The errors for scripts that granted nothing.

use crate::core::error::{Error, ErrorKind};
use crate::core::key::Key;
use crate::store::redis::keys::Keys;

/// `Unavailable`, because another connection may lead to the right server.
pub(in crate::store::redis) fn misled() -> Error {
    Error::new(
        ErrorKind::Unavailable,
        "the server process behind this address keeps changing: a connection now leads to another \
         process than at its start; nothing was granted; connect to a strict server directly, not \
         through a proxy that survives its restart",
    )
}

/// `Config`, because the server cannot know whose data it is.
pub(in crate::store::redis) fn no_epoch() -> Error {
    Error::new(
        ErrorKind::Config,
        "`:lh:epoch` of this database is not the hash of a strict server; nothing was granted and \
         the key is untouched; find out what wrote it (`TYPE :lh:epoch`), then run `DEL \
         :lh:epoch`, which begins a quarantine of 65 s",
    )
}

/// `Config`: no clock is that far ahead, so somebody else has written the counter.
pub(in crate::store::redis) fn no_tokens(key: &Key) -> Error {
    let counter = Keys::of(key).fence();
    let message = format!(
        "its fencing counter `{counter}` is beyond 2^53-1, so no higher token is left; nothing was \
         granted; find out what wrote the counter, then `DEL` it"
    );
    Error::new(ErrorKind::Config, message).with_name(key.as_str())
}
