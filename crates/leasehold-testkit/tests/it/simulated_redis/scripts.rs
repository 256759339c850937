//! Values between Lua and a server, and the limits of scripts.

use super::with_each_server;

/// Scripts that return a value. Each gets the key `a` and the arguments `x` and `7`.
const ANSWERS: &[&str] = &[
    "return",
    "return nil",
    "return true",
    "return false",
    "return 1.9",
    "return -1.9",
    "return 1e15",
    "return 2 ^ 53 + 1",
    "return 9.9e18",
    "return -1e300",
    "return 0 / 0",
    "return 'text'",
    "return '\\0\\255'",
    "return {}",
    "return { 1, 2.5, 'x', true, 9 }",
    "return { 1, nil, 3 }",
    "return { 1, false, 3 }",
    "return { { 1, { 2 } }, {} }",
    "return { a = 1 }",
    "return { ok = 'FINE' }",
    "return { ok = 'TWO\\r\\nLINES' }",
    "return { ok = 5 }",
    "return { err = 'CODE what happened' }",
    "return { err = 'ERR\\nlines' }",
    "return { 1, { err = 'CODE within' } }",
    "return redis.status_reply('FINE')",
    "return redis.error_reply('CODE what happened')",
    "return redis.error_reply('-CODE what happened')",
    "return redis.error_reply('alone')",
    "return print",
    "return { KEYS[1], ARGV[1], ARGV[2], #KEYS, #ARGV, KEYS[2] or 'none' }",
    "return type(redis.call('SET', 'k', 'v'))",
    "return redis.call('SET', 'k', 'v').ok",
    "return redis.call('GET', 'nobody') == false",
    "return redis.call('HMGET', 'nobody', 'f')[1] == false",
    "return string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')",
    "return string.match(redis.call('INFO', 'replication'), 'master_replid:(%w+)')",
    "return string.match(redis.call('INFO', 'replication'), 'master_replid2:(%w+)%s')",
    "return string.match(redis.call('INFO', 'replication'), 'role:(%w+)')",
    "return tostring(redis.call('TIME')[1] * 1000000 + redis.call('TIME')[2])",
    "redis.call('SET', 'k', 1.5) return redis.call('GET', 'k')",
    "redis.call('SET', 'k', 1e15) return redis.call('GET', 'k')",
    "redis.call('SET', 'k', 2 ^ 53) return redis.call('GET', 'k')",
    "redis.call('SET', 'k', -2 ^ 53) return redis.call('GET', 'k')",
    "redis.call('SET', 'k', 1893456000000001) return redis.call('GET', 'k')",
    "return string.format('%.0f', 9007199254740991)",
    "return tostring(9007199254740991)",
    "return 7 .. ''",
    "return ARGV[2] + 1",
    "return select('#', unpack(ARGV))",
    "return string.match('j|1|2', '^([jw])|(%d+)|(%d+)$')",
    "return { string.match('j|1|2', '^([jw])|(%d+)|(%d+)$') }",
    "local t = { 3, 1, 2 } table.sort(t) return t",
    "return table.concat({ 'a', 1, 2.5 }, '|')",
    "return math.max(1, 2.5) * 2",
    "return pcall(error, 'x') and 1 or 0",
    "local ok, e = pcall(redis.call, 'GET') return { tostring(ok), e.err }",
    "local ok, e = pcall(function() return redis.call('NOPE') end) return e.err",
    "local ok, e = pcall(error, { err = 'mine' }) return e.err",
    "local e = redis.pcall('INCR', KEYS[1]) return type(e) == 'table' and e.err",
    "local e = redis.pcall('NOPE') return e.err",
    "local e = redis.pcall('GET', {}) return e.err",
    "local e = redis.pcall('EVAL', 'return 1', 0) return e.err",
];

/// Scripts that end in an error. Their earlier writes stay.
const ERRORS: &[&str] = &[
    "redis.call('SET', 'k', 'v')\nerror('text')",
    "redis.call('SET', 'k', 'v')\nerror({ err = 'CODE of mine' })",
    "redis.call('SET', 'k', 'v')\nreturn redis.call('INCR', KEYS[1])",
    "redis.call('SET', 'k', 'v')\nredis.call('HGET', KEYS[1], 'f')\nreturn 1",
    "local function f()\n  redis.call('INCR', KEYS[1])\nend\nf()\nreturn 1",
    "redis.call()",
    "redis.call('NOPE', 'a')",
    "redis.call('GET')",
    "redis.call('GET', {})",
    "redis.call('GET', true)",
    "redis.call('GET', nil)",
    "redis.call('EVAL', 'return 1', 0)",
    "redis.call('SCRIPT', 'FLUSH')",
    "redis.call('SET', 'k', 'v', 'PX', 0)",
    "redis.call('PEXPIRE', 'k', 1.5)",
    "redis.call('PEXPIRE', 'k', 1e30)",
    "return nothing",
    "nothing = 1",
    "return nil .. 'x'",
    "local t = nil\nreturn t.x",
    "return 1 +",
    "return }",
    "local x = 'unfinished",
    "return math.nothing()",
    "error('text', 0)",
    "error(\n'second line')",
    "error(5)",
    "local function deep(n) return n == 0 and error('deep') or 1 + deep(n - 1) end\nreturn deep(5)",
];

#[test]
fn scripts_answer_what_they_do_on_a_real_server() {
    with_each_server(|twins| {
        for script in ANSWERS.iter().chain(ERRORS) {
            twins.begin(script);
            twins.ask(&["SET", "a", "not a number"]);
            twins.ask(&["EVAL", script, "1", "a", "x", "7"]);
            twins.compare_keys();
        }
    });
}

#[test]
fn scripts_are_found_by_their_hash_until_they_are_flushed() {
    with_each_server(|twins| {
        twins.begin("hashes");
        let hash = twins.ask(&["SCRIPT", "LOAD", "return ARGV[1]"]).text();
        twins.ask(&["EVALSHA", &hash, "0", "x"]);
        twins.ask(&["EVALSHA", &hash.to_ascii_uppercase(), "0", "x"]);
        twins.ask(&["SCRIPT", "EXISTS", &hash, "nope", &hash]);
        twins.ask(&["SCRIPT", "LOAD", "return }"]);
        for (keys, argument) in [("1", "x"), ("2", "x"), ("-1", "x"), ("x", "x"), ("", "")] {
            twins.ask(&["EVALSHA", &hash, keys, argument]);
            twins.ask(&["EVAL", "return #KEYS", keys, argument]);
        }
        twins.ask(&["EVALSHA", "nope", "0"]);
        twins.ask(&["EVALSHA", &"0".repeat(40), "0"]);
        twins.ask(&["SCRIPT", "FLUSH"]);
        twins.ask(&["EVALSHA", &hash, "0", "x"]);
        twins.ask(&["EVAL", "return ARGV[1]", "0", "x"]);
        twins.ask(&["EVALSHA", &hash, "0", "x"]);
    });
}

/// A key exists in its last millisecond, with no time left, and is gone in the next.
#[test]
fn the_last_millisecond_of_a_key_is_the_same() {
    with_each_server(|twins| {
        for asked in ["PTTL", "GET", "EXISTS", "TYPE", "INCR", "PERSIST", "DEL"] {
            for passed_us in [8_999, 9_000, 9_999, 10_000, 10_999, 11_000, 11_001, 20_000] {
                twins.begin(&format!("{asked} after {passed_us} µs"));
                twins.ask(&["SET", "a", "1", "PX", "10"]);
                twins.step_clock(passed_us);
                twins.ask(&[asked, "a"]);
                twins.compare_keys();
                twins.step_clock(-passed_us);
                twins.compare_keys();
            }
        }
    });
}
