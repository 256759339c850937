//! Lists locks and evicts leases, for people and tools.

use std::collections::BTreeSet;
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use super::codec::command::{Command, Value};
use super::scripts::reply;
use super::scripts::scripted::Scripted;
use super::scripts::step::Step;
use super::wire::Plain;
use super::{LIMIT, RedisStore, Shared, keys};
use crate::core::error::{Error, ErrorKind};
use crate::core::key::Key;
use crate::core::moment::WallTime;
use crate::host::give_way;
use crate::store::{
    BoxAnswer, Browse, Evicted, LISTING_KEYS_MAX, Page, Revocation, Revoked, Stopped,
    matches_pattern,
};

/// How many keys the server looks at in one step of a scan.
const SCAN_STEP: u64 = 1_000;

/// How many steps a scan may take, enough for 50 million keys. Only the server says when a scan is
/// complete, so the scan needs a bound.
const SCAN_STEPS_MAX: u64 = 50_000;

/// How long a listing may take.
const SCAN_TIME_MAX: Duration = Duration::from_secs(10);

/// About how many names a listing looks at side by side: as many as one step of a scan finds.
const LOOKED_AT_ONCE_MAX: usize = 1_000;

impl Browse for RedisStore {
    /// A server has no list of locks, so a listing reads each key of its database once and returns
    /// one page. In a cluster, it reads one primary after the other. It stops after 50 million keys
    /// or 10 seconds. It finds locks that have a companion key of Leasehold, such as a fencing
    /// counter or a line. Other locks are found only by their full name.
    fn list(&self, pattern: &str, cursor: Option<Key>) -> BoxAnswer<Page> {
        let shared = Arc::clone(&self.shared);
        let pattern = pattern.to_owned();
        if let Err(refused) = shared.process.check() {
            return Box::pin(ready(Err(refused)));
        }
        Box::pin(async move { shared.list(&pattern, cursor.as_ref()).await })
    }

    fn evict(&self, key: Key, seen: Vec<u8>, reason: String) -> BoxAnswer<Evicted> {
        let shared = Arc::clone(&self.shared);
        if let Err(refused) = shared.check_here(&key) {
            return Box::pin(ready(Err(refused)));
        }
        let step = Scripted::new(Step::Evict { key: key.clone(), seen });
        let answer = shared.servers.asks().submit(LIMIT, step.on(&shared.access.terms));
        Box::pin(async move {
            let answer = answer.await.map_err(|error| error.with_name(key.as_str()))?;
            let answered = reply::evicted(&key, &answer)?;
            shared.notice_muteness(answered.hints_denied);
            if answered.answer == Evicted::Evicted {
                tracing::warn!(key = %key, reason, "a lease was ended by an operator");
            }
            Ok(answered.answer)
        })
    }

    fn revoke(&self, key: Key, seen: Vec<u8>, by: String, reason: String) -> BoxAnswer<Revoked> {
        let shared = Arc::clone(&self.shared);
        if let Err(refused) = shared.check_here(&key) {
            return Box::pin(ready(Err(refused)));
        }
        // The server adds the time.
        let request = Revocation::new(by, reason, WallTime::from_unix_micros(0)).words();
        let step = Scripted::new(Step::Revoke { key: key.clone(), seen, request });
        let answer = shared.servers.asks().submit(LIMIT, step.on(&shared.access.terms));
        Box::pin(async move {
            let answer = answer.await.map_err(|error| error.with_name(key.as_str()))?;
            reply::revoked(&key, &answer)
        })
    }
}

impl Shared {
    async fn list(&self, pattern: &str, cursor: Option<&Key>) -> Result<Page, Error> {
        if pattern.contains(['*', '?']) {
            return self.scan(pattern, cursor).await;
        }
        let named = Key::new(pattern).ok().filter(|key| cursor.is_none_or(|cursor| key > cursor));
        Ok(Page::new(self.living(named.into_iter().collect()).await?, None))
    }

    /// Returns the matching names after the cursor. Reads every key of every server once.
    async fn scan(&self, pattern: &str, cursor: Option<&Key>) -> Result<Page, Error> {
        let glob = glob(pattern);
        let begun = self.host.now();
        let mut listed = BTreeSet::new();
        let mut stopped = None;
        let is_over = || self.host.now().since(begun) >= SCAN_TIME_MAX;
        let mut steps = 1..;
        'scan: for server in self.servers.each().await? {
            let mut position = b"0".to_vec();
            for step in steps.by_ref() {
                let scan = Command::new("SCAN").arg(&position).arg("MATCH").arg(&glob);
                let scan = scan.arg("COUNT").number(SCAN_STEP);
                let answer = server.asks.submit(LIMIT, Box::new(Plain(scan))).await?;
                let (next, found) = scanned(answer).ok_or_else(strange_scan)?;
                let names = found.iter().filter_map(|companion| {
                    let key = keys::lock_of(str::from_utf8(companion).ok()?)?;
                    let is_asked_for = matches_pattern(pattern, key.as_str())
                        && cursor.is_none_or(|cursor| key > *cursor);
                    (is_asked_for && !listed.contains(&key)).then_some(key)
                });
                let names = Vec::from_iter(names.collect::<BTreeSet<Key>>());
                for names in names.chunks(LOOKED_AT_ONCE_MAX) {
                    listed.extend(self.living(names.to_vec()).await?);
                    while listed.len() > LISTING_KEYS_MAX {
                        listed.pop_last();
                        stopped = Some(Stopped::Names(LISTING_KEYS_MAX));
                    }
                    // A server may send any number of names in one answer.
                    if is_over() {
                        stopped = Some(Stopped::Time(SCAN_TIME_MAX));
                        break 'scan;
                    }
                }
                if next == b"0" {
                    break;
                }
                position = next;
                if step >= SCAN_STEPS_MAX {
                    stopped = Some(Stopped::Keys(SCAN_STEP * SCAN_STEPS_MAX));
                    break 'scan;
                }
                if is_over() {
                    stopped = Some(Stopped::Time(SCAN_TIME_MAX));
                    break 'scan;
                }
                // A server that answers at once must not block the rest of the runtime.
                give_way().await;
            }
        }
        Ok(Page { stopped, ..Page::new(listed.into_iter().collect(), None) })
    }

    /// The names that somebody holds or waits for.
    async fn living(&self, names: Vec<Key>) -> Result<Vec<Key>, Error> {
        let looks = names.into_iter().map(|key| {
            let answer =
                self.servers.asks().submit(LIMIT, Scripted::new(Step::Living(key.clone())));
            async move {
                let living = match answer.await {
                    Ok(answer) => reply::living(&key, &answer)?,
                    // If the companion key has another type, it is no line of Leasehold.
                    Err(error) if error.kind() == ErrorKind::Config => false,
                    Err(error) => return Err(error.with_name(key.as_str())),
                };
                Ok(living.then_some(key))
            }
        });
        let living: Vec<_> = join_all(looks).await.into_iter().collect::<Result<_, Error>>()?;
        Ok(living.into_iter().flatten().collect())
    }
}

fn strange_scan() -> Error {
    Error::new(
        ErrorKind::Unavailable,
        "the server gave an unexpected answer to SCAN; nothing was changed; check that this is a \
         Redis server",
    )
}

/// The next cursor, and the keys found.
fn scanned(answer: Value) -> Option<(Vec<u8>, Vec<Vec<u8>>)> {
    let Value::Array(parts) = answer else { return None };
    let Ok([Value::Bytes(next), Value::Array(keys)]) = <[Value; 2]>::try_from(parts) else {
        return None;
    };
    let keys = keys.into_iter().filter_map(|key| match key {
        Value::Bytes(key) => Some(key),
        _ => None,
    });
    Some((next, keys.collect()))
}

/// A server pattern for the companions of matching locks. It may match more.
pub(super) fn glob(pattern: &str) -> String {
    let mut glob = String::from("*");
    for character in pattern.chars() {
        match character {
            // A character may be several bytes, and the server counts bytes.
            '?' => glob.push('*'),
            // These characters are special for the server, but not in patterns of Leasehold.
            '[' | ']' | '^' | '\\' => glob.extend(['\\', character]),
            _ => glob.push(character),
        }
    }
    glob + "*:lh:*"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_that_only_the_server_treats_as_special_stand_for_themselves() {
        let table = [
            ("*", "***:lh:*"),
            ("job:?", "*job:**:lh:*"),
            ("a[b]*", r"*a\[b\]**:lh:*"),
            (r"^\*", r"*\^\\**:lh:*"),
            ("{ü}*", "*{ü}**:lh:*"),
        ];
        for (pattern, expected) in table {
            assert_eq!(glob(pattern), expected, "{pattern}");
        }
    }

    #[test]
    fn a_page_of_a_scan_is_read_and_nothing_else() {
        let bytes = |text: &str| Value::Bytes(text.into());
        let page = |parts: Vec<Value>| scanned(Value::Array(parts));
        let keys = Value::Array(vec![bytes("a"), Value::Nil, bytes("b")]);
        let expected = (b"17".to_vec(), vec![b"a".to_vec(), b"b".to_vec()]);
        assert_eq!(page(vec![bytes("17"), keys.clone()]), Some(expected));
        assert_eq!(page(vec![bytes("0"), Value::Array(vec![])]), Some((b"0".to_vec(), vec![])));
        assert_eq!(scanned(Value::Nil), None);
        assert_eq!(page(vec![]), None);
        assert_eq!(page(vec![Value::Int(0), keys.clone()]), None);
        assert_eq!(page(vec![bytes("0"), bytes("a")]), None);
        assert_eq!(page(vec![bytes("0"), keys, Value::Nil]), None);
    }
}
