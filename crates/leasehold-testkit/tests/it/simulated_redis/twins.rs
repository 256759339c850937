//! A simulated and a real server that get the same commands at the same times.

use std::collections::BTreeSet;
use std::path::Path;

use leasehold_testkit::protocol::{Answer, Command, Refused, Value};
use leasehold_testkit::servers::{RedisServer, Reply};
use leasehold_testkit::simulation::redis::SimulatedRedis;

use crate::stores::{replid, run_id};

/// The kinds of real servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Redis,
    Valkey,
}

/// A permitted difference between two answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leeway {
    /// The order of an array. The number says how many parts belong together.
    Order(usize),
    /// The keys in a page of a scan, and its cursor.
    Page,
    /// The text of a refusal after its code.
    Text,
    /// The way in which a number is written.
    Digits,
    /// Additional lines from the real server.
    Lines,
    /// Everything, so the command is not even sent.
    Unasked,
}

/// A permitted difference, and the commands to which it applies.
struct Excluded {
    why: &'static str,
    applies: fn(Kind, &[&[u8]]) -> bool,
    leeway: Leeway,
}

/// All permitted differences. The random commands do not use options that the simulated server
/// refuses by name (`commands_that_are_left_out_are_refused`).
const EXCLUDED: &[Excluded] = &[
    Excluded {
        why: "the order of keys follows from hashes with a random seed; nobody may rely on it",
        applies: |_, words| is_any(words, &["KEYS"]),
        leeway: Leeway::Order(1),
    },
    Excluded {
        why: "so does the order of fields",
        applies: |_, words| is_any(words, &["HGETALL"]),
        leeway: Leeway::Order(2),
    },
    Excluded {
        why: "so do the pages of a scan; whole scans are compared instead",
        applies: |_, words| is_any(words, &["SCAN"]),
        leeway: Leeway::Page,
    },
    Excluded {
        why: "the simulated server says only those lines of INFO that the store reads",
        applies: |_, words| is_any(words, &["INFO"]),
        leeway: Leeway::Lines,
    },
    Excluded {
        why: "Valkey says in other words what it refuses; they are for people",
        applies: |kind, _| kind == Kind::Valkey,
        leeway: Leeway::Text,
    },
    Excluded {
        why: "Valkey writes fractions in as few digits as tell them apart, Redis 7.0 in 17; no \
              score of the store has one",
        applies: |kind, _| kind == Kind::Valkey,
        leeway: Leeway::Digits,
    },
    Excluded {
        why: "Valkey removes a key at once that SET ends in this millisecond, Redis 7.0 keeps it \
              for the rest of that; the store tells times to live, and no moments",
        applies: |kind, words| {
            let is_moment = |word: &&[u8]| {
                word.eq_ignore_ascii_case(b"PXAT") || word.eq_ignore_ascii_case(b"EXAT")
            };
            kind == Kind::Valkey && words.iter().any(is_moment)
        },
        leeway: Leeway::Unasked,
    },
    Excluded {
        why: "Valkey takes no cursor that it would not write; the store hands on what it was told",
        applies: |kind, words| {
            let is_plain = |cursor: &&[u8]| cursor.first().is_some_and(u8::is_ascii_digit);
            let scans = kind == Kind::Valkey && is_any(words, &["SCAN"]);
            scans && !words.get(1).is_none_or(is_plain)
        },
        leeway: Leeway::Unasked,
    },
    Excluded {
        why: "Valkey does not take nothing for zero in a range; the store writes numbers",
        applies: |kind, words| {
            let is_range = |word: &&[u8]| is_any(&[*word], &["ZCOUNT", "ZRANGEBYSCORE"]);
            let is_odd = |word: &&[u8]| matches!(*word, b"" | b"(" | b" 1");
            kind == Kind::Valkey && words.iter().any(is_range) && words.iter().any(is_odd)
        },
        leeway: Leeway::Unasked,
    },
];

fn is_any(words: &[&[u8]], names: &[&str]) -> bool {
    names.iter().any(|name| words[0].eq_ignore_ascii_case(name.as_bytes()))
}

/// Everything on a server, read by a script: name, type, time to live, value.
const EVERYTHING: &str = "
    local found = {}
    local names = redis.call('KEYS', '*')
    table.sort(names)
    for _, name in ipairs(names) do
      local kind = redis.call('TYPE', name).ok
      local value
      if kind == 'string' then
        value = redis.call('GET', name)
      elseif kind == 'hash' then
        local fields = redis.call('HGETALL', name)
        value = {}
        for at = 1, #fields, 2 do
          value[#value + 1] = #fields[at] .. ' ' .. fields[at] .. fields[at + 1]
        end
        table.sort(value)
      else
        value = redis.call('ZRANGE', name, 0, -1, 'WITHSCORES')
      end
      found[#found + 1] = { name, kind, redis.call('PTTL', name), value }
    end
    return found";

/// The time on the clocks of both servers at the start.
const START_US: u64 = 1_893_456_000_000_000;

pub(super) struct Twins {
    pub(super) kind: Kind,
    pub(super) simulated: SimulatedRedis,
    real: RedisServer,
    now_us: u64,
    log: Vec<String>,
    /// The names of the scripts that have run.
    pub(super) scripts: BTreeSet<String>,
}

impl Kind {
    pub(super) const fn program(self) -> &'static str {
        match self {
            Self::Redis => "redis-server",
            Self::Valkey => "valkey-server",
        }
    }

    /// Whether this server is on PATH. Redis is required, so this counts it as installed.
    pub(super) fn is_here(self) -> bool {
        let paths = std::env::var_os("PATH").unwrap_or_default();
        let is_in = |path: &Path| path.join(self.program()).is_file();
        self == Self::Redis || std::env::split_paths(&paths).any(|path| is_in(&path))
    }
}

impl Twins {
    pub(super) fn start(kind: Kind) -> Self {
        let server = RedisServer::builder().program(kind.program()).with_clock();
        let real = server.with_debug().start();
        // Active expiry would remove expired keys ten times per second of real time.
        real.command(&["DEBUG", "SET-ACTIVE-EXPIRE", "0"]);
        let mut simulated = SimulatedRedis::new();
        simulated.set_run_id(&run_id(&real));
        simulated.set_replid(&replid(&real), None);
        let (log, scripts) = (Vec::new(), BTreeSet::new());
        let mut twins = Self { kind, simulated, real, now_us: START_US, log, scripts };
        twins.step_clock(0);
        twins
    }

    /// The run id of the real server, which the simulated one has too.
    pub(super) fn run_id(&self) -> String {
        run_id(&self.real)
    }

    /// The replication id of the real server, which the simulated one has too.
    pub(super) fn replid(&self) -> String {
        replid(&self.real)
    }

    /// Starts over: no keys, no scripts, and an empty log.
    pub(super) fn begin(&mut self, what: &str) {
        self.set_full(false);
        self.ask(&["FLUSHALL"]);
        self.ask(&["SCRIPT", "FLUSH"]);
        self.log = vec![what.to_owned()];
    }

    /// Sets both clocks, forward or back.
    pub(super) fn step_clock(&mut self, us: i64) {
        self.now_us = self.now_us.checked_add_signed(us).expect("a time of these millennia");
        self.real.clock().freeze_at(self.now_us);
        self.log.push(format!("the clock steps by {us} µs"));
    }

    /// The time on both clocks in whole milliseconds.
    pub(super) const fn now_ms(&self) -> u64 {
        self.now_us / 1000
    }

    /// Makes the memory of both servers full, or free again.
    pub(super) fn set_full(&mut self, full: bool) {
        self.simulated.set_full(full);
        self.real.command(&["CONFIG", "SET", "maxmemory", if full { "1" } else { "0" }]);
        self.log.push(format!("full: {full}"));
    }

    /// Sends a command to both servers, compares the answers, and returns the simulated server's.
    #[track_caller]
    pub(super) fn ask<W: AsRef<[u8]>>(&mut self, words: &[W]) -> Reply {
        let words: Vec<&[u8]> = words.iter().map(AsRef::as_ref).collect();
        let mut excluded = EXCLUDED.iter().filter(|excluded| (excluded.applies)(self.kind, &words));
        if excluded.any(|excluded| excluded.leeway == Leeway::Unasked) {
            return Reply::Nil;
        }
        let answer = self.send(&words);
        reply(answer)
    }

    /// Like [`ask`](Self::ask), with the answer as a connection returns it.
    #[track_caller]
    pub(super) fn send(&mut self, words: &[&[u8]]) -> Answer {
        let command = Command::of(words);
        let (real, now_us) = self.send_to_real(words);
        let executed = self.simulated.execute(now_us, &command);
        self.scripts.extend(executed.script.as_deref().map(str::to_owned));
        let simulated = executed.reply;
        // A script is too long to print in full.
        let shown = words.iter().map(|word| word.escape_ascii().to_string());
        let shown: Vec<_> = shown.map(|word| word.chars().take(200).collect::<String>()).collect();
        self.log.push(format!("{} -> {real:?}", shown.join(" ")));
        let seen = reply(simulated.clone());
        let excluded = EXCLUDED.iter().filter(|excluded| (excluded.applies)(self.kind, words));
        let (leeway, why): (Vec<_>, Vec<_>) = excluded.map(|it| (it.leeway, it.why)).unzip();
        assert!(
            alike(&seen, &real, &leeway),
            "{}\nthe simulated server answers {seen:?}, {:?} {real:?}; left out of it: {why:?}",
            self.tail(),
            self.kind,
        );
        simulated
    }

    /// The answer of the real server, and the time on its clock.
    fn send_to_real(&self, words: &[&[u8]]) -> (Reply, u64) {
        let ask = |words: &[&[u8]]| match self.real.try_command(words) {
            Ok(reply) => plain(reply),
            Err(text) => Reply::Error(without_arguments(&text)),
        };
        if self.kind == Kind::Redis {
            return (ask(words), self.now_us);
        }
        // All commands of a transaction see the same time.
        ask(&[b"MULTI"]);
        ask(&[b"TIME"]);
        let queued = ask(words);
        if matches!(queued, Reply::Error(_)) {
            ask(&[b"DISCARD"]);
            return (queued, self.now_us);
        }
        match self.real.command(&["EXEC"]) {
            Reply::Array(answers) => {
                let [time, answer] = <[Reply; 2]>::try_from(answers).expect("two commands");
                let answer = match answer {
                    Reply::Error(text) => Reply::Error(without_arguments(&text)),
                    answer => plain(answer),
                };
                (answer, time_us(&time))
            }
            strange => panic!("a transaction does not answer {strange:?}"),
        }
    }

    /// Compares everything that is on both servers.
    #[track_caller]
    pub(super) fn compare_keys(&mut self) {
        let logged = self.log.len();
        self.ask(&["EVAL", EVERYTHING, "0"]);
        self.log.truncate(logged);
    }

    /// Compares the keys that whole scans find.
    #[track_caller]
    pub(super) fn compare_scans(&mut self, pattern: &[u8]) {
        let scan = |ask: &mut dyn FnMut(&[&[u8]]) -> Reply| {
            let (mut cursor, mut found) = ("0".to_owned(), Vec::new());
            loop {
                let words = [b"SCAN", cursor.as_bytes(), b"MATCH", pattern, b"COUNT", b"2"];
                let page = ask(&words);
                cursor = page.array()[0].text();
                found.extend(page.array()[1].array().iter().map(|key| format!("{key:?}")));
                if cursor == "0" {
                    found.sort_unstable();
                    found.dedup();
                    return found;
                }
            }
        };
        let real = scan(&mut |words| plain(self.real.command(words)));
        let (redis, now_us) = (&mut self.simulated, self.now_us);
        let simulated = scan(&mut |words| reply(redis.execute(now_us, &Command::of(words)).reply));
        assert_eq!(simulated, real, "{}\nscan of {}", self.tail(), pattern.escape_ascii());
    }

    /// The last commands.
    fn tail(&self) -> String {
        let first = self.log.first().cloned().unwrap_or_default();
        let start = self.log.len().saturating_sub(60);
        format!("{:?}: {first}\n{}", self.kind, self.log[start..].join("\n"))
    }
}

fn time_us(time: &Reply) -> u64 {
    let part = |at: usize| u64::try_from(time.array()[at].int()).expect("after 1970");
    part(0) * 1_000_000 + part(1)
}

/// The part of a refusal that a connection of the store reports.
fn without_arguments(text: &str) -> String {
    text.split(", with args").next().unwrap_or_default().to_owned()
}

/// A real answer as connections of the store return it. A status becomes a text, and a refusal
/// within an array becomes the whole answer.
fn plain(reply: Reply) -> Reply {
    match reply {
        Reply::Status(text) => Reply::Bytes(text.into_bytes()),
        Reply::Array(replies) => {
            let replies: Vec<Reply> = replies.into_iter().map(plain).collect();
            let refused = replies.iter().find(|reply| matches!(reply, Reply::Error(_)));
            refused.cloned().unwrap_or(Reply::Array(replies))
        }
        other => other,
    }
}

fn reply(answer: Answer) -> Reply {
    match answer {
        Ok(Value::Nil) => Reply::Nil,
        Ok(Value::Int(number)) => Reply::Int(number),
        Ok(Value::Bytes(bytes)) => Reply::Bytes(bytes),
        Ok(Value::Array(values)) => Reply::Array(values.into_iter().map(Ok).map(reply).collect()),
        Err(Refused(text)) => Reply::Error(text),
    }
}

fn alike(simulated: &Reply, real: &Reply, leeway: &[Leeway]) -> bool {
    let may = |one| leeway.contains(&one);
    let order = leeway.iter().find_map(|leeway| match leeway {
        Leeway::Order(together) => Some(*together),
        _ => None,
    });
    match (simulated, real) {
        (Reply::Error(one), Reply::Error(other)) => {
            let (code, other_code) = (code(one.as_bytes()), code(other.as_bytes()));
            one == other || (may(Leeway::Text) && code == other_code)
        }
        (Reply::Bytes(one), Reply::Bytes(other)) => {
            let number = |bytes: &[u8]| str::from_utf8(bytes).ok()?.parse::<f64>().ok();
            let are_one = || number(one).is_some_and(|one| number(other) == Some(one));
            // This is a refusal that a script has caught.
            let has =
                |lines: &[u8], line: &[u8]| lines.split(|it| *it == b'\n').any(|it| it == line);
            let are_lines = || one.split(|it| *it == b'\n').all(|line| has(other, line));
            let are_refusals = || one.starts_with(b"ERR ") && code(one) == code(other);
            one == other
                || (may(Leeway::Digits) && are_one())
                || (may(Leeway::Lines) && are_lines())
                || (may(Leeway::Text) && are_refusals())
        }
        (Reply::Array(one), Reply::Array(other)) => {
            if may(Leeway::Page) && one.len() == 2 && other.len() == 2 {
                return true;
            }
            if let Some(together) = order {
                return sorted(one, together) == sorted(other, together);
            }
            one.len() == other.len()
                && one.iter().zip(other).all(|(one, other)| alike(one, other, leeway))
        }
        _ => simulated == real,
    }
}

fn code(text: &[u8]) -> &[u8] {
    text.split(|byte| *byte == b' ').next().unwrap_or_default()
}

fn sorted(replies: &[Reply], together: usize) -> Vec<String> {
    let parts = replies.chunks(together).map(|part| format!("{part:?}"));
    let mut parts: Vec<String> = parts.collect();
    parts.sort_unstable();
    parts
}
