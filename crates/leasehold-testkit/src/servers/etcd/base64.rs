//! Base 64: the form of keys in JSON.

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The bytes of a key in JSON.
pub(super) fn from_base64(text: &str) -> Vec<u8> {
    let (mut bytes, mut bits, mut count) = (Vec::new(), 0_u32, 0);
    for digit in text.bytes().take_while(|it| *it != b'=') {
        let value = DIGITS.iter().position(|it| *it == digit).expect("a digit of base 64");
        bits = bits << 6 | u32::try_from(value).expect("below 64");
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count & 0xff) as u8);
        }
    }
    bytes
}

/// Encodes the bytes of a key for JSON.
pub(super) fn base64(bytes: &[u8]) -> String {
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let byte = |at: usize| u32::from(three.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4 {
            let index = (bits >> (18 - 6 * digit) & 63) as usize;
            let is_there = digit <= three.len();
            text.push(if is_there { char::from(DIGITS[index]) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn bytes_are_written_in_base_64_and_read_again() {
        for (text, expected) in [("", ""), ("a", "YQ=="), ("ab", "YWI="), ("abc", "YWJj")] {
            assert_eq!(super::base64(text.as_bytes()), expected);
            assert_eq!(super::from_base64(expected), text.as_bytes());
        }
    }
}
