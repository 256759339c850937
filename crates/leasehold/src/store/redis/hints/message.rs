//! Messages that scripts publish to the inboxes of clients.
//!
//! | payload | hint |
//! |---|---|
//! | `g ask_no first count owner key` | the key was handed to this owner |
//! | `w key` | another client waits for the key |
//! | `f key` | the key may be free |
//!
//! Anybody who may publish can forge messages, so they are checked like any input.

use std::time::Duration;

use crate::core::key::Key;
use crate::core::moment::WallTime;
use crate::core::token::{FencingBlock, FencingToken, OwnerToken};
use crate::store::Hint;

/// Reads a payload; `None` if it is no hint.
pub(super) fn hint(payload: &[u8]) -> Option<Hint> {
    let (kind, rest) = str::from_utf8(payload).ok()?.split_once(' ')?;
    match kind {
        "g" => granted(rest),
        "w" => Some(Hint::Wanted { key: Key::new(rest).ok()? }),
        "f" => Some(Hint::MaybeFree { key: Key::new(rest).ok()? }),
        _ => None,
    }
}

/// How far the clocks of a server and of this machine may differ before messages are not believed.
const CLOCKS_APART_MAX: Duration = Duration::from_hours(24);

/// Whether a server may have issued these fencing tokens just now. A hand-over raises the counter
/// to the server's clock, which must be close to ours.
pub(super) fn is_of_now(fencing: Option<FencingBlock>, wall: WallTime) -> bool {
    let Some(FencingBlock { first, count }) = fencing else { return true };
    let apart = |token: u64| Duration::from_micros(token.abs_diff(wall.as_unix_micros()));
    let last = first.get().saturating_add(count.saturating_sub(1).into());
    apart(first.get()).max(apart(last)) <= CLOCKS_APART_MAX
}

fn granted(text: &str) -> Option<Hint> {
    // The key comes last, because it may contain spaces.
    let mut words = text.splitn(5, ' ');
    let ask_no = number(words.next()?)?.try_into().ok()?;
    let (first, count) = (number(words.next()?)?, number(words.next()?)?);
    let fencing = match (first, u32::try_from(count).ok()?) {
        (0, 0) => None,
        (first, count @ 1..) if first.checked_add(count.into())? <= FencingToken::MAX + 1 => {
            Some(FencingBlock { first: FencingToken::new(first)?, count })
        }
        _ => return None,
    };
    let owner = OwnerToken::new(words.next()?).ok()?;
    let key = Key::new(words.next()?).ok()?;
    Some(Hint::Granted { key, owner, fencing, ask_no })
}

/// A number of digits only. `parse` alone would accept a sign.
fn number(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key::new(name).expect("a name")
    }

    #[test]
    fn payloads_are_read() {
        let owner = OwnerToken::new("anna").expect("a token");
        let granted = |first, count, ask_no| {
            let fencing = FencingToken::new(first).map(|first| FencingBlock { first, count });
            Some(Hint::Granted { key: key("a b"), owner: owner.clone(), fencing, ask_no })
        };
        let table = [
            ("w a", Some(Hint::Wanted { key: key("a") })),
            ("f order 42 ü", Some(Hint::MaybeFree { key: key("order 42 ü") })),
            ("g 7 41 8 anna a b", granted(41, 8, 7)),
            ("g 0 0 0 anna a b", granted(0, 0, 0)),
            ("g 7 9007199254740991 1 anna a b", granted(FencingToken::MAX, 1, 7)),
        ];
        for (payload, expected) in table {
            assert_eq!(hint(payload.as_bytes()), expected, "{payload}");
        }
    }

    #[test]
    fn tokens_that_no_clock_of_these_days_gives_are_not_of_now() {
        const DAY_US: u64 = 24 * 3_600 * 1_000_000;
        let now = 1_790_000_000_000_000;
        let table = [
            (now, 1, true),
            (now - 999, 1_000, true),
            (now - DAY_US, 1, true),
            (now + DAY_US, 1, true),
            (now - DAY_US - 1, 1, false),
            (now + DAY_US + 1, 1, false),
            (now + DAY_US, 2, false),
            (1, 1, false),
            (FencingToken::MAX, 1, false),
            (now, u32::MAX, true),
            (FencingToken::MAX, u32::MAX, false),
        ];
        let wall = WallTime::from_unix_micros(now);
        for (first, count, expected) in table {
            let fencing = FencingToken::new(first).map(|first| FencingBlock { first, count });
            assert_eq!(is_of_now(fencing, wall), expected, "{first}, {count}");
        }
        assert!(is_of_now(None, wall), "a lock without tokens");
    }

    #[test]
    fn forged_payloads_are_nothing() {
        let long = format!("w {}", "x".repeat(Key::MAX_BYTES + 1));
        let table = [
            "",
            " ",
            "w",
            "w ",
            "f ",
            "x a",
            "W a",
            "wa",
            " w a",
            "w a\n",
            "w {a}:lh:fence",
            &long,
            "g",
            "g 1",
            "g 1 1 1 anna",
            "g 1 1 1 anna ",
            "g 1 1 1  a",
            "g 1 1 1 änna a",
            "g -1 1 1 anna a",
            "g +1 1 1 anna a",
            "g 4294967296 1 1 anna a",
            "g  1 1 anna a",
            "g 1 0 1 anna a",
            "g 1 1 0 anna a",
            "g 1 1 4294967296 anna a",
            "g 1 1.5 1 anna a",
            "g 1 9007199254740992 1 anna a",
            "g 1 9007199254740991 2 anna a",
            "g 1 18446744073709551615 1 anna a",
            "g 1 99999999999999999999 1 anna a",
        ];
        for payload in table {
            assert_eq!(hint(payload.as_bytes()), None, "{payload:?}");
        }
        assert_eq!(hint(b"w \xff"), None);
    }

    /// Reading never panics, and each value that it returns agrees with the payload.
    #[test]
    fn damaged_payloads_are_read_as_they_are_or_not_at_all() {
        let mut state = 7_u64;
        let mut draw = move |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            usize::try_from(state >> 33).expect("31 bits") % below
        };
        let whole = b"g 12 1790000000000000 1 AAAAAAAAAAAAAAAAAAAAAA.BBBBBBBBBBBB order 42";
        for _ in 0..50_000 {
            let mut payload = whole.to_vec();
            for _ in 0..=draw(3) {
                let at = draw(payload.len());
                match draw(3) {
                    0 => payload[at] = b" 0159gwf-+\xff\n"[draw(12)],
                    1 => payload.truncate(at + 1),
                    _ => payload.insert(at, b' '),
                }
            }
            if let Some(Hint::Granted { key, owner, fencing, ask_no }) = hint(&payload) {
                let (first, count) =
                    fencing.map_or((0, 0), |block| (block.first.get(), block.count));
                let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
                let said = words(str::from_utf8(&payload).expect("it was read"));
                let read = words(&format!("g {ask_no} {first} {count} {} {key}", owner.as_str()));
                let number = |word: &String| word.trim_start_matches('0').to_owned();
                let numbers = |all: &[String]| all[1..4].iter().map(number).collect::<Vec<_>>();
                assert_eq!(numbers(&said), numbers(&read).iter().map(number).collect::<Vec<_>>());
                assert_eq!(said[4..], read[4..]);
            }
        }
    }
}
