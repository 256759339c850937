//! Texts as hexadecimal digits, so that no character has a special meaning, whatever the settings
//! of the server are.

use std::fmt::Write as _;

use crate::store::sql::text::encode;

/// Adds a text as a literal.
pub(super) fn write_text(sql: &mut String, text: &str) {
    sql.push_str("X'");
    write_hex(sql, text);
    sql.push('\'');
}

/// Adds the digits of a text.
pub(super) fn write_hex(sql: &mut String, text: &str) {
    for byte in encode(text).bytes() {
        write!(sql, "{byte:02x}").expect("a string takes any text");
    }
}

/// The text of these digits, still [encoded](encode). Bytes that are not UTF-8 are replaced.
pub(super) fn read_hex(digits: &str) -> Option<String> {
    let byte = |at| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok();
    let bytes: Vec<u8> = (0..digits.len()).step_by(2).map(byte).collect::<Option<_>>()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_written_byte_by_byte() {
        for (text, sql) in [("a'b", "X'612762'"), ("", "X''"), ("ü", "X'c3bc'"), ("\0", "X'1a30'")]
        {
            let mut written = String::new();
            write_text(&mut written, text);
            assert_eq!(written, sql);
        }
    }
}
