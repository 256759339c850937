//! Calls that do steps at several locks, see together.lua in the library.

use std::time::Duration;

use leasehold::core::Moment;

use super::asked::Asked;
use super::redis::{Executed, name_of};
use super::server::{Keys, Server};
use crate::history::event::{Block, Name, Request, Standing, What};
use crate::protocol::{Command, Value};

/// A step, and the owner of its lock before the call. Where holders share keys, also its holders.
pub(super) type Step = (Asked, Option<Name>, Option<(Keys, Standing)>);

impl Server {
    /// The steps of such a call.
    pub(super) fn asked_together(&self, command: &Command) -> Option<Vec<Asked>> {
        let mut args = command.args();
        let script = match args.next()? {
            b"EVAL" => name_of(args.next()?),
            _ => self.script(command).cloned(),
        };
        if script.as_deref() != Some("together") {
            return None;
        }
        let words: Vec<&[u8]> = command.args().collect();
        let text = |bytes: &[u8]| Name::from(String::from_utf8_lossy(bytes));
        let keys: usize = str::from_utf8(words[2]).ok()?.parse().ok()?;
        let (keys, rest) = words[3..].split_at(keys);
        let steps = keys.chunks(4).zip(rest.chunks(2)).map(|(keys, step)| {
            let is_release = step[1] == b"0";
            let request = if is_release { Request::Release } else { Request::Ask { place: None } };
            Asked { request, key: text(keys[0]), token: text(step[0]) }
        });
        Some(steps.collect())
    }

    /// The steps of a call that is about to run.
    pub(super) fn together(&self, now_us: u64, command: &Command) -> Option<Vec<Step>> {
        let with_owner = |asked: Asked| {
            let lock = asked.key.as_bytes();
            let before = self.owner_at(now_us, lock).map(|(owner, _)| owner);
            let stood = self.stands_at(now_us, lock);
            (asked, before, stood)
        };
        Some(self.asked_together(command)?.into_iter().map(with_owner).collect())
    }

    /// Logs the effect of each step that was done. The other steps changed nothing.
    pub(super) fn tell_together(
        &self,
        (now, now_us, sent): (Moment, u64, Option<Moment>),
        steps: Vec<Step>,
        executed: &Executed,
    ) {
        let Ok(Value::Array(replies)) = &executed.reply else { return };
        for ((Asked { request, key, token }, before, stood), reply) in
            steps.into_iter().zip(replies)
        {
            let last = self.owner_at(now_us, key.as_bytes());
            let &Value::Int(number @ 1..) = reply else {
                // A call has at most one step for each key.
                let after = last.map(|(owner, _)| owner);
                assert_eq!(after, before, "a step that was not done changed {key}");
                continue;
            };
            if let Some((keys, before)) = stood {
                let after = self.standing(now_us, &keys);
                let travelled = sent.map(|sent| now.since(sent));
                self.log.push(What::Stood { request, key, token, before, after, travelled });
                continue;
            }
            let is_ask = matches!(request, Request::Ask { .. });
            let after = is_ask.then(|| token.clone());
            let left = last.filter(|_| is_ask).map_or(Duration::ZERO, |(_, left)| left);
            match self.log.node() {
                Some(node) if is_ask && sent.is_some() => {
                    self.log.push(What::GrantedAt { node, key, token, left });
                }
                Some(_) => {}
                None => {
                    let first = u64::try_from(number).expect("a positive number");
                    let block = is_ask.then_some(Block { first, count: 1 });
                    let travelled = sent.map(|sent| now.since(sent));
                    self.log.push(What::Served {
                        request,
                        key,
                        token,
                        before,
                        after,
                        left,
                        block,
                        travelled,
                    });
                }
            }
        }
    }
}
