//! The SHA-1 of a script, by which a server knows it.
//!
//! It protects nothing. A wrong hash would only cost one more request. It is computed when this
//! crate is compiled, and is too small to be worth a dependency.

/// The SHA-1 of `text` as 40 hexadecimal digits.
pub(super) const fn sha1_hex(text: &[u8]) -> [u8; 40] {
    let mut state = [0x6745_2301_u32, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0];
    // The text, a one bit, zeros, and the length of the text in bits as eight bytes.
    let blocks = (text.len() + 9).div_ceil(64);
    let mut block = 0;
    while block < blocks {
        state = mix(state, words(text, block * 64, block + 1 == blocks));
        block += 1;
    }
    hex(state)
}

/// The schedule of eighty words for the block at `start`. The first sixteen are its text.
const fn words(text: &[u8], start: usize, is_last: bool) -> [u32; 80] {
    let mut words = [0_u32; 80];
    let mut at = 0;
    while at < 64 {
        let from = start + at;
        let byte = if from < text.len() {
            text[from]
        } else if from == text.len() {
            0x80
        } else if is_last && at >= 56 {
            ((text.len() as u64 * 8) >> (8 * (63 - at))) as u8
        } else {
            0
        };
        words[at / 4] = (words[at / 4] << 8) | byte as u32;
        at += 1;
    }
    words
}

/// Processes one block, as in FIPS 180-4.
const fn mix(state: [u32; 5], mut words: [u32; 80]) -> [u32; 5] {
    let [mut a, mut b, mut c, mut d, mut e] = state;
    let mut round = 0;
    while round < 80 {
        if round >= 16 {
            let mixed = words[round - 3] ^ words[round - 8] ^ words[round - 14] ^ words[round - 16];
            words[round] = mixed.rotate_left(1);
        }
        let (mixed, constant) = match round / 20 {
            0 => ((b & c) | (!b & d), 0x5a82_7999),
            1 => (b ^ c ^ d, 0x6ed9_eba1),
            2 => ((b & c) | (b & d) | (c & d), 0x8f1b_bcdc),
            _ => (b ^ c ^ d, 0xca62_c1d6),
        };
        let next = a
            .rotate_left(5)
            .wrapping_add(mixed)
            .wrapping_add(e)
            .wrapping_add(constant)
            .wrapping_add(words[round]);
        (a, b, c, d, e) = (next, a, b.rotate_left(30), c, d);
        round += 1;
    }
    [
        state[0].wrapping_add(a),
        state[1].wrapping_add(b),
        state[2].wrapping_add(c),
        state[3].wrapping_add(d),
        state[4].wrapping_add(e),
    ]
}

const fn hex(state: [u32; 5]) -> [u8; 40] {
    let mut digits = [0; 40];
    let mut at = 0;
    while at < 40 {
        let nibble = (state[at / 8] >> (28 - 4 * (at % 8))) & 15;
        digits[at] = b"0123456789abcdef"[nibble as usize];
        at += 1;
    }
    digits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_texts_have_their_known_sums() {
        let long = "a".repeat(1_000);
        let table = [
            ("", "da39a3ee5e6b4b0d3255bfef95601890afd80709"),
            ("abc", "a9993e364706816aba3e25717850c26c9cd0d89d"),
            (
                "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
                "84983e441c3bd26ebaae4aa1f95129e5e54670f1",
            ),
            (&long, "291e9a6c66994949b57ba5e650361e98fc36b1ba"),
        ];
        for (text, sum) in table {
            assert_eq!(str::from_utf8(&sha1_hex(text.as_bytes())), Ok(sum));
        }
    }
}
