//! Reads who holds and who waits for a key that holders may share. Reading changes nothing.

use std::sync::Arc;
use std::time::Duration;

use leasehold::core::Moment;

use super::Server;
use crate::history::event::{Name, Share, Standing, What};
use crate::protocol::Command;
use crate::simulation::asked::Asked;
use crate::simulation::redis::Executed;

/// The values of a lock that holders share.
const MARKS: [&[u8]; 2] = [b":lh:shared", b":lh:permits"];

/// The members of the shares that are not holders.
const OF: &[u8] = b"\tof";
const TAKEN: &[u8] = b"\ttaken";

/// The keys of a lock, in the order of every script: lock, fence, grant, line, ends, places,
/// shares, open.
#[derive(Clone, Debug)]
pub(in crate::simulation) struct Keys(Vec<Vec<u8>>);

impl Keys {
    const LOCK: usize = 0;
    const GRANT: usize = 2;
    const LINE: usize = 3;
    const PLACES: usize = 5;
    const SHARES: usize = 6;
    const OPEN: usize = 7;

    /// The keys of a script call; `None` if it has fewer.
    pub(super) fn of(command: &Command) -> Option<Self> {
        let count: usize =
            command.args().nth(2).and_then(|count| str::from_utf8(count).ok()?.parse().ok())?;
        let keys: Vec<_> = command.args().skip(3).take(count).map(<[u8]>::to_vec).collect();
        (keys.len() > Self::SHARES).then_some(Self(keys))
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The share that a place wants, by its first word. `None` if it only watches.
fn wish(place: &str) -> Option<Share> {
    match place.split('|').next()? {
        "j" => Some(Share::Alone),
        "s" => Some(Share::Reader),
        permits => {
            let want = permits.strip_prefix('p')?.parse().ok()?;
            Some(Share::Permits { want, of: want })
        }
    }
}

impl Server {
    /// The holders and waiters before a script is called, in a world in which holders share keys.
    /// Remembers the keys of the lock, so that its holders can be found later.
    pub(super) fn stands(&mut self, now_us: u64, command: &Command) -> Option<(Keys, Standing)> {
        let keys = Keys::of(command).filter(|_| self.tells_shares)?;
        self.known_keys.insert(keys.0[Keys::LOCK].clone(), keys.clone());
        let standing = self.standing(now_us, &keys);
        Some((keys, standing))
    }

    /// The same for one lock of a call at several, if a script of that lock alone ran before.
    pub(in crate::simulation) fn stands_at(
        &self,
        now_us: u64,
        lock: &[u8],
    ) -> Option<(Keys, Standing)> {
        let keys = self.known_keys.get(lock).filter(|_| self.tells_shares)?;
        Some((keys.clone(), self.standing(now_us, keys)))
    }

    /// Logs who held and waited before a request, and who does now.
    pub(super) fn tell_standing(
        &self,
        (now, now_us, sent): (Moment, u64, Option<Moment>),
        asked: Option<Asked>,
        keys: &Keys,
        before: Standing,
        executed: &Executed,
    ) {
        let Some(Asked { request, key, token }) = asked else { return };
        if executed.reply.is_ok() {
            let after = self.standing(now_us, keys);
            let travelled = sent.map(|sent| now.since(sent));
            self.log.push(What::Stood { request, key, token, before, after, travelled });
        }
    }

    /// The holders and waiters at the moment.
    pub(in crate::simulation) fn standing(&self, now_us: u64, Keys(keys): &Keys) -> Standing {
        let now_ms = (now_us / 1_000) as f64;
        let shares = self.redis.sorted_at(now_us, &keys[Keys::SHARES]);
        let score = |name: &[u8]| {
            shares.iter().find(|(member, _)| member == name).map(|(_, score)| *score as u32)
        };
        let of = score(OF);
        let left = |ends: f64| Duration::from_millis((ends - now_ms).max(0.0) as u64);
        let holders: Vec<_> = match self.redis.string_at(now_us, &keys[Keys::LOCK]) {
            None => Vec::new(),
            Some((owner, left_ms)) if !MARKS.contains(&&owner[..]) => {
                let left = left_ms.map_or(Duration::MAX, Duration::from_millis);
                vec![((Name::from(text(&owner)), Share::Alone), left)]
            }
            Some(_) => shares
                .iter()
                .filter(|(member, ends)| member != OF && member != TAKEN && *ends >= now_ms)
                .map(|(member, ends)| {
                    let field = [b"+", &member[..]].concat();
                    let note = self.redis.field_at(now_us, &keys[Keys::GRANT], &field);
                    let want = note.and_then(|note| text(&note).split('|').next()?.parse().ok());
                    let share = match (of, want) {
                        (Some(of), Some(want @ 1..)) => Share::Permits { want, of },
                        _ => Share::Reader,
                    };
                    ((Name::from(text(member)), share), left(*ends))
                })
                .collect(),
        };
        let (holders, lefts) = holders.into_iter().unzip();
        let (mut line, mut dead, mut expired) = (Vec::new(), 0, Vec::new());
        for (owner, _) in self.redis.sorted_at(now_us, &keys[Keys::LINE]) {
            let place = self.redis.field_at(now_us, &keys[Keys::PLACES], &owner);
            let place = place.map(|place| text(&place)).unwrap_or_default();
            let ends: f64 =
                place.split('|').nth(1).and_then(|ends| ends.parse().ok()).unwrap_or(0.0);
            match wish(&place) {
                Some(share) if ends > now_ms => line.push((Name::from(text(&owner)), share)),
                _ => {
                    dead += usize::from(line.is_empty());
                    expired.push((Name::from(text(&owner)), line.len()));
                }
            }
        }
        let is_open = keys.get(Keys::OPEN).and_then(|key| self.redis.string_at(now_us, key));
        let is_open = is_open.is_some_and(|(times, _)| {
            let till = text(&times).split('|').nth(1).and_then(|till| till.parse().ok());
            till.is_some_and(|till: f64| till > now_ms)
        });
        Standing { of, holders, lefts, line, dead, expired, is_open }
    }

    /// How long the lease of an owner lasts, if the owner shares a key. `None` if it does not.
    pub(super) fn share_left(
        &self,
        now_us: u64,
        key: &[u8],
        token: &str,
    ) -> Option<(Name, Duration)> {
        let (owner, _) = self.redis.string_at(now_us, key)?;
        if !MARKS.contains(&&owner[..]) {
            return None;
        }
        let Keys(keys) = self.known_keys.get(key)?;
        let shares = self.redis.sorted_at(now_us, &keys[Keys::SHARES]);
        let (_, ends) = shares.iter().find(|(member, _)| member == token.as_bytes())?;
        let left = ends - (now_us / 1_000) as f64;
        (left >= 0.0).then(|| (Arc::from(token), Duration::from_millis(left as u64)))
    }
}
