//! Hints as texts.

use crate::core::key::Key;
use crate::core::token::{FencingBlock, FencingToken, OwnerToken};
use crate::store::Hint;

/// Reads a hint, as the files `line.sql` write it. `None` for any other text.
pub(in crate::store) fn read(text: &str) -> Option<Hint> {
    let (kind, rest) = text.split_once(' ')?;
    match kind {
        "wanted" => Some(Hint::Wanted { key: Key::new(rest).ok()? }),
        "free" => Some(Hint::MaybeFree { key: Key::new(rest).ok()? }),
        "granted" => {
            let mut parts = rest.splitn(5, ' ');
            let ask_no = parts.next()?.parse().ok()?;
            let first = FencingToken::new(parts.next()?.parse().ok()?);
            let count = parts.next()?.parse().ok()?;
            let owner = OwnerToken::new(parts.next()?).ok()?;
            let key = Key::new(parts.next()?).ok()?;
            let fencing = first.map(|first| FencingBlock { first, count });
            Some(Hint::Granted { key, owner, fencing, ask_no })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_reads_back_and_other_texts_do_not() {
        let key = Key::new("a b c").expect("a name");
        let block = FencingToken::new(41).map(|first| FencingBlock { first, count: 2 });
        let owner = OwnerToken::new("token").expect("printable");
        let granted = |fencing| {
            let (key, owner) = (key.clone(), owner.clone());
            Some(Hint::Granted { key, owner, fencing, ask_no: 7 })
        };
        for (text, hint) in [
            ("granted 7 41 2 token a b c", granted(block)),
            ("granted 7 0 0 token a b c", granted(None)),
            ("wanted a b c", Some(Hint::Wanted { key: key.clone() })),
            ("free a b c", Some(Hint::MaybeFree { key: key.clone() })),
            ("granted 7 41 2 token", None),
            ("granted x 41 2 token a", None),
            ("granted 4294967296 41 2 token a", None),
            ("other a", None),
            ("free", None),
            ("free ", None),
            ("", None),
        ] {
            assert_eq!(read(text), hint, "{text}");
        }
    }
}
