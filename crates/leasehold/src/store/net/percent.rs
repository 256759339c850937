//! Percent-encoded text in URLs.

use percent_encoding::percent_decode_str;

/// Decodes percent-encoded text.
pub(crate) fn decode(text: &str) -> Result<String, &'static str> {
    let mut after_percent = text.split('%').skip(1);
    let is_code = |part: &str| {
        let code = part.as_bytes().get(..2);
        code.is_some_and(|code| code.iter().all(u8::is_ascii_hexdigit))
    };
    if !after_percent.all(is_code) {
        return Err("`%` in a user, a password or a path is written `%25`");
    }
    let decoded = percent_decode_str(text)
        .decode_utf8()
        .map_err(|_| "its percent-encoded bytes are not UTF-8")?;
    if decoded.contains('\0') {
        return Err("a user, a password or a path cannot contain `%00`");
    }
    Ok(decoded.into_owned())
}
