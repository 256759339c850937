//! The rights of a user of the server, as GUARANTEES.md lists them, and which of them are missing.

use super::facts::{Answer, Gap};
use super::line::Line;
use super::pairs;
use crate::store::redis::codec::command::{Command, Value};

/// The rights to take, renew and release a lock, to wait for it, and to share it. A client that
/// releases a lock hands it to the first waiter, so every client needs all of them.
pub(crate) const LOCK: &str = "+eval +evalsha +get +set +del +exists +incr +incrby +decr +pexpire \
                               +pttl +time +hset +hget +hmget +hdel +zadd +zrem +zscore +zrank \
                               +zrange +zcard +zcount +zrangebyscore";
/// The further rights to be woken.
pub(crate) const HINTS: &str = "+publish +subscribe";
/// The further rights to be woken without a message to all nodes of a cluster.
pub(crate) const SHARDS: &str = "+spublish +ssubscribe +sunsubscribe";
/// The further rights to list and inspect locks.
pub(crate) const TOOLS: &str = "+scan +mget +zmscore";
/// The further rights to use a cluster.
pub(crate) const CLUSTER: &str = "+cluster|slots +cluster|info +asking";
/// The further rights of a full examination. INFO and WAIT are also for copies, INFO for strict
/// clients, and ROLE for sentinels.
pub(crate) const DOCTOR: &str = "+ping +hello +role +info +wait";

/// How a command is tried on a key that holds a text. `K` is that key. The server refuses the
/// command for the type of the key, or the command changes no other key.
const TRIALS: [(&str, &[&str]); 26] = [
    ("eval", &["EVAL", "return 0", "1", "K"]),
    ("evalsha", &["EVALSHA", "0000000000000000000000000000000000000000", "1", "K"]),
    ("get", &["GET", "K"]),
    ("exists", &["EXISTS", "K"]),
    ("incr", &["INCR", "K"]),
    ("incrby", &["INCRBY", "K", "1"]),
    ("decr", &["DECR", "K"]),
    ("pexpire", &["PEXPIRE", "K", "5000"]),
    ("pttl", &["PTTL", "K"]),
    ("time", &["TIME"]),
    ("hset", &["HSET", "K", "f", "v"]),
    ("hget", &["HGET", "K", "f"]),
    ("hmget", &["HMGET", "K", "f"]),
    ("zrank", &["ZRANK", "K", "m"]),
    ("zcard", &["ZCARD", "K"]),
    ("zadd", &["ZADD", "K", "XX", "1", "m"]),
    ("zrem", &["ZREM", "K", "m"]),
    ("zscore", &["ZSCORE", "K", "m"]),
    ("zrange", &["ZRANGE", "K", "0", "0"]),
    ("zcount", &["ZCOUNT", "K", "0", "0"]),
    ("zrangebyscore", &["ZRANGEBYSCORE", "K", "0", "0"]),
    ("hdel", &["HDEL", "K", "f"]),
    ("scan", &["SCAN", "0", "COUNT", "1"]),
    ("mget", &["MGET", "K"]),
    ("zmscore", &["ZMSCORE", "K", "m"]),
    ("del", &["DEL", "K"]),
];

/// How `ASKING` is tried, which a client of a cluster needs, too. It has no effect on a node that
/// is not taking over a slot.
const ASKING: (&str, &[&str]) = ("asking", &["ASKING"]);

/// Tries each command on `key`, which does not exist yet. Returns those that are denied or unknown.
pub(super) async fn missing(line: &mut Line, key: &str, is_node: bool) -> Vec<&'static str> {
    let set = line.ask(Command::new("SET").arg(key).arg("text").arg("PX").arg("5000")).await;
    if is_missing(&set) {
        return vec!["set"];
    }
    // Without the text, some of the other commands would create the key.
    if set.is_err() {
        return Vec::new();
    }
    let command = |words: &&[&str]| {
        let rest = words[1..].iter().map(|word| if *word == "K" { key } else { word });
        rest.fold(Command::new(words[0]), Command::arg)
    };
    let trials: Vec<_> = TRIALS.iter().chain(is_node.then_some(&ASKING)).collect();
    let commands: Vec<_> = trials.iter().map(|(_, words)| command(words)).collect();
    let answers = line.ask_all(&commands).await;
    let mut missing = Vec::new();
    for ((right, words), answer) in trials.into_iter().zip(&answers) {
        // A proxy may not know a command, although scripts can use it.
        let is_unknown = matches!(answer, Err(Gap::Absent | Gap::Closed));
        let is_missing = if is_unknown && is_for_scripts(right) {
            let call = Command::new("EVAL").arg(CALL).number(1).arg(key);
            let rest = words.iter().map(|word| if *word == "K" { key } else { word });
            is_missing(&line.ask(rest.fold(call, Command::arg)).await)
        } else {
            is_missing(answer)
        };
        if is_missing {
            missing.push(*right);
        }
    }
    missing
}

/// Runs a command in a script, on a key that holds a text. Then it deletes the key.
const CALL: &str = "redis.call('SET', KEYS[1], 'text', 'PX', 5000) \
                    local said = redis.pcall(unpack(ARGV)) \
                    redis.pcall('DEL', KEYS[1]) \
                    return said";

/// Whether clients that take locks use this right only inside scripts.
fn is_for_scripts(right: &str) -> bool {
    LOCK.split(' ').any(|it| it.strip_prefix('+') == Some(right)) && !right.starts_with("eval")
}

fn is_missing<T>(answer: &Answer<T>) -> bool {
    matches!(answer, Err(Gap::Denied | Gap::Absent | Gap::Closed))
}

/// Commands that no lock needs, and that can end all of them.
const POWERS: [(&str, &[&str]); 2] =
    [("FLUSHALL", &["FLUSHALL"]), ("CONFIG SET", &["CONFIG", "SET", "maxmemory", "0"])];

/// Which of the [`POWERS`] the user has. Runs none of them. A server before 7.0 cannot answer this.
/// There, the rules of the user are read.
pub(super) async fn powers(line: &mut Line, user: &str) -> Answer<Vec<&'static str>> {
    let mut powers = Vec::new();
    for (power, words) in POWERS {
        let ask = Command::new("ACL").arg("DRYRUN").arg(user);
        match line.ask(words.iter().fold(ask, Command::arg)).await {
            Ok(Value::Bytes(said)) if said == b"OK" => powers.push(power),
            Ok(_) => {}
            Err(Gap::Absent | Gap::Refused { .. }) => return by_rules(line, user).await,
            Err(gap) => return Err(gap),
        }
    }
    Ok(powers)
}

async fn by_rules(line: &mut Line, user: &str) -> Answer<Vec<&'static str>> {
    let rules = pairs(line, Command::new("ACL").arg("GETUSER").arg(user)).await?;
    let rules = rules.text("commands").ok_or(Gap::Strange)?;
    Ok(POWERS.iter().map(|(power, _)| *power).filter(|power| allow(rules, power)).collect())
}

/// Whether rules such as `+@all -config` allow a command. The last rule that covers it counts.
fn allow(rules: &str, power: &str) -> bool {
    let power = power.to_ascii_lowercase();
    let command = power.split(' ').next().unwrap_or_default();
    let categories = ["@all", "@dangerous", "@admin", "@slow"];
    let of_keyspace = ["@keyspace", "@write"];
    let covers = |what: &&str| {
        let is_its_category =
            categories.contains(what) && (*what != "@admin" || command == "config");
        *what == command
            || *what == power.replace(' ', "|")
            || is_its_category
            || (command == "flushall" && of_keyspace.contains(what))
    };
    let rule = |rule: &str| {
        let (sign, what) = rule.split_at_checked(1)?;
        covers(&what).then_some(sign == "+")
    };
    rules.split(' ').filter_map(rule).next_back().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_rule_that_covers_a_command_counts() {
        let table = [
            ("+@all", true, true),
            ("-@all", false, false),
            ("-@all +get +set", false, false),
            ("+@all -@dangerous", false, false),
            ("+@all -@admin", true, false),
            ("+@all -config", true, false),
            ("+@all -flushall", false, true),
            ("-@all +@write", true, false),
            ("-@all +config|set", false, true),
            ("-@all +@dangerous -config", true, false),
        ];
        for (rules, flushall, config) in table {
            assert_eq!(allow(rules, "FLUSHALL"), flushall, "{rules}");
            assert_eq!(allow(rules, "CONFIG SET"), config, "{rules}");
        }
    }

    #[test]
    fn every_right_of_a_lock_is_tried() {
        let rights = [LOCK, TOOLS].join(" ");
        for right in rights.split_whitespace().filter(|right| *right != "+set") {
            let is_tried = TRIALS.iter().any(|(tried, _)| *tried == &right[1..]);
            assert!(is_tried, "{right}");
        }
    }

    #[test]
    fn the_rights_stand_in_the_guarantees() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../GUARANTEES.md");
        let guarantees = std::fs::read_to_string(path).expect("the page is there");
        for rights in [LOCK, HINTS, SHARDS, TOOLS, DOCTOR] {
            let is_there = guarantees.contains(&format!("`{rights}`"));
            assert!(is_there, "`{rights}` is not documented");
        }
    }
}
