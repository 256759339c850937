//! The record of a database: who last switched strict mode on or off, when and why.

use crate::core::moment::WallTime;

/// The most characters of a record that are read, for each of its texts.
const READ_CHARS_MAX: usize = 300;

/// The last time that somebody switched a database to strict mode, or switched it off.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Act {
    /// Whether strict mode was switched on.
    pub is_on: bool,
    /// When, by the clock of the server. `None` if the record does not say.
    pub at: Option<WallTime>,
    /// The user who did it, as `user@host`. Empty if the record does not say.
    pub who: String,
    /// The reason. Empty if none was given.
    pub why: String,
}

impl Act {
    /// Whether a record puts its database in strict mode. Any word but `off` does, which is safe if
    /// somebody wrote the record by hand. `switch.lua` decides in the same way.
    pub(in crate::store::redis) fn switches_on(record: &[u8]) -> bool {
        let word = record.split(|byte| *byte == b' ').next().unwrap_or_default();
        !word.is_empty() && word != b"off"
    }

    /// Reads a record. `None` if it is empty.
    pub(crate) fn read(record: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(record);
        let mut parts = text.splitn(4, ' ');
        parts.next().filter(|word| !word.is_empty())?;
        let at = parts.next().and_then(|ms| ms.parse::<u64>().ok());
        let at = at.map(|ms| WallTime::from_unix_micros(ms.saturating_mul(1_000)));
        let mut part = || parts.next().unwrap_or_default().chars().take(READ_CHARS_MAX).collect();
        let (who, why) = (part(), part());
        Some(Self { is_on: Self::switches_on(record), at, who, why })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_back_for_any_writer() {
        let at = |ms: u64| Some(WallTime::from_unix_micros(ms * 1_000));
        for (record, is_on, at, who, why) in [
            (
                "on 1795000000123 anna@web-3 an upgrade of the disks",
                true,
                at(1_795_000_000_123),
                "anna@web-3",
                "an upgrade of the disks",
            ),
            ("off 5 anna@web-3 ", false, at(5), "anna@web-3", ""),
            ("on", true, None, "", ""),
            ("off", false, None, "", ""),
            ("on soon", true, None, "", ""),
            ("yes", true, None, "", ""),
            ("offer", true, None, "", ""),
        ] {
            let act = Act::read(record.as_bytes()).expect("there is one");
            let expected = Act { is_on, at, who: who.to_owned(), why: why.to_owned() };
            assert_eq!(act, expected, "{record}");
            assert_eq!(Act::switches_on(record.as_bytes()), is_on, "{record}");
        }
        for record in ["", " ", " on"] {
            assert_eq!(Act::read(record.as_bytes()), None);
            assert!(!Act::switches_on(record.as_bytes()));
        }
        let long = format!("on 1 a {}", "ü".repeat(1_000));
        let act = Act::read(long.as_bytes()).expect("there is one");
        assert_eq!(act.why.chars().count(), READ_CHARS_MAX);
        assert!(Act::switches_on(b"\xff"), "what nobody understands is not `off`");
    }
}
