//! The hash that names a script: the SHA-1 of its text (FIPS 180-4).

use sha1_smol::Sha1;

/// The SHA-1 of `text` in 40 hexadecimal digits.
pub(in crate::simulation) fn sha1_hex(text: &[u8]) -> String {
    Sha1::from(text).digest().to_string()
}

#[cfg(test)]
mod tests {
    use super::sha1_hex;

    #[test]
    fn the_examples_of_the_standard_hold() {
        let table: [(&[u8], &str); 3] = [
            (b"", "da39a3ee5e6b4b0d3255bfef95601890afd80709"),
            (b"abc", "a9993e364706816aba3e25717850c26c9cd0d89d"),
            (
                b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
                "84983e441c3bd26ebaae4aa1f95129e5e54670f1",
            ),
        ];
        for (text, hash) in table {
            assert_eq!(sha1_hex(text), hash);
        }
    }
}
