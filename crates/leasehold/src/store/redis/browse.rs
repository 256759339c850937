//! What people and tools may do: list locks, and end the lease of another.

use std::collections::BTreeSet;
use std::future::ready;
use std::sync::Arc;

use futures_util::future::join_all;

use super::link::{Command, Value};
use super::scripted::{Scripted, Step};
use super::wire::Plain;
use super::{LIMIT, RedisStore, Shared, keys, reply};
use crate::core::error::{Error, ErrorKind};
use crate::core::key::Key;
use crate::store::{BoxAnswer, Browse, Evicted, PAGE_KEYS_MAX, Page, matches_pattern};

/// How many keys the server looks at in one step of a scan.
const SCAN_STEP: u64 = 1_000;

/// How many steps a scan may take: enough for 100 million keys. It is the server that says when a
/// scan is over.
const SCAN_STEPS_MAX: usize = 100_000;

impl Browse for RedisStore {
    /// The server has no list of locks, so every page looks at every key of its database. Found are
    /// locks that have companions of ours: a fencing counter or a line. A foreign or unfenced lock
    /// is found by its full name only.
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
        let answer = shared.asks.submit(LIMIT, step.on(&shared.terms));
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
}

impl Shared {
    async fn list(&self, pattern: &str, cursor: Option<&Key>) -> Result<Page, Error> {
        let mut names = BTreeSet::new();
        let mut more = false;
        if pattern.contains(['*', '?']) {
            more = self.scan(pattern, cursor, &mut names).await?;
        } else if let Ok(key) = Key::new(pattern)
            && cursor.is_none_or(|cursor| key > *cursor)
        {
            names.insert(key);
        }
        let living = names.iter().map(|key| {
            let answer = self.asks.submit(LIMIT, Scripted::new(Step::Living(key.clone())));
            async move {
                match answer.await {
                    Ok(answer) => reply::living(key, &answer),
                    // What somebody else keeps beside it is no line of ours.
                    Err(error) if error.kind() == ErrorKind::Config => Ok(false),
                    Err(error) => Err(error.with_name(key.as_str())),
                }
            }
        });
        let living = join_all(living).await.into_iter().collect::<Result<Vec<bool>, _>>()?;
        let next = if more { names.last().cloned() } else { None };
        let keys = names.into_iter().zip(living).filter(|(_, living)| *living).map(|(key, _)| key);
        Ok(Page { keys: keys.collect(), next })
    }

    /// Puts the first names that match and come after the cursor into `names`. Returns whether
    /// there are more.
    async fn scan(
        &self,
        pattern: &str,
        cursor: Option<&Key>,
        names: &mut BTreeSet<Key>,
    ) -> Result<bool, Error> {
        let glob = glob(pattern);
        let mut more = false;
        let mut position = b"0".to_vec();
        for _ in 0..SCAN_STEPS_MAX {
            let scan = Command::new("SCAN").arg(&position).arg("MATCH").arg(&glob);
            let scan = scan.arg("COUNT").number(SCAN_STEP);
            let answer = self.asks.submit(LIMIT, Box::new(Plain(scan))).await?;
            let (next, found) = scanned(answer).ok_or_else(strange_scan)?;
            for companion in found {
                let companion = str::from_utf8(&companion).ok();
                let Some(key) = companion.and_then(keys::lock_of) else { continue };
                if matches_pattern(pattern, key.as_str())
                    && cursor.is_none_or(|cursor| key > *cursor)
                {
                    names.insert(key);
                }
                if names.len() > PAGE_KEYS_MAX {
                    names.pop_last();
                    more = true;
                }
            }
            if next == b"0" {
                return Ok(more);
            }
            position = next;
        }
        Err(endless_scan())
    }
}

fn endless_scan() -> Error {
    let keys = SCAN_STEP * SCAN_STEPS_MAX as u64;
    Error::new(
        ErrorKind::Unavailable,
        format!(
            "the database has more than {keys} keys, which is the limit for a list; nothing was \
             changed, name the lock in full, or keep locks in a database of their own"
        ),
    )
}

fn strange_scan() -> Error {
    Error::new(
        ErrorKind::Unavailable,
        "the server answered SCAN with something strange; nothing was changed, see whether this \
         is a Redis server",
    )
}

/// Where to go on, and the keys found.
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

/// What the names of the companions of matching locks match, in the server's own patterns. It may
/// match more.
fn glob(pattern: &str) -> String {
    let mut glob = String::from("*");
    for character in pattern.chars() {
        match character {
            // One of our characters may be several bytes, which is what the server counts.
            '?' => glob.push('*'),
            // What is special for the server and not for us.
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
    fn what_is_special_for_the_server_alone_stands_for_itself() {
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
