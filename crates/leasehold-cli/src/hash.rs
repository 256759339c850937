//! A hash that is the same in every build of `leasehold`.

/// The hash FNV-1a of 64 bits. The hashes of the standard library may differ from one build of
/// `leasehold` to the next, and a run of one build may start a run of another.
///
/// See <https://datatracker.ietf.org/doc/draft-eastlake-fnv/>.
pub(crate) fn fnv_1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of that draft.
    #[test]
    fn a_text_has_the_hash_of_the_draft() {
        for (text, hash) in [
            ("", 0xcbf2_9ce4_8422_2325),
            ("a", 0xaf63_dc4c_8601_ec8c),
            ("foobar", 0x8594_4171_f739_67e8),
        ] {
            assert_eq!(fnv_1a(text.as_bytes()), hash, "{text}");
        }
    }
}
