//! Limits on the scripts that run inside servers.

use super::Finding;
use super::repository::{LIBRARY, Repository, words};

/// The line that names the keys of a script: `local A, B = unpack(KEYS)`, or
/// `local A, B = unpack(KEYS, from, to)` for some of them.
const DECLARATION: &str = "= unpack(KEYS";

/// The one function that takes a key as a parameter, and the name of the parameter.
const GIVEN: (&str, &str) = ("expire", "key");

/// The commands of Redis 6.2 and every Valkey whose first argument is a key.
const OF_ONE_KEY: &str = "DECR GET HDEL HGET HMGET HSET INCR INCRBY PEXPIRE PTTL SET ZADD ZCARD \
                          ZCOUNT ZMSCORE ZRANGE ZRANGEBYSCORE ZRANK ZREM ZSCORE";
/// The commands whose arguments are all keys.
const OF_KEYS: &str = "DEL EXISTS";
/// The commands without a key. SPUBLISH is from Redis 7.0. Where it fails, scripts use PUBLISH.
const OF_NO_KEY: &str = "INFO PUBLISH SPUBLISH TIME";
/// The options of these commands.
const OPTIONS: &str = "SET NX, SET PX, ZRANGE WITHSCORES, ZRANGEBYSCORE LIMIT, \
                       ZRANGEBYSCORE WITHSCORES";

/// Scripts use only commands and options that the oldest server has, and only keys that they were
/// given. Their loops have bounds.
pub(super) fn scripts_do_what_every_server_allows(repository: &Repository) -> Vec<Finding> {
    let scripts = || {
        repository.files().iter().filter(|file| file.path.starts_with(LIBRARY) && file.is("lua"))
    };
    let declared: Vec<&str> = scripts().flat_map(|file| declared(&file.text)).collect();
    let mut findings = Vec::new();
    for file in scripts() {
        let code = without_comments(&file.text);
        let mut found = |at: usize, message: String| {
            let line = code[..at].matches('\n').count() + 1;
            findings.push(Finding::new(&file.path, line, message));
        };
        let (function, parameter) = GIVEN;
        let definition = format!("local function {function}({parameter},");
        let is_given = if code.contains(&definition) { Some(parameter) } else { None };
        let known: Vec<&str> = declared.iter().copied().chain(is_given).collect();
        for (at, arguments) in calls(&code) {
            if let Some(complaint) = complaint(&arguments, &known) {
                found(at, complaint);
            }
        }
        for at in words(&code, function) {
            let arguments = code[at..].strip_prefix(&format!("{function}(")).map(arguments);
            if !arguments.is_some_and(|arguments| known.contains(&arguments[0])) {
                found(at, format!("`{function}` of something that is not a key of the script"));
            }
        }
        for (word, complaint) in [
            ("while", "a loop needs a bound: use `for`"),
            ("repeat", "a loop needs a bound: use `for`"),
            ("loadstring", "a script must contain all code that it runs"),
        ] {
            for at in words(&code, word) {
                found(at, complaint.to_owned());
            }
        }
        for at in words(&code, "KEYS") {
            let line = code[at..].lines().next().unwrap_or_default();
            if !["KEYS)", "KEYS,"].iter().any(|ok| line.starts_with(ok))
                || declared_at(&code) != Some(at)
            {
                found(at, "the keys have names, see prelude.lua".to_owned());
            }
        }
        for at in words(&code, "redis") {
            let is_call =
                ["redis.call", "redis.pcall("].iter().any(|ok| code[at..].starts_with(ok));
            let is_named =
                code[at..].starts_with("redis.pcall\n") && code[..at].ends_with("local call = ");
            if !is_call && !is_named {
                found(at, "scripts need no more of `redis` than `call` and `pcall`".to_owned());
            }
        }
    }
    findings
}

/// A script's header names its arguments and its replies.
pub(super) fn scripts_have_headers(repository: &Repository) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in repository.files().iter().filter(|file| file.is("lua")) {
        let header: String = file.text.lines().take_while(|line| line.starts_with("--")).collect();
        for part in ["KEYS", "ARGV", "repl"] {
            if !header.contains(part) {
                let message = format!("the header does not say `{part}`");
                findings.push(Finding::new(&file.path, 1, message));
            }
        }
    }
    findings
}

/// The fault in a call of the server, if there is one.
fn complaint(arguments: &[&str], declared: &[&str]) -> Option<String> {
    let (command, arguments) = arguments.split_first()?;
    let Some(name) = literal(command) else {
        return Some(format!("`{command}`: name the command, so that it can be checked"));
    };
    let is_in = |commands: &str| commands.split(' ').any(|command| command == name);
    let keys = match () {
        () if is_in(OF_ONE_KEY) => arguments.get(..1).unwrap_or(&["nothing"]),
        () if is_in(OF_KEYS) => arguments,
        () if is_in(OF_NO_KEY) => &[],
        () => return Some(format!("`{name}` is not on the lists of what every server has")),
    };
    if let Some(key) = keys.iter().find(|key| !declared.contains(*key)) {
        return Some(format!("`{name}` of `{key}`, which is not one of the keys of the script"));
    }
    let mut shouted = arguments
        .iter()
        .filter_map(|argument| literal(argument))
        .filter(|text| text.len() > 1 && text.bytes().all(|byte| byte.is_ascii_uppercase()));
    let is_known = |option: &str| OPTIONS.split(", ").any(|it| it == format!("{name} {option}"));
    let option = shouted.find(|option| !is_known(option))?;
    Some(format!("`{name}` with `{option}`, which is not on the list of options"))
}

/// The names that a script gives to its keys.
fn declared(text: &str) -> Vec<&str> {
    let names = text.lines().find_map(|line| {
        let (names, _) = line.split_once(DECLARATION)?;
        names.trim_start().strip_prefix("local ")
    });
    names.map(|names| names.split(',').map(str::trim).collect()).unwrap_or_default()
}

/// The position where a script takes its keys.
fn declared_at(code: &str) -> Option<usize> {
    Some(code.find(DECLARATION)? + DECLARATION.len() - "KEYS".len())
}

/// The calls of the server: their positions, and the arguments of each.
fn calls(code: &str) -> Vec<(usize, Vec<&str>)> {
    // A `pcall` without `redis.` calls a Lua function, not a command.
    let caught = words(code, "pcall").filter(|at| code[..*at].ends_with("redis."));
    let all = words(code, "call").chain(caught);
    all.filter_map(|at| {
        let open = at + code[at..].find('(')?;
        let between = &code[at..open];
        matches!(between, "call" | "pcall").then(|| (at, arguments(&code[open + 1..])))
    })
    .collect()
}

/// The arguments up to the closing parenthesis.
fn arguments(code: &str) -> Vec<&str> {
    let (mut depth, mut quoted, mut start) = (0, false, 0);
    let mut found = Vec::new();
    for (at, byte) in code.bytes().enumerate() {
        match byte {
            b'\'' => quoted = !quoted,
            _ if quoted => {}
            b'(' | b'{' | b'[' => depth += 1,
            b')' if depth == 0 => {
                found.push(code[start..at].trim());
                break;
            }
            b')' | b'}' | b']' => depth -= 1,
            b',' if depth == 0 => {
                found.push(code[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    found
}

/// The text of a quoted argument, if the argument is nothing else.
fn literal(argument: &str) -> Option<&str> {
    argument.strip_prefix('\'')?.strip_suffix('\'').filter(|text| !text.contains('\''))
}

/// The code with comments replaced by spaces, so that positions stay. No text contains `--`.
fn without_comments(text: &str) -> String {
    let blank = |line: &str| match line.split_once("--") {
        Some((code, comment)) => format!("{code}{}", " ".repeat(comment.len() + 2)),
        None => line.to_owned(),
    };
    text.lines().map(blank).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::super::assert_finds;
    use super::*;

    const PRELUDE: (&str, &str) = (
        "crates/leasehold/src/prelude.lua",
        "-- KEYS: two\nlocal call = redis.call\nlocal LOCK, FENCE = unpack(KEYS)",
    );

    #[track_caller]
    fn assert_lines(script: &str, lines: &[usize]) {
        let path = "crates/leasehold/src/a.lua";
        let expected: Vec<String> = lines.iter().map(|line| format!("{path}:{line}")).collect();
        let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
        assert_finds(scripts_do_what_every_server_allows, &[PRELUDE, (path, script)], &expected);
    }

    #[test]
    fn a_command_that_every_server_has_passes() {
        assert_lines(
            "-- while KEYS: call('NOPE')\n\
             local time = call('TIME')\n\
             call('SET', LOCK, f({ 1, ')' }), 'PX', math.max(1, 2))\n\
             call('DEL', LOCK, FENCE)\n\
             redis.pcall('PUBLISH', 'c' .. x, 'w ' .. LOCK)\n\
             redis.pcall('SPUBLISH', 'c' .. x, 'w ' .. LOCK)\n\
             for _, whiled in ipairs(call('ZRANGE', LOCK, 0, 8)) do recall(whiled) end",
            &[],
        );
    }

    #[test]
    fn a_script_may_take_some_of_its_keys_and_catch_all_errors() {
        assert_lines(
            "local call = redis.pcall\n\
             for at = 1, 3 do\n\
               local LOCK, OPEN = unpack(KEYS, at, at + 1)\n\
               call('GET', OPEN)\n\
               call('GET', KEYS[1])\n\
               call('NOPE', LOCK)\n\
               local other = redis.pcall\n\
             end",
            &[5, 5, 6, 7],
        );
    }

    #[test]
    fn commands_and_options_of_newer_servers_are_found() {
        assert_lines(
            "call('GETEX', LOCK)\n\
             call('PEXPIRE', LOCK, 5, 'GT')\n\
             call('SET', LOCK,\n  'x', 'PX', 1, 'GET')\n\
             redis.pcall('GETDEL', LOCK)\n\
             call(command, LOCK)\n\
             redis.setresp(3)",
            &[1, 2, 3, 5, 6, 7],
        );
    }

    #[test]
    fn keys_that_were_not_given_are_found() {
        assert_lines(
            "call('GET', 'lock')\n\
             call('GET', LOCK .. ':x')\n\
             call('DEL', LOCK, other)\n\
             call('GET')\n\
             call('GET', KEYS[1])\n\
             local A = KEYS[1]",
            &[1, 2, 3, 4, 5, 5, 6],
        );
    }

    #[test]
    fn the_one_function_that_takes_a_key_is_given_one() {
        assert_lines(
            "local function expire(key, ms)\n\
             call('PEXPIRE', key, ms)\n\
             end\n\
             expire(LOCK, 5)\n\
             expire(other, 5)",
            &[5],
        );
        assert_lines("call('PEXPIRE', key, 5)", &[1]);
    }

    #[test]
    fn loops_without_a_bound_are_found() {
        assert_lines("while true do end\nrepeat until x\nloadstring(y)", &[1, 2, 3]);
    }

    #[test]
    fn scripts_that_no_server_runs_are_let_be() {
        let bad = "call('NOPE')";
        assert_finds(scripts_do_what_every_server_allows, &[("bench/a.lua", bad)], &[]);
    }

    #[test]
    fn scripts_without_a_header_are_found() {
        assert_finds(
            scripts_have_headers,
            &[
                (
                    "a.lua",
                    "-- a.lua: does it.\n-- KEYS[1] lock  ARGV[1] owner  reply: 1 | 0\nreturn 1",
                ),
                ("b.lua", "return KEYS[1] -- ARGV, reply"),
            ],
            &["b.lua:1", "b.lua:1", "b.lua:1"],
        );
    }
}
