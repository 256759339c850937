//! Numbers in the server's text formats.

/// A whole number in the server's own format: no `+` and no leading zeros.
pub(super) fn integer(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let is_plain = match digits {
        [b'0'] => text.len() == 1,
        [b'1'..=b'9', rest @ ..] => rest.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    if is_plain { str::from_utf8(text).ok()?.parse().ok() } else { None }
}

/// The cursor of a scan. As in C's unsigned numbers, empty text is zero and a negative number
/// counts from the end.
pub(super) fn cursor(text: &[u8]) -> Option<u64> {
    let (digits, is_negative) = match text {
        [] => return Some(0),
        [b'-', digits @ ..] => (digits, true),
        [b'+', digits @ ..] => (digits, false),
        digits => (digits, false),
    };
    let is_plain = digits.iter().all(u8::is_ascii_digit);
    let number: u64 = str::from_utf8(digits).ok().filter(|_| is_plain)?.parse().ok()?;
    Some(if is_negative { number.wrapping_neg() } else { number })
}

/// A score: a number in C's format, but not in hexadecimal. All of the text must belong to it.
pub(super) fn score(text: &[u8]) -> Option<f64> {
    let number = float(text)?;
    let digits = text.iter().take_while(|byte| !byte.eq_ignore_ascii_case(&b'e'));
    let is_zero = !digits.clone().any(|byte| (b'1'..=b'9').contains(byte));
    let is_endless = text.iter().any(|byte| byte.eq_ignore_ascii_case(&b'i'));
    // A number that is too large or too small for the type is refused.
    let fits = number.is_infinite() == is_endless && (number == 0.0) == (is_zero && !is_endless);
    fits.then_some(number)
}

/// One end of a range of scores, and whether the range excludes that end. This is read less
/// strictly than a score. Empty text is zero, and a number that is too large is infinite.
pub(super) fn bound(text: &[u8]) -> Option<(f64, bool)> {
    let (text, open) = match text.strip_prefix(b"(") {
        Some(rest) => (rest, true),
        None => (text, false),
    };
    if text.is_empty() {
        return Some((0.0, open));
    }
    Some((float(text.trim_ascii_start())?, open))
}

fn float(text: &[u8]) -> Option<f64> {
    let number = str::from_utf8(text).ok()?.parse::<f64>().ok()?;
    (!number.is_nan()).then_some(number)
}

/// A number with 17 digits, as C's `%.17g` writes it. Scripts pass numbers to commands in this
/// form.
pub(super) fn written(number: f64) -> String {
    const DIGITS: usize = 17;
    if number.is_nan() {
        return if number.is_sign_negative() { "-nan" } else { "nan" }.to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    // The text has one digit, a point, sixteen more digits, and the exponent.
    let exact = format!("{number:.*e}", DIGITS - 1);
    let (mantissa, exponent) = exact.split_once('e').expect("it has an exponent");
    let exponent: i32 = exponent.parse().expect("a small number");
    let places = i32::try_from(DIGITS).expect("it is small") - 1 - exponent;
    if exponent < -4 || places < 0 {
        let mantissa = without_zeros(mantissa);
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{mantissa}e{sign}{:02}", exponent.abs());
    }
    let places = usize::try_from(places).expect("it is not negative");
    without_zeros(&format!("{number:.places$}")).to_owned()
}

/// Removes trailing zeros after the point.
fn without_zeros(digits: &str) -> &str {
    if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.') } else { digits }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_are_written_in_one_way_only() {
        let table: &[(&str, Option<i64>)] = &[
            ("0", Some(0)),
            ("-7", Some(-7)),
            ("9223372036854775807", Some(i64::MAX)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("9223372036854775808", None),
            ("", None),
            ("-", None),
            ("-0", None),
            ("+1", None),
            ("01", None),
            (" 1", None),
            ("1.0", None),
        ];
        for (text, number) in table {
            assert_eq!(integer(text.as_bytes()), *number, "{text}");
        }
    }

    #[test]
    fn cursors_are_read_as_c_does() {
        let table: &[(&str, Option<u64>)] = &[
            ("", Some(0)),
            ("07", Some(7)),
            ("+7", Some(7)),
            ("-1", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("-", None),
            (" 1", None),
            ("x", None),
        ];
        for (text, number) in table {
            assert_eq!(cursor(text.as_bytes()), *number, "{text}");
        }
    }

    #[test]
    fn scores_are_read_to_the_end_and_must_fit() {
        let table: &[(&str, Option<f64>)] = &[
            ("1700000000000000", Some(1.7e15)),
            ("+.5", Some(0.5)),
            ("1e3", Some(1000.0)),
            ("-inf", Some(f64::NEG_INFINITY)),
            ("+Infinity", Some(f64::INFINITY)),
            ("0e5", Some(0.0)),
            ("nan", None),
            ("1e999", None),
            ("1e-999", None),
            ("", None),
            (" 1", None),
            ("1 ", None),
            ("x", None),
        ];
        for (text, number) in table {
            assert_eq!(score(text.as_bytes()), *number, "{text}");
        }
    }

    #[test]
    fn bounds_may_be_open_and_are_read_less_strictly() {
        let table: &[(&str, Option<(f64, bool)>)] = &[
            ("5", Some((5.0, false))),
            ("(5", Some((5.0, true))),
            ("", Some((0.0, false))),
            ("(", Some((0.0, true))),
            ("( 2", Some((2.0, true))),
            ("+inf", Some((f64::INFINITY, false))),
            ("1e999", Some((f64::INFINITY, false))),
            ("((1", None),
            ("x", None),
        ];
        for (text, found) in table {
            assert_eq!(bound(text.as_bytes()), *found, "{text}");
        }
    }

    #[test]
    fn numbers_are_written_in_seventeen_digits() {
        let table = [
            (0.0, "0"),
            (-1.5, "-1.5"),
            (0.1, "0.10000000000000001"),
            (1.7e15, "1700000000000000"),
            (9_007_199_254_740_991.0, "9007199254740991"),
            (1e16, "10000000000000000"),
            (1e17, "1e+17"),
            (1.25e300, "1.2500000000000001e+300"),
            (1.5e20, "1.5e+20"),
            (0.000_1, "0.0001"),
            (0.000_01, "1.0000000000000001e-05"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
        ];
        for (number, text) in table {
            assert_eq!(written(number), text);
        }
    }
}
