//! Spans of time as people write them: `10`, `0.5`, `500ms`, `10s`, `1m30s`, `2h`.

use std::time::Duration;

use leasehold::Ttl;

use crate::exit::Failure;

/// The hint after a wrong span.
const FORM: &str = "write seconds as a number (10 or 0.5), or use units: 500ms, 10s, 1m30s, 2h";

const NANOS_PER_SECOND: u128 = 1_000_000_000;

/// The units with their nanoseconds; `ms` comes before `m`.
const UNITS: [(&str, u128); 5] = [
    ("ms", 1_000_000),
    ("s", NANOS_PER_SECOND),
    ("m", 60 * NANOS_PER_SECOND),
    ("h", 3_600 * NANOS_PER_SECOND),
    ("d", 86_400 * NANOS_PER_SECOND),
];

/// How to write spans, for the help.
pub(crate) const HELP: &str = "\
DUR is a span of time: 500ms, 30s, 5m, 2h, 1d or 1m30s; a bare number is seconds (0.5).
A ttl lies between 10ms and 24h.";

/// A span on the command line, with its text, since a user who typed `25h` should see `25h` again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Typed {
    /// The text as it was typed.
    pub(crate) text: String,
    /// Its value.
    pub(crate) span: Duration,
}

/// Reads a span and keeps its text.
pub(crate) fn typed(text: &str) -> Result<Typed, String> {
    parse(text).map(|span| Typed { text: text.to_owned(), span })
}

impl Typed {
    /// The span as a ttl of the lock called `name`, or of several.
    pub(crate) fn ttl(&self, name: Option<&str>) -> Result<Duration, Failure> {
        let ttl = Ttl::new(self.span).map_err(|_| {
            let text = self.text.escape_debug();
            let message = format!(
                "a ttl must be between 10 ms and 24 h, not {text}; the store was not contacted; \
                 change --ttl"
            );
            Failure::config(message).about_any(name)
        })?;
        Ok(ttl.get())
    }
}

/// Reads a span. A bare number is seconds, as with flock(1).
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{}` is not a span of time; {FORM}", text.escape_debug());
    let mut nanos = 0_u128;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, tail) = rest.split_at(digits);
        let (unit, tail) = match UNITS.iter().find_map(|(name, unit)| {
            tail.strip_prefix(name).filter(|tail| starts_next(tail)).map(|tail| (*unit, tail))
        }) {
            Some(found) => found,
            None if tail.is_empty() && number.len() == text.len() => (NANOS_PER_SECOND, tail),
            None => return Err(wrong()),
        };
        let part = scaled(number, unit).ok_or_else(wrong)?;
        nanos = nanos.checked_add(part).ok_or_else(wrong)?;
        rest = tail;
    }
    if text.is_empty() {
        return Err(wrong());
    }
    let seconds = u64::try_from(nanos / NANOS_PER_SECOND).map_err(|_| wrong())?;
    let below = u32::try_from(nanos % NANOS_PER_SECOND).expect("less than a second");
    Ok(Duration::new(seconds, below))
}

/// Whether `tail` is empty or begins with a number. So `1min` is refused, and not read as `1m`.
fn starts_next(tail: &str) -> bool {
    tail.is_empty() || tail.starts_with(|c: char| c.is_ascii_digit() || c == '.')
}

/// The decimal `number` times `unit`, exact to the nanosecond.
fn scaled(number: &str, unit: u128) -> Option<u128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || whole.len() > 20 || fraction.len() > 9 {
        return None;
    }
    let digits = |text: &str| if text.is_empty() { Some(0) } else { text.parse::<u128>().ok() };
    let places = 10_u128.pow(u32::try_from(fraction.len()).expect("at most nine"));
    let above = digits(whole)?.checked_mul(unit)?;
    above.checked_add(digits(fraction)?.checked_mul(unit)? / places)
}

/// A span for people: two units at most, rounded down.
pub(crate) fn human(span: Duration) -> String {
    let seconds = span.as_secs();
    match seconds {
        0 => format!("{}ms", span.as_millis()),
        1..10 => format!("{}.{}s", seconds, span.subsec_millis() / 100),
        10..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m {}s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h {}m", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{}d {}h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_read_as_people_write_it() {
        let table = [
            ("0", 0),
            ("10", 10_000),
            ("0.5", 500),
            (".5", 500),
            ("5.", 5_000),
            ("500ms", 500),
            ("10s", 10_000),
            ("1m30s", 90_000),
            ("1.5m", 90_000),
            ("2h", 7_200_000),
            ("1h2m3s4ms", 3_723_004),
            ("1d", 86_400_000),
        ];
        for (text, ms) in table {
            assert_eq!(parse(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        assert_eq!(parse("0.000000001"), Ok(Duration::from_nanos(1)));
    }

    #[test]
    fn a_text_that_is_no_span_is_refused_with_the_right_form() {
        for text in [
            "",
            " ",
            "-1",
            "+1",
            "s",
            "ms",
            ".",
            "1x",
            "1min",
            "1m30",
            "1 s",
            "1..5",
            "1e3",
            "ten",
            "1.5.5s",
            "0.0000000001",
            "99999999999999999999999h",
            "10S",
            "1,5",
            "∞",
        ] {
            let refusal = parse(text).expect_err(text);
            assert!(refusal.contains("500ms, 10s, 1m30s, 2h"), "{refusal}");
        }
    }

    #[test]
    fn a_ttl_out_of_bounds_is_shown_as_it_was_typed() {
        for text in ["25h", "0", "9ms", "90000"] {
            let failure = typed(text).and_then(|it| it.ttl(Some("x")).map_err(|it| it.message));
            let message = failure.expect_err(text);
            assert!(message.contains(&format!("24 h, not {text};")), "{message}");
        }
        assert_eq!(
            typed("1m").and_then(|it| it.ttl(Some("x")).map_err(|it| it.message)),
            Ok(Duration::from_secs(60))
        );
    }

    #[test]
    fn a_span_is_shown_in_two_units_at_most() {
        for (ms, text) in [
            (0, "0ms"),
            (999, "999ms"),
            (1_250, "1.2s"),
            (41_900, "41s"),
            (192_000, "3m 12s"),
            (3_720_000, "1h 2m"),
            (90_000_000, "1d 1h"),
        ] {
            assert_eq!(human(Duration::from_millis(ms)), text);
        }
    }
}
