//! Texts that several checks share.

use std::error::Error as _;
use std::time::Duration;

use crate::core::error::Error;

/// The remedy for a server whose memory is used up.
#[cfg(feature = "redis")]
pub(super) const RAISE_MAXMEMORY: &str =
    "raise the limit by CONFIG SET maxmemory and in the server's configuration, or remove data";

/// The remedy for a server that cannot write to its disk.
#[cfg(feature = "redis")]
pub(super) const FREE_DISK: &str = "free space on the server's disk, read its log, and run BGSAVE";

/// A span of time for people.
pub(super) fn span(span: Duration) -> String {
    let micros = span.as_micros();
    match micros {
        0..1_000 => format!("{micros} µs"),
        1_000..10_000 => format!("{}.{} ms", micros / 1_000, micros % 1_000 / 100),
        10_000..10_000_000 => format!("{} ms", micros / 1_000),
        _ => format!("{} s", micros / 1_000_000),
    }
}

/// A number of bytes for people.
#[cfg(any(test, feature = "redis", feature = "sqlite"))]
pub(super) fn bytes(bytes: u64) -> String {
    match bytes {
        0..0xA0_0000 => format!("{} KiB", bytes.div_ceil(1 << 10)),
        _ => format!("{} MiB", bytes >> 20),
    }
}

/// The text of an error and its cause, without the name of a lock and without its advice.
pub(super) fn cause_of(error: &Error) -> String {
    let text = error.to_string();
    let end = state_in(&text).unwrap_or(text.len());
    let mut said = text[..end].to_owned();
    if let Some(cause) = error.source().map(ToString::to_string).filter(|it| !said.contains(it)) {
        said.push_str(": ");
        said.push_str(&cause);
    }
    said
}

/// The advice of an error, which is its last part.
pub(super) fn advice_of(error: &Error) -> Option<String> {
    let text = error.to_string();
    let rest = &text[state_in(&text)? + 2..];
    let (_, advice) = rest.split_once("; ").or_else(|| rest.split_once(", "))?;
    advice.rsplit("; ").next().map(str::to_owned)
}

/// The position at which an error begins to say what state the store is in.
fn state_in(text: &str) -> Option<usize> {
    let states = ["; no request was sent", "; nothing was changed"];
    states.iter().filter_map(|state| text.find(state)).min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::error::ErrorKind;

    #[test]
    fn spans_and_bytes_are_short() {
        for (micros, text) in
            [(7, "7 µs"), (1_250, "1.2 ms"), (41_900, "41 ms"), (10_000_000, "10 s")]
        {
            assert_eq!(span(Duration::from_micros(micros)), text);
        }
        assert_eq!([1, 5 << 20, 50 << 20].map(bytes), ["1 KiB", "5120 KiB", "50 MiB"]);
    }

    #[test]
    fn an_error_is_shown_with_its_cause_and_without_its_advice() {
        let error =
            Error::new(ErrorKind::Unavailable, "it is gone; no request was sent; try again")
                .with_source(std::io::Error::other("reset"));
        assert_eq!(cause_of(&error), "it is gone: reset");
        assert_eq!(advice_of(&error).as_deref(), Some("try again"));
        let bare = Error::new(ErrorKind::Unavailable, "it is gone");
        assert_eq!((cause_of(&bare).as_str(), advice_of(&bare)), ("it is gone", None));
    }
}
