//! Canary keys: tests the features that a lock relies on, with keys of Leasehold's own.

use std::sync::Arc;
use std::time::Duration;

use super::facts::{Answer, Copied, Expiry, Gap, Leftovers, Reading, Release};
use super::line::Line;
use crate::core::moment::Moment;
use crate::core::token::client_of;
use crate::core::ttl::Ttl;
use crate::host::Host;
use crate::store::redis::browse::glob;
use crate::store::redis::codec::command::{Command, Value};
use crate::store::redis::connector::Connector;
use crate::store::redis::keys;
use crate::store::redis::scripts::native::CompareAndDelete;

/// How long the canary of expiry lives.
const LIFE: Duration = Duration::from_millis(200);

/// How long after its end the canary must be gone. Servers end a key to the millisecond when
/// somebody looks at it.
const GONE_AFTER: Duration = Duration::from_millis(60);

/// Deletes a key if it holds this token, as the release of a lock does.
const RELEASE: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then \
                       return redis.call('DEL', KEYS[1]) end return 0";

/// The beginning of the token of a holder. Tokens of other software may be long.
const HOLDER: &str = "local token = redis.pcall('GET', KEYS[1]) \
                      return type(token) == 'string' and string.sub(token, 1, 100)";

/// How many steps of a scan look for locks, and how many keys each one sees.
const SCAN_STEPS_MAX: usize = 5;
const SCAN_COUNT: u64 = 500;

/// The most locks whose end is looked at, and the most names that are kept.
const LOCKS_MAX: usize = 200;
const NAMES_MAX: usize = 5;

/// Sets a key that ends by itself.
pub(super) fn set(key: &str, value: &str, life: Duration) -> Command {
    let life = u64::try_from(life.as_millis()).unwrap_or(u64::MAX);
    Command::new("SET").arg(key).arg(value).arg("PX").number(life)
}

/// A key that is about to end.
pub(super) struct Dying {
    key: String,
    was_there: Option<bool>,
    /// When the key must be gone.
    gone: Moment,
}

impl Dying {
    pub(super) async fn begin(line: &mut Line, host: &Arc<dyn Host>, key: String) -> Answer<Self> {
        let sent = host.now();
        line.ask(set(&key, "canary", LIFE)).await?;
        let written = host.now();
        let is_there = exists(line, &key).await?;
        let was_in_time = host.now().since(sent) < LIFE;
        // If we were slow, the key may have been there and have ended since.
        let was_there = was_in_time.then_some(is_there);
        Ok(Self { key, was_there, gone: written + LIFE + GONE_AFTER })
    }

    pub(super) async fn end(self, line: &mut Line, host: &Arc<dyn Host>) -> Answer<Expiry> {
        host.sleep_until(self.gone).await;
        let stayed = exists(line, &self.key).await?;
        if stayed {
            line.ask(Command::new("DEL").arg(&self.key)).await?;
        }
        Ok(Expiry { was_there: self.was_there, stayed })
    }
}

pub(super) async fn exists(line: &mut Line, key: &str) -> Answer<bool> {
    // A proxy that does not know EXISTS knows GET.
    match line.ask(Command::new("GET").arg(key)).await? {
        Value::Bytes(_) => Ok(true),
        Value::Nil => Ok(false),
        _ => Err(Gap::Strange),
    }
}

/// Deletes a key with a wrong token and with the right one, by a script.
pub(super) async fn release(line: &mut Line, key: &str) -> Answer<Release> {
    let script = |token: &str| Command::new("EVAL").arg(RELEASE).number(1).arg(key).arg(token);
    release_by(line, key, script).await
}

/// The command that does the same, if the server has one that works.
pub(super) async fn release_without_script(line: &mut Line, key: &str) -> Option<&'static str> {
    const WORKS: Release = Release { by_wrong_token: false, by_right_token: true };
    for native in CompareAndDelete::ALL {
        if release_by(line, key, |token| native.command(key, token)).await == Ok(WORKS) {
            return Some(native.name());
        }
    }
    None
}

async fn release_by(
    line: &mut Line,
    key: &str,
    delete: impl Fn(&str) -> Command,
) -> Answer<Release> {
    let opened = line.reopened();
    line.ask(set(key, "right", Duration::from_secs(5))).await?;
    let wrong = line.ask(delete("wrong")).await?;
    let by_wrong_token = wrong != Value::Int(0) || !exists(line, key).await?;
    let right = line.ask(delete("right")).await?;
    let by_right_token = right == Value::Int(1) && !exists(line, key).await?;
    if line.reopened() != opened {
        // A release that was asked for twice finds nothing the second time.
        return Err(Gap::Silent);
    }
    Ok(Release { by_wrong_token, by_right_token })
}

/// Asks for the copies of a write in the way of a client with such a URL.
pub(super) async fn copies(
    line: &mut Line,
    key: &str,
    (wanted, fsync): (u64, bool),
) -> Answer<Copied> {
    let opened = line.reopened();
    line.ask(set(key, "canary", Duration::from_secs(5))).await?;
    let wait = if fsync { Command::new("WAITAOF").number(1) } else { Command::new("WAIT") };
    let answer = line.ask(wait.number(wanted).number(super::COPIES_MS)).await?;
    if line.reopened() != opened {
        // The answer is about a connection that wrote nothing.
        return Err(Gap::Silent);
    }
    let (is_on_disk, replicas) = match answer {
        Value::Int(replicas) if !fsync => (true, replicas),
        Value::Array(counts) => match counts[..] {
            [Value::Int(ours), Value::Int(replicas)] => (ours > 0, replicas),
            _ => return Err(Gap::Strange),
        },
        _ => return Err(Gap::Strange),
    };
    let wanted = i64::try_from(wanted).unwrap_or(i64::MAX);
    Ok(Copied { wanted, replicas, is_on_disk })
}

/// Looks at the server's clock.
pub(super) async fn reading(line: &mut Line, host: &Arc<dyn Host>) -> Answer<Reading> {
    let sent = host.now();
    let answer = line.ask(Command::new("TIME")).await?;
    let (heard, wall) = (host.now(), host.wall());
    let Value::Array(parts) = answer else { return Err(Gap::Strange) };
    let number = |value: &Value| match value {
        Value::Bytes(digits) => str::from_utf8(digits).ok()?.parse::<u64>().ok(),
        _ => None,
    };
    let [seconds, micros] = &parts[..] else { return Err(Gap::Strange) };
    let said = number(seconds)
        .and_then(|seconds| seconds.checked_mul(1_000_000)?.checked_add(number(micros)?))
        .ok_or(Gap::Strange)?;
    let said = crate::core::moment::WallTime::from_unix_micros(said);
    Ok(Reading { sent, heard, wall, said })
}

/// Publishes a message, and waits for it on a second connection.
pub(super) async fn message(
    line: &mut Line,
    connector: &dyn Connector,
    (host, ends): (&Arc<dyn Host>, Moment),
    channel: &str,
) -> Answer<bool> {
    let mut listening = Line::open(connector, host, ends).await.map_err(|_| Gap::Silent)?;
    listening.ask(Command::new("SUBSCRIBE").arg(channel)).await?;
    let Value::Int(_) = line.ask(Command::new("PUBLISH").arg(channel).arg("canary")).await? else {
        return Err(Gap::Strange);
    };
    match listening.hear().await {
        Ok(Value::Array(words)) => Ok(words.last() == Some(&Value::Bytes(b"canary".to_vec()))),
        Ok(_) | Err(Gap::Silent) => Ok(false),
        Err(gap) => Err(gap),
    }
}

/// Subscribes to a shard channel on a second connection, and publishes to it.
pub(super) async fn shard_channels(
    line: &mut Line,
    connector: &dyn Connector,
    (host, ends): (&Arc<dyn Host>, Moment),
    channel: &str,
) -> Answer<()> {
    let mut listening = Line::open(connector, host, ends).await.map_err(|_| Gap::Silent)?;
    listening.ask(Command::new("SSUBSCRIBE").arg(channel)).await?;
    line.ask(Command::new("SPUBLISH").arg(channel).arg("canary")).await.map(drop)
}

/// Keeps a name as an example, if there are not enough of them.
fn keep(names: &mut Vec<String>, name: &str) {
    if names.len() < NAMES_MAX {
        names.push(name.escape_debug().to_string());
    }
}

/// Looks at a sample of the locks in the database whose names begin with `prefix`.
pub(super) async fn leftovers(line: &mut Line, prefix: &str) -> Answer<Leftovers> {
    let pattern = glob(prefix);
    let mut names = std::collections::BTreeSet::new();
    let mut cursor = b"0".to_vec();
    for _ in 0..SCAN_STEPS_MAX {
        let scan = Command::new("SCAN").arg(&cursor).arg("MATCH").arg(&pattern);
        let answer = line.ask(scan.arg("COUNT").number(SCAN_COUNT)).await?;
        let Value::Array(parts) = answer else { return Err(Gap::Strange) };
        let [Value::Bytes(next), Value::Array(found)] = &parts[..] else {
            return Err(Gap::Strange);
        };
        let locks = found.iter().filter_map(|key| match key {
            Value::Bytes(key) => keys::lock_of(str::from_utf8(key).ok()?),
            _ => None,
        });
        let of_prefix = locks.filter(|key| key.as_str().starts_with(prefix));
        names.extend(of_prefix.map(|key| key.as_str().to_owned()));
        cursor.clone_from(next);
        if cursor == b"0" || names.len() >= LOCKS_MAX {
            break;
        }
    }
    let names: Vec<_> = names.into_iter().take(LOCKS_MAX).collect();
    let asks: Vec<_> = names.iter().map(|name| Command::new("PTTL").arg(name)).collect();
    let mut leftovers = Leftovers::default();
    let mut denied = None;
    for (name, left) in names.iter().zip(line.ask_all(&asks).await) {
        let left = match left {
            // The lock of another user, which this user may not read.
            Err(gap @ Gap::DeniedKey) => {
                denied = Some(gap);
                continue;
            }
            left => left?,
        };
        match left {
            Value::Int(-2) => {}
            Value::Int(left) => {
                leftovers.looked += 1;
                let longest = i64::try_from(Ttl::MAX.get().as_millis()).unwrap_or(i64::MAX);
                match left {
                    -1 => keep(&mut leftovers.endless, name),
                    left if left > longest => keep(&mut leftovers.lasting, name),
                    _ => {}
                }
            }
            _ => return Err(Gap::Strange),
        }
    }
    let look = |name: &String| Command::new("EVAL").arg(HOLDER).number(1).arg(name);
    let looks: Vec<_> = names.iter().map(look).collect();
    for (name, holder) in names.iter().zip(line.ask_all(&looks).await) {
        // Without an answer, nothing is known about this holder.
        let Ok(Value::Bytes(token)) = holder else { continue };
        if client_of(&token).is_none() {
            leftovers.foreign += 1;
            keep(&mut leftovers.foreign_names, name);
        }
    }
    match denied {
        Some(gap) if leftovers.looked == 0 => Err(gap),
        _ => Ok(leftovers),
    }
}
