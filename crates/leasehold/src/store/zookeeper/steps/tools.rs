//! The steps of tools: show a lock, list the locks in use, end a lease, ask a holder to let go.

use std::sync::Arc;
use std::time::Duration;

use super::{ASKED_BY_CURATOR, Core, ROUNDS_MAX, tokens};
use crate::core::key::Key;
use crate::store::entry::Entry;
use crate::store::errors::{holder_cannot_be_asked, holder_writes_again_and_again};
use crate::store::zookeeper::error::Fault;
use crate::store::zookeeper::names::token;
use crate::store::zookeeper::rpc::{
    Stat, children, delete, exists, get_data, read_children, read_data, set_data, sync,
};
use crate::store::{
    Evicted, Holder, PAGE_KEYS_MAX, Page, Revocation, Revoked, Snapshot, Waiter, matches_pattern,
};

/// How many questions are sent at a time.
const ASKED_AT_ONCE_MAX: usize = 500;

impl Core {
    pub(in crate::store::zookeeper) async fn inspect(&self, key: Key) -> Result<Snapshot, Fault> {
        let session = self.wire.session().await?;
        let (line, parent) = (self.look(&session, &key).await?, self.names.lock(&key));
        let shown = line.nodes().iter().take(1 + Snapshot::WAITERS_SHOWN_MAX);
        let asked: Vec<_> = shown
            .map(|node| (node, session.ask(get_data(&format!("{parent}/{node}")), read_data)))
            .collect();
        let mut snapshot = Snapshot { waiting: line.waiting(), ..Snapshot::default() };
        for (at, (node, answer)) in asked.into_iter().enumerate() {
            let read = match answer.await {
                Ok((data, stat)) => Entry::read(&data).map(|entry| (entry, stat)),
                // The node ended just now.
                Err(Fault::NoNode) => None,
                Err(fault) => return Err(fault),
            };
            match read {
                _ if at == 0 => {
                    let mut holder = Holder::new(token(node));
                    if let Some((entry, stat)) = read {
                        entry.show(&mut holder, tokens(stat.modified));
                        holder.ttl = Some(Duration::from_millis(entry.lasts.unsigned_abs()));
                        holder.ttl_left = Some(self.left(&entry, stat));
                    }
                    let last = holder.fencing.and_then(|block| block.nth(block.count - 1));
                    snapshot.fencing = last;
                    snapshot.holders.push(holder);
                }
                Some((entry, _)) => snapshot.waiters.push(entry.waiter()),
                None => snapshot.waiters.push(Waiter::new(None)),
            }
        }
        Ok(snapshot)
    }

    /// One page of the names in use.
    pub(in crate::store::zookeeper) async fn list(
        &self,
        pattern: &str,
        cursor: Option<Key>,
    ) -> Result<Page, Fault> {
        let session = self.wire.session().await?;
        let root = self.names.root();
        let synced = session.ask(sync(root), |_| Ok(()));
        let read = session.ask(children(root, false), read_children);
        synced.await?;
        let all = match read.await {
            Ok((all, _)) => all,
            Err(Fault::NoNode) => return Ok(Page::default()),
            Err(fault) => return Err(fault),
        };
        let is_wanted = |key: &Key| {
            cursor.as_ref().is_none_or(|cursor| key > cursor)
                && matches_pattern(pattern, key.as_str())
        };
        let names = all.iter().filter_map(|child| self.names.key_of(child));
        let mut names: Vec<_> = names.filter(is_wanted).collect();
        names.sort_unstable();
        let mut found = Vec::new();
        for some in names.chunks(ASKED_AT_ONCE_MAX) {
            let asked: Vec<_> = some
                .iter()
                .map(|key| (key, session.ask(exists(&self.names.lock(key)), Stat::read)))
                .collect();
            for (key, answer) in asked {
                match answer.await {
                    // A lock that is free keeps its node for a while.
                    Ok(stat) if stat.children > 0 => found.push(key.clone()),
                    Ok(_) | Err(Fault::NoNode) => {}
                    Err(fault) => return Err(fault),
                }
            }
            if found.len() > PAGE_KEYS_MAX {
                found.truncate(PAGE_KEYS_MAX);
                let last = found.last().cloned();
                return Ok(Page::new(found, last));
            }
        }
        Ok(Page::new(found, None))
    }

    pub(in crate::store::zookeeper) async fn evict(
        &self,
        key: Key,
        seen: Vec<u8>,
        reason: String,
    ) -> Result<Evicted, Fault> {
        let session = self.wire.session().await?;
        let line = self.look(&session, &key).await?;
        let Some(first) = line.first().filter(|first| token(first).as_bytes() == seen) else {
            return Ok(Evicted::Changed);
        };
        // The name of a node is never used again, so it is the one that was seen.
        let path = format!("{}/{first}", self.names.lock(&key));
        match session.ask(delete(&path), |_| Ok(())).await {
            Ok(()) => {
                tracing::warn!(key = %key, reason, "a lease was ended by an operator");
                Ok(Evicted::Evicted)
            }
            Err(Fault::NoNode) => Ok(Evicted::Changed),
            Err(fault) => Err(fault),
        }
    }

    pub(in crate::store::zookeeper) async fn revoke(
        &self,
        key: Key,
        seen: Vec<u8>,
        (by, reason): (String, String),
    ) -> Result<Revoked, Fault> {
        let request = Arc::new(Revocation::new(by, reason, self.wire.host.wall()));
        let session = self.wire.session().await?;
        for _ in 0..ROUNDS_MAX {
            let line = self.look(&session, &key).await?;
            let Some(first) = line.first().filter(|first| token(first).as_bytes() == seen) else {
                return Ok(Revoked::Changed);
            };
            let path = format!("{}/{first}", self.names.lock(&key));
            let (data, stat) = match session.ask(get_data(&path), read_data).await {
                Err(Fault::NoNode) => return Ok(Revoked::Changed),
                read => read?,
            };
            if data == ASKED_BY_CURATOR {
                return Ok(Revoked::Asked);
            }
            let Some(entry) = Entry::read(&data) else {
                return Err(holder_cannot_be_asked().into());
            };
            if entry.revoked.is_some() {
                return Ok(Revoked::Asked);
            }
            // Until the next renewal, the lease seems to last a little longer.
            let kept = entry.kept(tokens(stat.modified));
            let asked = Entry { revoked: Some(Arc::clone(&request)), ..kept };
            let writing = set_data(&path, &asked.write(), stat.version);
            match session.ask(writing, |_| Ok(())).await {
                Ok(()) => return Ok(Revoked::Asked),
                // The holder renewed its lease just now.
                Err(Fault::OtherVersion) => {}
                Err(Fault::NoNode) => return Ok(Revoked::Changed),
                Err(fault) => return Err(fault),
            }
        }
        Err(holder_writes_again_and_again().into())
    }
}
