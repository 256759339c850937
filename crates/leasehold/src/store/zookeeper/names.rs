//! The paths of locks, and the names of the nodes below them.
//!
//! | node | exists while | data |
//! |---|---|---|
//! | `ROOT/NAME` | somebody has the lock or waits for it, and a little longer | none |
//! | `ROOT/NAME/_c_TOKEN-lock-NUMBER` | this owner has it, or waits for it | see `entry` |
//!
//! The lowest number has the lock. Apache Curator's `InterProcessMutex` names its nodes in the same
//! way, so both can share a lock.

use std::fmt::Write as _;

use percent_encoding::percent_decode_str;

use crate::core::key::Key;
use crate::core::token::OwnerToken;

/// The text before the number.
const MARK: &str = "lock-";

/// The text before the owner.
const OURS: &str = "_c_";

/// How many digits a number has at least.
const DIGITS: usize = 10;

/// The paths below one root.
#[derive(Clone, Debug)]
pub(super) struct Names {
    /// Without a slash at its end; empty for the root of the server.
    root: String,
}

impl Names {
    pub(super) fn new(root: &str) -> Self {
        Self { root: root.to_owned() }
    }

    /// The parent of all locks.
    pub(super) fn root(&self) -> &str {
        if self.root.is_empty() { "/" } else { &self.root }
    }

    /// The node of a lock.
    pub(super) fn lock(&self, key: &Key) -> String {
        let name = key.as_str();
        if matches!(name, "." | "..") {
            return format!("{}/{}", self.root, name.replace('.', "%2E"));
        }
        format!("{}/{}", self.root, encode(name))
    }

    /// The name of the lock whose node is this child of the root. `None` if it is no node of
    /// Leasehold.
    pub(super) fn key_of(&self, child: &str) -> Option<Key> {
        let name = percent_decode_str(child).decode_utf8().ok()?;
        let key = Key::new(name).ok()?;
        // Each lock has one name only.
        (self.lock(&key).rsplit('/').next() == Some(child)).then_some(key)
    }
}

/// The part of the name of an owner's node before its number.
pub(super) fn place(owner: &OwnerToken) -> String {
    format!("{OURS}{}-{MARK}", encode(owner.as_str()))
}

/// The owner token in the name of a node, or the whole name if another library wrote it.
pub(super) fn token(node: &str) -> String {
    let owner = node.strip_prefix(OURS).and_then(|rest| Some(rest.rsplit_once("-lock-")?.0));
    let decoded = owner.and_then(|owner| percent_decode_str(owner).decode_utf8().ok());
    decoded.map_or_else(|| node.to_owned(), |owner| owner.into_owned())
}

/// The number of a node as text, by which nodes are sorted. `None` if it is not the node of a lock.
pub(super) fn number(node: &str) -> Option<&str> {
    let (_, number) = node.rsplit_once(MARK)?;
    let digits = number.strip_prefix('-').unwrap_or(number);
    let is_number = digits.len() >= DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then_some(number)
}

/// Whether ZooKeeper allows a printable character in a path. It checks each unit of UTF-16. It
/// refuses surrogate pairs, and units for private use.
pub(super) fn is_allowed(character: char) -> bool {
    !matches!(u32::from(character), 0xd800..=0xf8ff | 0xfff0..)
}

/// The text as one part of a path. Characters that ZooKeeper allows in a name are kept.
fn encode(text: &str) -> String {
    let mut encoded = String::new();
    for character in text.chars() {
        let is_plain = match character {
            '/' | '%' | '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' => false,
            _ => is_allowed(character),
        };
        if is_plain {
            encoded.push(character);
        } else {
            for byte in character.encode_utf8(&mut [0; 4]).bytes() {
                write!(encoded, "%{byte:02X}").expect("a string takes any text");
            }
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_lock_has_one_path_of_which_its_name_can_be_read() {
        let names = Names::new("/app");
        for (name, path) in [
            ("a", "/app/a"),
            ("a/b", "/app/a%2Fb"),
            ("..", "/app/%2E%2E"),
            (".", "/app/%2E"),
            ("...", "/app/..."),
            ("100%", "/app/100%25"),
            ("ü 漢字", "/app/ü 漢字"),
            ("\u{1f512}", "/app/%F0%9F%94%92"),
            ("\u{ff21}\u{feff}", "/app/\u{ff21}\u{feff}"),
            ("\u{f8ff}\u{fff0}", "/app/%EF%A3%BF%EF%BF%B0"),
        ] {
            let key = Key::new(name).expect("a name");
            assert_eq!(names.lock(&key), path);
            let child = path.strip_prefix("/app/").expect("below the root");
            assert_eq!(names.key_of(child), Some(key));
        }
        // Other software may have written them.
        for child in ["a%2fb", "%61", "%FF", "a%", ".%2E"] {
            assert_eq!(names.key_of(child), None, "{child}");
        }
        assert_eq!(Names::new("").root(), "/");
        assert_eq!(Names::new("").lock(&Key::new("a").expect("a name")), "/a");
    }

    #[test]
    fn a_node_tells_its_owner_and_its_number() {
        for owner in ["x", "a/b%", "Token-1", "a-lock-0000000001", "~"] {
            let owner = OwnerToken::new(owner).expect("printable");
            let node = format!("{}0000000012", place(&owner));
            assert!(!node.contains('/'));
            assert_eq!((token(&node), number(&node)), (owner.as_str().into(), Some("0000000012")));
        }
        let curator = "_c_6fa459ea-ee8a-3ca4-894e-db77e160355e-lock-0000000003";
        assert_eq!(token(curator), "6fa459ea-ee8a-3ca4-894e-db77e160355e");
        assert_eq!(
            (token("lock-0000000003"), number("lock-0000000003").is_some()),
            ("lock-0000000003".to_owned(), true)
        );
        assert_eq!(number("_c_x-lock--2147483648"), Some("-2147483648"));
        for other in ["locks", "lock-", "lock-12", "_c_x-__READ__0000000001", "lock-00000000x1"] {
            assert_eq!(number(other), None, "{other}");
        }
    }
}
