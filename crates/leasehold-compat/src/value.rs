//! The values that the locks write. A client that knows a value can release its lock.

use std::fmt::Write as _;

use leasehold::OwnerToken;
use leasehold::host::Host;

const LETTERS_AND_DIGITS: &[u8; 62] =
    b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";

/// Random letters and digits, all equally likely.
pub(crate) fn letters_and_digits(host: &dyn Host, chars: usize) -> OwnerToken {
    let mut text = String::with_capacity(chars);
    while text.len() < chars {
        let mut bytes = [0; 32];
        host.random(&mut bytes);
        // Two of the 64 values of six bits are left over. Draw again instead of a remainder, which
        // would favour some characters.
        let drawn = bytes.iter().filter_map(|byte| LETTERS_AND_DIGITS.get(usize::from(byte & 63)));
        text.extend(drawn.map(|byte| char::from(*byte)).take(chars - text.len()));
    }
    token(&text)
}

/// A random UUID (version 4 of RFC 9562), in lower case with hyphens.
pub(crate) fn uuid_v4(host: &dyn Host) -> OwnerToken {
    let mut bytes = [0; 16];
    host.random(&mut bytes);
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let mut text = String::with_capacity(36);
    for (at, byte) in bytes.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        write!(text, "{byte:02x}").expect("a string takes whatever is written to it");
    }
    token(&text)
}

/// Sixteen random bytes in Base64 (RFC 4648, section 4), with padding: 24 characters.
pub(crate) fn base64_of_16_bytes(host: &dyn Host) -> OwnerToken {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut bytes = [0; 16];
    host.random(&mut bytes);
    // 128 bits and four zero bits: 22 characters of six bits each.
    let bits = u128::from_be_bytes(bytes);
    let six_from = |at: u32| if at < 126 { bits >> (122 - at) } else { bits << 4 };
    let chars = (0..22).map(|char| ALPHABET[(six_from(char * 6) & 63) as usize]);
    let text: String = chars.chain(*b"==").map(char::from).collect();
    token(&text)
}

fn token(text: &str) -> OwnerToken {
    OwnerToken::new(text).expect("a few printable characters are a token")
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use leasehold::host::SystemHost;

    use super::*;

    #[test]
    fn letters_and_digits_are_all_used_and_nothing_else() {
        let host = SystemHost;
        let drawn: Vec<_> = (0..200).map(|_| letters_and_digits(&host, 16)).collect();
        assert!(drawn.iter().all(|token| token.as_str().len() == 16));
        assert_eq!(drawn.iter().collect::<HashSet<_>>().len(), 200, "no two are the same");
        let used: HashSet<_> = drawn.iter().flat_map(|token| token.as_str().bytes()).collect();
        assert_eq!(used, LETTERS_AND_DIGITS.iter().copied().collect());
    }

    #[test]
    fn base64_is_as_others_write_it() {
        struct Given([u8; 16]);
        impl Host for Given {
            fn now(&self) -> leasehold::core::Moment {
                unreachable!("nothing is timed")
            }
            fn wall(&self) -> leasehold::core::WallTime {
                unreachable!("nothing is timed")
            }
            fn sleep_until(&self, _at: leasehold::core::Moment) -> leasehold::host::Sleep {
                unreachable!("nothing is timed")
            }
            fn spawn(&self, _task: leasehold::host::Task) {
                unreachable!("nothing is run")
            }
            fn spawn_blocking(
                &self,
                _name: &str,
                _task: leasehold::host::Task,
            ) -> Result<(), leasehold::Error> {
                unreachable!("nothing is run")
            }
            fn random(&self, bytes: &mut [u8]) {
                bytes.copy_from_slice(&self.0);
            }
        }
        let counting = std::array::from_fn(|at| u8::try_from(at).expect("few"));
        let table = [
            ([0; 16], "AAAAAAAAAAAAAAAAAAAAAA=="),
            ([0xff; 16], "/////////////////////w=="),
            (counting, "AAECAwQFBgcICQoLDA0ODw=="),
            (*b"leasehold=fence!", "bGVhc2Vob2xkPWZlbmNlIQ=="),
        ];
        for (bytes, text) in table {
            assert_eq!(base64_of_16_bytes(&Given(bytes)).as_str(), text);
        }
    }

    #[test]
    fn a_uuid_says_that_it_is_random() {
        let host = SystemHost;
        let drawn: HashSet<_> = (0..200).map(|_| uuid_v4(&host)).collect();
        assert_eq!(drawn.len(), 200, "no two are the same");
        for uuid in &drawn {
            let parts: Vec<_> = uuid.as_str().split('-').collect();
            assert_eq!(parts.iter().map(|part| part.len()).collect::<Vec<_>>(), [8, 4, 4, 4, 12]);
            assert!(parts.concat().bytes().all(|byte| b"0123456789abcdef".contains(&byte)));
            assert!(parts[2].starts_with('4') && parts[3].starts_with(['8', '9', 'a', 'b']));
        }
    }
}
