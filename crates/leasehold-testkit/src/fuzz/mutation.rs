//! Random changes of inputs, which follow from one seed.

use crate::virtual_host::SeededRandom;

/// Bytes at which behaviour often changes: ends of ranges, and characters with a meaning in
/// formats.
const BYTES: &[u8] = b"\0\x01\x7f\x80\xff\r\n \t09azAZ*?:@/#%{}[]$+-_|=,.\"'";

/// Numbers at which behaviour often changes.
const NUMBERS: [&str; 12] = [
    "0",
    "-1",
    "1",
    "255",
    "65536",
    "2147483647",
    "4294967296",
    "9007199254740991",
    "9007199254740992",
    "4611686018427387904",
    "9223372036854775807",
    "18446744073709551616",
];

/// The longest input, in bytes.
const BYTES_MAX: usize = 1 << 17;

/// One of the inputs, with a few changes.
pub(super) fn mutated(random: &mut SeededRandom, corpus: &[Vec<u8>], words: &[&str]) -> Vec<u8> {
    let mut input = corpus[random.below(corpus.len())].clone();
    for _ in 0..=random.below(5) {
        change(random, &mut input, corpus, words);
    }
    input.truncate(BYTES_MAX);
    input
}

fn change(random: &mut SeededRandom, input: &mut Vec<u8>, corpus: &[Vec<u8>], words: &[&str]) {
    let at = random.below(input.len() + 1);
    let until = at + random.below((input.len() - at).min(64) + 1);
    match random.below(9) {
        0 if at < input.len() => input[at] ^= 1 << random.below(8),
        1 if at < input.len() => input[at] = BYTES[random.below(BYTES.len())],
        2 if at < input.len() => random.fill(&mut input[at..until]),
        3 => drop(input.drain(at..until)),
        4 => {
            let again = input[at..until].to_vec();
            input.splice(at..at, again);
        }
        5 => {
            let other = &corpus[random.below(corpus.len())];
            let from = random.below(other.len() + 1);
            let to = from + random.below((other.len() - from).min(512) + 1);
            input.splice(at..until, other[from..to].iter().copied());
        }
        6 => change_number(random, input, at),
        7 if !words.is_empty() => {
            let word = words[random.below(words.len())].bytes();
            let until = if random.once_in(2) { at } else { until };
            input.splice(at..until, word);
        }
        _ => input.insert(at, BYTES[random.below(BYTES.len())]),
    }
}

/// Replaces the next number after `at`.
fn change_number(random: &mut SeededRandom, input: &mut Vec<u8>, at: usize) {
    let is_digit = |byte: &u8| byte.is_ascii_digit();
    let Some(start) = input[at..].iter().position(is_digit).map(|start| at + start) else { return };
    let digits = input[start..].iter().take_while(|byte| is_digit(byte)).count();
    let number = NUMBERS[random.below(NUMBERS.len())].bytes();
    input.splice(start..start + digits, number);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_follow_from_their_seed_and_differ() {
        let corpus = [b"redis://host:6379/0".to_vec(), Vec::new()];
        let draw = |seed| {
            let mut random = SeededRandom::new(seed);
            (0..200).map(|_| mutated(&mut random, &corpus, &["unix:"])).collect::<Vec<_>>()
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        let different: std::collections::HashSet<_> = draw(1).into_iter().collect();
        assert!(different.len() > 100, "only {} changes", different.len());
    }
}
