//! The name of what is protected.

use std::fmt;
use std::sync::Arc;

use crate::core::error::{Error, ErrorKind, NAME_BYTES_MAX};

/// The checked name of a lock: 1 to 512 bytes of UTF-8 without control characters. It must not look
/// like a companion key or a probe of Leasehold.
///
/// Stores use the name as given, so that other libraries lock the same key.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Arc<str>);

/// The mark of a companion key: `{key}:lh:…`, or `key:lh:…` if the key has its own hash tag.
const COMPANION_MARK: &str = ":lh:";

/// The prefix of the keys with which a quorum tests its nodes. The rest of such a key is random.
const PROBE_PREFIX: &str = "leasehold:probe:";

impl Key {
    /// The longest name, in bytes.
    pub const MAX_BYTES: usize = NAME_BYTES_MAX;

    /// Checks a name.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Config`] if the name is empty, longer than [`MAX_BYTES`](Self::MAX_BYTES), or
    /// has a control character. Also if it contains `:lh:`, the mark of companion keys, or begins
    /// with `leasehold:probe:`, the prefix of test keys.
    ///
    /// ```
    /// use leasehold::Key;
    /// assert_eq!(Key::new("order:42")?.as_str(), "order:42");
    /// assert!(Key::new("").is_err());
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    pub fn new(name: impl AsRef<str>) -> Result<Self, Error> {
        let name = name.as_ref();
        let Some(complaint) = Self::complaint(name) else { return Ok(Self(name.into())) };
        let message = format!("{complaint}; no request was sent; choose another name");
        Err(Error::new(ErrorKind::Config, message).about(name))
    }

    /// Why a name cannot be used, if it cannot.
    pub(crate) fn complaint(name: &str) -> Option<String> {
        Some(if name.is_empty() {
            "the name of a lock must not be empty".to_owned()
        } else if name.len() > Self::MAX_BYTES {
            let (most, bytes) = (Self::MAX_BYTES, name.len());
            format!("the name of a lock must have at most {most} bytes, not {bytes}")
        } else if name.chars().any(char::is_control) {
            "the name of a lock must not contain control characters".to_owned()
        } else if name.contains(COMPANION_MARK) {
            format!(
                "a name with `{COMPANION_MARK}` in it is reserved for the companion keys of a lock"
            )
        } else if name.starts_with(PROBE_PREFIX) {
            format!("a name that begins with `{PROBE_PREFIX}` is reserved for probing servers")
        } else {
            return None;
        })
    }

    /// A key for testing a store. [`new`](Self::new) refuses its name, so no lock has it. Nobody
    /// else has it either, if `random` is random enough.
    #[must_use]
    pub fn probe(random: &str) -> Self {
        Self(format!("{PROBE_PREFIX}{random}").into())
    }

    /// A place in a listing. Another program may have written a name that no lock can have.
    #[cfg(feature = "_sql")]
    pub(crate) fn cursor(name: &str) -> Self {
        Self(name.into())
    }

    /// Whether this is a key for testing a server.
    #[cfg(feature = "redis")]
    pub(crate) fn is_probe(&self) -> bool {
        self.0.starts_with(PROBE_PREFIX)
    }

    /// The name as given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for Key {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl From<Key> for String {
    fn from(key: Key) -> Self {
        key.as_str().to_owned()
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_checked_once() {
        let long = "x".repeat(Key::MAX_BYTES);
        let too_long = "x".repeat(Key::MAX_BYTES + 1);
        let few_letters = "\u{fc}".repeat(Key::MAX_BYTES / 2 + 1);
        let table: [(&str, Option<&str>); 12] = [
            ("order:42", None),
            ("ünï/côde {tag} with space", None),
            (&long, None),
            ("", Some("must not be empty")),
            (&too_long, Some("at most 512 bytes, not 513")),
            (&few_letters, Some("at most 512 bytes, not 514")),
            ("a\nb", Some("control characters")),
            ("a\u{7f}b", Some("control characters")),
            ("{a}:lh:fence", Some("reserved")),
            ("a:lh:", Some("reserved")),
            ("leasehold:probe:a", Some("reserved for probing servers")),
            ("my:leasehold:probe:a", None),
        ];
        for (name, complaint) in table {
            match (Key::new(name), complaint) {
                (Ok(key), None) => assert_eq!(key.as_str(), name),
                (Err(error), Some(part)) => {
                    assert_eq!(error.kind(), ErrorKind::Config);
                    assert!(error.to_string().contains(part), "{error}");
                }
                (result, _) => panic!("{name:?} gave {result:?}"),
            }
        }
    }
}
