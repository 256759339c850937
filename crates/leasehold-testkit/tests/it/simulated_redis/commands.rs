//! Random commands over a few keys, with good and bad arguments, while the clock moves.

use leasehold_testkit::virtual_host::SeededRandom;

use super::twins::Twins;
use super::with_each_server;

/// The number of seeds, and of commands for each.
const SEEDS: u64 = 6;
const COMMANDS: usize = 1_500;

/// A kind of argument.
#[derive(Clone, Copy)]
enum Word {
    Key,
    Text,
    Field,
    Member,
    Score,
    Bound,
    Whole,
    Left,
    Moment,
    Pattern,
    /// Exactly this text, in upper or lower case.
    This(&'static str),
}

use Word::{Bound, Field, Key, Left, Member, Moment, Pattern, Score, Text, This, Whole};

/// The shapes of commands. A shape that is listed twice is drawn twice as often.
const SHAPES: &[(&str, &[Word])] = &[
    ("DECR", &[Key]),
    ("DEL", &[Key]),
    ("DEL", &[Key, Key]),
    ("ECHO", &[Text]),
    ("EXISTS", &[Key]),
    ("EXISTS", &[Key, Key, Key]),
    ("GET", &[Key]),
    ("HDEL", &[Key, Field]),
    ("HDEL", &[Key, Field, Field, Field]),
    ("HGET", &[Key, Field]),
    ("HGETALL", &[Key]),
    ("HLEN", &[Key]),
    ("HMGET", &[Key, Field, Field]),
    ("HSET", &[Key, Field, Text]),
    ("HSET", &[Key, Field, Text]),
    ("HSET", &[Key, Field, Text, Field, Text]),
    ("INCR", &[Key]),
    ("INCRBY", &[Key, Whole]),
    ("KEYS", &[Pattern]),
    ("MGET", &[Key, Key]),
    ("NOPE", &[Whole]),
    ("PERSIST", &[Key]),
    ("PEXPIRE", &[Key, Left]),
    ("PEXPIRE", &[Key, Left]),
    ("PEXPIREAT", &[Key, Moment]),
    ("PING", &[]),
    ("PING", &[Text]),
    ("PTTL", &[Key]),
    ("PTTL", &[Key]),
    ("PUBLISH", &[Text, Text]),
    ("SCAN", &[Whole]),
    ("SCAN", &[This("0"), This("COUNT"), Whole, This("MATCH"), Pattern]),
    ("SET", &[Key, Text]),
    ("SET", &[Key, Whole]),
    ("SET", &[Key, Text, This("PX"), Left]),
    ("SET", &[Key, Text, This("PX"), Left]),
    ("SET", &[Key, Text, This("EX"), Left]),
    ("SET", &[Key, Text, This("PXAT"), Moment]),
    ("SET", &[Key, Text, This("EXAT"), Whole]),
    ("SET", &[Key, Text, This("NX"), This("PX"), Left]),
    ("SET", &[Key, Text, This("XX"), This("GET")]),
    ("SET", &[Key, Text, This("NX"), This("GET"), This("PX"), Left]),
    ("SET", &[Key, Text, This("KEEPTTL")]),
    ("SET", &[Key, Text, This("KEEPTTL"), This("PX"), Left]),
    ("SET", &[Key, Text, This("PX"), Left, This("EX"), Left]),
    ("SET", &[Key, Text, This("PX"), Left, This("PX"), Left]),
    ("SET", &[Key, Text, This("NX"), This("XX")]),
    ("SET", &[Key, Text, This("NX"), This("GET")]),
    ("TIME", &[]),
    ("TYPE", &[Key]),
    ("ZADD", &[Key, Score, Member]),
    ("ZADD", &[Key, Score, Member]),
    ("ZADD", &[Key, Score, Member, Score, Member]),
    ("ZCARD", &[Key]),
    ("ZCOUNT", &[Key, Bound, Bound]),
    ("ZMSCORE", &[Key, Member, Member]),
    ("ZRANGE", &[Key, Whole, Whole]),
    ("ZRANGE", &[Key, Whole, Whole, This("WITHSCORES")]),
    ("ZRANGE", &[Key, Whole, Whole, This("LIMIT"), Whole, Whole]),
    ("ZRANGEBYSCORE", &[Key, Bound, Bound]),
    ("ZRANGEBYSCORE", &[Key, Bound, Bound, This("LIMIT"), Whole, Whole]),
    ("ZRANGEBYSCORE", &[Key, Bound, Bound, This("WITHSCORES")]),
    ("ZRANGEBYSCORE", &[Key, Bound, Bound, This("WITHSCORES"), This("LIMIT"), Whole, Whole]),
    ("ZRANK", &[Key, Member]),
    ("ZREM", &[Key, Member]),
    ("ZREM", &[Key, Member, Member]),
    ("ZSCORE", &[Key, Member]),
];

const KEYS: [&[u8]; 5] = [b"a", b"b", b"{a}:lh:line", b"", b"\xff\r\n"];
const TEXTS: [&[u8]; 8] =
    [b"", b"x", b"7", b"-1", b"01", b"9223372036854775807", b"\0\xfe", b"1.5"];
const MEMBERS: [&[u8]; 5] = [b"m", b"n", b"o", b"", b"\xffp"];
const SCORES: [&[u8]; 16] = [
    b"0",
    b"-0",
    b"1",
    b"2",
    b"-1.5",
    b"+3",
    b"1e3",
    b"inf",
    b"-inf",
    b"1893456000000001",
    b"9007199254740993",
    b"0.1",
    b"1.25e300",
    b"1e-7",
    b"nan",
    b"x",
];
const BOUNDS: [&[u8]; 12] = [
    b"0",
    b"1",
    b"(1",
    b"2",
    b"(2",
    b"-inf",
    b"+inf",
    b"(1893456000000001",
    b"",
    b"(",
    b" 1",
    b"x",
];
const WHOLES: [&[u8]; 13] = [
    b"0",
    b"1",
    b"2",
    b"-1",
    b"-2",
    b"100",
    b"-100",
    b"9223372036854775807",
    b"-9223372036854775808",
    b"9223372036854775808",
    b"",
    b"x",
    b"01",
];
const LEFTS: [&[u8]; 10] =
    [b"1", b"2", b"5", b"40", b"1000", b"0", b"-1", b"9223372036854775807", b"x", b"1.5"];
const PATTERNS: [&[u8]; 8] = [b"*", b"a", b"?", b"*:lh:*", b"[a-b]", b"[^a]", b"\\a", b"*[\xff]*"];
/// Steps of the clock in microseconds.
const STEPS: [i64; 12] =
    [1, 999, 1_000, 1_001, 5_000, 39_999, 1_000_000, -1, -1_000, -5_000, -40_000, -900_000];

fn pick<'a>(random: &mut SeededRandom, words: &[&'a [u8]]) -> &'a [u8] {
    words[random.below(words.len())]
}

fn word(random: &mut SeededRandom, word: Word, now_ms: u64) -> Vec<u8> {
    match word {
        // Use the same two keys most of the time, so that commands affect each other.
        Key if random.once_in(4) => pick(random, &KEYS).to_vec(),
        Key => pick(random, &KEYS[..2]).to_vec(),
        Text => pick(random, &TEXTS).to_vec(),
        Field | Member => pick(random, &MEMBERS).to_vec(),
        Score => pick(random, &SCORES).to_vec(),
        Bound => pick(random, &BOUNDS).to_vec(),
        Whole => pick(random, &WHOLES).to_vec(),
        Left => pick(random, &LEFTS).to_vec(),
        Pattern => pick(random, &PATTERNS).to_vec(),
        Moment => {
            let around = i64::try_from(random.below(8)).expect("small") - 3;
            now_ms.saturating_add_signed(around).to_string().into_bytes()
        }
        This(text) if random.once_in(4) => text.to_ascii_lowercase().into_bytes(),
        This(text) => text.as_bytes().to_vec(),
    }
}

fn draw(random: &mut SeededRandom, now_ms: u64) -> Vec<Vec<u8>> {
    let (name, shape) = SHAPES[random.below(SHAPES.len())];
    let mut words = vec![word(random, This(name), now_ms)];
    words.extend(shape.iter().map(|part| word(random, *part, now_ms)));
    match random.below(40) {
        0 => {
            words.pop();
        }
        1 => words.push(pick(random, &TEXTS).to_vec()),
        _ => {}
    }
    if words.is_empty() {
        words.push(b"PING".to_vec());
    }
    words
}

/// Sends a command as it is, or through a script.
fn ask(twins: &mut Twins, random: &mut SeededRandom, words: Vec<Vec<u8>>) {
    let script: &[u8] = match random.below(6) {
        0 => b"return redis.call(unpack(ARGV))",
        1 => b"local answer = redis.pcall(unpack(ARGV))\nreturn answer",
        2 => {
            b"local ok, answer = pcall(redis.call, unpack(ARGV))\nreturn { ok and 1 or 0, answer }"
        }
        _ => b"",
    };
    // The exclusions depend on the name of the command.
    let name = words[0].to_ascii_uppercase();
    if script.is_empty() || matches!(name.as_slice(), b"KEYS" | b"HGETALL" | b"SCAN") {
        twins.ask(&words);
        if name == b"SCAN" {
            // The expired keys that a page has found and removed are not compared, so touch all
            // keys here.
            let all = KEYS.iter().copied();
            twins.ask(&[b"EXISTS".as_slice()].into_iter().chain(all).collect::<Vec<_>>());
        }
        return;
    }
    let call = [b"EVAL".to_vec(), script.to_vec(), b"0".to_vec()];
    twins.ask(&call.into_iter().chain(words).collect::<Vec<_>>());
}

fn play(twins: &mut Twins, seed: u64) {
    let mut random = SeededRandom::new(seed);
    for number in 0..COMMANDS {
        if random.once_in(5) {
            twins.step_clock(STEPS[random.below(STEPS.len())]);
        }
        if random.once_in(100) {
            twins.set_full(random.once_in(2));
        }
        let words = draw(&mut random, twins.now_ms());
        ask(twins, &mut random, words);
        // Comparing removes expired keys, which must still be there when the clock steps back.
        if number % 3 == 0 {
            twins.compare_keys();
        }
        if random.once_in(50) {
            twins.compare_scans(pick(&mut random, &PATTERNS));
        }
    }
}

#[test]
fn random_commands_are_answered_as_a_real_server_does() {
    with_each_server(|twins| {
        for seed in 0..SEEDS {
            twins.begin(&format!("seed {seed}"));
            play(twins, seed);
        }
    });
}
